"""The reference by hand: the three tables of KSQL's documentation, and K-1 to K-18 (docs/rules/ksqldb.md, "Fixtures").

A call is `(alias, time, key, value)`; calls are the processing order. A row of a result is
`(number of the call that caused it, key, values, time)`, the calls counted from 1.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest

from braid.expr import nodes
from braid.expr.nodes import Col, Expr, Lit
from braid.expr.typing import call
from braid.plan import logical
from braid.plan.logical import Filter, Output, Query, SourceColumn, Timestamp
from braid.reference import Bound, Event, Idle, OutRecord, Record, Reference
from braid.reference.rows import Row, Run
from braid.types import Column, Scalar
from cuts import batches, seq_cuts, time_cuts
from effort import examples
from histories import (
    SHAPES,
    Moment,
    aggregate,
    col,
    events,
    expected,
    integer,
    query,
    random_history,
    random_query,
    source,
    stream_stream,
    stream_table,
    table,
    table_table,
)

A, B, C = source("A"), source("B"), source("C")
S, T, U = source("S"), table("T"), table("U")
VALUES = ("A.V", "B.V")

Call = tuple[Any, ...]  # (alias, time, key, value): value None is a null value; a dict gives the columns


def record(q: Query, place: int, *one: Any, **more: Any) -> Record:
    """One call as a record of partition 0."""
    alias, time, key, value = one
    leaf = [s.alias for s in logical.sources(q.root)].index(alias)
    columns = value if isinstance(value, dict) else {"V": value}
    values = {f"{alias}.K": key} | {f"{alias}.{name}": v for name, v in columns.items()}
    return Record(leaf, 0, place, time, values, value is None, place=place, **more)


def events_of(q: Query, calls: list[Call]) -> list[Event]:
    return [record(q, i, *c) for i, c in enumerate(calls, 1)]


def shown(out: list[OutRecord]) -> list[tuple[Any, ...]]:
    return [(o.place, o.key and o.key[0], None if o.values is None else tuple(o.values.values()), o.time) for o in out]


def run(q: Query, *calls: Call) -> list[tuple[Any, ...]]:
    return shown(Reference(q).process(events_of(q, list(calls))))


def dropped(q: Query, *calls: Call) -> list[tuple[Any, ...]]:
    """(call, reason) of every drop."""
    reference = Reference(q)
    reference.process(events_of(q, list(calls)))
    return [(d.place, d.reason) for d in reference.drops]


# ---------------------------------------------------------------- K-1 to K-3: the tables of the documentation

STEPS = [None, None, "A", "a", "B", "b", None, None, "C", "c", None, None, None, "d", "D"]
ON_THE_LEFT = (1, 3, 5, 7, 9, 12, 15)
FIFTEEN: list[Call] = [("A" if i in ON_THE_LEFT else "B", i, 1, v) for i, v in enumerate(STEPS, 1)]


def pairs(text: str) -> list[tuple[int, Any]]:
    """`5: Ba, C-; 7: x` as [(5, (B, a)), (5, (C, None)), (7, None)]: a dash is null, x a tombstone."""
    out: list[tuple[int, Any]] = []
    for cell in text.split(";"):
        step, rows = cell.split(":")
        for row in rows.split(","):
            pair = row.strip()
            out.append((int(step), None if pair == "x" else tuple(None if c == "-" else c for c in pair)))
    return out


def cells(out: list[tuple[Any, ...]]) -> list[tuple[int, Any]]:
    return [(place, values) for place, _, values, _ in out]


STREAMS = "4: Aa; 5: Ba; 6: Ab, Bb; 9: Ca, Cb; 10: Ac, Bc, Cc; 14: Ad, Bd, Cd; 15: Da, Db, Dc, Dd"


@pytest.mark.parametrize(
    ("how", "want"), [("inner", STREAMS), ("left", "3: A-;" + STREAMS), ("full", "3: A-;" + STREAMS)]
)
def test_k1_two_streams(how: Any, want: str) -> None:
    out = run(query(stream_stream(A, B, how, before=100, after=100), *VALUES), *FIFTEEN)
    assert cells(out) == pairs(want)
    assert all(time == place for place, _, _, time in out)  # in time order the later row is the one that arrives


@pytest.mark.parametrize(("how", "want"), [("inner", "5: Ba; 15: Dd"), ("left", "3: A-; 5: Ba; 9: C-; 15: Dd")])
def test_k2_stream_and_table(how: Any, want: str) -> None:
    out = run(query(stream_table(A, table("B"), how), *VALUES), *FIFTEEN)
    assert cells(out) == pairs(want)
    assert all(time == place for place, _, _, time in out)


TABLES = {
    "inner": "4: Aa; 5: Ba; 6: Bb; 7: x; 10: Cc; 11: x; 15: Dd; 16: Dd",
    "left": "3: A-; 4: Aa; 5: Ba; 6: Bb; 7: x; 9: C-; 10: Cc; 11: C-; 12: x; 15: Dd; 16: Dd",
    "full": "3: A-; 4: Aa; 5: Ba; 6: Bb; 7: -b; 8: x; 9: C-; 10: Cc; 11: C-; 12: x; 14: -d; 15: Dd; 16: Dd",
}


@pytest.mark.parametrize("how", TABLES)
def test_k3_two_tables_and_an_identical_row_again(how: Any) -> None:
    out = run(query(table_table(table("A"), table("B"), how), *VALUES), *FIFTEEN, ("B", 16, 1, "d"))
    assert cells(out) == pairs(TABLES[how])


def swapped(calls: list[Call]) -> list[Call]:
    return [({"A": "B", "B": "A"}[alias], *rest) for alias, *rest in calls]


@pytest.mark.parametrize("grace", [None, 3])
def test_right_is_left_with_the_sides_swapped(grace: int | None) -> None:
    calls: list[Call] = [("A", 10, 1, "x"), ("B", 12, 1, "y"), ("B", 3, 2, "z"), ("A", 30, 3, None), ("B", 40, 2, "w")]
    left = run(query(stream_stream(A, B, "left", before=2, after=5, grace=grace), "A.V", "B.V"), *calls)
    right = run(query(stream_stream(A, B, "right", before=5, after=2, grace=grace), "B.V", "A.V"), *swapped(calls))
    assert left == right != []
    of_tables = query(table_table(table("A"), table("B"), "right"), "B.V", "A.V")
    assert cells(run(of_tables, *swapped(FIFTEEN), ("A", 16, 1, "d"))) == pairs(TABLES["left"])


# ---------------------------------------------------------------- K-4, K-5: the statements of the documentation


def test_k4_the_key_shows_the_join_key_even_without_the_row_it_is_named_after() -> None:
    join = stream_table(S, T, "left")
    calls: list[Call] = [("T", 5, 1, "user"), ("S", 6, 1, "page"), ("S", 7, 2, "page")]
    assert run(query(join, "S.V", "T.V"), *calls) == [
        (2, 1, ("page", "user"), 6),
        (3, 2, ("page", None), 7),
    ]
    # braid.key.column = value: the column is the value of its row; the record's key stays the join key
    q = query(join, Output("USERID", col(join, "T.K")), "S.V")
    q = replace(q, sink=replace(q.sink, key=(), record_key=join.keys))
    assert run(q, *calls) == [(2, 1, (1, "page"), 6), (3, 2, (None, "page"), 7)]


def late_orders(grace: int | None) -> Query:
    """Orders without a shipment within two hours."""
    join = stream_stream(A, B, "full", before=7_200_000, after=7_200_000, grace=grace)
    return query(Filter(join, call("is_null", [col(join, "B.K")])), "A.K")


def test_k5_late_orders() -> None:
    hour = 3_600_000
    calls: list[Call] = [("A", 0, 1, "o1"), ("A", 0, 2, "o2"), ("B", hour, 1, "s"), ("B", 3 * hour, 3, "s")]
    assert run(late_orders(None), *calls) == [(1, 1, (1,), 0), (2, 2, (2,), 0)]  # each at once
    assert run(late_orders(0), *calls) == [(4, 2, (2,), 0)]  # only the one that was late


# ---------------------------------------------------------------- K-6: release


def test_k6_released_when_stream_time_passes_close_before_the_results_of_the_record_that_moved_it() -> None:
    q = query(stream_stream(A, B, "left", before=15, after=15, grace=5), *VALUES)
    calls: list[Call] = [("A", 40, 1, "E"), ("B", 60, 2, "x")]
    assert run(q, *calls) == []
    assert run(q, *calls, ("B", 61, 2, "x")) == [(3, 1, ("E", None), 40)]
    assert run(q, *calls, ("A", 61, 2, "F")) == [(3, 1, ("E", None), 40), (3, 2, ("F", "x"), 61)]
    assert run(q, ("A", 0, 1, "A"), ("B", 100, 1, None)) == [(2, 1, ("A", None), 0)]  # a null value moves time, too
    assert run(q, ("A", 0, 1, "A"), ("B", 10, 1, "a"), ("B", 100, 1, "b")) == [(2, 1, ("A", "a"), 10)]  # unparked


def test_k6_rows_of_one_release_by_time_right_before_left_key_arrival() -> None:
    q = query(stream_stream(A, B, "full", before=5, after=5, grace=0), *VALUES)
    parked: list[Call] = [
        ("A", 3, 2, "l"), ("A", 3, 10, "m"), ("B", 3, 9, "r"), ("A", 2, 7, "n"), ("A", 3, 2, "k"), ("B", 4, 1, "s"),
    ]  # fmt: skip
    out = run(q, *parked, ("A", 50, 1, None))
    assert [(key, values, time) for _, key, values, time in out] == [
        (7, ("n", None), 2),
        (9, (None, "r"), 3),
        (10, ("m", None), 3),  # keys sort as their texts do: "10" before "2"
        (2, ("l", None), 3),
        (2, ("k", None), 3),
        (1, (None, "s"), 4),
    ]
    assert {place for place, *_ in out} == {7}


def test_an_unmatched_row_that_can_match_no_newer_row_is_padded_at_once_and_may_still_match() -> None:
    q = query(stream_stream(A, B, "left", before=5, after=5, grace=50), *VALUES)
    assert run(q, ("B", 100, 2, "x"), ("A", 94, 1, "A"), ("B", 96, 1, "a")) == [
        (2, 1, ("A", None), 94),
        (3, 1, ("A", "a"), 96),
    ]
    assert run(q, ("B", 100, 2, "x"), ("A", 95, 1, "A")) == []  # 95 + 5 is not yet past: parked


# ---------------------------------------------------------------- K-7, K-8: the window


def test_k7_matches_come_out_by_time_of_the_stored_row() -> None:
    q = query(stream_stream(A, B, before=10, after=10), *VALUES)
    assert run(q, ("B", 10, 1, "b"), ("B", 3, 1, "a"), ("A", 5, 1, "C")) == [
        (3, 1, ("C", "a"), 5),
        (3, 1, ("C", "b"), 10),
    ]
    assert run(q, ("B", 5, 1, "b"), ("B", 5, 1, "b"), ("A", 5, 1, "C")) == [(3, 1, ("C", "b"), 5)] * 2


def test_k8_right_join_with_an_asymmetric_window() -> None:
    q = query(stream_stream(A, B, "right", before=0, after=10), *VALUES)
    assert run(q, ("A", 0, 1, "l"), ("B", 10, 1, "r")) == [(2, 1, ("l", "r"), 10)]
    assert run(q, ("A", 10, 1, "l"), ("B", 0, 1, "r")) == [(2, 1, (None, "r"), 0)]
    assert run(q, ("B", 0, 1, "r"), ("A", 10, 1, "l")) == [(1, 1, (None, "r"), 0)]


def test_both_ends_of_the_window_are_included() -> None:
    q = query(stream_stream(A, B, before=3, after=2), *VALUES)
    assert [t for _, _, _, t in run(q, ("A", 10, 1, "x"), *(("B", t, 1, "y") for t in range(5, 15)))] == [10] * 4 + [
        11,
        12,
    ]


# ---------------------------------------------------------------- K-9: nulls


@pytest.mark.parametrize("grace", [None, 0])
def test_k9_a_null_key_is_dropped_or_padded_at_once(grace: int | None) -> None:
    calls: list[Call] = [("A", 1, None, "x"), ("B", 2, None, "y"), ("A", 3, 1, None)]
    drop = query(stream_stream(A, B, "left", before=5, after=5, grace=grace), *VALUES)
    assert run(drop, *calls) == []
    assert dropped(drop, *calls) == [(1, "null key"), (2, "null key"), (3, "null value")]
    pad = query(stream_stream(A, B, "left", before=5, after=5, grace=grace, null_key="pad"), *VALUES)
    assert run(pad, *calls) == [(1, None, ("x", None), 1)]
    assert dropped(pad, *calls) == [(2, "null key"), (3, "null value")]
    full = query(stream_stream(A, B, "full", before=5, after=5, grace=grace, null_key="pad"), *VALUES)
    assert run(full, *calls) == [(1, None, ("x", None), 1), (2, None, (None, "y"), 2)]


def test_k9_null_keys_of_a_stream_and_a_table() -> None:
    calls: list[Call] = [("T", 1, None, "t"), ("S", 2, None, "x"), ("S", 3, 1, None)]
    assert run(query(stream_table(S, T, "left"), "S.V", "T.V"), *calls) == []
    pad = query(stream_table(S, T, "left", null_key="pad"), "S.V", "T.V")
    assert run(pad, *calls) == [(2, None, ("x", None), 2)]
    assert dropped(pad, *calls) == [(1, "null key"), (3, "null value")]
    assert run(query(stream_table(S, T, "inner", null_key="pad"), "S.V", "T.V"), *calls) == []


def test_k9_a_null_message_key_joins_on_another_column() -> None:
    q = query(stream_stream(A, B, left_key=col(A, "A.N"), right_key=col(B, "B.N")), *VALUES)
    assert run(q, ("A", 1, None, {"V": "x", "N": 7}), ("B", 2, None, {"V": "y", "N": 7})) == [(2, 7, ("x", "y"), 2)]


# ---------------------------------------------------------------- K-10: retention


def test_k10_late_is_below_the_stored_clock_less_retention_plus_one() -> None:
    q = query(stream_stream(A, B, "left", before=5, after=5, grace=10), *VALUES)  # retention 20
    late: list[Call] = [("A", 100, 2, "x"), ("A", 80, 1, "L"), ("B", 80, 1, "r")]
    kept: list[Call] = [("A", 100, 2, "x"), ("A", 81, 1, "L"), ("B", 81, 1, "r")]
    assert run(q, *late) == [(2, 1, ("L", None), 80)]  # padded, not stored
    assert dropped(q, *late) == [(2, "late")]
    assert run(q, *kept) == [(2, 1, ("L", None), 81), (3, 1, ("L", "r"), 81)]
    assert dropped(q, *kept) == []
    discard = query(stream_stream(A, B, "left", before=5, after=5, grace=10, late="discard"), *VALUES)
    assert run(discard, *late) == []
    assert dropped(discard, *late) == [(2, "late")]
    assert run(discard, *kept) == run(q, *kept)


def test_k10_a_late_row_still_looks_up_and_a_stored_row_is_seen_while_its_own_side_has_not_moved_on() -> None:
    q = query(stream_stream(A, B, "inner", before=5, after=5, grace=10), *VALUES)
    assert run(q, ("B", 78, 1, "r"), ("A", 100, 2, "x"), ("A", 80, 1, "L")) == [(3, 1, ("L", "r"), 80)]
    # of two late rows the order of arrival decides: the right side's clock hides what is as old as this
    assert run(q, ("B", 78, 1, "r"), ("B", 98, 2, "x"), ("A", 80, 1, "L")) == []
    assert run(q, ("B", 79, 1, "r"), ("B", 98, 2, "x"), ("A", 80, 1, "L")) == [(3, 1, ("L", "r"), 80)]


def test_only_storable_records_move_the_stored_clock() -> None:
    q = query(stream_stream(A, B, "inner", before=5, after=5, grace=10), *VALUES)
    null_value, null_key = ("B", 200, 1, None), ("B", 200, None, "x")
    for one in (null_value, null_key):
        assert run(q, ("B", 78, 1, "r"), one, ("A", 80, 1, "L")) == [(3, 1, ("L", "r"), 80)]


# ---------------------------------------------------------------- K-11 to K-13: order of arrival and of time


def test_k11_streams_pair_in_any_order_and_in_a_table_the_latest_arrival_stands() -> None:
    streams = query(stream_stream(A, B), *VALUES)
    assert run(streams, ("B", 10, 1, "B"), ("A", 3, 1, "A")) == [(2, 1, ("A", "B"), 10)]
    tables = query(table_table(T, U, "right"), "T.V", "U.V")
    assert run(tables, ("U", 10, 1, "b"), ("U", 3, 1, "a"), ("T", 5, 1, "x")) == [
        (1, 1, (None, "b"), 10),
        (2, 1, (None, "a"), 3),
        (3, 1, ("x", "a"), 5),
    ]


@pytest.mark.parametrize(("how", "want"), [("inner", []), ("left", []), ("full", [(1, "a"), (2, "a")])])
def test_k12_a_tombstone_of_a_row_that_never_was(how: Any, want: list[Any]) -> None:
    out = run(query(table_table(T, U, how), "T.V", "U.V"), ("U", 1, 1, "a"), ("T", 2, 1, None))
    assert out == [(place, 1, (None, v), place) for place, v in want]


def test_the_time_of_a_table_join_is_the_larger_one_also_of_a_tombstone() -> None:
    q = query(table_table(T, U, "inner"), "T.V", "U.V")
    assert run(q, ("T", 9, 1, "x"), ("U", 5, 1, "y"), ("T", 2, 1, None), ("U", 6, 1, None)) == [
        (2, 1, ("x", "y"), 9),
        (3, 1, None, 5),
    ]


def test_k13_a_table_that_is_filled_first_gives_all_matches_also_with_later_times() -> None:
    q = query(stream_table(S, T), "S.V", "T.V")
    calls: list[Call] = [*(("T", 1000 + k, k, f"t{k}") for k in range(3)), *(("S", k, k, f"s{k}") for k in range(3))]
    assert run(q, *calls) == [(4 + k, k, (f"s{k}", f"t{k}"), k) for k in range(3)]
    assert run(q, *(calls[3:] + calls[:3])) == []


# ---------------------------------------------------------------- K-14: KEY='c'


def test_k14_key_names_a_value_column_that_must_equal_the_message_key() -> None:
    id_column = SourceColumn("T.ID", "ID", Column("ID", Scalar.VARCHAR), "value")
    keyed = replace(T, columns=(id_column, *(c for c in T.columns if c.place != "key")), message_key="ID")
    s = replace(S, columns=(SourceColumn("S.K", "K", Column("K", Scalar.VARCHAR), "key"), *S.columns[1:]))
    q = query(stream_table(s, keyed, "left"), "S.V", "T.V", "T.ID")
    reference = Reference(q)
    out = reference.process(
        [
            record(q, 1, "T", 1, None, {"ID": "a", "V": "t"}, message_key="a"),
            record(q, 2, "T", 2, None, {"ID": "b", "V": "u"}, message_key="c"),  # not its key
            record(q, 3, "T", 3, None, {"ID": "d", "V": "v"}),  # no message key
            *(record(q, i, "S", i, k, "s") for i, k in enumerate("abd", 4)),
            record(q, 7, "T", 7, None, None, message_key="a"),  # a tombstone is not checked: it has no ID
            record(q, 8, "S", 8, "a", "s"),
        ]
    )
    assert [tuple((o.values or {}).values()) for o in out] == [
        ("s", "t", "a"), ("s", None, None), ("s", None, None), ("s", None, None),
    ]  # fmt: skip
    assert [(d.place, d.reason) for d in reference.drops] == [(2, "malformed"), (3, "malformed")]


# ---------------------------------------------------------------- K-16: chains


def test_k16_rows_padded_by_the_first_step_match_in_the_second() -> None:
    first = stream_stream(A, B, "left", before=5, after=5, grace=0)
    chain = stream_stream(first, C, "inner", before=20, after=20)
    q = query(chain, "A.V", "B.V", "C.V")
    out = run(q, ("C", 10, 1, "c"), ("A", 12, 1, "a"), ("B", 17, 2, "x"), ("B", 18, 2, "y"))
    assert out == [(4, 1, ("a", None, "c"), 12)]  # released at 18, where it meets c


def test_k16_the_second_step_waits_as_long_as_the_first_holds_back() -> None:
    first = stream_stream(A, B, "left", before=5, after=5, grace=2)
    chain = stream_stream(first, C, "right", before=1, after=1, grace=0)
    q = query(chain, "A.V", "B.V", "C.V")
    # the clock of the first step's output is 7 behind: c@10 (close 11) is still parked when a@10 is released at 18
    assert run(q, ("C", 10, 1, "c"), ("A", 10, 1, "a"), ("A", 18, 2, "x")) == [(3, 1, ("a", None, "c"), 10)]
    # but its own clock alone closes it: stream time of a step is the larger of both
    assert run(q, ("C", 10, 1, "c"), ("C", 12, 2, "d"), ("A", 10, 1, "a")) == [(2, 1, (None, None, "c"), 10)]


def test_at_one_place_a_steps_own_released_rows_come_before_those_from_upstream() -> None:
    first = stream_stream(A, B, "left", before=5, after=5, grace=0)
    chain = stream_stream(first, C, "left", before=1, after=1, grace=0)
    q = query(chain, "A.V", "B.V", "C.V")
    calls: list[Call] = [("A", 10, 1, "a"), ("B", 10, 1, "b"), ("A", 12, 2, "c"), ("A", 40, 3, "d")]
    # at the last call: the pair (a, b), parked in the second step; then c, released by the first and past its window
    assert run(q, *calls) == [(4, 1, ("a", "b", None), 10), (4, 2, ("c", None, None), 12)]


def test_a_stream_that_met_a_table_goes_on_into_a_window() -> None:
    q = query(stream_stream(stream_table(S, T), A, "inner", before=5, after=5), "S.V", "T.V", "A.V")
    assert run(q, ("T", 1, 1, "t"), ("A", 9, 1, "a"), ("S", 4, 1, "s"), ("S", 4, 2, "r")) == [
        (3, 1, ("s", "t", "a"), 9)
    ]


# ---------------------------------------------------------------- K-18


def folded(out: list[OutRecord]) -> dict[object, Any]:
    rows: dict[object, Any] = {}
    for o in out:
        rows[o.key] = o.values
    return {k: tuple(v.values()) for k, v in rows.items() if v is not None}


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_k18_the_folded_changelog_is_the_join_of_the_final_tables(how: Any) -> None:
    q = query(table_table(T, U, how), "T.V", "U.V")
    left: list[Call] = [("T", 3, 1, "a"), ("T", 2, 1, "b"), ("T", 5, 2, "c"), ("T", 4, 1, None)]
    right: list[Call] = [("U", 1, 1, "x"), ("U", 9, 2, None), ("U", 2, 3, "y")]
    for lefts in itertools.combinations(range(7), 4):
        order = [left[lefts.index(i)] if i in lefts else right[i - sum(j < i for j in lefts)] for i in range(7)]
        tables: dict[str, dict[int, str]] = {"T": {}, "U": {}}
        for alias, _, key, value in order:
            tables[alias] = {k: v for k, v in {**tables[alias], key: value}.items() if v is not None}
        both = {k: (tables["T"].get(k), tables["U"].get(k)) for k in tables["T"] | tables["U"]}
        keep = {"inner": all, "left": lambda p: p[0], "right": lambda p: p[1], "full": any}[how]
        got = folded(Reference(q).process(events_of(q, order)))
        assert got == {(k,): p for k, p in both.items() if keep(p)}


# ---------------------------------------------------------------- clocks


def clocked(*moves: Event) -> list[Any]:
    """A@0 parked until stream time 11, then `moves`; the places where it is released."""
    q = query(stream_stream(A, B, "left", before=10, after=10, grace=0), *VALUES)
    return [o.place for o in Reference(q).process([record(q, 0, "A", 0, 1, "x"), *moves])]


def at(place: int, time: int, partition: int, leaf: int = 1) -> Record:
    return Record(leaf, partition, place, time, {"B.K": 9, "A.K": 9}, null=True, place=place)


def test_a_clock_is_the_minimum_over_live_partitions() -> None:
    assert clocked(at(1, 5, 0), at(2, 50, 1), at(3, 60, 1), at(4, 12, 0)) == [4]
    assert clocked(at(1, 50, 0), at(2, 5, 1)) == [1]  # a partition counts from its first record on
    assert clocked(at(1, 5, 0), at(2, 50, 1), Idle(((1, 0),), 3)) == [3]
    assert clocked(at(1, 5, 0), at(2, 50, 1), Idle(((1, 1),), 3), at(4, 60, 1), at(5, 10, 0)) == []  # awake again


def test_without_live_partitions_a_clock_stands_at_the_highest_time_shown() -> None:
    assert clocked(at(1, 5, 0), at(2, 9, 1), Idle(((1, 0), (1, 1)), 3)) == []
    assert clocked(at(1, 5, 0), at(2, 50, 1), Idle(((1, 0), (1, 1)), 3)) == [3]
    assert clocked(Idle(((0, 0),), 1)) == []  # the end of a source of one partition closes nothing


def test_stream_time_is_the_larger_clock_of_both_sides() -> None:
    assert clocked(at(1, 11, 0, leaf=0)) == [1]
    assert clocked(at(1, 10, 0, leaf=0), at(2, 11, 0, leaf=1)) == [2]


def test_a_bound_moves_the_clock_but_not_the_stored_clock() -> None:
    assert clocked(Bound(((1, 0),), 11, 1)) == [1]
    assert clocked(Bound(((1, 0), (1, 1)), 10, 1)) == []
    q = query(stream_stream(A, B, "inner", before=5, after=5, grace=10), *VALUES)
    start: list[Event] = [record(q, 1, "B", 78, 1, "r"), Bound(((1, 0),), 500, 2), record(q, 3, "A", 80, 1, "L")]
    assert shown(Reference(q).process(start)) == [(3, 1, ("L", "r"), 80)]


def test_two_sources_over_one_topic_meet_themselves_once() -> None:
    a, b = source("A", "t"), source("B", "t")
    q = query(stream_stream(a, b, "full"), *VALUES)
    both = [replace(record(q, 1, alias, 5, 1, "x"), place=(1, i)) for i, alias in enumerate("AB")]
    assert shown(Reference(q).process(both)) == [((1, 0), 1, ("x", None), 5), ((1, 1), 1, ("x", "x"), 5)]


# ---------------------------------------------------------------- filters, projections, sinks


def test_a_projection_passes_null_values_on_and_a_filter_does_not() -> None:
    calls: list[Call] = [("A", 1, 1, "x"), ("A", 2, 1, None), ("A", 3, None, "y")]
    assert run(query(A, "A.V"), *calls) == [(1, 1, ("x",), 1), (2, 1, None, 2), (3, None, ("y",), 3)]
    filtered = query(Filter(A, call("is_not_null", [col(A, "A.V")])), "A.V")
    assert run(filtered, *calls) == [(1, 1, ("x",), 1), (3, None, ("y",), 3)]
    assert dropped(filtered, *calls) == [(2, "null value")]


def test_a_row_of_a_table_that_stops_passing_becomes_a_tombstone_once() -> None:
    q = query(Filter(T, call("gt", [col(T, "T.N"), integer(1)])), "T.N")
    calls: list[Call] = [("T", i, 1, n and {"N": n}) for i, n in enumerate([1, 2, 3, 1, 1, 2, None, None], 1)]
    assert run(q, *calls) == [(2, 1, (2,), 2), (3, 1, (3,), 3), (4, 1, None, 4), (6, 1, (2,), 6), (7, 1, None, 7)]


def test_where_after_a_table_join_keeps_its_times() -> None:
    join = table_table(T, U, "left")
    q = query(Filter(join, call("is_null", [col(join, "U.V")])), "T.V")
    assert run(q, ("T", 1, 1, "a"), ("U", 9, 1, "x"), ("T", 2, 1, "b"), ("U", 3, 1, None)) == [
        (1, 1, ("a",), 1),
        (2, 1, None, 9),
        (4, 1, ("b",), 3),
    ]


def test_headers_are_those_of_the_record_that_triggers() -> None:
    q = query(stream_stream(A, B, "left", before=5, after=5, grace=0), *VALUES)
    one = record(q, 1, "A", 1, 1, "x", headers="one")
    two = record(q, 2, "B", 2, 1, "y", headers="two")
    far = record(q, 3, "B", 50, 2, "z", headers="far")
    reference = Reference(q)
    assert [o.headers for o in reference.process([one, two, far])] == ["two"]
    assert [o.headers for o in Reference(q).process([one, far])] == ["one"]  # released rows keep their own


def test_limit_ends_the_query() -> None:
    q = query(stream_stream(A, B, before=5, after=5), *VALUES, limit=3)
    calls: list[Call] = [("A", 1, 1, "a"), ("A", 1, 1, "b"), ("B", 1, 1, "x"), ("B", 1, 1, "y"), ("B", 1, 1, "z")]
    reference = Reference(q)
    out = reference.process(events_of(q, calls))
    assert [o.place for o in out] == [3, 3, 4]
    assert reference.ended
    assert reference.process([record(q, 6, "B", 1, 1, "w")]) == []


def test_a_timestamp_column_gives_the_time_of_the_result() -> None:
    q = query(A, "A.V", Output("AT", col(A, "A.N")))
    q = replace(q, sink=replace(q.sink, timestamp=Timestamp("AT")))
    calls: list[Call] = [("A", 1, 1, {"V": "x", "N": 77}), ("A", 2, 1, {"V": "y"}), ("A", 3, 1, None)]
    assert run(q, *calls) == [(1, 1, ("x", 77), 77), (3, 1, None, 3)]
    assert dropped(q, *calls) == [(2, "timestamp")]
    text = query(A, "A.V")
    text = replace(text, sink=replace(text.sink, timestamp=Timestamp("A.V", "yyyy-MM-dd HH:mm")))
    assert run(text, ("A", 1, 1, "1970-01-02 00:01")) == [(1, 1, ("1970-01-02 00:01",), 86_460_000)]


def test_a_failed_expression_is_null_and_counted_and_the_row_lives() -> None:
    quotient = call("div", [integer(6), col(A, "A.N")])
    q = query(A, Output("Q", quotient))
    calls: list[Call] = [("A", 1, 1, {"N": 2}), ("A", 2, 1, {"N": 0}), ("A", 3, 1, {"N": None})]
    assert run(q, *calls) == [(1, 1, (3,), 1), (2, 1, (None,), 2), (3, 1, (None,), 3)]
    assert dropped(q, *calls) == [(2, "expression")]
    joined = query(stream_stream(A, B, left_key=quotient), *VALUES)
    assert dropped(joined, *calls[:2]) == [(2, "expression"), (2, "null key")]


def test_pseudo_columns_are_those_of_the_record() -> None:
    join = stream_stream(A, B)
    q = query(join, Output("AT", col(join, "A.ROWTIME")), Output("BT", col(join, "B.ROWTIME")))
    assert run(q, ("A", 5, 1, "x"), ("B", 9, 1, "y")) == [(2, 1, (5, 9), 9)]


# ---------------------------------------------------------------- aggregates


def numbers(alias: str, *rows: tuple[int, Any, Any]) -> list[Call]:
    """(time, key, N); N absent is a null value."""
    return [(alias, time, key, None if n == "gone" else {"N": n}) for time, key, n in rows]


def test_aggregates_over_a_stream() -> None:
    n: Expr = col(A, "A.N")
    functions = ["COUNT", "SUM", "MIN", "MAX", "AVG", "LATEST_BY_OFFSET"]
    q = query(aggregate(A, [col(A, "A.K")], [("COUNT", None), *((f, n) for f in functions)]))
    calls = numbers("A", (5, 1, None), (3, 1, 4), (9, 1, 1), (9, None, 1), (9, 1, "gone"), (2, 1, None))
    assert run(q, *calls) == [
        (1, 1, (1, 0, 0, None, None, 0.0, None), 5),
        (2, 1, (2, 1, 4, 4, 4, 4.0, 4), 5),  # the time of a row is the largest of its group
        (3, 1, (3, 2, 5, 1, 4, 2.5, 1), 9),
        (6, 1, (4, 2, 5, 1, 4, 2.5, 1), 9),
    ]
    assert dropped(q, *calls) == [(4, "null key"), (5, "null value")]


def test_aggregates_over_a_table_take_the_old_row_out() -> None:
    q = query(aggregate(T, [col(T, "T.N")], [("COUNT", None), ("SUM", col(T, "T.K"))]))
    calls = numbers(
        "T", (1, 10, 1), (2, 20, 1), (3, 10, 1), (4, 10, 2), (5, 20, "gone"), (6, 30, "gone"), (7, 10, None)
    )
    assert run(q, *calls) == [
        (1, 1, (1, 10), 1),
        (2, 1, (2, 30), 2),
        (3, 1, (2, 30), 3),  # in the same group: one row
        (4, 1, (1, 20), 4),  # the group it leaves, then the one it enters
        (4, 2, (1, 10), 4),
        (5, 1, (0, 0), 5),  # an empty group stays
        (7, 2, (0, 0), 7),
    ]
    assert dropped(q, *calls) == [(7, "null key")]


def test_sums_wrap_as_javas_do() -> None:
    q = query(aggregate(A, [col(A, "A.K")], [("SUM", col(A, "A.N"))]))
    assert [r[2] for r in run(q, *numbers("A", (1, 1, 2**31 - 1), (2, 1, 1)))] == [(2**31 - 1,), (-(2**31),)]


def test_having_that_stops_passing_gives_a_tombstone() -> None:
    group = aggregate(T, [col(T, "T.N")], [("COUNT", None)])
    q = query(Filter(group, call("gt", [col(group, ".AGG0"), integer(0)])))
    calls = numbers("T", (1, 10, 1), (2, 10, 2), (3, 10, "gone"))
    assert run(q, *calls) == [(1, 1, (1,), 1), (2, 1, None, 2), (2, 2, (1,), 2), (3, 2, None, 3)]


def test_aggregates_over_a_join() -> None:
    join = stream_stream(A, B, "left", before=5, after=5, grace=0)
    q = query(aggregate(join, join.keys, [("COUNT", None), ("COUNT", col(join, "B.V"))]))
    assert run(q, ("A", 1, 1, "x"), ("B", 2, 1, "y"), ("B", 3, 1, "z"), ("A", 9, 1, "w"), ("A", 50, 2, "v")) == [
        (2, 1, (1, 1), 2),
        (3, 1, (2, 2), 3),
        (5, 1, (3, 2), 9),
    ]


# ---------------------------------------------------------------- random histories


@pytest.mark.heavy
@pytest.mark.parametrize("shape", SHAPES)
def test_histories_may_be_given_piece_by_piece(shape: str) -> None:
    for seed in range(examples(12, 4)):
        rng = random.Random(f"{shape} {seed}")
        q = random_query(rng, shape, limit=seed == 0)
        history = random_history(rng, q, explicit=seed % 2 == 0)
        every = events(q, history)
        assert [e.place for e in every] == sorted({e.place for e in every})  # one place each
        want, pieces = expected(q, history), Reference(q)
        at = sorted(rng.choices(range(len(every) + 1), k=2))
        got = [pieces.process(x) for x in (every[: at[0]], every[at[0] : at[1]], every[at[1] :])]
        assert [repr(o) for part in got for o in part] == [repr(o) for o in want.records]  # NaN is not itself
        assert sorted(map(repr, pieces.drops)) == sorted(map(repr, want.drops))


@pytest.mark.parametrize("explicit", [True, False])
def test_every_cut_of_a_history_has_each_record_once_and_in_order(explicit: bool) -> None:
    for seed in range(20):
        rng = random.Random(seed)
        q = random_query(rng)
        history = random_history(rng, q, explicit)
        sizes = {(t, p): len(r) for t, parts in history.topics.items() for p, r in enumerate(parts)}
        for cuts in (seq_cuts if explicit else time_cuts)(rng, history):
            done = dict.fromkeys(sizes, 0)
            moments: list[Moment] = []
            for batch in batches(history, cuts):
                for place, (first, last) in batch.ranges.items():
                    assert done[place] == first < last
                    done[place] = last
                moments += batch.moments
            assert done == sizes
            assert sorted(moments, key=lambda m: m.seq) == list(history.moments)


def test_an_expression_that_is_gone_leaves_nothing_to_another() -> None:
    """A query that is replaced takes its expressions along; new ones may lie where they lay."""
    run, row = Run(), Row({"n": 4}, 0, None)
    for by in range(1, 50):
        e = nodes.Call("add", (Col("n", Scalar.INT), Lit(by, Scalar.INT)), Scalar.INT)
        assert run.look(e, row) == (4 + by, False)
        del e
