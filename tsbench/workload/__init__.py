"""The simulated worlds: what their points and queries are. No I/O, no database."""

from tsbench.workload.devops import CPU_ONLY, DEVOPS
from tsbench.workload.layout import UseCase
from tsbench.workload.replication import REPLICATION
from tsbench.workload.sensors import SENSORS

USE_CASES: dict[str, UseCase] = {
    "cpu-only": CPU_ONLY,
    "devops": DEVOPS,
    "replication": REPLICATION,
    "sensors": SENSORS,
}
