"""The two ways in which a command ends badly for a reason that its user can act on."""

from importlib.util import find_spec


class UserMistake(Exception):  # noqa: N818 - it is the user's, not the program's
    """Something that the user gave cannot be used: one line that names it and the cure (exit code 2)."""


class Unreachable(UserMistake):
    """Nobody answers at an endpoint: the user's mistake, unless a server has answered there before."""


class Broken(Exception):  # noqa: N818
    """A run could not be carried through (a server died, the disk is full): exit code 1."""


class ServerDied(Broken):
    """A step that failed because the server had died; `death` says how."""

    def __init__(self, death: str, reason: str) -> None:
        super().__init__(f"{death}; {reason}")
        self.death = death


def require(module: str, extra: str) -> None:
    """Verify that a package is installed which an extra of tsbench installs; nothing is imported.

    Raises
    ------
    UserMistake
        If it is not: one line with the extra.
    """
    if find_spec(module) is None:
        raise UserMistake(f"{module} is not installed; pip install 'tsbench[{extra}]'")


def one_line(error: BaseException) -> str:
    """Return the text of an error on one line, or its type's name if it has none."""
    return " ".join(str(error).split()) or type(error).__name__
