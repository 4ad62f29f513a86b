"""Cells that use one load: their order (`reuse`), which cells cannot, and the load of another campaign (`--loaded`)."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from tsbench.errors import UserMistake
from tsbench.run.examination import changed_since
from tsbench.run.keeping import first_difference, read_kept, unfit_write
from tsbench.run.standing import OWN, Standing, load_key
from tsbench.scenario.spec import block_points
from tsbench.scenario.validation import schema_of
from tsbench.targets import registry

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tsbench.scenario.spec import RunSpec


def in_groups(path: Path, cells: Sequence[RunSpec], *, keep_order: bool) -> list[RunSpec]:
    """Return the cells in groups that share a load, with the same size of blocks in a group.

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
    specs: list[RunSpec] = []
    for group in groups.values():
        block = _common_block(path, group)
        start = {"world": group[0].world, "block": block}
        of_group = group if keep_order else sorted(group, key=_drawn)
        specs += [cell.model_copy(update=start) for cell in of_group]
    return specs


def for_kept(cells: Sequence[RunSpec], loaded: Path | None, *, keep: bool) -> list[RunSpec]:
    """Return the cells as they are run if the last database is to be kept, or one that `loaded` keeps is used.

    Raises
    ------
    UserMistake
        If nothing outlasts a cell, the set keeps none, a cell needs other data, or the data are not as the set left
        them: one line that names the first difference.
    """
    for cell in cells if keep else ():
        if not registry.get(cell.target.name).durable:
            raise UserMistake(f"--keep: {cell.id}: {cell.target.name} keeps no data; leave it out")
    if loaded is None:
        return list(cells)
    kept = read_kept(loaded)
    spec = kept.spec()
    block = _common_block(loaded, cells) if kept.is_only_loaded else spec.block_points
    same = {"start": spec.world.start}
    specs = []
    for cell in cells:
        world = cell.world.model_copy(update=same) if cell.relative_start and spec.relative_start else cell.world
        there = cell.target.model_copy(update={"endpoint": cell.target.endpoint or spec.target.endpoint})
        asked = cell.model_copy(update={"world": world, "target": there})
        if why := first_difference(asked, spec, OWN) or unfit_write(cell, block):
            raise UserMistake(f"--loaded {loaded}: {cell.id} needs other data: {why}")
        specs.append(asked.model_copy(update={"block": block, "load": spec.load}))
    target = registry.get(spec.target.name)
    runs, schema = kept.run_dirs, schema_of(spec, target)
    if why := changed_since(runs, spec, target, schema, kept.endpoint, kept.stored):
        raise UserMistake(f"--loaded {loaded}: its data are not as {runs[-1].cell_id} left them: {why}")
    return specs


def standing_on(loaded: Path | None, cells: Sequence[RunSpec], results: Path, *, keep: bool) -> Standing:
    """Return the server of a campaign: none yet, or the one that the result set `loaded` keeps."""
    standing = Standing(results, stays=keep)
    if loaded is not None:
        standing.go_on(read_kept(loaded), loaded.absolute(), cells[0])
    return standing


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
    if cell.load.duration is not None:
        return "load.duration ends each load at other points; take one of the two out"
    gate = next((one.text for one in cell.demands if one.of == "load"), None)
    return f"the gate {gate} is about the load, which later cells do not have; take one of the two out" if gate else ""


def _common_block(path: Path, group: Sequence[RunSpec]) -> int:
    """Return a number of rows per block that the writes of all cells divide without a remainder."""
    sizes = [op.write for cell in group for op in cell.op if op.write is not None]
    try:
        return block_points(sizes, max(cell.block_points for cell in group))
    except ValueError as error:
        raise UserMistake(f"{path}: {error}, so that the cells cannot share their streams") from None
