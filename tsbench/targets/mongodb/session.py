"""A session on MongoDB: commands and queries by pymongo, writes as messages that are encoded already."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import bson
import pymongo
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo.errors import OperationFailure

from tsbench.encode.bson_columns import MEASUREMENT
from tsbench.model import OTHERS, Count, OpError, Outcome, Rows
from tsbench.targets import credentials
from tsbench.targets.base import Inventory, ServerObject, Statement
from tsbench.targets.mongodb import counters, explain
from tsbench.targets.mongodb.client import SharedClient, answering, await_server, connecting
from tsbench.targets.mongodb.commands import YES, durability, failed, in_part, majority_journals
from tsbench.targets.mongodb.documents import OPTIONS, READERS, is_like_ours
from tsbench.targets.mongodb.pipelines import VALUES
from tsbench.targets.mongodb.schemas import CreateCollection
from tsbench.targets.mongodb.wire import Messages
from tsbench.targets.session import MEANT, NetworkSession, not_mine, statement_of, undecodable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tsbench.model import Measurement
    from tsbench.net.tcp import NewWaiter
    from tsbench.results.panels import Panel
    from tsbench.targets.base import Command, Payload, Plan
    from tsbench.targets.mongodb.endpoint import MongodbEndpoint
    from tsbench.targets.mongodb.schemas import DocumentSchema

_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument)
_BATCH_ROWS = 100_000
"""Rows that the server may send at once; its default is 101, which costs every larger answer another request."""
_OPTIONAL_CODES = frozenset({13, 26, 59, 115})
"""Unauthorized, NamespaceNotFound, CommandNotFound, CommandNotSupported."""
_ANSWER_MS = 10
"""How much earlier than we the server ends a query that takes too long, so that the connection survives."""
_FIELDS = {"insert": b"documents\0", "update": b"updates\0"}


def connect(
    of: MongodbEndpoint,
    schema: DocumentSchema,
    *,
    timeout_s: float,
    connect_timeout_s: float,
    waiter: NewWaiter | None = None,
) -> MongodbSession:
    """Open a session on MongoDB, or on a server that speaks its protocol, as `Target.connect` says."""
    with connecting(of.url):
        shared = SharedClient(of, credentials.read_for(of.url, "TSBENCH_PASSWORD"))
        try:
            with pymongo.timeout(connect_timeout_s):
                await_server(shared.client, connect_timeout_s)
                about = shared.client[of.path].command("buildInfo")
                kind = FerretdbSession if "ferretdb" in about else MongodbSession
                session = kind(of, schema, shared, about, timeout_s, waiter)
                session.reconnect(connect_timeout_s)
                return session
        except BaseException:
            shared.close()
            raise


class MongodbSession(NetworkSession[Messages]):
    """A session whose commands and queries share the process's client, and whose writes have a connection of their own.

    That connection is opened by the session and after an error by the next write; if that fails, the write is FAILED
    with the cause `refused`: nothing was sent.
    """

    panels: Sequence[Panel] = counters.PANELS
    grace_s = 0.0

    def __init__(
        self,
        of: MongodbEndpoint,
        schema: DocumentSchema,
        shared: SharedClient,
        about: Mapping[str, Any],
        timeout_s: float,
        waiter: NewWaiter | None,
    ) -> None:
        super().__init__(timeout_s)
        self._of, self._schema, self._shared, self._about = of, schema, shared, about
        self._waiter = waiter
        self._database = shared.client.get_database(of.path, codec_options=OPTIONS)
        self._bodies: dict[str, tuple[bytes, bytes]] = {}

    # --- the connection

    def reconnect(self, timeout_s: float) -> Messages:
        with pymongo.timeout(timeout_s):
            self._connection = Messages(self._shared.client, self.arrival, self._waiter)
        return self._connection

    def limit(self, connection: Messages, due_s: float) -> None:
        connection.deadline = due_s

    def end(self, connection: Messages, error: BaseException | None, timeout_s: float) -> None:
        """End an op; the connection is dropped after any error, except one that the server answered with."""
        if error is None or isinstance(error, OpError):
            return
        self._drop()
        if isinstance(error, TimeoutError):
            raise OpError(Outcome.UNKNOWN, "timeout", f"no answer within {timeout_s:g} s") from None
        if isinstance(error, OSError):
            raise OpError(Outcome.UNKNOWN, "connection", f"MongoDB: {error}") from error
        if isinstance(error, Exception) and not isinstance(error, MEANT):
            raise undecodable("MongoDB", error) from error

    def close(self) -> None:
        super().close()
        self._shared.close()

    # --- commands

    def execute(self, command: Command, timeout_s: float) -> None:
        with answering(timeout_s):
            if isinstance(command, CreateCollection):
                self._create(command)
            else:
                self._run(command)

    def _run(self, command: Command) -> None:
        statement = statement_of(command)
        if len(statement.params) != 1:
            raise not_mine(statement)
        wanted = dict(statement.params[0])
        database = self._shared.client[wanted.pop("$db", self._of.path)]
        try:
            database.command(wanted)
        except OperationFailure as error:
            if not statement.optional or error.code not in _OPTIONAL_CODES:
                raise

    def _create(self, command: CreateCollection) -> None:
        """Create a collection with its indexes, and verify that it is a time-series collection if it was asked for.

        FerretDB accepts the options of one, says that all is well, and makes a plain collection.
        """
        more: dict[str, Any] = {}
        indexes: Sequence[Mapping[str, Any]] = command.indexes
        if command.is_timeseries:
            more["timeseries"] = self._of.timeseries(has_tags=command.has_tags)
        if self._of.expire_after_s is not None:
            if command.is_timeseries:
                more["expireAfterSeconds"] = self._of.expire_after_s
            else:
                indexes = command.indexes_expiring_after(self._of.expire_after_s)
        self._database.create_collection(command.name, **more)
        if command.is_timeseries:
            self._check_timeseries(command.name)
        if indexes:
            self._database.command({"createIndexes": command.name, "indexes": list(indexes)})

    def _check_timeseries(self, name: str) -> None:
        (made,) = self._database.list_collections(filter={"name": name})
        if made.get("type") != "timeseries":
            text = f"{self.version} makes no time-series collections: it took their options and made a plain one"
            raise OpError(Outcome.FAILED, "no time series", f"{text}; choose another schema or server")

    # --- writes

    def write(self, payload: Payload) -> int:
        body, field = self._body(payload.text)
        connection, done = self.begin(self._timeout_s), 0
        try:
            try:  # as `_op`, which takes 0.3 us more
                for piece in payload.data:
                    piece.check(connection.send(body, piece.data, field))
                    done += 1
            except BaseException as error:
                self.end(connection, error, self._timeout_s)
                raise
        except OpError as error:
            raise in_part(error, payload.data, done) from error
        return payload.points

    def _body(self, text: str) -> tuple[bytes, bytes]:
        """Return the encoded command of a payload, all but its documents, and the name of these in it."""
        body = self._bodies.get(text)
        if body is None:
            verb, _, collection = text.partition(" ")
            concern = self._shared.client.write_concern.document
            command = {verb: collection, "ordered": self._of.is_ordered, "$db": self._of.path}
            command |= {"writeConcern": concern} if concern else {}
            body = self._bodies[text] = bson.encode(command), _FIELDS[verb]
        return body

    # --- queries

    def query(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        if columns[-1] == OTHERS:
            return Rows(columns, self._stored(statement))
        if len(statement.params) != 2:
            raise not_mine(statement)
        collection, stages = statement.params
        documents = self._documents(collection, stages)
        if not documents and columns == Count.columns:  # a count of nothing is no document
            documents = [dict.fromkeys(columns, 0)]
        return Rows(columns, [tuple(map(document.get, columns)) for document in documents])

    def _documents(self, collection: str, stages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        client = self._shared.client
        if client.read_preference.mode:  # not the primary's, to which the session's own connection leads
            with (
                answering(self._timeout_s),
                self._database[collection].aggregate(stages, batchSize=_BATCH_ROWS) as cursor,
            ):
                return list(cursor)
        command: dict[str, Any] = {"aggregate": collection, "pipeline": [*stages], "cursor": {"batchSize": _BATCH_ROWS}}
        command["maxTimeMS"] = max(1, int(self._timeout_s * 1_000) - _ANSWER_MS)
        if client.read_concern.document:
            command["readConcern"] = client.read_concern.document
        documents: list[Mapping[str, Any]] = []
        with self._op() as connection:
            while True:
                answer = connection.ask({**command, "$db": self._of.path}, OPTIONS)
                if not answer.get("ok"):
                    raise failed(int(answer.get("code", 0)), str(answer.get("errmsg", ""))[:300])
                cursor = answer["cursor"]
                documents += cursor["firstBatch"] if "firstBatch" in cursor else cursor["nextBatch"]
                if not cursor["id"]:
                    return documents
                command = {"getMore": bson.Int64(cursor["id"]), "collection": collection, "batchSize": _BATCH_ROWS}

    def _stored(self, statement: Statement) -> Sequence[tuple[Any, ...]]:
        if len(statement.params) != 3:
            raise not_mine(statement)
        name, stages, query = statement.params
        documents = READERS[type(self._schema.pipeline)](query, is_ordered=not self._schema.is_timeseries)
        collection: Any = self._database.get_collection(name, _RAW)  # of documents of another class than the others
        with answering(self._timeout_s), collection.aggregate(stages, batchSize=_BATCH_ROWS) as cursor:
            return documents.rows(document.raw for document in cursor)

    def explain(self, statement: Statement) -> Plan:
        if len(statement.params) != 2:
            raise not_mine(statement)
        with answering(self._timeout_s):
            return explain.plan(self._database.command(explain.command(*statement.params)))

    # --- what the server says of itself

    @property
    def version(self) -> str:
        """The server's name and version."""
        return f"MongoDB {self._about['version']}"

    def facts(self) -> Mapping[str, str]:
        """Return the version, and what acknowledged means on this server."""
        with answering(self._timeout_s):
            hello = self._database.command("hello")
        concern = self._shared.client.write_concern.document
        is_durable, why = self._durability(concern, hello)
        return {
            "version": self.version,
            "replica_set": str(hello.get("setName", "none")),
            "write_concern": ", ".join(f"{name}: {value}" for name, value in concern.items()) or "the server's default",
            "durable": is_durable,
            "acknowledged": why,
            "ordered": str(self._of.is_ordered).lower(),
            **self._of.options,
        }

    def _durability(self, concern: Mapping[str, Any], hello: Mapping[str, Any]) -> tuple[str, str]:
        """Return whether acknowledged writes survive a crash, and why."""
        is_set = "setName" in hello
        engine = self._permitted("serverStatus").get("storageEngine", {})
        if is_set and not concern:
            concern = self._permitted("getDefaultRWConcern").get("defaultWriteConcern", {})
        return durability(
            concern,
            is_replica_set=is_set,
            is_persistent=bool(engine.get("persistent", True)),
            majority_is_journaled=majority_journals(self._permitted("replSetGetConfig")) if is_set else None,
        )

    def _permitted(self, command: str) -> Mapping[str, Any]:
        """Return the answer to a command; empty if the login may not run it."""
        with answering(self._timeout_s), suppress(OperationFailure):
            return self._shared.client.admin.command(command)
        return {}

    def sizes(self, measurements: Sequence[Measurement]) -> Mapping[str, int]:
        """Return the bytes of the collections and of each index on disk; indexes of the same name are added up."""
        parts = {"collections": 0}
        with answering(self._timeout_s):
            wanted = {"name": {"$in": [*self._schema.collections(measurements)]}}
            for name in self._database.list_collection_names(filter=wanted):
                stats = self._database.command("collStats", name)
                parts["collections"] += int(stats.get("storageSize", 0))
                for index, size in stats.get("indexSizes", {}).items():
                    parts[f"index {index}"] = parts.get(f"index {index}", 0) + int(size)
        return parts

    def objects(self, measurements: Sequence[Measurement]) -> Sequence[ServerObject]:
        """Return the collections, which have an id; their database vanishes with its last collection."""
        names = self._schema.collections(measurements)
        with answering(self._timeout_s):
            collections = [one for one in self._database.list_collections() if one["name"] in names]
        return [
            ServerObject(
                f"collection {self._of.path}.{one['name']}",
                (Statement(f"drop {one['name']}", ({"drop": one["name"]},)),),
                str(one.get("info", {}).get("uuid", "")),
            )
            for one in collections
        ]

    def inventory(self, measurements: Sequence[Measurement], *, series: bool) -> Inventory:
        """Return the collections whose first document has a time in one of our places, and the other measurements.

        Documents carry their tags, so that no `series` lie beside them.
        """
        names = self._schema.collections(measurements)
        with answering(self._timeout_s):
            others = sorted({*self._database.list_collection_names()} - {*names})
            others = [name for name in others if not name.startswith("system.")]
            names_of = [name for name in others if is_like_ours(self._database[name].find_one() or {})]
            for name in {*names} & {VALUES}:
                known = [{"$match": {MEASUREMENT: {"$nin": [m.name for m in measurements]}}}]
                unknown = self._database[name].aggregate([*known, {"$group": {"_id": f"${MEASUREMENT}"}}])
                names_of += sorted(str(one["_id"]) for one in unknown)
        return Inventory(tuple(names_of))

    def counters(self) -> Mapping[str, float]:
        with answering(self._timeout_s):
            return counters.of(self._shared.client.admin.command("serverStatus"))


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

    def _durability(self, concern: Mapping[str, Any], hello: Mapping[str, Any]) -> tuple[str, str]:
        return YES, "FerretDB answers after PostgreSQL's commit, whatever the write concern"

    def facts(self) -> Mapping[str, str]:
        with answering(self._timeout_s):
            about = self._shared.client.admin.command("serverStatus").get("ferretdb", {})
        below = {name: str(about[name]).partition(" on ")[0] for name in ("documentdb", "postgresql") if name in about}
        return {**super().facts(), **below}
