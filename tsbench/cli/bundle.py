"""The archive that goes with a bug's report: what `tsbench doctor` prints, versions, and the texts of a result set."""

from __future__ import annotations

import io
import os
import platform
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZIP_DEFLATED, ZipFile

from rich.console import Console

from tsbench import __version__
from tsbench.errors import UserMistake
from tsbench.text import conceal, hide

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

_SECRET = ("PASSWORD", "TOKEN", "SECRET")
_TEXTS = (".json", ".log", ".toml", ".txt")
_MOST_BYTES = 1_000_000
"""Bytes that are kept of a text: its end, since that is where a log says what went wrong."""


def write(path: Path, machine: Table, results: Path | None) -> list[str]:
    """Write the archive, and return the names of its files; secrets of the environment are struck out.

    Raises
    ------
    tsbench.errors.UserMistake
        If the file is there already, or `results` is no directory.
    """
    if path.exists():
        raise UserMistake(f"--bundle {path}: is there already; name another file")
    if results is not None and not results.is_dir():
        raise UserMistake(f"{results}: is no directory; give a result set, such as results/20261120-101500-my")
    _hide_secrets()
    with ZipFile(path, "x", ZIP_DEFLATED) as archive:
        for name, text in _parts(machine, results):
            archive.writestr(name, conceal(text).replace(str(Path.home()), "~"))
        return archive.namelist()


def _hide_secrets() -> None:
    for name, value in os.environ.items():
        if any(word in name.upper() for word in _SECRET):
            hide(value)
            with suppress(OSError, ValueError):  # TSBENCH_PASSWORD_FILE and its like
                if name.endswith("_FILE"):
                    hide(Path(value).read_text(encoding="utf-8").strip())


def _parts(machine: Table, results: Path | None) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each file."""
    shown = io.StringIO()
    Console(file=shown, width=200).print(machine)
    yield "doctor.txt", shown.getvalue()
    system = f"tsbench {__version__}\nPython {platform.python_version()}\n{platform.platform()}\n"
    packages = sorted({f"{one.name}=={one.version}" for one in metadata.distributions()}, key=str.lower)
    yield "versions.txt", "\n".join([system, *packages, ""])
    yield "variables.txt", "\n".join(sorted(name for name in os.environ if name.startswith(("TSBENCH_", "LOCUST_"))))
    for path in sorted(results.rglob("*")) if results is not None else ():
        if path.suffix in _TEXTS and path.is_file():
            with suppress(OSError):
                content = path.read_bytes()[-_MOST_BYTES:]
                yield f"results/{path.relative_to(results or path)}", content.decode(errors="replace")
