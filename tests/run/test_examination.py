from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests.cli.support import TINY
from tests.drive.support import document
from tests.faults.proxy import Proxy
from tests.run.test_lifecycle import leave_an_op
from tsbench.errors import UserMistake
from tsbench.model import OpError
from tsbench.results.manifest import Manifest
from tsbench.results.rundir import RunDir
from tsbench.run.examination import _AskedServer as Checked
from tsbench.run.examination import examine
from tsbench.run.lifecycle import run_job
from tsbench.run.phases import Quiet
from tsbench.run.time_limits import Limits
from tsbench.run.trial import real_parts
from tsbench.scenario.spec import Scenario
from tsbench.targets.base import Statement
from tsbench.targets.postgres import TARGET
from tsbench.workload import WORLD_VERSION

if TYPE_CHECKING:
    from pathlib import Path


def test_answers_are_not_checked_against_another_version_of_the_data(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "a")
    Manifest(world_version=WORLD_VERSION + 1).write(run)
    unused: Any = None  # it is refused before anything is connected to
    with pytest.raises(UserMistake, match=f"world version {WORLD_VERSION + 1}, now {WORLD_VERSION}.*update tsbench"):
        examine(run, unused, unused, unused, "", loaded_points=0, directory_bytes=int, progress=Quiet())


def test_stored_points_that_differ_are_located_in_every_result(tmp_path: Path) -> None:
    """While the load is measured, somebody changes a tag and stores a part of a point long before the run."""
    op = [{"query": "raw-one"}]
    (spec,) = Scenario(tmp_path / "s.toml", document(op=op, world={"start": "2016-01-01T00:00:00Z"})).expand()

    def drive(_spec: Any, run: RunDir, endpoint: str, **_: Any) -> None:
        with sqlite3.connect(endpoint.removeprefix("sqlite://")) as connection:
            connection.execute("UPDATE tags SET region = 'mars' WHERE id = 3")
            connection.execute("INSERT INTO cpu (time, tags_id, usage_nice) VALUES (0, 1, 5)")
        connection.close()
        leave_an_op(run.path)

    run_job(spec, tmp_path, Quiet(), lambda *of: replace(real_parts(*of), collectors=(), drive=drive))
    (summary,) = tmp_path.glob("*/summary.json")
    told = json.loads((summary.parent / "validate.json").read_text())
    for differences in (told["stored_differences"], json.loads(summary.read_text())["answers"]["stored_differences"]):
        assert {kind: found["count"] for kind, found in differences.items()} == {"other tags": 61, "partial point": 1}
        tags, parts = (differences[kind]["first"] for kind in ("other tags", "partial point"))
        assert (len(tags), len(parts)) == (3, 1)
        assert (tags[0]["measurement"], tags[0]["series"], tags[0]["time"]) == ("tags", "host_3", "")
        tag, part = tags[1], parts[0]
        assert (tag["measurement"], tag["series"], tag["time"]) == ("cpu", "host_3", "2016-01-01T00:00:00Z")
        assert (tag["stored"], tag["expected"].partition("=")[0]) == ("region=mars", "region")
        assert (part["measurement"], part["series"], part["time"]) == ("cpu", "host_1", "1970-01-01T00:00:00Z")
        assert part["stored"].startswith("usage_nice=5")
    assert (
        "61 x other tags, 1 x partial point; first other tags: tags host_3: stored region=mars"
        in told["check"]["reason"]
    )
    counted = json.loads((summary.parent / "audit.json").read_text())
    assert (counted["points"]["lost"], counted["points"]["unexpected"]) == (0, 1)


@pytest.mark.postgres
def test_a_server_is_gone_when_it_cannot_be_reached_again_not_when_a_connection_ended(
    tmp_path: Path, postgres_endpoint: str
) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    (spec,) = Scenario.load(tmp_path / "tiny.toml").expand()
    of = urlsplit(postgres_endpoint)
    with Proxy(of.port or 0) as proxy:
        endpoint = urlunsplit(of._replace(netloc=of.netloc.replace(f":{of.port}", f":{proxy.port}")))
        limits = Limits(spec.timeout, endpoint)
        server = Checked(RunDir.create(tmp_path, "one"), limits, TARGET, TARGET.schemas["btree"])

        def ask() -> list[tuple[Any, ...]]:
            return [*server.ask(lambda session, _: session.query(Statement("SELECT 1"), ("x",))).records]

        assert ask() == [(1,)]
        proxy.reset()
        with pytest.raises(OpError):
            ask()
        assert (server.death, ask()) == ("", [(1,)])
        proxy.refuse()
        with pytest.raises(OpError):
            ask()
        assert "could not be reached any more" in server.death
        with pytest.raises(OpError, match="did not answer before"):
            ask()
        server.close()
