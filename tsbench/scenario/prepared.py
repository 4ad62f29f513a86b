"""Prepared recordings: kept in a cache of the user's, found again by their files, or by their digest."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tsbench.errors import Broken, UserMistake, advise, is_disk_full, require
from tsbench.workload.layout import Layout, Tag
from tsbench.workload.recording import ABOUT, POINTS, Recorded, recorded_at

if TYPE_CHECKING:
    from tsbench.scenario.own_data import RecordingPart

_FORM = 2
"""Version of the form of prepared recordings."""


def prepared(part: RecordingPart, place: Path) -> RecordingPart:
    """Return a recording's keys with the files below `place` and their digest; they are read unless they were before.

    Raises
    ------
    UserMistake
        If there are none, or they do not have what the keys say: one line with file and row.
    Broken
        If the prepared points cannot be written.
    """
    require("polars", "files")
    require("pyarrow", "files")
    files = tuple(sorted(os.path.abspath(path) for path in glob.glob(str(place / part.file), recursive=True)))  # noqa: PTH100, PTH207
    if not files:
        raise UserMistake(f"recording.file: there is no {part.file} in {place.absolute()}")
    whole = part.model_copy(update={"files": files, "digest": ""})
    known = _known(whole)
    try:
        digest = known.read_text(encoding="utf-8")
        recorded_at(_cache() / digest)
    except (OSError, ValueError, TypeError):
        digest = _prepare(whole, known)
    return whole.model_copy(update={"digest": digest})


def recorded(part: RecordingPart) -> Recorded:
    """Return the points of a prepared recording, of this machine's copy of the files if another one prepared them.

    Raises
    ------
    UserMistake
        If this machine has no copy, or another one.
    """
    try:
        return recorded_at(_cache() / part.digest)
    except OSError:
        pass
    absent = next((path for path in part.files if not Path(path).is_file()), None)
    if absent is not None:
        raise UserMistake(f"{absent}: this machine has no copy of the recording; put one there")
    bare = part.model_copy(update={"digest": ""})
    if (digest := _prepare(bare, _known(bare))) != part.digest:
        raise UserMistake(f"{part.files[0]}: is not the recording that the run was planned with; copy that one here")
    return recorded_at(_cache() / digest)


def layouts_of(part: RecordingPart) -> tuple[Layout, ...]:
    """Return the measurement of a prepared recording."""
    return (Layout(part.measurement, recorded(part).fields, ()),)


def tags_of(part: RecordingPart) -> tuple[Tag, ...]:
    """Return the tags of a prepared recording with the values that they have."""
    return tuple(Tag(name, choices=codes.values) for name, codes in recorded(part).tags.items())


def _known(part: RecordingPart) -> Path:
    """Return the path of the file that has the digest; another one after a change of the mapping, or of a file."""
    status = [(path, os.stat(path).st_size, os.stat(path).st_mtime_ns) for path in part.files]  # noqa: PTH116
    said = json.dumps([_FORM, status, part.model_dump(mode="json")], sort_keys=True)
    return _cache() / f"{hashlib.sha256(said.encode()).hexdigest()[:32]}.txt"


def _prepare(part: RecordingPart, known: Path) -> str:
    """Read the files, keep their points, and return the digest of these; `known` becomes a file with it."""
    from tsbench.scenario import preparing  # noqa: PLC0415 - of an extra

    try:
        known.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=known.parent) as scratch:
            made, about = preparing.prepared(part, Path(scratch))
            target = known.parent / about["digest"]
            (made / ABOUT).write_text(json.dumps(about), encoding="utf-8")
            if not (target / POINTS).exists():  # else another process was faster, and may read it
                shutil.rmtree(target, ignore_errors=True)
                made.rename(target)
        known.write_text(about["digest"], encoding="utf-8")
    except OSError as error:
        said = advise(str(error), str(known.parent))
        kind = Broken if is_disk_full(said) else UserMistake
        raise kind(f"{known.parent}: cannot keep the recording's points: {said}; set TSBENCH_CACHE") from None
    return str(about["digest"])


def _cache() -> Path:
    """Return the directory of prepared recordings."""
    given = os.environ.get("TSBENCH_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return Path(given or f"{base}/tsbench").absolute() / "recordings"
