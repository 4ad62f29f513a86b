"""Carries out all manipulations on real servers and prints what was found: `python -m tests.check.manipulated`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeAlias

from tests.check.manipulated import hands, influxdb, mongodb, postgres, questdb, sql, victoria
from tests.check.manipulated.bench import Bench, Result
from tests.check.manipulated.controls import CONTROLS
from tsbench.errors import UserMistake
from tsbench.model import OpError
from tsbench.targets.influxdb.server import InfluxServer1, InfluxServer2
from tsbench.targets.postgres.server import PostgresServer
from tsbench.targets.registry import TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tsbench.servers.base import Server


def _of_postgres(place: Path) -> Server:
    return PostgresServer(place, {"fsync": "off"})


def _of_sql(target: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the layouts of a database of plain SQL, each with its manipulations."""
    for name, schema in TARGETS[target].schemas.items():
        yield name, (*sql.MANIPULATIONS, *(sql.DUPLICATES if schema.keeps_duplicates else ()))


Layouts: TypeAlias = "Sequence[tuple[str, tuple[Any, ...]]]"
DATABASES: dict[str, tuple[Callable[[Path], Server], str, Layouts, Any]] = {
    "PostgreSQL": (
        _of_postgres, "postgres", [(name, postgres.MANIPULATIONS) for name in ("btree", "brin")], postgres.Hand.of
    ),
    "InfluxDB 1.8": (
        lambda place: InfluxServer1(place, {"version": "1.8"}), "influxdb1", [("tags", influxdb.MANIPULATIONS)],
        hands.of_version_1,
    ),
    "InfluxDB 2": (InfluxServer2, "influxdb2", [("tags", influxdb.MANIPULATIONS)], hands.of_version_2),
    "SQLite": (lambda place: TARGETS["sqlite"].new_server(place, {}), "sqlite", [*_of_sql("sqlite")], sql.of_sqlite),
    "DuckDB": (lambda place: TARGETS["duckdb"].new_server(place, {}), "duckdb", [*_of_sql("duckdb")], sql.of_duckdb),
    "MariaDB": (lambda place: TARGETS["mariadb"].new_server(place, {}), "mariadb", [*_of_sql("mariadb")], sql.of_mysql),
    "MySQL": (lambda place: TARGETS["mysql"].new_server(place, {}), "mysql", [*_of_sql("mysql")], sql.of_mysql),
    "FerretDB": (
        lambda place: TARGETS["mongodb"].new_server(place, {"fsync": "off"}), "mongodb",
        [*mongodb.BY_LAYOUT.items()], mongodb.Hand,
    ),
    "VictoriaMetrics": (
        lambda place: TARGETS["victoriametrics"].new_server(place, {}), "victoriametrics",
        [("fields", victoria.MANIPULATIONS)], victoria.hand,
    ),
    "QuestDB": (
        lambda place: TARGETS["questdb"].new_server(place, {"cairo.commit.mode": "nosync"}), "questdb",
        [("wide", (*questdb.MANIPULATIONS, *questdb.DUPLICATES)), ("dedup", questdb.MANIPULATIONS)], questdb.hand,
    ),
}  # fmt: skip
"""Per database: how it is started, target, layouts with their manipulations, and who carries them out."""


KNOWN_MISSED = {("InfluxDB 2", "a text in place of a number, in another month")}
"""What `pages of the databases say that it is not found."""


def checked(name: str, place: Path, only: Sequence[str]) -> Iterator[tuple[str, list[Result]]]:
    """Yield the results on each layout (`only` these; empty: all) of one database, which is started for them.

    They are those of manipulations, then of untouched controls. A layout that the server has not has no results.
    """
    start, target, layouts, hand = DATABASES[name]
    (place / "server").mkdir(parents=True)
    server = start(place / "server")
    server.start()
    try:
        # Where a PostgreSQL has several schemas, the bare driver must look into ours.
        url = f"{server.endpoint}&options=-csearch_path%3Dpublic" if target == "postgres" else server.endpoint
        for schema, manipulations in layouts:
            if only and schema not in only:
                continue
            try:
                yield (
                    f"{name} {schema}",
                    list(_on_layout(Bench(target, schema, url, place / schema), manipulations, hand)),
                )
            except OpError as error:
                print(f"skipped {name} {schema}: {error}")
    finally:
        server.stop()
        server.remove()


def _on_layout(bench: Bench, manipulations: tuple[Any, ...], hand: Any) -> Iterator[Result]:
    bench.clean()
    for manipulation in manipulations:
        result = bench.manipulate(manipulation, hand)
        print(result.line, flush=True)
        bench.clean()
        yield result
    for control in CONTROLS:
        accused = bool(control.accused_by(bench.target, bench.schema, bench.url, bench.place))
        result = Result(f"untouched {control.name}", found=accused, located=False, untouched=True)
        print(result.line, flush=True)
        yield result
    bench.clean()


def main() -> None:
    """Print a table per layout; end with 1 if a manipulation is not found or not located, or a control is accused."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=[*DATABASES], default=[*DATABASES], metavar="DATABASE")
    parser.add_argument("--layouts", nargs="+", default=[], metavar="LAYOUT", help="default: all")
    given, wrong = parser.parse_args(), 0
    lines = []
    with TemporaryDirectory() as directory:
        for name in given.only:
            print(f"\n{name:<52} found  located  first difference")
            try:
                for layout, done in checked(name, Path(directory) / name, given.layouts):
                    changed, others = [[one for one in done if one.untouched is how] for how in (False, True)]
                    found, located = sum(one.found for one in changed), sum(one.is_right for one in changed)
                    valid = sum(one.is_right for one in others)
                    lines.append(
                        f"{layout}: {len(changed)} manipulations, {found} found, {located} of them located;"
                        f" {len(others)} untouched controls, {valid} valid"
                    )
                    print(lines[-1], flush=True)
                    wrong += sum(not one.is_right and (name, one.name) not in KNOWN_MISSED for one in done)
            except UserMistake as mistake:
                print(f"skipped: {mistake}")
    print("\n", *lines, sep="\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
