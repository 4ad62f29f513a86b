"""Panels of counters: how the report plots what a database counts, as counters.json of a run keeps it.

The database's own package says what its counters mean; the report knows them from the run directory alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from tsbench.results.rundir import FORMAT, write_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tsbench.results.rundir import RunDir

Unit = Literal["count", "bytes"]
Kind = Literal["rate", "gauge"]
FILE = "counters.json"


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot of counters over time.

    Parameters
    ----------
    unit
        The unit of all its counters.
    kind
        `rate`: the counters are totals since the server was started, plotted per second; `gauge`: as they are.
    counters
        The label of each counter, by its name in counters.parquet.
    explains_stalls
        True if a rise of one of its counters may be why the database stalled; False for counters that merely follow
        the load, such as rows inserted.
    """

    title: str
    unit: Unit
    kind: Kind
    counters: Mapping[str, str]
    explains_stalls: bool = False


def write_panels(path: Path, panels: Sequence[Panel]) -> None:
    """Write the panels of a run's counters.

    Raises
    ------
    tsbench.errors.Broken
        If the disk is full.
    """
    write_json(path, {"format": FORMAT, "panels": [asdict(panel) for panel in panels]})


def read_panels(run: RunDir) -> tuple[Panel, ...]:
    """Return the panels of a run's counters; none where the run has no such file.

    Raises
    ------
    tsbench.errors.UserMistake
        If the file is damaged.
    """
    panels = run.read_json(FILE).get("panels") if run.has(FILE) else None
    return tuple(panel for one in panels or () if (panel := _panel(one)) is not None)


def _panel(content: Any) -> Panel | None:
    """Return a panel; None for one that this version cannot plot."""
    if not isinstance(content, Mapping) or not isinstance(content.get("counters"), Mapping):
        return None
    if content.get("unit") not in get_args(Unit) or content.get("kind") not in get_args(Kind):
        return None
    labels = {str(name): str(label) for name, label in content["counters"].items()}
    explains = content.get("explains_stalls") is True
    return Panel(str(content.get("title", "")), content["unit"], content["kind"], labels, explains)
