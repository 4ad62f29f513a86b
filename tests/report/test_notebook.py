"""The notebook runs from top to bottom on a result set, and imports nothing of tsbench but its public face."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "analyse.ipynb"


def sources() -> list[str]:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_it_imports_only_the_public_face():
    modules = re.findall(r"^(?:from|import) (tsbench[\w.]*)", "\n".join(sources()), flags=re.MULTILINE)
    assert modules == ["tsbench"]


def test_it_is_kept_without_outputs():
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in cells)


def test_its_code_runs_in_plain_python(mixed: Path, monkeypatch: pytest.MonkeyPatch):
    shown: list[object] = []
    monkeypatch.setenv("TSBENCH_RESULTS", str(mixed))
    names: dict[str, object] = {"display": shown.append}  # what a kernel gives
    for cell in sources():
        source = cell.replace("%matplotlib inline\n", "")
        exec(compile(source, str(NOTEBOOK), "exec"), names)
    assert len(shown) >= 10


def test_jupyter_executes_it(single: Path, monkeypatch: pytest.MonkeyPatch):
    nbclient = pytest.importorskip("nbclient", reason="needs the extra 'notebook'")
    pytest.importorskip("ipykernel", reason="needs the extra 'notebook'")
    nbformat = pytest.importorskip("nbformat", reason="needs the extra 'notebook'")
    monkeypatch.setenv("TSBENCH_RESULTS", str(single))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
