"""Counts of errors by their text; the number of texts is bounded."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tsbench.results.limits import LIMITS
from tsbench.text import shortened

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_TEXTS = 100
"""Different texts that are counted apart; a text may name a series or a time, so that no two are the same."""
OTHERS = "other errors"
"""The text under which all further ones are counted."""


class ErrorTexts:
    """Number of errors by text: by each of the first `MOST_TEXTS` texts, and of all others together."""

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        self._counts: Counter[str] = Counter(counts)
        self._others = 0

    def add(self, error: Exception) -> None:
        """Count an error by its text."""
        text = shortened(str(error), LIMITS.error_text)
        if text in self._counts or len(self._counts) < MOST_TEXTS:
            self._counts[text] += 1
        else:
            self._others += 1

    def most_common(self, count: int = MOST_TEXTS) -> dict[str, int]:
        """Return the number of errors by text: the `count` most common texts, then all others as `OTHERS`."""
        texts = dict(self._counts.most_common(count))
        others = self._others + self._counts.total() - sum(texts.values())
        if others:
            texts[OTHERS] = texts.get(OTHERS, 0) + others
        return texts
