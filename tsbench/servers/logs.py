"""The line of a program's log that names the cause of its end."""

from __future__ import annotations

from tsbench.errors import is_disk_full

_RECENT = 200
"""Number of last lines in which a full disk is looked for."""
_END = "[ERROR] Aborting"
"""The end of a last line that follows the line with the cause."""


def telling_line(text: str) -> str:
    """Return the last line about a full disk among the recent ones, else the last line that says more than the end.

    A program that ends because of a full disk writes more lines afterwards, such as that it has shut down. The text is
    "" if no line says anything.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    full = [line for line in lines[-_RECENT:] if is_disk_full(line)]
    causes = [line for line in lines if not line.endswith(_END)]
    return (full or causes or lines or [""])[-1]
