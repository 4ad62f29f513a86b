"""TSBS's files of queries: read for a database that understands their text, and written for TSBS's own runner."""

from __future__ import annotations

import re
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from tsbench.encode import gob
from tsbench.errors import UserMistake
from tsbench.text import shortened
from tsbench.workload.query_files import AskedText, in_turn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tsbench.model import Window
    from tsbench.targets.base import Command, Schema
    from tsbench.targets.target import PeerQueries, Target
    from tsbench.workload.world import World

_LABEL = "HumanLabel"
_MOST_LABELS = 50
"""Labels of one file; the figures of a run have an op for each."""


def are_theirs(first: bytes) -> bool:
    """Return True if a file begins with a definition of gob's, as TSBS's files of queries do."""
    return b"\3\1\1" in first[2:6]


def read(path: str, blocks: Iterator[bytes], target: Target) -> Iterator[AskedText]:
    """Return the queries of a file of TSBS's, named by the labels in it, as in the results files of its runner.

    Raises
    ------
    UserMistake
        If the target takes none; while queries are read, if the file is damaged, or its queries are not for the
        target, with the number of the query.
    """
    return _parsed(path, blocks, target, _queries_of(target, path))


def _parsed(path: str, blocks: Iterator[bytes], target: Target, of: PeerQueries) -> Iterator[AskedText]:
    names: set[str] = set()
    found, number = gob.structs(blocks), 0
    while True:
        try:
            struct, fields = next(found)
            if struct != of.struct or not _text(fields, "Path").startswith(of.path):
                raise ValueError(f"it is not for {target.label}, but of the struct {shortened(struct, 40)}")  # noqa: TRY301
            name, text = re.sub(r"[^A-Za-z0-9]+", "_", _text(fields, _LABEL))[:120], _text(fields, of.text)
            names.add(name)
            if not (name and text) or len(names) > _MOST_LABELS:
                why = f"it has the label number {len(names)}" if name and text else "it lacks its label or its text"
                raise ValueError(why)  # noqa: TRY301
        except StopIteration:
            return
        except ValueError as error:
            raise UserMistake(f"'{path}', query {number + 1}: {error}") from None
        yield AskedText(name, number, text)
        number += 1


def _queries_of(target: Target, path: str) -> PeerQueries:
    if target.peer_queries is None:
        from tsbench.targets.registry import TARGETS  # noqa: PLC0415 - which knows all targets

        able = ", ".join(name for name, one in TARGETS.items() if one.peer_queries is not None)
        text = f"{target.name} takes no text of other programs (these do: {able})"
        raise UserMistake(f"'{path}' has queries of TSBS, and {text}; make a file with tsbench queries")
    return target.peer_queries


def functions_of(target: Target) -> Sequence[Command]:
    """Return the statements that make the functions which TSBS's texts call; raises UserMistake if it needs none."""
    if target.peer_queries is None or not target.peer_queries.functions:
        raise UserMistake(f"--functions: TSBS's queries need none on {target.name}; leave it out")
    found: Sequence[Command] = resolve_name(target.peer_queries.functions)
    return found


def _text(fields: Mapping[str, gob.Value], name: str) -> str:
    content = fields.get(name, b"")
    try:
        return content.decode() if isinstance(content, bytes) else ""
    except UnicodeDecodeError:
        raise ValueError(f"its {name} is no text") from None


def written(
    of: PeerQueries, schema: Schema, kinds: Sequence[str], count: int, world: World, loaded: Window, seed: int
) -> Iterator[bytes]:
    """Yield the parts of a file for TSBS's runner: the queries of `query_files.made`, as text, under TSBS's labels.

    Raises
    ------
    tsbench.targets.base.Unsupported
        If the database cannot answer one of the kinds.
    """
    fields_of = resolve_name(of.written)
    labels = {kind: f"{of.product} {_label(kind)}".encode() for kind in kinds}
    yield gob.head(of.struct, of.fields)
    for kind, query in in_turn(kinds, count, world, loaded, seed):
        found = {_LABEL: labels[kind], "HumanDescription": labels[kind] + b": " + str(query).encode()}
        found |= fields_of(query.measurement.name, schema.compile(query))
        yield gob.message(found.get(name, b"") for name in of.fields)


_LABELS = {
    "groupby-orderby-limit": "max cpu over last 5 min-intervals (random end)",
    "lastpoint": "last row per host",
    "high-cpu-1": "CPU over threshold, 1 host(s)",
    "high-cpu-all": "CPU over threshold, all hosts",
    "single-last-loc": "last location by specific truck",
    "last-loc": "last location per truck",
    "low-fuel": "trucks with low fuel",
    "high-load": "trucks with high load",
    "stationary-trucks": "stationary trucks",
    "long-driving-sessions": "trucks with longer driving sessions",
    "long-daily-sessions": "trucks with longer daily sessions",
    "avg-vs-projected-fuel-consumption": "average vs projected fuel consumption per fleet",
    "avg-daily-driving-duration": "average driver driving duration per day",
    "avg-daily-driving-session": "average driver driving session without stopping per day",
    "avg-load": "average load per truck model per fleet",
    "daily-activity": "daily truck activity per fleet per model",
    "breakdown-frequency": "truck breakdown frequency per model",
}


def _label(kind: str) -> str:
    """Return TSBS's own label of a kind, by which its statistics are grouped."""
    if found := re.fullmatch(r"single-groupby-(\d+)-(\d+)-(\d+)", kind):
        fields, hosts, hours = map(int, found.groups())
        return f"{fields} cpu metric(s), random {hosts:4d} hosts, random {hours}h0m0s by 1m"
    if found := re.fullmatch(r"cpu-max-all-(\d+)(-24)?", kind):
        return f"max of all CPU metrics, random {int(found[1]):4d} hosts, random 8h0m0s by 1h"
    if found := re.fullmatch(r"double-groupby-(1|5|all)", kind):
        return f"mean of {10 if found[1] == 'all' else found[1]} metrics, all hosts, random 12h0m0s by 1h"
    return _LABELS.get(kind, kind)
