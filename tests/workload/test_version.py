"""The simulated data are pinned to their version: whoever changes them must raise it."""

from __future__ import annotations

import hashlib
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from tests.workload.test_world import spec
from tsbench.scenario.parts import WorldPart
from tsbench.scenario.use_case import resolved
from tsbench.workload import WORLD_VERSION
from tsbench.workload.disorder import Disorder
from tsbench.workload.world import World, WorldSpec


def pumps() -> WorldSpec:
    """The world of a file with every kind of process."""
    table = {"use_case": PUMPS.name, "scale": 7, "streams": 2}
    return WorldPart.model_validate(resolved(table, PUMPS.parent)).spec()


PUMPS = Path(__file__).parents[1] / "scenario" / "data" / "pumps.toml"
SPECS: dict[str, WorldSpec] = {
    "cpu-only": spec("cpu-only"),
    "devops": spec("devops"),
    "devops, as TSBS simulates it": spec("devops", form="peer"),
    "replication": spec("replication", scale=1),
    "sensordata": spec("sensordata"),
    "sensordata, pareto": spec("sensordata", form="pareto"),
    "sensors": spec("sensors"),
    "sensors, disordered": spec("sensors", disorder=Disorder(late=0.1, out_of_order=0.1, duplicate=0.1, missing=0.1)),
    "stocks": spec("stocks", scale=3),
    "a user's pumps": pumps(),
}
PINNED: dict[int, dict[str, str]] = {
    1: {
        "cpu-only": "ba2b7b98d84cb789e7970662eb020a37318262fb0f0edbe7ae77f5563201da7c",
        "devops": "fa0ff10f7619fca077addb1846669fb6a2e5345e3110240cfcb88a8006689ae9",
        "devops, as TSBS simulates it": "2f25a9975cf38ad7fd2feba46a39f2b11a479622da5ceead7060abaf51028cf2",
        "replication": "458716a8560022549719979288fd91f0e64f71fac2d72eb43d6ced77d11a4d14",
        "sensors": "ec7db5db46d9ed2bbee1453f0e4125b01d96d15767c60e78f67b3010e5273c36",
        "sensors, disordered": "a4be22bae5890d2a601cfa15c6efc238550b9a13bcaa82ff432a0064eef508e3",
    },
    2: {
        "cpu-only": "ba2b7b98d84cb789e7970662eb020a37318262fb0f0edbe7ae77f5563201da7c",
        "devops": "8024b45193f6b2c8bbb84f798abf5d2b557038994c80bbea4116c2ebee8ab2bd",
        "devops, as TSBS simulates it": "d2ba7ed7a0641f4278c1dcf6fa323647e16841c11ad5a5b4a9ef1ed7435e08d7",
        "replication": "458716a8560022549719979288fd91f0e64f71fac2d72eb43d6ced77d11a4d14",
        "sensordata": "fe126401b9c8128a664714ba71f35b1b749bd096cdeeb91f2114d49c043fb1f9",
        "sensordata, pareto": "5bd48aca4f528bfa9fbd50746aefd20c1e0f3ac6707e4971e4f4d068826abdb5",
        "sensors": "c80da20c01332ceb1c35cbb9e65cd3bfd06ba622b5bc2d99edeb1bc9fb12a296",
        "sensors, disordered": "f8409e2a87d6a7feafd9ca2dbc1fb3a9a583dbc0697a13c44fb65aff4fdd627a",
        "stocks": "6767013438a7f8db36e9d6d48885ed38737f363ea788578213d876e4f5b47c94",
    },
    3: {
        "cpu-only": "ba2b7b98d84cb789e7970662eb020a37318262fb0f0edbe7ae77f5563201da7c",
        "devops": "8024b45193f6b2c8bbb84f798abf5d2b557038994c80bbea4116c2ebee8ab2bd",
        "devops, as TSBS simulates it": "d2ba7ed7a0641f4278c1dcf6fa323647e16841c11ad5a5b4a9ef1ed7435e08d7",
        "replication": "458716a8560022549719979288fd91f0e64f71fac2d72eb43d6ced77d11a4d14",
        "sensordata": "fe126401b9c8128a664714ba71f35b1b749bd096cdeeb91f2114d49c043fb1f9",
        "sensordata, pareto": "5bd48aca4f528bfa9fbd50746aefd20c1e0f3ac6707e4971e4f4d068826abdb5",
        "sensors": "c80da20c01332ceb1c35cbb9e65cd3bfd06ba622b5bc2d99edeb1bc9fb12a296",
        "sensors, disordered": "f8409e2a87d6a7feafd9ca2dbc1fb3a9a583dbc0697a13c44fb65aff4fdd627a",
        "stocks": "6767013438a7f8db36e9d6d48885ed38737f363ea788578213d876e4f5b47c94",
        "a user's pumps": "354db6846cbbc8903cd64c2d6e4f3fe8837825a7068cddb93fa7b0448076b6c9",
    },
}
"""By version of the worlds: the hash of the first blocks of every stream. Never change one; add those of a new version.

Those of version 1 were of three blocks only, so of devops' first three measurements. Version 3 differs from 2 in files
of users only: a walk with decimals had those of single precision (24.989999771118164 in place of 24.99).

`python -m tests.workload.test_version` prints them.
"""


def digest(of: WorldSpec) -> str:
    """The SHA-256 of tags, and of times, series and values of each stream's first three blocks of each measurement.

    Values are rounded to a millionth: the last bits of a sine or logarithm are the processor's business.
    """
    world, found = World(of), hashlib.sha256()
    found.update(repr({name: column.tolist() for name, column in world.tags().items()}).encode())
    for stream in range(of.streams):
        for batch in islice(world.batches(stream, points=200), 3 * len(world.measurements)):
            own = {name: column.tolist() for name, column in batch.tags.items()}
            found.update(repr((batch.measurement.name, list(batch.fields), own)).encode())
            found.update(batch.time_ns.astype("<i8").tobytes() + batch.series.astype("<i4").tobytes())
            for column in batch.fields.values():
                rounded = np.round(column.astype(np.float64), 6) + 0.0  # no minus zero
                found.update(rounded.astype("<f8").tobytes())
    return found.hexdigest()


@pytest.mark.parametrize("name", SPECS)
def test_no_point_of_a_use_case_changes_unless_the_version_is_raised(name: str) -> None:
    assert digest(SPECS[name]) == PINNED[WORLD_VERSION][name], "raise WORLD_VERSION, and pin the new data to it"


def test_every_version_so_far_is_pinned() -> None:
    assert sorted(PINNED) == list(range(1, WORLD_VERSION + 1))
    for pinned in PINNED.values():
        assert len(set(pinned.values())) == len(pinned)


if __name__ == "__main__":
    for key, value in SPECS.items():
        print(f"{key!r}: {digest(value)!r},")
