"""Keys that are asked for as they are shown. Rule: the text of heads is among those that its shown form may have."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from braid.why.key_text import shown_text, texts_of

PLAIN = st.text(st.characters(exclude_characters=",'\"", exclude_categories=("Cs", "Cc")), max_size=6)
PART = st.none() | st.booleans() | st.integers() | PLAIN.filter(lambda x: x == x.strip() and x != "NULL")


@given(st.lists(PART, min_size=2, max_size=4), st.booleans())
def test_what_is_shown_can_be_asked_for(values: list[object], spaced: bool) -> None:
    names = [f"k{i}" for i in range(len(values))]
    separators = (", ", ": ") if spaced else (",", ":")
    text = json.dumps(dict(zip(names, values, strict=True)), ensure_ascii=False, separators=separators)
    assert text in texts_of(shown_text(text), names)


@given(PLAIN | st.integers())
def test_of_one_part(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert text in texts_of(shown_text(text), ["k"])


def test_delimited() -> None:
    assert "1,x y" in texts_of("1, x y", ["a", "b"]) and "1,x" not in texts_of("1, x", ["a"])


def test_digits_stay() -> None:
    assert shown_text('{"a":1.50,"b":NaN}') == "1.50, NaN"
    assert '{"a":1.50,"b":"x, y"}' not in texts_of("1.50, x, y", ["a", "b"]), "a comma in a text: write JSON"
    assert '{"a":1.50,"b":"x"}' in texts_of("1.50, x", ["a", "b"])
