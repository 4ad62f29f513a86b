"""However many different errors there are, few texts are kept, and each error is counted."""

from __future__ import annotations

from tsbench.measure.error_texts import MOST_TEXTS, OTHERS, ErrorTexts
from tsbench.results.limits import LIMITS


def test_of_too_many_different_texts_the_others_are_counted_together() -> None:
    texts = ErrorTexts()
    for number in range(10 * MOST_TEXTS):
        texts.add(ValueError(f"no series {number}"))
        texts.add(ValueError("timeout"))
    found = texts.most_common()
    assert len(found) == MOST_TEXTS + 1
    assert next(iter(found.items())) == ("timeout", 10 * MOST_TEXTS)
    assert found[OTHERS] == 9 * MOST_TEXTS + 1
    assert sum(found.values()) == 20 * MOST_TEXTS


def test_the_most_common_texts_come_first_and_none_is_lost() -> None:
    texts = ErrorTexts()
    for text, count in (("a", 1), ("b", 3), ("c", 2)):
        for _ in range(count):
            texts.add(OSError(text))
    assert list(texts.most_common().items()) == [("b", 3), ("c", 2), ("a", 1)]
    assert list(texts.most_common(1).items()) == [("b", 3), (OTHERS, 3)]
    assert ErrorTexts().most_common() == {}


def test_a_long_text_fits_into_a_key_of_a_file_and_counts_of_many_processes_stay_few() -> None:
    texts = ErrorTexts()
    texts.add(ValueError("x" * 100_000 + "\x1b[31m\n"))
    ((text, count),) = texts.most_common().items()
    assert (len(text), text.isprintable(), count) == (LIMITS.error_text, True, 1)
    merged = ErrorTexts({f"no series {number}": 1 for number in range(50 * MOST_TEXTS)}).most_common()
    assert len(merged) == MOST_TEXTS + 1
    assert sum(merged.values()) == 50 * MOST_TEXTS
