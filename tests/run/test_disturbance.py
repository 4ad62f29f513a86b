"""What else used the machine is found in the collectors' samples, and named where it explains a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tsbench.measure.bottleneck import Evidence, LoadProfile, limited_by
from tsbench.results.manifest import Host, Manifest
from tsbench.results.rundir import COLLECTED, RunDir
from tsbench.results.summary import CLIENT
from tsbench.results.tables import frame, write_parquet
from tsbench.run.disturbance import Disturbance, disturbance

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 10


def sampled(place: Path, *, host: float, client: float, server: float | None = None, steal: float = 0.0) -> RunDir:
    """A run on two cores, of which the host used `host` percent and the others' shares are those of one core."""
    run = RunDir.create(place, "cell")
    Manifest(host=Host(cores=2)).write(run)

    def write(name: str, **values: float | str) -> None:
        zero = {column: ("vm" if column == "host" else 0.0) for column in COLLECTED[name]}
        # Before and after the measured window all is busy, which must not count.
        busy = dict.fromkeys(values, 100.0)
        rows = [{**zero, **(values if 0 <= s <= SECONDS else busy), "second": float(s)} for s in range(-5, 20)]
        write_parquet(frame(rows, COLLECTED[name]), run / f"{name}.parquet")

    write("host", cpu_percent=host, client_cpu_percent=client)
    if server is not None:
        write("server", cpu_percent=server)
    write("sar", cpu_steal_percent=steal)
    return run


@pytest.mark.parametrize(
    ("samples", "text"),
    [
        ({"host": 90.0, "client": 40.0}, "other processes used 1.4 of 2 cores"),
        ({"host": 90.0, "client": 40.0, "server": 130.0}, ""),
        ({"host": 25.0, "client": 40.0}, ""),
        ({"host": 5.0, "client": 40.0}, ""),  # samples of different clocks: never less than nothing
        ({"host": 20.0, "client": 40.0, "steal": 7.0}, "the hypervisor took 7 % of the CPU time (steal)"),
    ],
)
def test_what_neither_load_generator_nor_server_used_was_others(
    tmp_path: Path, samples: dict[str, float], text: str
) -> None:
    assert disturbance(sampled(tmp_path, **samples), SECONDS, external=False).text == text


def test_a_server_that_was_not_started_here_may_be_one_of_the_others(tmp_path: Path) -> None:
    found = disturbance(sampled(tmp_path, host=90.0, client=40.0), SECONDS, external=True)
    assert found.text == "other processes (the server may be one) used 1.4 of 2 cores"


def test_a_run_without_samples_was_disturbed_by_nothing_known(tmp_path: Path) -> None:
    found = disturbance(RunDir.create(tmp_path, "cell"), SECONDS, external=False)
    unknown = {"cores": None, "others_cores": None, "steal_percent": None}
    assert (found.text, found.figures()) == ("", {**unknown, "disturbed": ""})


def test_the_reason_of_a_disturbed_run_names_the_disturbance_and_its_cure() -> None:
    busy = Evidence(0.9, 3_000_000, 9_000_000, 0)
    profile = LoadProfile(think_ns=0, response_ns=1e6)
    name, verdict = limited_by([busy], profile, Disturbance(2, 1.4).text)
    assert (name, verdict.valid) == (CLIENT, True)
    assert "used 90% of a core); other processes used 1.4 of 2 cores: measure again while" in verdict.reason
    assert "use more processes" in limited_by([busy], profile)[1].reason
