"""Network namespaces as hosts of their own: they see neither each other's loopback nor this machine's."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

NETWORK = "10.213.77"
"""The first three numbers of their addresses; the last is 1, 2 and 3."""
SERIAL = itertools.count(1)
"""For names: the kernel takes away a deleted namespace's devices some time later."""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def three_hosts() -> Iterator[list[str]]:
    """Three hosts on one bridge, gone afterwards with all that runs in them."""
    names = [f"tsb-{os.getpid()}-{role}" for role in ("m", "w0", "w1")]
    bridge = f"tsb{os.getpid()}"[:15]
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("making network namespaces needs root and the program ip (iproute2)")
    try:
        ip("link", "add", bridge, "type", "bridge")
        ip("link", "set", bridge, "up")
        for number, name in enumerate(names, 1):
            device = f"{os.getpid() % 10**7}x{next(SERIAL)}"
            outside, inside = f"o{device}", f"i{device}"
            ip("netns", "add", name)
            ip("link", "add", outside, "type", "veth", "peer", "name", inside)
            ip("link", "set", outside, "master", bridge)
            ip("link", "set", outside, "up")
            ip("link", "set", inside, "netns", name)
            ip("-n", name, "addr", "add", f"{NETWORK}.{number}/24", "dev", inside)
            ip("-n", name, "link", "set", inside, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            found = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
            for pid in found.stdout.split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", bridge], check=False, capture_output=True)
