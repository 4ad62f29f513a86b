"""The table of docs/security.md: what an attacker gets, for each mode of each protocol and each attack.

A protocol is a module of this package with `TITLE`, `MODES` (each a part of an endpoint, as users write it) and
`probe(mode, attack, certificates) -> Loot`, which makes a fake server carry out the attack on tsbench's own client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tests.hostile import http, mongodb, postgres
from tests.hostile.doors import Attack

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.hostile.doors import Certificates, Loot


class Doors(Protocol):
    """One protocol's modes, and how they are tried."""

    @property
    def TITLE(self) -> str:  # noqa: N802 - a constant of a module
        """Name of the product and its option."""

    @property
    def MODES(self) -> Sequence[str]:  # noqa: N802
        """Modes, as users write them."""

    def probe(self, mode: str, attack: Attack, certificates: Certificates) -> Loot:
        """Connect in that mode to a server that attacks so."""
        ...


PROTOCOLS: Sequence[Doors] = (postgres, mongodb, http)


def lines(protocols: Sequence[Doors], certificates: Certificates) -> Iterator[str]:
    """Yield the lines of the table in Markdown."""
    yield f"| endpoint | {' | '.join(attack.value for attack in Attack)} |"
    yield f"|---|{'---|' * len(Attack)}"
    for protocol in protocols:
        for mode in protocol.MODES:
            cells = [protocol.probe(mode, attack, certificates).value for attack in Attack]
            yield f"| {protocol.TITLE} {f'`{mode}`' if mode else 'without options'} | {' | '.join(cells)} |"
