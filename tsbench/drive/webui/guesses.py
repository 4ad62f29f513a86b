"""The wait after wrong passwords of the web UI: by source, and for all sources together.

An attacker with many addresses meets the common limit, which does not hold for the addresses that the password came
from. Whoever shares the attacker's address waits with him, for `LONGEST_S` at most once he stops. The memory is
bounded; what is forgotten is what was not used for the longest time.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

FREE = 3
"""Wrong passwords of a source without a wait: the owner mistypes."""
LONGEST_S = 30.0
"""Longest wait of a source; each wrong password doubles it, from 1 s."""
FORGOTTEN_S = 600.0
"""Time after which a source's wrong passwords are forgotten."""
ALL_PER_S, ALL_AT_ONCE = 1.0, 30.0
"""Wrong passwords of all sources together: in the long run, and at once."""
SOURCES = 1024
"""Sources that are remembered, each of those with wrong passwords and of those with the right one."""


class Guesses:
    """The passwords that were given; `now` is a monotonic clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._right: OrderedDict[str, None] = OrderedDict()
        self._all_until = -math.inf
        """When the wrong passwords of all sources are paid for, at `ALL_PER_S`."""

    def wait_s(self, source: str) -> int:
        """Return the whole seconds until the next password of a source is looked at; 0 for now."""
        now, key = self._now(), _key(source)
        count, last = self._wrong.get(key, (0, -math.inf))
        own_s = last + min(LONGEST_S, 2.0 ** (count - FREE)) - now if count >= FREE else 0.0
        all_s = 0.0 if key in self._right else self._all_until - ALL_AT_ONCE / ALL_PER_S - now
        return math.ceil(max(own_s, all_s, 0.0))

    def wrong(self, source: str) -> None:
        """Count a wrong password."""
        now, key = self._now(), _key(source)
        count, last = self._wrong.pop(key, (0, now))
        self._wrong[key] = (1 if now - last > FORGOTTEN_S else min(count + 1, 60)), now
        if key not in self._right:
            self._all_until = min(max(self._all_until, now) + 1 / ALL_PER_S, now + (ALL_AT_ONCE + 1) / ALL_PER_S)
        if len(self._wrong) > SOURCES:
            self._wrong.popitem(last=False)

    def right(self, source: str) -> None:
        """Forget a source's wrong passwords."""
        key = _key(source)
        self._wrong.pop(key, None)
        self._right[key] = None
        self._right.move_to_end(key)
        if len(self._right) > SOURCES:
            self._right.popitem(last=False)


def _key(source: str) -> str:
    """Return what counts as one source: an address, of IPv6 the 64 bits that one customer gets."""
    try:
        address = ip_address(source.partition("%")[0])
    except ValueError:
        return source
    if not isinstance(address, IPv6Address):
        return str(address)
    return str(address.ipv4_mapped or int(address) >> 64)
