"""Texts of others never reach a terminal, XML or a page with characters that these obey or cannot hold."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsbench.text import MARK, listed, printable, printable_line, shortened


@pytest.mark.parametrize("bad", ["\x00", "\x07", "\x1b", "\x7f", "\x9b", "\u202e", "\u2066", "\ud800", "\ufffe"])
def test_what_a_terminal_obeys_or_xml_cannot_hold_becomes_a_mark(bad: str) -> None:
    assert printable(f"a{bad}b") == f"a{MARK}b"


@pytest.mark.parametrize("good", ["a\tb\nc", "Grüße", "日本", "\U0001f4a5", "50 %", "naïve…"])
def test_what_people_write_stays(good: str) -> None:
    assert printable(good) == good


@given(st.text(st.characters()))
def test_any_text_is_printable_and_can_be_xml(text: str) -> None:
    element = ET.Element("x", name=printable(text))
    element.text = printable(text)
    ET.fromstring(ET.tostring(element))
    assert not any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in printable_line(text))


@given(st.text(), st.integers(5, 80))
def test_a_shortened_text_is_no_longer_than_asked_for(text: str, most: int) -> None:
    assert len(shortened(text, most)) <= most


def test_a_long_list_says_how_many_others_there_are() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed([str(n) for n in range(1_000)], 2) == "0, 1 and 998 others"
    assert listed("abcd", 2) == "a, b and 2 others"
    assert listed("abc", 2) == "a, b, c"
