"""Which side of a join a condition may enter: that, and only that, which changes no result over any small tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations_with_replacement, product
from typing import get_args

import pytest

from braid.bind.select.pushing import SIDES, Side, keeps, on_enters, where_enters
from braid.plan.logical import How

Row = tuple[int, int]  # a key and a value
Pair = tuple[Row | None, Row | None]
ROWS: list[Row] = [(0, 0), (0, 1), (1, 1)]
HOWS: tuple[How, ...] = get_args(How)


def joined(left: list[Row], right: list[Row], how: How, meets: Callable[[Row, Row], bool]) -> list[Pair]:
    found: list[Pair] = [(a, b) for a, b in product(left, right) if meets(a, b)]
    if keeps(how, "left"):
        found += [(a, None) for a in left if not any(meets(a, b) for b in right)]
    if keeps(how, "right"):
        found += [(None, b) for b in right if not any(meets(a, b) for a in left)]
    return sorted(found, key=repr)


def same_key(a: Row, b: Row) -> bool:
    return a[0] == b[0]


def passes(row: Row | None) -> bool:
    """A condition over one side; of a padded row it is never true."""
    return row is not None and row[1] == 1


def tables() -> Iterator[tuple[list[Row], list[Row]]]:
    some = [list(rows) for n in range(3) for rows in combinations_with_replacement(ROWS, n)]
    yield from product(some, some)


def entered(left: list[Row], right: list[Row], side: Side) -> tuple[list[Row], list[Row]]:
    return ([x for x in left if passes(x)], right) if side == "left" else (left, [x for x in right if passes(x)])


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("side", SIDES)
def test_where(how: How, side: Side) -> None:
    def same(left: list[Row], right: list[Row]) -> bool:
        above = [p for p in joined(left, right, how, same_key) if passes(p[SIDES.index(side)])]
        return above == joined(*entered(left, right, side), how, same_key)

    assert all(same(*t) for t in tables()) == where_enters(how, side)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("side", SIDES)
def test_on(how: How, side: Side) -> None:
    def same(left: list[Row], right: list[Row]) -> bool:
        at = joined(left, right, how, lambda a, b: same_key(a, b) and passes((a, b)[SIDES.index(side)]))
        return at == joined(*entered(left, right, side), how, same_key)

    assert all(same(*t) for t in tables()) == on_enters(how, side)
