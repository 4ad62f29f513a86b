"""The process that writes to a sink, as a load process with one user does, to find the client's floor.

`python -m tsbench.drive.floor_writer RUN ENDPOINT SECONDS OP...` prints the median service time by op in ns, as JSON.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()  # as Locust does it in a load process

import json  # noqa: E402
import statistics  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from itertools import chain  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import TYPE_CHECKING  # noqa: E402

from tsbench.drive.greenlet_waiter import GreenletWaiter  # noqa: E402
from tsbench.drive.session_calls import caller_for  # noqa: E402
from tsbench.model import WriteMode  # noqa: E402
from tsbench.scenario.spec import RunSpec  # noqa: E402
from tsbench.scenario.validation import schema_of  # noqa: E402
from tsbench.targets import credentials  # noqa: E402
from tsbench.targets.registry import get as get_target  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tsbench.targets.base import Payload, Schema

READY = 256
"""Number of writes that are encoded before the first is sent, as those of a load process are."""


def floor_ns(spec: RunSpec, endpoint: str, op: str, seconds: float) -> int:
    """Return the median service time in ns of an op's writes (`write-1`) to an endpoint by one user."""
    target = get_target(spec.target.name)
    schema = schema_of(spec, target)
    payloads = _payloads(spec, schema, op)
    session = target.connect(
        endpoint, schema, timeout_s=seconds + 5, waiter=GreenletWaiter if target.cooperative else None
    )
    caller = caller_for(cooperative=target.cooperative)
    found: list[int] = []
    ends = time.monotonic() + seconds
    while not found or time.monotonic() < ends:  # once at least, however late a busy machine gets here
        for payload in [payload for payload, _ in zip(payloads, range(READY), strict=False)]:
            result = caller.call(session.write, payload)
            if result.error is not None:
                raise result.error
            found.append(result.service_ns)
    session.close()
    return int(statistics.median(found))


def _payloads(spec: RunSpec, schema: Schema, op: str) -> Iterator[Payload]:
    points = int(op.removeprefix("write-"))
    modes = {one.name: one.write_mode for one in spec.writes}
    mode = modes.get(op) or WriteMode.usual(points)  # bare Locust names no ops
    world = spec.world_at()
    first_tick, _ = spec.write_ticks(world)
    blocks = world.batches(0, points=spec.block_points, first_tick=first_tick)
    return chain.from_iterable(schema.encode_each(block, points, mode) for block in blocks)


def main(directory: str, endpoint: str, seconds: str, *ops: str) -> None:
    """Print the floor of each op; all of them together take that many seconds."""
    credentials.entitle()  # a sink receives no password
    spec = RunSpec.model_validate(json.loads((Path(directory) / "spec.json").read_text(encoding="utf-8")))
    print(json.dumps({op: floor_ns(spec, endpoint, op, float(seconds) / len(ops)) for op in ops}))


if __name__ == "__main__":
    main(*sys.argv[1:])
