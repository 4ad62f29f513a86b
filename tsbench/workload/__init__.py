"""The simulated worlds: what their points and queries are. No I/O, no database."""

from tsbench.workload.layout import UseCase
from tsbench.workload.use_cases.devops import CPU_ONLY, DEVOPS
from tsbench.workload.use_cases.replication import REPLICATION
from tsbench.workload.use_cases.sensors import SENSORS

USE_CASES: dict[str, UseCase] = {
    "cpu-only": CPU_ONLY,
    "devops": DEVOPS,
    "replication": REPLICATION,
    "sensors": SENSORS,
}
