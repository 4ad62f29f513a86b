"""Lines on the terminal, in which control characters of others have no effect."""

from __future__ import annotations

import re

from rich.console import Console

from tsbench.text import printable, printable_line

_UNBROKEN = re.compile(r"/\S{40}")
"""A path that would be broken to fit a line; it is left to the terminal, from which it can be copied whole."""
stderr = Console(stderr=True)
stdout = Console()


def fail(message: str, code: int) -> int:
    """Print the one line with which a command fails, and return its exit code."""
    _print(stderr, f"tsbench: {printable_line(message)}")
    return code


def say(line: str) -> None:
    """Print a line of a command's result, with the blanks that align it."""
    _print(stdout, " ".join(printable(line).splitlines()))


def _print(console: Console, line: str) -> None:
    """Print a line; on a terminal it breaks between words, and the command at its end is left whole for copying."""
    text, colon, command = line.partition(": tsbench ")
    is_long = console.is_terminal and len(line) > console.width
    parts = (f"{text}:", f"tsbench {command}") if is_long and colon else (line,)
    for part in parts:
        wraps = is_long and part is parts[0] and not _UNBROKEN.search(part)
        console.print(part, soft_wrap=not wraps, highlight=False, markup=False)
