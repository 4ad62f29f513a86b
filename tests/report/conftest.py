"""Result sets that are made once and only read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from markupsafe import Markup, escape

from tsbench.report import style

from .synthetic import Shape, make_results

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

OPS = (("write", "write"), ("double-groupby-1", "query"), ("lastpoint", "query"))
SMALL = {"seconds": 8, "warmup": 2, "rate": 60, "ops": OPS}
MIXED = [
    Shape(cell="postgres-btree", stall_at=5, **SMALL),  # type: ignore[arg-type]
    Shape(cell="postgres-brin", seed=2, validity="inconclusive", reason="its event loop used 93% of a core", **SMALL),  # type: ignore[arg-type]
    Shape(cell="mongodb-wide", seed=3, validity="invalid", wrong=3, reason="3 answers are wrong", **SMALL),  # type: ignore[arg-type]
    Shape(cell="influxdb-native", seed=4, state="failed", error="the server died (signal 9)", **SMALL),  # type: ignore[arg-type]
    Shape(cell="sqlite-wal", seed=5, state="interrupted", **SMALL),  # type: ignore[arg-type]
]


@pytest.fixture(scope="session")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five runs of an open loop: valid, inconclusive, invalid, failed, interrupted."""
    return make_results(tmp_path_factory.mktemp("results") / "20261120-101500-quickstart", MIXED)


@pytest.fixture(scope="session")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run of a closed loop that only asks."""
    shape = Shape(cell="sqlite-wal", loop="closed", **SMALL | {"ops": (("lastpoint", "query"),)})  # type: ignore[arg-type]
    return make_results(tmp_path_factory.mktemp("results") / "single", [shape])


@pytest.fixture
def painted_by_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves all figures out of pages but the one by case; each takes 0.3 s."""
    embed = style.embed

    def embed_one(figure: Figure, *, name: str, alt: str) -> Markup:
        return embed(figure, name=name, alt=alt) if name == "all-cases" else escape(alt)

    monkeypatch.setattr(style, "embed", embed_one)
