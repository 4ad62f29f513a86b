"""A node is killed at a moment that a seed chooses, with ops in flight; `make kills` prints what was lost.

Each case is run several times (ARGS='--times 20 --only postgres'). With copies nothing that was acknowledged may be
lost; the controls, in which nothing waits for a copy, must lose something, or the others would prove nothing.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.drive.support import document
from tsbench.run.lifecycle import run_job
from tsbench.run.phases import Quiet
from tsbench.scenario.spec import Scenario

if TYPE_CHECKING:
    from collections.abc import Mapping

_random = random.Random(25)
MOMENTS = [round(_random.uniform(0.5, 3.5), 3) for _ in range(20)]


@dataclass(frozen=True)
class Case:
    """A server of which `node` is killed (None: the only one), and restarted a second later if it `comes_back`."""

    target: str
    nodes: int
    replicas: int
    node: int | None
    settings: Mapping[str, str] = field(default_factory=dict)
    comes_back: bool = False
    loses: bool = False
    duration_s: int = 5
    quick: bool = False
    """Whether `make test` runs it: of each database the case with most in it, and a control."""

    def run(self, place: Path, at_s: float) -> dict[str, Any]:
        """Return the summary of a run in which the node is killed at a moment."""
        node = {} if self.node is None else {"node": self.node}
        events: list[dict[str, Any]] = [{"at": f"{at_s}s", "do": "kill", **node}]
        events += [{"at": f"{at_s + 1}s", "do": "restart", **node}] * self.comes_back
        tables = document(
            world={"use_case": "cpu-only", "scale": 20},
            load={"window": "1m"},
            drive={"users": 4, "warmup": "0s", "duration": f"{self.duration_s}s", "wait": "5ms", "stop_timeout": "20s"},
            op=[{"write": 10}],
            target={"name": self.target, "settings": dict(self.settings)},
        )
        server = {"nodes": self.nodes, "replicas": self.replicas}
        (spec,) = Scenario(place / "kill.toml", tables | {"server": server, "event": events}).expand()
        return run_job(spec, place / f"{at_s}", Quiet()).to_json()

    def wrong(self, summary: Mapping[str, Any], at_s: float) -> list[str]:
        """Return what is not as it must be."""
        writes, event = summary["writes"], summary["events"][0]
        checks = summary["validity"]["checks"]  # of which a busy machine may leave others undecided
        node = "" if self.node is None else f" node {self.node}"
        holds = {
            "something was acknowledged": writes["acknowledged"] > 500,
            "nothing unexpected is stored": writes["unexpected"] == 0,
            "the event is named": event["did"].startswith(f"kill{' and restart' * self.comes_back}{node}"),
            "its time is right": at_s <= event["at_s"] < at_s + 3,  # a busy machine is late
        }
        if self.loses:
            holds["something was lost"] = writes["lost"] > 0
            holds["the run is invalid"] = summary["validity"]["state"] == "invalid"
        else:
            holds["nothing was lost"] = writes["lost"] == 0
            holds["writes and answers are right"] = {checks[one]["state"] for one in ("writes", "answers")} == {"valid"}
        return [name for name, is_so in holds.items() if not is_so]


_POSTGRES = {"shared_buffers": "32MB"}
_UNSAFE_INNODB = {  # a node alone loses what it wrote in its last minute
    "innodb_buffer_pool_size": "64M",
    "innodb_log_file_size": "64M",
    "innodb_flush_log_at_trx_commit": "0",
    "innodb_flush_log_at_timeout": "60",
}
CASES = {
    "VictoriaMetrics, two copies": Case("victoriametrics", 3, 2, 2),
    "VictoriaMetrics, two copies, node comes back": Case("victoriametrics", 3, 2, 2, comes_back=True, quick=True),
    "VictoriaMetrics, one copy": Case("victoriametrics", 2, 1, 2, comes_back=True, loses=True),
    "PostgreSQL, a standby has it on disk": Case("postgres", 3, 2, 1, _POSTGRES),
    "PostgreSQL, two standbys have applied it, primary comes back": Case(
        "postgres",
        3,
        3,
        1,
        {**_POSTGRES, "synchronous_commit": "remote_apply"},
        comes_back=True,
        duration_s=8,
        quick=True,
    ),
    "PostgreSQL, nothing waits": Case(
        "postgres",
        2,
        1,
        1,
        {**_POSTGRES, "synchronous_commit": "off"},
        comes_back=True,
        loses=True,
        duration_s=8,
        quick=True,
    ),
    "MariaDB, Galera": Case("mariadb", 3, 3, 1, _UNSAFE_INNODB, duration_s=12, quick=True),
    "MariaDB, one node": Case("mariadb", 1, 1, None, _UNSAFE_INNODB, comes_back=True, loses=True, duration_s=8),
}


def main() -> int:
    """Run the cases that were asked for, and print a line for each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20, help=f"runs of each case, at most {len(MOMENTS)}")
    parser.add_argument("--only", default="", help="cases whose name or target contains this")
    asked = parser.parse_args()
    bad = 0
    for name, case in CASES.items():
        if asked.only.lower() not in f"{name} {case.target}".lower():
            continue
        lossy = 0
        for at_s in MOMENTS[: asked.times]:
            with tempfile.TemporaryDirectory(prefix="tsbench-kills-") as directory:
                Path(directory).chmod(0o755)
                summary = case.run(Path(directory), at_s)
            writes, event = summary["writes"], summary["events"][0]
            wrong = case.wrong(summary, at_s)
            lossy += writes["lost"] > 0
            bad += bool(wrong)
            figures = ", ".join(f"{key} {writes[key]:,}" for key in ("acknowledged", "stored", "lost", "unknown"))
            failed = event["during"]["failed"] if event["during"] else 0
            verdict = f"NO: {'; '.join(wrong)}" if wrong else "as expected"
            print(f"{name}: {event['did']} at {event['at_s']:.3f} s: {figures}; {failed} failed; {verdict}", flush=True)
        print(f"{name}: {lossy} of {asked.times} lost something", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
