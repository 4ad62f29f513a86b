"""What else used the machine while a run was measured, from the samples of its collectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tsbench.errors import UserMistake
from tsbench.results.manifest import Manifest
from tsbench.results.reading import keeps_tables
from tsbench.results.rundir import COLLECTED

if TYPE_CHECKING:
    from tsbench.results.rundir import RunDir

OTHERS_SHARE = 0.10
"""Share of all cores that other processes may use on a quiet machine: collectors and the desktop use a few percent."""
STEAL_PERCENT = 1.0
"""Share of the CPU time that went to other guests of the host (steal), in percent, above which it is named."""


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Mean use of the machine in the measured window, other than by the load generator and the server."""

    cores: int = 0
    """Cores of the machine; 0 if the host was not sampled."""
    others_cores: float = 0.0
    """Cores used by processes that are neither the load generator's nor those of a server that tsbench started."""
    steal_percent: float = 0.0
    """Share of the CPU time that went to other guests of the host, in percent."""
    server_among_them: bool = False
    """True if the server was not started by tsbench, so that it may be one of the others."""

    @property
    def text(self) -> str:
        """What disturbed the run in one clause, "" if nothing did."""
        texts = []
        if self.others_cores > OTHERS_SHARE * self.cores:
            who = "other processes (the server may be one)" if self.server_among_them else "other processes"
            texts.append(f"{who} used {self.others_cores:.1f} of {self.cores} cores")
        if self.steal_percent >= STEAL_PERCENT:
            texts.append(f"the hypervisor took {self.steal_percent:.0f} % of the CPU time (steal)")
        return " and ".join(texts)

    def figures(self) -> dict[str, Any]:
        """Return it for the `Limit` of a run; the numbers are None if the host was not sampled."""
        numbers = {"cores": self.cores, "others_cores": self.others_cores, "steal_percent": self.steal_percent}
        return {**(numbers if self.cores else dict.fromkeys(numbers)), "disturbed": self.text}


def disturbance(run: RunDir, duration_s: float, *, external: bool) -> Disturbance:
    """Return what disturbed a run in its measured window, as far as the host was sampled.

    `external` says that the server was not started by tsbench.
    """
    host = _means(run, "host", duration_s)
    manifest = Manifest.read(run)
    cores = manifest.host.cores if manifest is not None and manifest.host is not None else 0
    if not host or not cores:
        return Disturbance()
    server, sar = _means(run, "server", duration_s), _means(run, "sar", duration_s)
    used = host["cpu_percent"] * cores - host["client_cpu_percent"] - server.get("cpu_percent", 0.0)
    return Disturbance(cores, max(0.0, used / 100), sar.get("cpu_steal_percent", 0.0), external)


def _means(run: RunDir, name: str, duration_s: float) -> dict[str, float]:
    """Return the means of a collector's columns in the measured window; empty without rows in it."""
    if not keeps_tables():
        return {}
    import polars as pl  # noqa: PLC0415 - load workers do without

    from tsbench.results.tables import read_frame  # noqa: PLC0415

    try:
        rows = read_frame(run / f"{name}.parquet", COLLECTED[name]).filter(pl.col("second").is_between(0, duration_s))
    except UserMistake:
        return {}
    numbers = rows.select(pl.selectors.numeric()).mean().to_dicts()
    return {key: float(value) for key, value in numbers[0].items() if value is not None} if len(rows) else {}
