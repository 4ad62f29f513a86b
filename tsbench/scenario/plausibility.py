"""What a scenario would cost at best, so that a slip of a zero or a unit is found before anything is started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsbench.errors import UserMistake
from tsbench.units import NS_PER_S, format_size
from tsbench.workload.use_cases import USE_CASES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tsbench.scenario.spec import RunSpec

FASTEST_LOAD = 1_000_000.0
"""Points per second; few databases on one machine store more."""
MOST_LOAD_S = 24 * 3_600.0
MOST_MEASURED_S = 7 * 24 * 3_600.0
SERIES_BYTES = 170
"""Memory of each process for the tags of one series."""
USER_BYTES = 50_000
"""Memory of a load process for one user; its session may need more."""
MOST_BYTES = 500_000_000
YES = "or give --yes to run it nevertheless"


def expect_plausible(path: Path, cells: Sequence[RunSpec]) -> None:
    """Refuse a scenario that would take days or much memory even on the fastest database.

    Raises
    ------
    UserMistake
        One line that says what it would cost, which keys to change, and `--yes`.
    """
    for cell in cells:
        world = cell.world
        points = points_of(world.use_case, world.form, world.scale, -(-cell.load.window // world.interval))
        why = too_many_points(points) or _too_much_memory(cell)
        if why:
            cure = f"change {why[1] or 'load.window, world.interval or world.scale'}, {YES}"
            raise UserMistake(f"{path}: {cell.id} would {why[0]}; {cure}")
    measured_s = sum(cell.drive.longest_warmup + _measured_ns(cell) for cell in cells) / NS_PER_S
    if measured_s > MOST_MEASURED_S:
        text = f"{len(cells):,} cells would be measured for {duration_text(measured_s)}"
        raise UserMistake(f"{path}: {text}; change drive.duration or the matrix, {YES}")


def points_of(use_case: str, form: str, scale: int, ticks: int) -> int:
    """Return the number of points of a world; 0 for a use case or form that does not exist."""
    forms = USE_CASES[use_case].forms if use_case in USE_CASES else {}
    return scale * ticks * len(forms.get(form, ()))


def too_many_points(points: int) -> tuple[str, str] | None:
    """Return what storing the points would cost if that is more than a day; else None."""
    seconds = points / FASTEST_LOAD
    if seconds <= MOST_LOAD_S:
        return None
    return f"store {points:.2g} points, {duration_text(seconds)} at {FASTEST_LOAD:,.0f} points/s", ""


def _too_much_memory(cell: RunSpec) -> tuple[str, str] | None:
    users = max([cell.drive.users, *(step.users for step in cell.drive.steps)])
    series, of_users = SERIES_BYTES * cell.world.scale, USER_BYTES * users
    if series > MOST_BYTES:
        return f"need {format_size(series)} of memory per process for {cell.world.scale:,} series", "world.scale"
    if of_users > MOST_BYTES:
        return f"need at least {format_size(of_users)} of memory for {users:,} users", "drive.users"
    return None


def _measured_ns(cell: RunSpec) -> int:
    return sum(step.duration for step in cell.drive.steps) or cell.drive.duration


def duration_text(seconds: float) -> str:
    """Return a long time in about two digits: `3 days`, `272 years`."""
    days = seconds / 86_400
    return f"about {days:,.0f} days" if days < 1_000 else f"about {days / 365.25:,.0f} years"
