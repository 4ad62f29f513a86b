"""Plug-ins: targets and use cases of installed packages, and files of Python that `--plugin` names.

A package names what it brings by entry points of the groups `tsbench.targets` and `tsbench.use_cases`. The files are in
the environment variable `TSBENCH_PLUGIN`, which all processes of a run inherit; each is a module by its own name.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from importlib.abc import MetaPathFinder
from importlib.metadata import entry_points
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from tsbench.errors import UserMistake, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from importlib.metadata import EntryPoint
    from types import FrameType, ModuleType

VARIABLE = "TSBENCH_PLUGIN"
"""Environment variable with the paths of files, as PATH has them."""
TARGETS, USE_CASES = "tsbench.targets", "tsbench.use_cases"
"""Groups of entry points, each `name = "module:attribute"`."""
IMPORT_S = 20.0
"""Time limit for the import of a plug-in, in seconds."""


class Unusable(Exception):  # noqa: N818 - a plug-in's state
    """A plug-in that cannot be used; the text is the reason, on one line."""


class _Finder(MetaPathFinder):
    """Finds the modules of the files, after all others."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how the module of a file is loaded."""
        file = files().get(fullname)
        return None if file is None else spec_from_file_location(fullname, file)


def install() -> None:
    """Let modules of the files be imported by their names in this process."""
    if not any(isinstance(one, _Finder) for one in sys.meta_path):
        sys.meta_path.append(_Finder())


def files() -> Mapping[str, Path]:
    """Return the files of plug-ins by the names of their modules."""
    paths = map(Path, filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)))
    return {path.stem: path for path in paths}


def add(path: Path) -> None:
    """Let this process, and those that it starts, use a file.

    Raises
    ------
    tsbench.errors.UserMistake
        If it cannot be a module's file.
    """
    place = path.absolute()
    if not place.is_file():
        raise UserMistake(f"--plugin {path}: there is no such file")
    if path.suffix != ".py" or not path.stem.isidentifier() or os.pathsep in str(place):
        raise UserMistake(
            f"--plugin {path}: its name must be that of a Python module, such as mydb.py, without '{os.pathsep}'"
        )
    if files().get(path.stem) == place:
        return
    if path.stem in files() or find_spec(path.stem) is not None:
        raise UserMistake(f"--plugin {path}: another module is called '{path.stem}'; rename the file")
    os.environ[VARIABLE] = os.pathsep.join(map(str, [*files().values(), place]))
    install()


def load(place: str) -> Any:
    """Import a module of a plug-in, and return it, or its attribute (`module:attribute`).

    Raises
    ------
    Unusable
        If it cannot be imported, whatever the plug-in raises, or not within `IMPORT_S`.
    """
    try:
        with _limited():
            return resolve_name(place)
    except Exception as error:  # noqa: BLE001 - somebody else's module raises anything
        raise Unusable(f"{place} cannot be imported ({type(error).__name__}: {one_line(error)[:200]})") from None
    except SystemExit:
        raise Unusable(f"{place} cannot be imported (it ends the process)") from None


@contextmanager
def _limited() -> Iterator[None]:
    """Raise TimeoutError in code of Python that takes longer than an import may; only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"it takes longer than {IMPORT_S:g} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, IMPORT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@cache
def points(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of installed packages by name."""
    return {point.name: point for point in entry_points(group=group)}


def versions(target: str) -> dict[str, str]:
    """Return the package of a plug-in's target with its version, or the files with their digests."""
    point = points(TARGETS).get(target)
    if point is not None and point.dist is not None:
        return {point.dist.name: point.dist.version}
    return {path.name: f"sha256 {sha256(path.read_bytes()).hexdigest()[:16]}" for path in files().values()}


def use_case(name: str) -> Path | None:
    """Return the file of a use case that a package brings under that name; None if none does.

    Raises
    ------
    tsbench.errors.UserMistake
        If the entry point leads to anything but the path of a use-case file of the same name.
    """
    point = points(USE_CASES).get(name)
    if point is None:
        return None
    try:
        path = load(point.value)
    except Unusable as why:
        raise UserMistake(f"the use case '{name}' of an installed package cannot be used: {why}") from None
    if not isinstance(path, str | os.PathLike) or Path(path).name != f"{name}.toml":
        text = f"{point.value} is not the path of a file {name}.toml"
        raise UserMistake(f"the use case '{name}' of an installed package cannot be used: {text}")
    return Path(path)
