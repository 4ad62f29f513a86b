"""Encoded documents of one command, the answer to it for each point, and whether an acknowledged one is durable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tsbench.model import OpError, Outcome, PartialWrite

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MAX_DOCUMENTS = 25_000
"""Maximum number of documents of one command: MongoDB takes 100,000, FerretDB 2.7 refuses more than this."""
MAX_BYTES = 47_000_000
"""Maximum size of the documents of one command: a message may have 48,000,000 bytes."""
_CAUSES = {
    2: "statement",  # BadValue
    9: "statement",  # FailedToParse
    13: "permission",
    18: "permission",
    26: "no table",  # NamespaceNotFound
    50: "timeout",  # MaxTimeMSExpired
    59: "statement",  # CommandNotFound
    112: "conflict",
    121: "constraint",  # DocumentValidationFailure
    10334: "data",  # BSONObjectTooLarge
    11000: "constraint",
    14031: "disk full",
}


@dataclass(frozen=True, slots=True)
class CommandPiece:
    """Encoded documents of one command, and the batch's points that they have.

    A point has `documents_each` documents in a row, the first piece's row is `first_row`. Where documents have several
    points, document i has the rows `rows[bounds[i]:bounds[i + 1]]` instead.
    """

    data: bytes | memoryview
    documents: int
    points: int
    first_row: int = 0
    documents_each: int = 1
    rows: Sequence[int] = ()
    bounds: Sequence[int] = ()

    def rows_of(self, documents: Iterable[int]) -> set[int]:
        """Return the batch's rows of which a part is in these documents."""
        if self.rows:
            return {row for one in documents for row in self.rows[self.bounds[one] : self.bounds[one + 1]]}
        return {self.first_row + one // self.documents_each for one in documents}

    def check(self, answer: Mapping[str, Any]) -> None:
        """Verify that a server's answer acknowledges every point.

        Raises
        ------
        tsbench.model.PartialWrite
            If it refuses some points; a point of which a part is stored is a refused one.
        tsbench.model.OpError
            If it acknowledges none.
        """
        if not answer.get("ok"):
            raise failed(int(answer.get("code", 0)), str(answer.get("errmsg", "")))
        refusals = answer.get("writeErrors", ())
        if not refusals:
            if concern := answer.get("writeConcernError"):  # applied here, but not known to be where it was asked to be
                raise OpError(Outcome.UNKNOWN, "write concern", f"MongoDB: {concern.get('errmsg')}")
            return
        first = refusals[0]
        error = failed(int(first.get("code", 0)), str(first.get("errmsg", "")))
        refused = {int(one["index"]) for one in refusals}
        if int(answer.get("n", 0)) + len(refused) < self.documents:  # ordered: all after the first refused one, too
            refused |= set(range(min(refused), self.documents))
        rows = self.rows_of(refused)
        if len(rows) >= self.points:
            raise error
        raise PartialWrite(
            str(error), acknowledged=self.points - len(rows), refused=len(rows), refused_rows=tuple(sorted(rows)),
            cause=error.cause,
        )  # fmt: skip


def in_part(error: OpError, pieces: Sequence[CommandPiece], number: int) -> OpError:
    """Return the error of a write whose piece `number` met that error; the pieces before it are stored, none after."""
    before = sum(piece.points for piece in pieces[:number])
    stored = before + (error.acknowledged if isinstance(error, PartialWrite) else 0)
    if not stored:
        return error
    if error.outcome is Outcome.UNKNOWN:  # of this piece; those after it were not sent
        return PartialWrite(str(error), acknowledged=stored, refused=0, cause=error.cause)
    here = pieces[number]
    rows = set(error.refused_rows) if isinstance(error, PartialWrite) else here.rows_of(range(here.documents))
    rows |= {row for piece in pieces[number + 1 :] for row in piece.rows_of(range(piece.documents))}
    return PartialWrite(
        str(error), acknowledged=stored, refused=len(rows), refused_rows=tuple(sorted(rows)), cause=error.cause
    )


def failed(code: int, text: str) -> OpError:
    """Return the error for a code of MongoDB."""
    cause = _CAUSES.get(code, "server")
    return OpError(Outcome.UNKNOWN if cause == "timeout" else Outcome.FAILED, cause, f"MongoDB: {text} ({code})")


# --- durability -------------------------------------------------------------------------------------------------------
# https://www.mongodb.com/docs/manual/reference/write-concern/

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
