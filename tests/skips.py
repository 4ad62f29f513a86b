"""Skips of tests whose commands say that a server is missing: the commands themselves looked for it."""

from __future__ import annotations

import re

import pytest


def skip_if_not_installed(said: str) -> None:
    """Skip a test whose command was told that a server or its driver is not installed, with what it was told."""
    if found := re.search(r"(?:[\w.]+ )+is not installed; [^\n\\]*", said):
        pytest.skip(found[0])
