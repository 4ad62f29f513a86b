"""Durability of acknowledged writes on MongoDB, by write concern and kind of server.

https://www.mongodb.com/docs/manual/reference/write-concern/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

YES, NO = "yes", "no"
MAJORITY_JOURNALS = "writeConcernMajorityJournalDefault"
_CURE = "add journal=true to the endpoint"


def durability(
    concern: Mapping[str, Any], *, is_replica_set: bool, is_persistent: bool, majority_is_journaled: bool | None
) -> tuple[str, str]:
    """Return whether acknowledged writes survive a crash of the server, `YES` or `NO`, and the reason.

    `concern` is the write concern in force, `is_persistent` False for a storage engine in memory, and
    `majority_is_journaled` the replica set's setting of what `w: majority` waits for, None if it is not known.
    """
    if not is_persistent:
        return NO, "its storage engine keeps nothing on disk"
    journal = concern.get("j")
    if journal:
        return YES, "journal: true waits for the journal on disk"
    if is_replica_set and concern.get("w", "majority") == "majority" and journal is None:
        if majority_is_journaled is False:
            return NO, f"w: majority waits for no journal ({MAJORITY_JOURNALS}: false); {_CURE}"
        unread = "" if majority_is_journaled else f" ({MAJORITY_JOURNALS} is assumed to be true: it could not be read)"
        return YES, f"w: majority waits for the journals of a majority of the replica set{unread}"
    server = "a member of a replica set" if is_replica_set else "a standalone server"
    return NO, f"{server} answers before its journal is on disk, up to 0.1 s later; {_CURE}"


def majority_journals(answer: Mapping[str, Any]) -> bool | None:
    """Return whether `w: majority` waits for journals, by an answer to replSetGetConfig; None without one."""
    config = answer.get("config")
    # MongoDB leaves out settings that have their default, which is true.
    return None if config is None else bool(config.get(MAJORITY_JOURNALS, True))
