"""Plots of what sysstat and the server itself saw."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.report.synthetic import Shape, make_results
from tests.report.test_plots import texts
from tsbench.cli.main import main
from tsbench.collect.recording import write_rows
from tsbench.report import frames, system_plots
from tsbench.report.html import write_report
from tsbench.results.panels import Panel, write_panels
from tsbench.results.rundir import SAR_COLUMNS, RunDir

pytestmark = pytest.mark.slow

RECORDED = Path(__file__).parents[1] / "collect" / "data" / "recorded.json"
FIRST_S = 1_795_174_154
COUNTED = "own counters over time"
"""Of the description of the counters' plot."""


PANELS = (
    Panel(
        "Transactions",
        "count",
        "rate",
        {"database.xact_commit": "commits", "database.xact_rollback": "roll-backs", "nowhere": "not there"},
    ),
    Panel("Memory", "bytes", "gauge", {"group.memory_bytes": "with page cache"}),
    Panel("Blocks", "count", "rate", {"database.blks_hit": "in shared buffers"}),
)


def counted(**totals: list[float]) -> pd.DataFrame:
    parts = [
        pd.DataFrame({"cell": "c", "second": np.arange(len(v)) - 1.0, "name": n.replace("__", "."), "value": v})
        for n, v in totals.items()
    ]
    return pd.concat(parts, ignore_index=True)


def recorded(*hosts: str, interval_s: float = 1.0) -> pd.DataFrame:
    base: dict[str, object] = dict.fromkeys(SAR_COLUMNS, 1.0) | {"cell": "c", "interval_s": interval_s}
    rows = [{**base, "host": host, "second": n * interval_s} for host in hosts for n in range(4)]
    return pd.DataFrame(rows)


def test_rates_are_differences_and_a_restart_is_a_gap() -> None:
    rates = frames.rates(counted(a=[10, 30, 60, 5, 6], b=[1, 1, 1, 1, 1]))
    found = rates[rates["name"] == "a"]["per_s"]
    assert found.iloc[0] != found.iloc[0]
    assert list(found.iloc[[1, 2, 4]]) == [20, 30, 1]
    assert np.isnan(found.iloc[3])
    assert list(rates[rates["name"] == "b"]["per_s"].dropna()) == [0, 0, 0, 0]


def test_known_counters_are_drawn_as_rates_and_silent_ones_are_left_out() -> None:
    figure = system_plots.counters(
        counted(
            database__xact_commit=[0, 100, 300],
            database__xact_rollback=[5, 5, 5],
            group__memory_bytes=[1e6, 2e6, 3e6],
            unheard__of=[1, 2, 3],
        ),
        PANELS,
    )
    assert figure is not None
    panels = [panel for panel in figure.axes if panel.get_visible()]
    assert [panel.get_title(loc="left") for panel in panels] == ["Transactions", "Memory"]
    (line,) = panels[0].lines
    assert (line.get_label(), list(line.get_ydata())) == ("commits", [100, 200])  # type: ignore[arg-type]
    assert list(panels[1].lines[0].get_ydata()) == [1e6, 2e6, 3e6]  # type: ignore[arg-type]


def test_counters_that_nobody_knows_make_no_figure() -> None:
    assert system_plots.counters(counted(unheard__of=[1, 2, 3]), PANELS) is None
    assert system_plots.counters(counted(database__xact_commit=[1, 2, 3]), ()) is None


def test_each_host_has_a_row_of_panels() -> None:
    figure = system_plots.sar(recorded("client", "server"))
    titles = [panel.get_title(loc="left") for panel in figure.axes]
    assert titles == [
        f"{host}: {what}" for host in ("client", "server") for what in ("CPU by state", "disk", "network")
    ]
    assert {"user", "iowait", "steal", "writes", "loopback"} <= set(texts(figure))
    assert list(system_plots.sar(recorded("x", interval_s=5)).axes[1].lines[0].get_xdata()) == [2, 7, 12, 17]  # type: ignore[arg-type]


def test_columns_that_a_file_has_not_are_left_out() -> None:
    frame = recorded("x")
    gone = [column for column in SAR_COLUMNS if column.startswith(("disk", "cpu_steal"))]
    figure = system_plots.sar(frame.assign(**dict.fromkeys(gone, np.nan)))
    assert "steal" not in texts(figure)
    assert len(figure.axes[1].lines) == 0


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    results = make_results(tmp_path / "set", [Shape(cell="one", seconds=4, warmup=1, rate=20)])
    run = RunDir(results / "one")
    run.write_json(
        "process/clock.json", {"go_s": FIRST_S, "start_s": FIRST_S + 1, "end_s": FIRST_S + 4, "stopped_s": FIRST_S + 4}
    )
    rows: list[dict[str, float | str]] = [
        {"second": FIRST_S + n, "name": "database.xact_commit", "value": 10.0 * n} for n in range(4)
    ]
    write_rows(run, "counters", rows)
    write_panels(run / "counters.json", PANELS)
    return results


def test_the_page_and_the_command_line_show_an_attached_file(
    measured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(measured), "--attach-sar", str(RECORDED), "--host", "db-1"]) == 0
    assert "one: 4 of 4 s seen by sar on db-1" in capsys.readouterr().out
    page = (measured / "report.html").read_text(encoding="utf-8")
    assert "db-1: CPU by state" in page
    assert "Transactions" in page
    assert list(frames.of_set(measured, "counters")["value"]) == [0, 10, 20, 30]


@pytest.mark.usefixtures("unpainted")
def test_a_run_without_panels_is_reported_without_a_plot_of_its_counters(measured: Path) -> None:
    assert COUNTED in write_report(measured).read_text(encoding="utf-8")
    (measured / "one" / "counters.json").unlink()
    assert COUNTED not in write_report(measured).read_text(encoding="utf-8")
    (measured / "one" / "counters.json").write_text("nonsense")
    page = write_report(measured).read_text(encoding="utf-8")
    assert "counters.json is damaged" in page
    assert COUNTED not in page


def test_a_file_of_another_day_is_the_users_mistake(measured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = measured / "one" / "process" / "clock.json"
    path.write_text('{"go_s": 0, "start_s": 1, "end_s": 4, "stopped_s": 4}')
    assert main(["report", str(measured), "--attach-sar", str(RECORDED)]) == 2
    assert "give the file of that day" in capsys.readouterr().err


@pytest.mark.usefixtures("unpainted")
def test_a_damaged_file_is_a_note_on_the_page(measured: Path) -> None:
    (measured / "one" / "sar.parquet").write_bytes(b"nonsense")
    page = write_report(measured).read_text(encoding="utf-8")
    assert "sar.parquet is damaged" in page


def test_each_node_has_a_line_of_cores_memory_and_reads():
    rows = [
        {"node": node, "second": second, "cpu_percent": 50 * place, "rss_bytes": 1e6 * place, "read_bytes": second}
        for place, node in enumerate(("node 1", "node 2", "vmagent"), 1)
        for second in (0.0, 1.0, 2.0)
    ]
    figure = system_plots.nodes(pd.DataFrame(rows))
    cores, memory, disk = figure.axes
    assert [panel.get_title(loc="left") for panel in figure.axes] == [
        "CPU of each node", "Memory of each node", "Disk reads of each node"
    ]  # fmt: skip
    assert [line.get_label() for line in cores.lines] == ["node 1", "node 2", "vmagent"]
    assert [list(line.get_ydata()) for line in cores.lines] == [[0.5] * 3, [1.0] * 3, [1.5] * 3]  # type: ignore[arg-type]
    assert [line.get_ydata()[0] for line in memory.lines] == [1e6, 2e6, 3e6]  # type: ignore[index]
    assert [list(line.get_ydata()) for line in disk.lines] == [[0.0, 1.0, 2.0]] * 3  # type: ignore[arg-type]
    assert len({line.get_color() for line in cores.lines}) == 3
