"""Servers that refuse to run as root: as whom they run instead, and where that user can read and write.

PostgreSQL (and others after it) will not start as root, which is what one often is in a container. Then they run as
`nobody`, who cannot enter a directory of mode 700 such as /root or pytest's. What such a server needs is put below
/var/tmp/tsbench-root: its data, one directory per server directory, removed at a later start when the latter is gone;
and a copy of its programs, one per version, made once.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsbench.errors import Broken, UserMistake

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME = "nobody"


def user() -> str | None:
    """The user that servers run as, where that is not the caller."""
    return _NAME if os.geteuid() == 0 else None


def credentials() -> dict[str, Any]:
    """The arguments of `subprocess.run` that change to that user."""
    name = user()
    return {} if name is None else {"user": name, "group": pwd.getpwnam(name).pw_gid, "extra_groups": []}


def place(directory: Path) -> Path:
    """Where a server that lives in `directory` keeps its data: there, or below /var/tmp where its user cannot go."""
    if user() is None or _reachable(directory):
        return directory / "server"
    return _shelter() / f"data-{hashlib.sha256(str(directory).encode()).hexdigest()[:16]}"


def make(directory: Path) -> None:
    """Make the place of a server's data, and in it `socket`, owned by its user and closed to others."""
    where = place(directory)
    if where.parent != directory:
        _make_shelter()
        _sweep()
    where.mkdir(mode=0o700, exist_ok=True)
    if where.parent != directory:
        with suppress(FileExistsError):
            (directory / "server").symlink_to(where)
        _write_origin(where, directory)
    (where / "socket").mkdir(mode=0o700, exist_ok=True)
    name = user()
    if name is not None:
        for path in (where, where / "socket"):
            shutil.chown(path, name, pwd.getpwnam(name).pw_gid)


def write_once(path: Path, text: str) -> None:
    """A new file that only the servers' user can read; fails if there is one, so that no link can redirect it."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        name = user()
        if name is not None:
            os.fchown(file.fileno(), pwd.getpwnam(name).pw_uid, pwd.getpwnam(name).pw_gid)


def reachable_copy(installation: Path, distribution: str) -> Path:
    """The installation itself, or a copy of it where the servers' user cannot reach it (a venv below /root)."""
    if user() is None or _reachable(installation):
        return installation
    _make_shelter()
    copy = _shelter() / f"{distribution}-{version(distribution)}-{installation.name}"
    if not copy.exists():
        draft = copy.with_name(f"{copy.name}.{os.getpid()}")
        shutil.copytree(installation, draft, symlinks=True)
        for path in (draft, *draft.rglob("*")):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o555 if path.is_dir() or os.access(path, os.X_OK) else 0o444))
        try:
            draft.rename(copy)
        except OSError:  # another process was faster
            shutil.rmtree(draft)
    return copy


def package_directory(name: str) -> Path | None:
    """Where a package is installed, without importing it."""
    spec = find_spec(name)
    found = spec.submodule_search_locations if spec is not None else None
    return Path(found[0]) if found else None


def _reachable(path: Path) -> bool:
    """Whether everybody may enter the path and all directories above it."""
    return all(p.stat().st_mode & 0o001 for p in (path, *path.parents) if p.exists())


def _shelter() -> Path:
    return Path(f"/var/tmp/tsbench-{pwd.getpwuid(os.geteuid()).pw_name}")  # noqa: S108 - checked in _make_shelter


def _make_shelter() -> None:
    shelter = _shelter()
    shelter.mkdir(mode=0o711, exist_ok=True)
    state = shelter.lstat()
    # Anybody can make a directory in /var/tmp. One that another user owns could swap the programs that we start.
    if shelter.is_symlink() or state.st_uid != os.geteuid() or state.st_mode & 0o022:
        raise UserMistake(f"{shelter} belongs to somebody else or is writable by others; remove it")


def _sweep() -> None:
    """Remove the data whose server directory is gone."""
    for origin in _origins():
        try:
            gone = not Path(origin.read_text(encoding="utf-8")).exists()
        except FileNotFoundError:  # another process that starts a server just now was faster
            continue
        except OSError as error:
            raise Broken(f"{origin} cannot be read: {error.strerror}") from error
        if gone:
            shutil.rmtree(origin.with_suffix(""), ignore_errors=True)
            origin.unlink(missing_ok=True)


def _write_origin(where: Path, directory: Path) -> None:
    """Whole or not at all: other processes look through these notes at any time."""
    draft = where.with_name(f"{where.name}.{os.getpid()}")
    draft.write_text(str(directory), encoding="utf-8")
    draft.replace(_origin(where))


def _origins() -> Iterator[Path]:
    return _shelter().glob("data-*.origin")


def _origin(where: Path) -> Path:
    """The note that says whose data it is; beside the data, since what is in there belongs to the server's user."""
    return where.with_name(f"{where.name}.origin")
