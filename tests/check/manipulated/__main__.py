"""Carries out all manipulations on real servers and prints what was found: `python -m tests.check.manipulated`."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tests.check.manipulated import hands, influxdb, postgres
from tests.check.manipulated.bench import Bench, Result
from tests.check.manipulated.controls import CONTROLS
from tsbench.errors import UserMistake
from tsbench.targets.influxdb.server import InfluxServer1, InfluxServer2
from tsbench.targets.postgres.server import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tsbench.servers.base import Server

DATABASES: dict[str, tuple[Callable[[Path], Server], str, str, tuple[Any, ...], Any]] = {
    "PostgreSQL": (
        lambda place: PostgresServer(place, {"fsync": "off"}), "postgres", "btree",
        postgres.MANIPULATIONS, postgres.Hand.of,
    ),
    "InfluxDB 1.8": (
        lambda place: InfluxServer1(place, {"version": "1.8"}), "influxdb1", "tags",
        influxdb.MANIPULATIONS, hands.of_version_1,
    ),
    "InfluxDB 2": (InfluxServer2, "influxdb2", "tags", influxdb.MANIPULATIONS, hands.of_version_2),
}  # fmt: skip
"""Per database: how it is started, target, schema, manipulations, and who carries them out."""


KNOWN_MISSED = {("InfluxDB 2", "a text in place of a number, in another month")}
"""What `docs/limits.md` says that it is not found."""


def checked(name: str, place: Path) -> Iterator[Result]:
    """Yield the results on one database, which is started for them: manipulations, then untouched controls."""
    start, target, schema, manipulations, hand = DATABASES[name]
    (place / "server").mkdir(parents=True)
    server = start(place / "server")
    server.start()
    try:
        # Where a PostgreSQL has several schemas, the bare driver must look into ours.
        url = f"{server.endpoint}&options=-csearch_path%3Dpublic" if target == "postgres" else server.endpoint
        bench = Bench(target, schema, url, place)
        for manipulation in manipulations:
            yield bench.manipulate(manipulation, hand)
        for control in CONTROLS:
            accused = bool(control.accused_by(target, schema, url, place))
            yield Result(f"untouched {control.name}", found=accused, located=False, untouched=True)
    finally:
        server.stop()
        server.remove()


def main() -> None:
    """Print a table per database; end with 1 if a manipulation is not found or not located, or a control is accused."""
    wrong = 0
    with TemporaryDirectory() as directory:
        for name in DATABASES:
            print(f"\n{name:<52} found  located  first difference")
            done: list[Result] = []
            try:
                for result in checked(name, Path(directory) / name):
                    print(result.line, flush=True)
                    done.append(result)
            except UserMistake as mistake:
                print(f"skipped: {mistake}")
            changed, others = [[one for one in done if one.untouched is untouched] for untouched in (False, True)]
            found, located = sum(one.found for one in changed), sum(one.is_right for one in changed)
            print(f"{name}: {len(changed)} manipulations, {found} found, {located} of them located")
            print(f"{name}: {len(others)} untouched controls, {sum(one.is_right for one in others)} valid")
            wrong += sum(not one.is_right and (name, one.name) not in KNOWN_MISSED for one in done)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
