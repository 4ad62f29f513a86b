"""The notebooks run from top to bottom on result sets, and import nothing of tsbench but its public face."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.report.synthetic import Shape, make_results

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
TOUR, STUDIES = NOTEBOOKS / "analyse.ipynb", NOTEBOOKS / "studies.ipynb"
BOTH = pytest.mark.parametrize("notebook", [TOUR, STUDIES], ids=lambda path: path.stem)


def sources(notebook: Path) -> list[str]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


@BOTH
def test_it_imports_only_the_public_face(notebook: Path):
    modules = re.findall(r"^(?:from|import) (tsbench[\w.]*)", "\n".join(sources(notebook)), flags=re.MULTILINE)
    assert modules == ["tsbench"]


@BOTH
def test_it_is_kept_without_outputs(notebook: Path):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in cells)


def displayed(notebook: Path, monkeypatch: pytest.MonkeyPatch, results: Path) -> list[object]:
    """Return what the notebook's code displays, run as plain Python."""
    shown: list[object] = []
    monkeypatch.setenv("TSBENCH_RESULTS", str(results))
    names: dict[str, object] = {"display": shown.append}  # what a kernel gives
    for cell in sources(notebook):
        source = cell.replace("%matplotlib inline\n", "")
        exec(compile(source, str(notebook), "exec"), names)
    return shown


def test_the_tour_strikes_out_what_does_not_count(mixed: Path, monkeypatch: pytest.MonkeyPatch):
    shown = displayed(TOUR, monkeypatch, mixed)
    assert len(shown) >= 11
    assert "line-through" in shown[0].to_html()  # type: ignore[attr-defined]


def test_every_study_has_a_section_and_one_that_was_run_has_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    studies = [path.stem for path in (NOTEBOOKS.parent / "scenarios" / "studies").glob("*.toml")]
    small: dict[str, object] = {"seconds": 4, "warmup": 1, "rate": 150}
    shapes = [
        Shape(cell="late", delayed=0.3, **small),  # type: ignore[arg-type]
        Shape(cell="wrong", validity="invalid", reason="wrong", doubted="answers", **small),  # type: ignore[arg-type]
    ]
    path = make_results(tmp_path / "one", shapes) / "summary.json"
    path.write_text(path.read_text().replace('"quickstart"', '"low-end"', 1))
    shown = displayed(STUDIES, monkeypatch, tmp_path / "one")
    missing = {str(one).rpartition("/")[2] for one in shown if isinstance(one, str)}
    assert missing == {*studies} - {"low-end"}
    (table,) = (one.to_html() for one in shown if hasattr(one, "to_html") and "cell" in getattr(one, "columns", ()))
    assert table.count("line-through") == 1
    assert re.search(r"[\d.]+ to [\d.]+ ms", table)


@pytest.mark.slow
@BOTH
@pytest.mark.needs("nbclient", "ipykernel", "nbformat")
def test_jupyter_executes_it(notebook: Path, single: Path, monkeypatch: pytest.MonkeyPatch):
    import nbclient
    import nbformat

    monkeypatch.setenv("TSBENCH_RESULTS", str(single))
    content = nbformat.read(notebook, as_version=4)
    nbclient.NotebookClient(content, timeout=120, resources={"metadata": {"path": str(NOTEBOOKS)}}).execute()
