"""How many examples a property is tried with: three times as many with `--hypothesis-profile=thorough`, as in CI."""

from __future__ import annotations

from hypothesis import settings

USUAL = 100
"""Examples of Hypothesis's own profile."""

settings.register_profile("usual", deadline=None)  # on a busy machine any example may take longer than 0.2 s
settings.load_profile("usual")
settings.register_profile("thorough", max_examples=3 * USUAL, deadline=None)


def examples(count: int) -> settings:
    """Return the settings of a property that usually takes `count` examples, which no example needs to meet in time."""
    return settings(max_examples=count * settings().max_examples // USUAL, deadline=None)
