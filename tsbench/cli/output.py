"""Lines on the terminal, in which control characters of others have no effect."""

from __future__ import annotations

from rich.console import Console

from tsbench.text import printable, printable_line

stderr = Console(stderr=True)
stdout = Console()


def fail(message: str, code: int) -> int:
    """Print the one line with which a command fails, and return its exit code."""
    stderr.print(f"tsbench: {printable_line(message)}", markup=False, highlight=False, soft_wrap=True)
    return code


def say(line: str) -> None:
    """Print a line of a command's result, with the blanks that align it."""
    stdout.print(" ".join(printable(line).splitlines()), soft_wrap=True, highlight=False, markup=False)
