"""Prepared recordings: kept in a cache of the user's, found again by their files, or by their digest."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tsbench.errors import Broken, UserMistake, advise, is_disk_full, require
from tsbench.workload.layout import Layout, Tag
from tsbench.workload.recording import ABOUT, Recorded, recorded_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tsbench.scenario.own_data import RecordingPart

_FORM = 4
"""Version of the form of prepared recordings."""
Mapped: TypeAlias = "Sequence[RecordingPart]"
"""The measurements of a recording."""


def prepared(parts: Mapped, place: Path) -> tuple[RecordingPart, ...]:
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
    whole = [part.model_copy(update={"files": _files(part, place), "digest": ""}) for part in parts]
    known = _known(whole)
    try:
        digest = known.read_text(encoding="utf-8")
        recorded_at(_recordings() / digest)
    except (OSError, ValueError, TypeError):
        digest = _prepare(whole, known)
    return tuple(part.model_copy(update={"digest": digest}) for part in whole)


def _files(part: RecordingPart, place: Path) -> tuple[str, ...]:
    files = tuple(sorted(os.path.abspath(path) for path in glob.glob(str(place / part.file), recursive=True)))  # noqa: PTH100, PTH207
    if not files:
        raise UserMistake(f"recording.file: there is no {part.file} in {place.absolute()}")
    return files


def recorded(parts: Mapped) -> Recorded:
    """Return the points of a prepared recording, of this machine's copy of the files if another one prepared them.

    Raises
    ------
    UserMistake
        If this machine has no copy, or another one.
    """
    digest = parts[0].digest
    try:
        return recorded_at(_recordings() / digest)
    except OSError:
        pass
    absent = next((path for part in parts for path in part.files if not Path(path).is_file()), None)
    if absent is not None:
        raise UserMistake(f"{absent}: this machine has no copy of the recording; put one there")
    bare = [part.model_copy(update={"digest": ""}) for part in parts]
    if _prepare(bare, _known(bare)) != digest:
        raise UserMistake(
            f"{parts[0].files[0]}: is not the recording that the run was planned with; copy that one here"
        )
    return recorded_at(_recordings() / digest)


def layouts_of(parts: Mapped) -> tuple[Layout, ...]:
    """Return the measurements of a prepared recording."""
    measurements = recorded(parts).measurements
    return tuple(Layout(m.name, m.fields, (), sparse=all(one.nullable for one in m.fields)) for m in measurements)


def tags_of(parts: Mapped) -> tuple[Tag, ...]:
    """Return the tags of a prepared recording with the values that they have."""
    return tuple(Tag(name, choices=codes.values) for name, codes in recorded(parts).tags.items())


def _known(parts: Mapped) -> Path:
    """Return the path of the file that has the digest; another one after a change of the mapping, or of a file."""
    paths = [path for part in parts for path in part.files]
    status = [(path, os.stat(path).st_size, os.stat(path).st_mtime_ns) for path in paths]  # noqa: PTH116
    said = json.dumps([_FORM, status, [part.model_dump(mode="json") for part in parts]], sort_keys=True)
    return _recordings() / f"{hashlib.sha256(said.encode()).hexdigest()[:32]}.txt"


def _prepare(parts: Mapped, known: Path) -> str:
    """Read the files, keep their points, and return the digest of these; `known` becomes a file with it."""
    from tsbench.scenario import preparing  # noqa: PLC0415 - of an extra

    try:
        known.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=known.parent) as scratch:
            made, about = preparing.prepared(parts, Path(scratch))
            target = known.parent / about["digest"]
            (made / ABOUT).write_text(json.dumps(about), encoding="utf-8")
            is_whole = all((target / path.name).exists() for path in made.iterdir())
            if not is_whole:  # else another process was faster, and may read it
                shutil.rmtree(target, ignore_errors=True)
                made.rename(target)
        known.write_text(about["digest"], encoding="utf-8")
    except OSError as error:
        said = advise(str(error), str(known.parent))
        kind = Broken if is_disk_full(said) else UserMistake
        raise kind(f"{known.parent}: cannot keep the recording's points: {said}; set TSBENCH_CACHE") from None
    return str(about["digest"])


def cache() -> Path:
    """Return the directory of files that tsbench makes again when somebody deletes them."""
    given = os.environ.get("TSBENCH_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return Path(given or f"{base}/tsbench").absolute()


def _recordings() -> Path:
    return cache() / "recordings"
