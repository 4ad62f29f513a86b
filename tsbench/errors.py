"""The errors that end a command with a message to the user instead of a traceback."""

from __future__ import annotations

import errno
import resource
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tsbench.text import conceal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_CHARACTERS = 300
"""Characters that are shown of the text of an error which a driver or a library raised: it may hold a whole answer."""


_SPARE_FILES = 4
"""Files that one connection may need at once; with fewer left it fails for their lack."""


class _Message(Exception):  # noqa: N818 - the base of those below
    """An error whose text may repeat what a server said, which may repeat what was sent to it."""

    def __init__(self, text: str = "") -> None:
        super().__init__(conceal(text))


class UserMistake(_Message):
    """Invalid input by the user; the text is one line that names the mistake and the cure (exit code 2)."""


class Unreachable(UserMistake):
    """No server answers at an endpoint: the user's mistake, unless the server has answered before."""


class Broken(_Message):
    """A run that could not be completed, such as after a server's death or with a full disk (exit code 1)."""


class ServerDied(Broken):
    """A step that failed because the server died; `death` describes how it died."""

    def __init__(self, death: str, reason: str) -> None:
        super().__init__(f"{death}; {reason}")
        self.death = death


@contextmanager
def exit_at_mistake() -> Iterator[None]:
    """End a process of Locust's with one line and exit code 2 if a `with` block raises a `UserMistake`."""
    import logging  # noqa: PLC0415 - the command line does without

    try:
        yield
    except UserMistake as error:
        logging.getLogger("tsbench").error("tsbench: %s", error)  # noqa: TRY400 - no traceback
        sys.exit(2)


def missing(modules: Iterable[str]) -> list[str]:
    """Return those of the modules that are not installed; nothing is imported."""
    return [module for module in modules if find_spec(module) is None]


def require(module: str, extra: str) -> None:
    """Verify, without importing it, that a package of one of tsbench's extras is installed.

    Raises
    ------
    UserMistake
        If it is not: one line with the extra.
    """
    if missing([module]):
        raise UserMistake(f"{module} is not installed; pip install 'tsbench[{extra}]'")


def expect_regular(path: Path, cure: str, name: str = "") -> None:
    """Verify that a path, if it exists, is a regular file: to open a FIFO waits for its other end, maybe for ever.

    `name` is what messages call it instead of its path.

    Raises
    ------
    UserMistake
        If it is something else: one line with the cure.
    """
    if not path.exists() or path.is_file():
        return
    kinds = {"directory": path.is_dir, "FIFO": path.is_fifo, "socket": path.is_socket}
    kind = next((name for name, holds in kinds.items() if holds()), "device")
    raise UserMistake(f"{name or path}: is a {kind}; {cure}")


def is_disk_full(text: str) -> bool:
    """Return True if a message of a program, database or system call says that a disk or a quota is full."""
    return any(
        words in text.lower() for words in ("no space left on device", "disk full", "disk is full", "quota exceeded")
    )


def too_many_files(text: str, *, look: bool = False) -> str:
    """Return the cause and the cure if a message says that no file or connection can be opened any more, else "".

    With `look` the process is looked at, too: libpq, for one, does not say why it could not open a connection.
    """
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    is_it = "too many open files" in text.lower()
    if look and not is_it:
        try:
            is_it = len([*Path("/proc/self/fd").iterdir()]) > most - _SPARE_FILES
        except OSError as error:  # which needs a file, too
            is_it = error.errno in {errno.EMFILE, errno.ENFILE}
    if not is_it or "ulimit" in text:
        return ""
    return f"this process may have only {most:,} files and connections open; allow more with: ulimit -n 4096"


def advise(text: str, place: str = "") -> str:
    """Return a message with place and cure if it is about a full disk, or too few files, and does not say them yet.

    `place` is the directory or the server whose disk it is.
    """
    if few := too_many_files(text):
        return f"{text.replace('; free some room', '')}: {few}"
    if not is_disk_full(text) or "free some room" in text:
        return text
    cause = f"no space left on {place}: " if place else "" if "disk full" in text else "disk full: "
    return f"{cause}{text}; free some room{'' if '://' in place else ' or choose another place with --out'}"


def one_line(error: BaseException) -> str:
    """Return the text of an error as one line, or the name of its type if the text is empty."""
    return " ".join(conceal(str(error)).split()) or type(error).__name__


def typed_line(error: BaseException) -> str:
    """Return the type and the text of an error as one line of at most some 300 characters."""
    text = " ".join(conceal(str(error)).split())
    return f"{type(error).__name__}: {text[:MOST_CHARACTERS]}" if text else type(error).__name__
