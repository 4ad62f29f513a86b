"""Databases that nobody touched: twenty different worlds that the checks must not accuse."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tsbench.targets.registry import TARGETS
from tsbench.testing.stand import UNSURE, Stand, world_of
from tsbench.workload.disorder import Disorder

if TYPE_CHECKING:
    from pathlib import Path

MESSY = Disorder(late=0.1, out_of_order=0.1, duplicate=0.1, missing=0.1)


@dataclass(frozen=True)
class Control:
    """A world, in order or not, to which writes were made, with unknown outcomes among them or not."""

    number: int
    use_case: str
    messy: bool
    unsure: bool

    @property
    def name(self) -> str:
        """The world and what is special about it."""
        words = [self.use_case, *["disordered"] * self.messy, *["unknown writes"] * self.unsure]
        return f"{self.number + 1}: {', '.join(words)}"

    def accused_by(self, target: str, schema: str, url: str, place: Path) -> set[str]:
        """Load it and return the checks that find an error."""
        alone = self.use_case == "replication"
        world = world_of(
            self.use_case,
            1 if alone else 2 + self.number % 5,
            interval_s=60 + self.number,
            streams=1 if alone else 2,
            decimals=4 if target == "victoriametrics" else None,  # which does not keep all digits of a float
            **({"disorder": MESSY} if self.messy else {}),
        )
        stand = Stand(world, TARGETS[target], TARGETS[target].schemas[schema], url, 10 + self.number).load()
        stand.write(place / f"control-{self.number}", 60 if self.unsure else 20, UNSURE if self.unsure else {})
        return stand.false_verdicts(stand.gold())


CONTROLS = tuple(
    Control(number, *of)
    for number, of in enumerate(
        itertools.product(("devops", "sensors", "cpu-only", "replication", "cpu-only"), (False, True), (False, True))
    )
)
