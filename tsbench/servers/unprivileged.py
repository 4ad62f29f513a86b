"""Servers that root starts run as `nobody`: places for their data and their programs that this user can enter.

PostgreSQL refuses to run as root, the usual user in a container, and no server needs to. `nobody` cannot enter a
directory of mode 700 such as /root or pytest's. Files that a server needs from such a place are put below
/var/tmp/tsbench-root: its data, one directory per server directory, removed at a later start when the latter is gone;
and copies of its programs, one per version, made once and checked at every start.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pwd
import shutil
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsbench.errors import Broken, UserMistake

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_NAME = "nobody"
_MEANT_FOR_SHELLS = frozenset('"$`\\')
"""Characters with a meaning between double quotes in a shell, which is how initdb starts `postgres`."""


def user() -> str | None:
    """Return the user that servers run as; None if it is the caller."""
    return _NAME if os.geteuid() == 0 else None


def _account() -> pwd.struct_passwd | None:
    name = user()
    return None if name is None else pwd.getpwnam(name)


def credentials() -> dict[str, Any]:
    """Return the arguments of `subprocess.run` that change to the servers' user."""
    account = _account()
    return {} if account is None else {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


# --- data -------------------------------------------------------------------------------------------------------------


def place(directory: Path) -> Path:
    """Return the directory of a server's files: below `directory`, or in /var/tmp if its user cannot enter that."""
    if user() is None or _enterable(directory):
        return directory / "server"
    return _shelter() / f"data-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]}"


def make(directory: Path) -> Path:
    """Create the directory of a server's files, which only its user may enter, and return it."""
    where = place(directory)
    if where.parent == directory:
        make_private(where)
        return where
    _make_shelter()
    _sweep()
    link = directory / "server"
    if not link.is_symlink() and not link.exists():  # the data belongs to an earlier directory of that name
        shutil.rmtree(where, ignore_errors=True)
    _write_origin(where, directory)
    make_private(where)
    with suppress(FileExistsError):
        link.symlink_to(where)
    return where


def make_private(path: Path) -> None:
    """Create a directory, or use an existing one, which only the servers' user may enter."""
    path.mkdir(mode=0o700, exist_ok=True)
    if (owner := _account()) is not None:
        shutil.chown(path, owner.pw_uid, owner.pw_gid)


def remove(directory: Path) -> None:
    """Delete the directory of a server's files and the server's directory."""
    where = place(directory)
    shutil.rmtree(where, ignore_errors=True)
    shutil.rmtree(directory, ignore_errors=True)
    if where.parent != directory:
        _origin(where).unlink(missing_ok=True)


def write_once(path: Path, text: str) -> None:
    """Write a new file that only the servers' user can read; fail if it exists, so that no link can redirect it."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        if (owner := _account()) is not None:
            os.fchown(file.fileno(), owner.pw_uid, owner.pw_gid)


def _sweep() -> None:
    """Delete the data whose server directory does not exist any more."""
    for origin in _origins():
        try:
            gone = not Path(origin.read_text(encoding="utf-8")).exists()
        except FileNotFoundError:  # another process, which is starting a server, deleted it first
            continue
        except OSError as error:
            raise Broken(f"{origin} cannot be read: {error.strerror}") from error
        if gone:
            shutil.rmtree(origin.with_suffix(""), ignore_errors=True)
            origin.unlink(missing_ok=True)


def _write_origin(where: Path, directory: Path) -> None:
    """Write the note on the owner of the data atomically: other processes may read it at any time."""
    draft = where.with_name(f"{where.name}.{os.getpid()}")
    draft.write_text(str(directory), encoding="utf-8")
    draft.replace(_origin(where))


def _origins() -> Iterator[Path]:
    return _shelter().glob("data-*.origin")


def _origin(where: Path) -> Path:
    """Return the path of the note on the owner of the data, which is beside the data."""
    return where.with_name(f"{where.name}.origin")


# --- programs ---------------------------------------------------------------------------------------------------------


def package_directory(name: str) -> Path | None:
    """Return the directory of an installed package without importing it; None if it is not installed."""
    spec = find_spec(name)
    directory = spec.submodule_search_locations if spec is not None else None
    return Path(directory[0]) if directory else None


def readable(top: Path, parts: Sequence[str], name: str) -> Path:
    """Return a directory with these `parts` of `top`, and all below them, from which the servers' user can run them.

    It is `top` itself if that user can read it. Otherwise it is a copy with the same layout, since programs find their
    libraries by relative paths. The copy's name contains `name` and a digest of its content, so that another version
    has another copy; a copy that lacks a file (cleaners of /var/tmp delete by age, file by file) is made again.
    """
    files = {str(path.relative_to(top)): path for part in parts for path in _files(top / part)}
    if not _MEANT_FOR_SHELLS & set(str(top)) and (user() is None or _executable([*files.values()])):
        return top
    _make_shelter()
    copy = _shelter() / f"{name}-{_digest(top, tuple(files))}"
    with _locked():
        if not _complete(copy, files):
            shutil.rmtree(copy, ignore_errors=True)
            _copy(files, copy)
    return copy


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    for parent, _, names in os.walk(path):
        yield from (Path(parent, name) for name in sorted(names))


@cache
def _digest(top: Path, names: tuple[str, ...]) -> str:
    """Return a digest of the files' content: the 31 MB of PostgreSQL take about 0.1 s, once per process."""
    digest = hashlib.sha256()
    for name in names:
        digest.update(os.fsencode(name) + b"\0")
        with (top / name).open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def _complete(copy: Path, files: Mapping[str, Path]) -> bool:
    try:
        return all((copy / name).stat().st_size == path.stat().st_size for name, path in files.items())
    except FileNotFoundError:
        return False


def _copy(files: Mapping[str, Path], copy: Path) -> None:
    """Copy the files, all or none; links are replaced by the files that they point to."""
    draft = copy.with_name(f"{copy.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    for name, path in files.items():
        (draft / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, draft / name)
        (draft / name).chmod(0o755 if path.stat().st_mode & 0o111 else 0o644)
    for parent, _, _ in os.walk(draft):
        Path(parent).chmod(0o755)  # independent of the caller's umask
    draft.rename(copy)


def _executable(files: Sequence[Path]) -> bool:
    """Return True if all users may read the files, run the programs among them, and list their directories."""
    real = [*files, *(path.resolve() for path in files if path.is_symlink())]
    directories = {path.parent for path in real}
    if not all(_mode(path) & 0o005 == 0o005 and _enterable(path) for path in directories):
        return False
    return all(mode & 0o004 and (mode & 0o001 or not mode & 0o111) for mode in map(_mode, files))


def _enterable(path: Path) -> bool:
    """Return True if all users may enter a directory and its parents, also if a link points elsewhere."""
    real = path.resolve()
    return all(_mode(p) & 0o001 for p in {path, *path.parents, real, *real.parents} if p.exists())


def _mode(path: Path) -> int:
    return path.stat().st_mode


# --- /var/tmp ---------------------------------------------------------------------------------------------------------


def _shelter() -> Path:
    name = "root" if os.geteuid() == 0 else str(os.geteuid())
    return Path(f"/var/tmp/tsbench-{name}")  # noqa: S108 - checked in _make_shelter


def _make_shelter() -> None:
    shelter = _shelter()
    shelter.mkdir(mode=0o711, exist_ok=True)
    state = shelter.lstat()
    # Every user can make a directory in /var/tmp; its owner could replace the programs that we start.
    if shelter.is_symlink() or state.st_uid != os.geteuid() or state.st_mode & 0o022:
        raise UserMistake(f"{shelter} belongs to somebody else or is writable by others; remove it")
    shelter.chmod(0o711)  # independent of the umask that it was created with


@contextmanager
def _locked() -> Iterator[None]:
    """Keep other processes from making copies meanwhile; the kernel releases the lock of a killed process."""
    with (_shelter() / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
