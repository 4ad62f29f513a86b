"""Results may be in any directory: spaces, and characters with a meaning in URLs, shells or configuration files."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.support import Command, content, only
from tsbench.errors import UserMistake
from tsbench.model import Count, WriteMode
from tsbench.targets import registry
from tsbench.targets.registry import TARGETS
from tsbench.testing import data
from tsbench.testing.data import CPU, START_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tsbench.servers.base import Server

pytestmark = pytest.mark.every_user

AWKWARD = "a b = 100% #1?x=y&z+w;,'q\"$`\\%41ü€𝄞[b]*"
KINDS: list[object] = ["null", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
KINDS += [pytest.param(f"influxdb-{v}", marks=getattr(pytest.mark, f"influxdb-{v}")) for v in ("1.6", "1.8", "2")]


@pytest.fixture(params=["", "private"])
def place(request: pytest.FixtureRequest) -> Iterator[Path]:
    """An awkward directory in one that everybody may enter, or that only its owner may."""
    made = Path(tempfile.mkdtemp(prefix="tsbench-test-"))
    made.chmod(0o700 if request.param else 0o755)
    yield made / AWKWARD / "postgres-btree-rate=500.partial"
    shutil.rmtree(made)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
def test_a_server_and_its_sessions_take_any_path(
    kind: str, place: Path, own_server: Callable[[Server], Server]
) -> None:
    settings: Mapping[str, str] = {}
    name, _, version = kind.partition("-")
    if version:
        settings, name = ({}, "influxdb2") if version == "2" else ({"version": version}, "influxdb1")
    elif name == "postgres":
        settings = {"shared_buffers": "16MB"}
    elif name == "null":
        settings = {"service": "1ms"}
    server, target = own_server(TARGETS[name].new_server(place, settings)), registry.get(name)
    schema = next(iter(target.schemas.values()))
    session = target.connect(server.endpoint, schema)
    session.run(schema.create([CPU], data.shared_tags()))
    batch = data.batch(CPU, data.shared_tags(), time_ns=[START_NS + 1_000_000 * i for i in range(10)])
    assert session.write(schema.encode(batch, WriteMode.BULK)) == 10
    session.close()
    again = target.connect(server.endpoint, schema)
    if name != "null":
        assert again.query(schema.compile(Count(CPU)), ("points",)).records == [(10,)]
    again.close()
    assert {path.name for path in place.parent.parent.iterdir()} <= {AWKWARD}
    server.kill()
    server.remove()
    assert not place.exists()


@pytest.mark.slow
@pytest.mark.postgres
def test_a_bare_locustfile_measures_the_data_of_the_server_that_it_starts_in_any_directory(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    # As root with pytest's directory, which is private, the server's data lies apart from the run's.
    request.getfixturevalue("postgres_server")
    file = str(Path(__file__).parents[2] / "locustfiles" / "postgres.py")
    words = ["--headless", "-u", "2", "-t", "3s", "--warmup", "1s", "--load-window", "2h", "--scale", "5"]
    command = Command(tmp_path, "locust", "-f", file, *words, "--results", AWKWARD, "SingleWriter")
    command.wait()
    summary = content(only(tmp_path, "*/*-locust/postgres-btree/summary.json"))
    assert summary["validity"]["checks"]["writes"]["state"] == "valid", command.stderr
    assert summary["size"]["directory_bytes"] > summary["size"]["bytes"] > 100_000


def test_a_path_that_a_url_would_cut_off_is_refused_with_the_cure(tmp_path: Path) -> None:
    target = registry.get("sqlite")
    for sign in "?#":
        with pytest.raises(UserMistake, match="in a path write %3F for a question mark and %23 for a number sign"):
            target.connect(f"sqlite://{tmp_path}/a{sign}b.db", target.schemas["wal"])
    assert not list(tmp_path.iterdir())
