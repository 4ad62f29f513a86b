"""The line of a program's log that names the cause of its end."""

from __future__ import annotations

import re

from tsbench.errors import is_disk_full

_RECENT = 200
"""Number of last lines in which a full disk or an error is looked for."""
# An ERROR of PostgreSQL's is a statement's, after which it goes on; so are its FATALs that end one session.
_ERROR = re.compile(
    r"""\b(FATAL|PANIC):|\[ERROR\]|\b(lvl|level)=(error|fatal|panic)\b|"level":"(error|fatal)"|\t(error|fatal)\t"""
    r"""|^(Caused\ by:\ )?[\w.$]+Exception:\ |^\*\ [\w.]+$"""
    r"""|^flag\ provided\ but\ not\ defined:|^(run|panic|fatal\ error|Error|error|[\w.-]+:\ error):\ """,
    re.VERBOSE | re.IGNORECASE,
)
_CONSEQUENCE = re.compile(
    r"\[ERROR\] (\[[\w-]+\] )*Aborting|configuration file .* contains errors|terminating connection"
    r"|the database system is (starting up|shutting down|in recovery|not yet accepting)|password authentication failed"
    r"|Shutdown complete|remaining connection slots|too many clients|canceling authentication"
)
"""Errors that follow from another one, or concern one session only."""


def telling_line(text: str) -> str:
    """Return the last recent line about a full disk, else the last one with an error, else the last one.

    A program that ends because of an error writes more lines afterwards: hints, how to get help, that it has shut down.
    The text is "" if no line says anything.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    recent = lines[-_RECENT:]
    full = [line for line in recent if is_disk_full(line)]
    errors = error_lines(text)
    others = [line for line in lines if not _CONSEQUENCE.search(line)]
    return (full or errors or others or lines or [""])[-1]


def error_lines(text: str) -> list[str]:
    """Return the recent lines with an error that may be the cause of a program's end."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return [line for line in lines[-_RECENT:] if _ERROR.search(line) and not _CONSEQUENCE.search(line)]
