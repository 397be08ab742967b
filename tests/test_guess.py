"""What a misspelled name is taken for, and what is no misspelling of anything."""

from __future__ import annotations

import pytest

from braid.guess import guesses, meant

KNOWN = ["floor", "cot", "price", "customer", "quantity", "timestamp", "count", "order_id", "LEVENSHTEIN"]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("flor", "floor"),
        ("pirce", "price"),
        ("prices", "price"),
        ("cust", "customer"),
        ("costumer", "customer"),
        ("qty", "quantity"),
        ("orderid", "order_id"),
        ("tiemstmap", "timestamp"),
        ("levenstein", "LEVENSHTEIN"),
        ("foo", None),  # two letters of five
        ("mount", "count"),
        ("county", "count"),
        ("customers_x", "customer"),
        ("customerStream", "customer"),
        ("flow", None),
        ("prize_won", None),
    ],
)
def test_close_in_spelling(name: str, found: str | None) -> None:
    for written in (name, name.upper()):
        assert guesses(written, KNOWN, 1) == ([] if found is None else [found])


def test_a_hint_says_how_a_name_is_written() -> None:
    assert meant("pirce", KNOWN, "nothing") == "did you mean price?"
    assert meant("pirce", KNOWN, "nothing", ways="o.{}".format) == "did you mean o.price?"
    assert meant("coun", KNOWN, "nothing", 2, ways=str.upper) == "did you mean COUNT?"
    assert meant("coun", [*KNOWN, "Count"], "nothing", 2, ways=str.upper) == "did you mean COUNT?"
    assert meant("foo", KNOWN, "nothing") == "nothing"
