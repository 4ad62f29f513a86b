"""A session on MongoDB: commands and queries by pymongo, writes as messages that are encoded already."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import bson
import pymongo
from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo.errors import (
    ConnectionFailure,
    ExecutionTimeout,
    NetworkTimeout,
    NotPrimaryError,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
)

from tsbench.collect.counters import Counting
from tsbench.encode.bson_columns import NS_PER_MS, TAGS, TIME
from tsbench.model import OTHERS, OpError, Outcome, PartialWrite, Rows
from tsbench.targets import credentials
from tsbench.targets.base import ServerObject, Statement, not_mine, others_text, statement_of, timed
from tsbench.targets.mongodb import counters
from tsbench.targets.mongodb.endpoint import CLIENTS, parse, refused
from tsbench.targets.mongodb.schemas import CreateCollection
from tsbench.targets.mongodb.wire import Messages

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tsbench.model import Measurement
    from tsbench.net.tcp import NewWaiter
    from tsbench.results.panels import Panel
    from tsbench.targets.base import Command, Payload
    from tsbench.targets.mongodb.endpoint import Endpoint, Shared
    from tsbench.targets.mongodb.schemas import Piece

_OPTIONS: CodecOptions[dict[str, Any]] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO)
"""Times beyond the year 9999, which Python's datetimes do not have, are numbers of milliseconds."""
_BATCH_ROWS = 100_000
"""Rows that the server may send at once; its default is 101, which costs every larger answer another request."""
_OPTIONAL_CODES = frozenset({13, 26, 59, 115})
"""Unauthorized, NamespaceNotFound, CommandNotFound, CommandNotSupported."""
_FIELDS = {"insert": b"documents\0", "update": b"updates\0"}


def connect(
    endpoint: str, *, timeout_s: float, connect_timeout_s: float | None = None, waiter: NewWaiter | None = None
) -> MongodbSession:
    """Open a session on MongoDB, or on a server that speaks its protocol.

    Raises
    ------
    tsbench.errors.UserMistake
        If the endpoint is malformed or holds a password, or the login is refused.
    tsbench.errors.Unreachable
        If no server answers.
    """
    of = parse(endpoint)
    shared = CLIENTS.take(of, credentials.read_for(endpoint, "TSBENCH_PASSWORD"))
    try:
        with pymongo.timeout(timeout_s if connect_timeout_s is None else connect_timeout_s):
            about = shared.client[of.database].command("buildInfo")
            kind = FerretdbSession if "ferretdb" in about else MongodbSession
            return kind(of, shared, about, timeout_s, waiter)
    except PyMongoError as error:
        shared.close()
        raise refused(endpoint, error) from error
    except BaseException:
        shared.close()
        raise


class MongodbSession(Counting):
    """A session whose commands and queries share the process's client, and whose writes have a connection of their own.

    That connection is opened by the session and after an error by the next write; if that fails, the write is FAILED
    with the cause `refused`: nothing was sent.
    """

    panels: ClassVar[tuple[Panel, ...]] = counters.PANELS

    def __init__(
        self, of: Endpoint, shared: Shared, about: Mapping[str, Any], timeout_s: float, waiter: NewWaiter | None
    ) -> None:
        self._of, self._shared, self._about, self._timeout_s, self._waiter = of, shared, about, timeout_s, waiter
        self._database = shared.client.get_database(of.database, codec_options=_OPTIONS)
        self._bodies: dict[str, tuple[bytes, bytes]] = {}
        self._messages: Messages | None = Messages(shared.client, waiter)

    # --- commands

    def run(self, commands: Sequence[Command], *, timeout_s: float | None = None) -> None:
        """Execute commands in order."""
        for command, left_s in timed(commands, self._timeout_s if timeout_s is None else timeout_s):
            with _errors(left_s):
                if isinstance(command, CreateCollection):
                    self._create(command)
                else:
                    self._run(command)

    def _run(self, command: Command) -> None:
        statement = statement_of(command)
        if len(statement.params) != 1:
            raise not_mine(statement)
        wanted = dict(statement.params[0])
        database = self._shared.client[wanted.pop("$db", self._of.database)]
        try:
            database.command(wanted)
        except OperationFailure as error:
            if not statement.optional or error.code not in _OPTIONAL_CODES:
                raise

    def _create(self, command: CreateCollection) -> None:
        """Create a collection, and verify that it is a time-series collection if it was asked for.

        FerretDB accepts the options of one, says that all is well, and makes a plain collection.
        """
        more: dict[str, Any] = {}
        if command.is_timeseries:
            more["timeseries"] = self._of.timeseries(has_tags=command.has_tags)
            if self._of.expire_after_s is not None:
                more["expireAfterSeconds"] = self._of.expire_after_s
        self._database.create_collection(command.name, **more)
        if not command.is_timeseries:
            if self._of.expire_after_s is not None:
                self._database[command.name].create_index(TIME, expireAfterSeconds=self._of.expire_after_s)
            return
        (made,) = self._database.list_collections(filter={"name": command.name})
        if made.get("type") != "timeseries":
            text = f"{self.version} makes no time-series collections: it took their options and made a plain one"
            raise OpError(Outcome.FAILED, "no time series", f"{text}; choose another schema or server")

    # --- writes

    def write(self, payload: Payload) -> int:
        """Send a payload's documents; return the number of points when all are acknowledged as the endpoint asks."""
        body, field = self._body(payload.text)
        acknowledged, deadline = 0, time.monotonic() + self._timeout_s
        for piece in payload.data:
            try:
                answer = self._sent(body, field, piece, deadline)
                acknowledged += _acknowledged(answer, piece)
            except OpError as error:
                done = error.acknowledged if isinstance(error, PartialWrite) else 0
                if not acknowledged + done:
                    raise
                raise _in_part(error, payload, acknowledged, done) from error
        return payload.points

    def _sent(self, body: bytes, field: bytes, piece: Piece, deadline: float) -> Mapping[str, Any]:
        messages = self._messages or self._reopened()
        try:
            return messages.send(body, piece.data, field, deadline)
        except TimeoutError:
            self._drop()
            raise OpError(Outcome.UNKNOWN, "timeout", f"no answer within {self._timeout_s:g} s") from None
        except OSError as error:
            self._drop()
            raise OpError(Outcome.UNKNOWN, "connection", f"MongoDB: {error}") from error
        except BaseException:  # a greenlet that is killed in its wait: an answer is to come
            self._drop()
            raise

    def _body(self, text: str) -> tuple[bytes, bytes]:
        """Return the encoded command of a payload, all but its documents, and the name of these in it."""
        found = self._bodies.get(text)
        if found is None:
            verb, _, collection = text.partition(" ")
            concern = self._shared.client.write_concern.document
            command = {verb: collection, "ordered": self._of.is_ordered, "$db": self._of.database}
            command |= {"writeConcern": concern} if concern else {}
            found = self._bodies[text] = bson.encode(command), _FIELDS[verb]
        return found

    def _reopened(self) -> Messages:
        try:
            with pymongo.timeout(self._timeout_s):
                self._messages = Messages(self._shared.client, self._waiter)
        except (PyMongoError, OSError) as error:
            raise OpError(Outcome.FAILED, "refused", f"cannot connect again: {error}") from error
        return self._messages

    def _drop(self) -> None:
        messages, self._messages = self._messages, None
        if messages is not None:
            messages.close()

    # --- queries

    def query(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        """Run an aggregation pipeline and fetch every document."""
        if len(statement.params) != 2:
            raise not_mine(statement)
        collection, stages = statement.params
        with _errors(self._timeout_s), self._database[collection].aggregate(stages, batchSize=_BATCH_ROWS) as cursor:
            found = cursor.to_list() if hasattr(cursor, "to_list") else list(cursor)
        if columns[-1] == OTHERS:
            return Rows(columns, [_stored_record(document, columns) for document in found])
        if not found and TIME not in columns:  # a count of nothing is no document
            found = [dict.fromkeys(columns, 0)]
        return Rows(columns, [tuple(map(document.get, columns)) for document in found])

    # --- what the server says of itself

    @property
    def version(self) -> str:
        """The server's name and version."""
        return f"MongoDB {self._about['version']}"

    def facts(self) -> Mapping[str, str]:
        """Return the version, and what acknowledged means on this server."""
        with _errors(self._timeout_s):
            hello = self._database.command("hello")
        concern = self._shared.client.write_concern.document
        return {
            "version": self.version,
            "replica_set": str(hello.get("setName", "none")),
            "write_concern": ", ".join(f"{name}: {value}" for name, value in concern.items()) or "the server's default",
            "ordered": str(self._of.is_ordered).lower(),
            **self._of.options,
        }

    def sizes(self, measurements: Sequence[Measurement]) -> Mapping[str, int]:
        """Return the bytes of the collections and of their indexes on disk, as the server counts them."""
        found = {"collections": 0, "indexes": 0}
        with _errors(self._timeout_s):
            for name in self._database.list_collection_names(filter={"name": {"$in": [m.name for m in measurements]}}):
                stats = self._database.command("collStats", name)
                found["collections"] += int(stats.get("storageSize", 0))
                found["indexes"] += int(stats.get("totalIndexSize", 0))
        return found

    def objects(self, measurements: Sequence[Measurement]) -> Sequence[ServerObject]:
        """Return the collections, which have an id; their database vanishes with its last collection."""
        names = {m.name for m in measurements}
        with _errors(self._timeout_s):
            found = [one for one in self._database.list_collections() if one["name"] in names]
        return [
            ServerObject(
                f"collection {self._of.database}.{one['name']}",
                (Statement(f"drop {one['name']}", ({"drop": one["name"]},)),),
                str(one.get("info", {}).get("uuid", "")),
            )
            for one in found
        ]

    def counters(self) -> Mapping[str, float]:
        with _errors(self._timeout_s):
            return counters.of(self._shared.client.admin.command("serverStatus"))

    def close(self) -> None:
        self._drop()
        self._shared.close()


class FerretdbSession(MongodbSession):
    """A session on FerretDB, which has few of MongoDB's counters."""

    panels = counters.COMMAND_PANELS

    @property
    def version(self) -> str:
        """FerretDB's version, what it keeps the data in, and the version of MongoDB that it says it is."""
        about = self._about["ferretdb"]
        return (
            f"FerretDB {str(about.get('version', '')).removeprefix('v')} (says it is MongoDB {self._about['version']})"
        )

    def facts(self) -> Mapping[str, str]:
        with _errors(self._timeout_s):
            about = self._shared.client.admin.command("serverStatus").get("ferretdb", {})
        below = {name: str(about[name]).partition(" on ")[0] for name in ("documentdb", "postgresql") if name in about}
        return {**super().facts(), **below}


# --- answers ----------------------------------------------------------------------------------------------------------


def _acknowledged(answer: Mapping[str, Any], piece: Piece) -> int:
    """Return the number of points that an answer acknowledges: all, else an error is raised."""
    if not answer.get("ok"):
        raise _failed(int(answer.get("code", 0)), str(answer.get("errmsg", "")))
    refusals = answer.get("writeErrors", ())
    if not refusals:
        if concern := answer.get("writeConcernError"):  # applied here, but not known to be where it was asked to be
            raise OpError(Outcome.UNKNOWN, "write concern", f"MongoDB: {concern.get('errmsg')}")
        return piece.documents
    first = refusals[0]
    error = _failed(int(first.get("code", 0)), str(first.get("errmsg", "")))
    stored = int(answer.get("n", 0))
    if not stored:
        raise error
    refused_at = {int(one["index"]) for one in refusals}
    if stored + len(refused_at) < piece.documents:  # in an ordered write, all after the first refused one, too
        refused_at |= set(range(min(refused_at), piece.documents))
    raise PartialWrite(
        str(error),
        acknowledged=stored,
        refused=piece.documents - stored,
        refused_rows=tuple(sorted(refused_at)) if len(refused_at) == piece.documents - stored else (),
        cause=error.cause,
    )


def _in_part(error: OpError, payload: Payload, before: int, done: int) -> PartialWrite:
    """Return the error of a payload of which earlier pieces, and perhaps a part of this one, are stored."""
    known = error.outcome is not Outcome.UNKNOWN
    stored = before + done
    rows = tuple(before + row for row in error.refused_rows) if isinstance(error, PartialWrite) else ()
    refused_rows = (*rows, *range(stored + len(rows), payload.points)) if rows else ()
    refused = payload.points - stored if known else 0
    return PartialWrite(
        str(error), acknowledged=stored, refused=refused, cause=error.cause,
        refused_rows=refused_rows if len(refused_rows) == refused else (),
    )  # fmt: skip


def _stored_record(document: dict[str, Any], columns: tuple[str, ...]) -> tuple[Any, ...]:
    """Return a document under the columns of `Stored`: tags and fields by name, and whatever else it has."""
    left = {name: value for name, value in document.items() if name not in {"_id", TIME, TAGS}}
    tags = document.get(TAGS)
    others = dict(tags) if isinstance(tags, dict) else {} if tags is None else {TAGS: tags}
    values = [others.pop(name) if name in others else left.pop(name, None) for name in columns[1:-1]]
    return (_time_ns(document.get(TIME)), *values, others_text({**others, **left}))


def _time_ns(value: Any) -> Any:
    return None if value is None else int(bson.DatetimeMS(value)) * NS_PER_MS


# --- errors -----------------------------------------------------------------------------------------------------------

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


def _failed(code: int, text: str) -> OpError:
    cause = _CAUSES.get(code, "server")
    return OpError(Outcome.UNKNOWN if cause == "timeout" else Outcome.FAILED, cause, f"MongoDB: {text} ({code})")


@contextmanager
def _errors(timeout_s: float) -> Iterator[None]:
    """Limit pymongo's calls in time, and raise an `OpError` for each of its errors."""
    try:
        with pymongo.timeout(timeout_s):
            yield
    except (NetworkTimeout, ExecutionTimeout) as error:
        raise OpError(Outcome.UNKNOWN, "timeout", f"no answer within {timeout_s:g} s") from error
    except ServerSelectionTimeoutError as error:
        raise OpError(Outcome.FAILED, "refused", f"cannot connect again: {str(error)[:200]}") from error
    except NotPrimaryError as error:
        raise OpError(Outcome.FAILED, "read only", f"MongoDB: {str(error)[:200]}") from error
    except ConnectionFailure as error:
        raise OpError(Outcome.UNKNOWN, "connection", f"MongoDB: {str(error)[:200]}") from error
    except OperationFailure as error:
        raise _failed(error.code or 0, str(error.details or error)[:300]) from error
    except PyMongoError as error:  # raised by pymongo before anything was sent
        raise OpError(Outcome.FAILED, "driver", f"MongoDB: {str(error)[:200]}") from error
