"""The use cases (simulated worlds), by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tsbench.workload.use_cases.devops import CPU_ONLY, DEVOPS
from tsbench.workload.use_cases.published import REPLICATION, SENSORDATA, STOCKS
from tsbench.workload.use_cases.sensors import SENSORS

if TYPE_CHECKING:
    from tsbench.workload.layout import UseCase

USE_CASES: dict[str, UseCase] = {
    "cpu-only": CPU_ONLY,
    "devops": DEVOPS,
    "replication": REPLICATION,
    "sensordata": SENSORDATA,
    "sensors": SENSORS,
    "stocks": STOCKS,
}

FILES: dict[str, Path] = {path.stem: path for path in sorted((Path(__file__).parents[2] / "use_cases").glob("*.toml"))}
"""Those that are files, which `scenario.use_case` reads."""
