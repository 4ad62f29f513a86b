"""Users' own queries, asked once before the measured load, so that a run with one that fails or writes ends."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from tsbench.errors import Broken
from tsbench.model import OpError, Text, Window
from tsbench.targets.base import Statement, Unsupported
from tsbench.workload import queries

if TYPE_CHECKING:
    from tsbench.run.time_limits import Limits
    from tsbench.scenario.spec import RunSpec
    from tsbench.targets.base import Schema
    from tsbench.targets.target import Target


def rehearse(spec: RunSpec, target: Target, schema: Schema, limits: Limits) -> None:
    """Ask the first query of each kind that is a `Text`, in a session that refuses to write if the target has such.

    The measured load asks without that: it would be measured, too.

    Raises
    ------
    Broken
        If the database does not answer some, with the reason of each; not after a time-out, which the load shows.
    """
    world = spec.world_at()
    loaded = Window(world.time_ns(0), world.time_ns(world.ticks(spec.load.window)))
    kinds = dict.fromkeys(op.query for op in spec.op if op.query is not None)
    asked = {kind: queries.make(kind, world, loaded, spec.world.seed, 0) for kind in kinds}
    failed = []
    for kind, query in asked.items():
        if not isinstance(query, Text):
            continue
        with closing(limits.connect(target, schema)) as session:  # one each: an error may end a transaction
            if target.read_only:
                session.run([Statement(target.read_only)])
            try:
                session.query(schema.compile(query), query.columns)
            except Unsupported:  # which is said in its place
                continue
            except OpError as error:
                failed += [f"query '{kind}' fails: {error.cause}: {error}"] if error.cause != "timeout" else []
    if failed:
        raise Broken("; ".join(failed))
