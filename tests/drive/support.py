"""A helper that runs a cell of a scenario given as a dict, by the same code as `tsbench run`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tsbench.run.lifecycle import run_job
from tsbench.run.phases import Quiet
from tsbench.scenario.spec import Scenario

if TYPE_CHECKING:
    from pathlib import Path


def run(directory: Path, document: dict[str, Any]) -> dict[str, Any]:
    """Run the only cell; its directory is below `directory`."""
    (spec,) = Scenario(directory / "test.toml", document).expand()
    return run_job(spec, directory, Quiet()).to_json()


def document(**tables: Any) -> dict[str, Any]:
    """Return a small scenario, in which the given tables replace its own."""
    base: dict[str, Any] = {
        "world": {"use_case": "cpu-only", "scale": 8, "streams": 4},
        "load": {"window": "10m", "batch": 1_000},
        "drive": {"users": 4, "warmup": "0s", "duration": "2s", "wait": "5ms"},
        "op": [{"write": 1, "weight": 20}, {"query": "raw-one"}],
        "check": {"answers": 5},
        "target": {"name": "sqlite"},
    }
    return {
        key: {**base[key], **tables[key]}
        if isinstance(base[key], dict) and key in tables
        else tables.get(key, base[key])
        for key in base
    }


NULL_LOCUSTFILE = """
from locust import between, task
from tsbench.drive import TimeSeriesUser, standalone

standalone()


class Writer(TimeSeriesUser):
    target, use_case, wait_time = "null", "sensors", between(0.05, 0.15)

    @task
    def write_one_point(self):
        self.write(1)
"""
"""A locustfile for the target that keeps nothing."""
