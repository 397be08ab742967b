"""What a misspelled name is taken for, and what is no misspelling of anything."""

from __future__ import annotations

import pytest

from braid.guess import guess

KNOWN = ["floor", "cot", "price", "customer", "quantity", "timestamp", "count", "order_id", "LEVENSHTEIN"]


@pytest.mark.parametrize(
    ("name", "meant"),
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
def test_close_in_spelling(name: str, meant: str | None) -> None:
    assert guess(name, KNOWN) == meant
    assert guess(name.upper(), KNOWN) == meant
