"""The order of cells that use one load after the other (`reuse`), and which cells cannot."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from tsbench.errors import UserMistake
from tsbench.run.standing import load_key
from tsbench.scenario.spec import block_points

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tsbench.scenario.spec import RunSpec


def in_groups(path: Path, cells: Sequence[RunSpec], *, keep_order: bool) -> list[RunSpec]:
    """Return the cells with those next to each other that use one load, and one size of blocks in each such group.

    Groups are in the order of their first cells. Within a group the order is drawn from the seed, unless it is to be
    kept.

    Raises
    ------
    UserMistake
        If a cell cannot use data that another one loaded: one line with the file, the key and the cure.
    """
    groups: dict[str, list[RunSpec]] = {}
    for cell in cells:
        if reason := _unfit(cell):
            raise UserMistake(f"{path}: reuse: {cell.id}: {reason}")
        groups.setdefault(_key(cell), []).append(cell)
    found: list[RunSpec] = []
    for group in groups.values():
        block = _common_block(path, group)
        start = {"world": group[0].world, "block": block}
        of_group = group if keep_order else sorted(group, key=_drawn)
        found += [cell.model_copy(update=start) for cell in of_group]
    return found


def _key(cell: RunSpec) -> str:
    """Return what the cells of a group have in common; a start of `now` is read some microseconds later in each."""
    if not cell.relative_start:
        return load_key(cell)
    return load_key(cell.model_copy(update={"world": cell.world.model_copy(update={"start": 0})}))


def _drawn(cell: RunSpec) -> bytes:
    return sha256(f"{cell.world.seed} {cell.id}".encode()).digest()


def _unfit(cell: RunSpec) -> str:
    """Return why a cell needs data of its own, with the cure; "" if it does not."""
    if cell.target.cold:
        return "target.cold restarts the server for each cell; take one of the two out"
    harm = next((event.do for event in cell.event if not event.changes_load), None)
    if harm is not None:
        return f"an [[event]] ({harm}) leaves another server than it found; take one of the two out"
    if cell.server.caps:
        return "the caps of [server] end with a cell's measured window; take one of the two out"
    if cell.drive.window is not None:
        return "drive.window ends the writes, so that later cells would have none; take one of the two out"
    gate = next((one.text for one in cell.demands if one.of == "load"), None)
    return f"the gate {gate} is about the load, which later cells do not have; take one of the two out" if gate else ""


def _common_block(path: Path, group: Sequence[RunSpec]) -> int:
    """Return a number of rows per block that the writes of all cells divide without a remainder."""
    sizes = [op.write for cell in group for op in cell.op if op.write is not None]
    try:
        return block_points(sizes, max(cell.block_points for cell in group))
    except ValueError as error:
        raise UserMistake(f"{path}: reuse: {error}, so that the cells cannot share their streams") from None
