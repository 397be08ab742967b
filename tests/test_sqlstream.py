"""SQLstream: grammar of intervals and windows, names, where conditions go, and that the pages name every rule.

Rule: what a statement gives is the business of the pages in `cases/sqlstream`; here is what they cannot show.
"""

from __future__ import annotations

import itertools
import operator
import random
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from braid.bind.program import Program
from braid.errors import BraidError, SqlError
from braid.expr import typing
from braid.expr.compile import evaluate
from braid.expr.functions import by_name
from braid.expr.nodes import Col
from braid.expr.show import show
from braid.plan.logical import Filter, Query, Source
from braid.plan.sliding import Bound, Meeting, Operand, OrderKey, RangeFrame, RowsFrame, SlidingJoin
from braid.sql.dialects.sqlstream import SQLSTREAM
from braid.testing.driver import Driver
from braid.types import Scalar, polars_type

ROOT = Path(__file__).parent.parent
DECLARED = """
CREATE STREAM l (k INT, v INT); CREATE STREAM r (k INT, w INT); CREATE STREAM s (k INT, x INT);
CREATE TABLE t (k INT PRIMARY KEY, y INT); CREATE STREAM q ("k" INT, k INT);
"""


def bound(sql: str) -> Query:
    program = Program("sqlstream")
    found = [e.query for e in program.statements(DECLARED + sql) if e.query is not None]
    return found[-1]


def join(sql: str) -> SlidingJoin:
    node = bound(sql).root
    while isinstance(node, Filter):
        node = node.input
    assert isinstance(node, SlidingJoin)
    return node


def where(sql: str) -> list[str]:
    """What each operand is filtered by, and (last) what is filtered above the join."""
    node, above = bound(sql).root, 0
    while isinstance(node, Filter):
        node, above = node.input, above + 1
    assert isinstance(node, SlidingJoin)
    found = []
    for operand in node.operands:
        x, count = operand.input, 0
        while isinstance(x, Filter):
            x, count = x.input, count + 1
        found.append(f"{x.alias if isinstance(x, Source) else '?'} {count}")
    return [*found, f"above {above}"]


# ------------------------------------------------------------------- intervals

DAY = 86_400_000
INTERVALS = [
    ("'1' SECOND", Bound(0, 1000)),
    ("'1.5' SECOND", Bound(0, 1500)),
    ("'0.001' SECOND(2, 3)", Bound(0, 1)),
    ("'90' MINUTE", Bound(0, 5_400_000)),
    ("'100' HOUR(3)", Bound(0, 360_000_000)),
    ("'400' DAY", Bound(0, 400 * DAY)),
    ("'1:30' HOUR TO MINUTE", Bound(0, 5_400_000)),
    ("'1:30:15' HOUR TO SECOND", Bound(0, 5_415_000)),
    ("'59:59.999' MINUTE TO SECOND(3)", Bound(0, 3_599_999)),
    ("'1 6' DAY TO HOUR", Bound(0, 30 * 3_600_000)),
    ("'1 6:30' DAY TO MINUTE", Bound(0, 30 * 3_600_000 + 1_800_000)),
    ("'1 06:30:01.25' DAY TO SECOND", Bound(0, 30 * 3_600_000 + 1_801_250)),
    ("'2' MONTH", Bound(2, 0)),
    ("'1' YEAR", Bound(12, 0)),
    ("'1-6' YEAR TO MONTH", Bound(18, 0)),
    ("'1-6' YEAR(4) TO MONTH", Bound(18, 0)),
]


@pytest.mark.parametrize(("written", "meant"), INTERVALS)
def test_interval(written: str, meant: Bound) -> None:
    node = join(f"SELECT STREAM * FROM l OVER (RANGE INTERVAL {written} PRECEDING) JOIN r USING (k)")
    assert node.operands[0].frame == RangeFrame(meant)


# --------------------------------------------------------------------- windows

MINUTE = Bound(0, 60_000)
M = "INTERVAL '1' MINUTE"
WINDOWS = [
    ("RANGE CURRENT ROW", RangeFrame()),
    ("RANGE BETWEEN INTERVAL '1' MINUTE AND CURRENT ROW", RangeFrame(MINUTE)),
    ("RANGE BETWEEN CURRENT ROW AND CURRENT ROW", RangeFrame()),
    (f"RANGE BETWEEN {M} PRECEDING AND INTERVAL '1' SECOND PRECEDING", RangeFrame(MINUTE, Bound(0, 1000))),
    ("RANGE BETWEEN INTERVAL '1' YEAR AND INTERVAL '2' MONTH PRECEDING", RangeFrame(Bound(12), Bound(2))),
    ("ORDER BY ROWTIME ASC RANGE INTERVAL '1' MINUTE PRECEDING", RangeFrame(MINUTE)),
    ("ORDER BY ROWTIME ROWS 5 PRECEDING", RowsFrame(5)),
    ("ROWS CURRENT ROW", RowsFrame(0)),
    ("ROWS BETWEEN 5 PRECEDING AND CURRENT ROW", RowsFrame(5)),
    ("ROWS BETWEEN 5 PRECEDING AND 2 PRECEDING", RowsFrame(5, 2)),
    ("ORDER BY FLOOR(ROWTIME TO HOUR) RANGE CURRENT ROW", RangeFrame(order=OrderKey("floor", "HOUR"))),
    (f"ORDER BY CEIL(ROWTIME TO MONTH) RANGE {M} PRECEDING", RangeFrame(MINUTE, order=OrderKey("ceil", "MONTH"))),
    (f"ORDER BY STEP(ROWTIME BY {M}) RANGE CURRENT ROW", RangeFrame(order=OrderKey("step", None, 60_000))),
]  # fmt: skip


@pytest.mark.parametrize(("written", "meant"), WINDOWS)
def test_window(written: str, meant: object) -> None:
    """Written in place and by name, a window is the same."""
    for sql in (
        f"SELECT STREAM * FROM l OVER ({written}) JOIN r USING (k)",
        f"SELECT STREAM * FROM l OVER w JOIN r USING (k) WINDOW w AS ({written})",
        f"SELECT STREAM * FROM l OVER WINDOW w JOIN r USING (k) WINDOW w AS ({written})",
    ):
        assert [x.frame for x in join(sql).operands] == [meant, RangeFrame()]


# ----------------------------------------------------------------------- trees


def test_parentheses_and_commas() -> None:
    tree = join("SELECT STREAM * FROM l, r JOIN (s JOIN q ON s.k = q.k) ON r.k = s.k WHERE l.k = r.k").tree
    assert isinstance(tree, Meeting)
    assert isinstance(tree.left, Operand), "the comma binds most loosely"
    assert isinstance(tree.right, Meeting)
    assert isinstance(tree.right.right, Meeting)
    assert len(tree.keys) == len(tree.right.keys) == len(tree.right.right.keys) == 1


def test_what_on_becomes() -> None:
    tree = join("SELECT STREAM * FROM l JOIN r ON l.k = r.k AND l.v + 1 = r.w AND l.v < r.w AND TRUE").tree
    assert isinstance(tree, Meeting)
    assert len(tree.keys) == 2
    assert tree.residual is not None


CONDITIONS = [
    # WHERE: only to the side whose rows are kept; both sides of an inner join
    ("l JOIN r ON l.k = r.k WHERE l.v > 1 AND r.w > 1", ["L 1", "R 1", "above 0"]),
    ("l LEFT JOIN r ON l.k = r.k WHERE l.v > 1 AND r.w > 1", ["L 1", "R 0", "above 1"]),
    ("l RIGHT JOIN r ON l.k = r.k WHERE l.v > 1 AND r.w > 1", ["L 0", "R 1", "above 1"]),
    ("l FULL JOIN r ON l.k = r.k WHERE l.v > 1 AND r.w > 1", ["L 0", "R 0", "above 2"]),
    # ON: only to the other side
    ("l LEFT JOIN r ON l.k = r.k AND l.v > 1 AND r.w > 1", ["L 0", "R 1", "above 0"]),
    ("l RIGHT JOIN r ON l.k = r.k AND l.v > 1 AND r.w > 1", ["L 1", "R 0", "above 0"]),
    ("l FULL JOIN r ON l.k = r.k AND l.v > 1 AND r.w > 1", ["L 0", "R 0", "above 0"]),
    # never below ROWS (SF-24), and never below a report by hour on the stream's side
    ("l OVER (ROWS 1 PRECEDING) JOIN r ON l.k = r.k WHERE l.v > 1 AND r.w > 1", ["L 0", "R 1", "above 1"]),
    (
        "l OVER (ORDER BY FLOOR(ROWTIME TO HOUR) RANGE CURRENT ROW) "
        "RIGHT JOIN t ON l.k = t.k AND l.v > 1 WHERE t.y > 1",
        ["L 0", "T 1", "above 0"],
    ),
    # a table that is captured holds only what can match
    ("l LEFT JOIN t ON l.k = t.k AND t.y > 1", ["L 0", "T 1", "above 0"]),
    # in a chain each join on the way must let it through
    ("l JOIN r ON l.k = r.k LEFT JOIN s ON s.k = r.k WHERE l.v > 1 AND s.x > 1", ["L 1", "R 0", "S 0", "above 1"]),
    ("l LEFT JOIN r ON l.k = r.k JOIN s ON s.k = l.k AND r.w > 1", ["L 0", "R 0", "S 0", "above 0"]),
    # what equals in WHERE is a key of a join without condition; above an outer join it is asked again
    ("l, r WHERE l.k = r.k", ["L 0", "R 0", "above 0"]),
    ("l CROSS JOIN r LEFT JOIN s ON s.k = r.k WHERE l.k = r.k", ["L 0", "R 0", "S 0", "above 1"]),
]


@pytest.mark.parametrize(("source", "filters"), CONDITIONS)
def test_where_conditions_go(source: str, filters: list[str]) -> None:
    assert where(f"SELECT STREAM * FROM {source}") == filters


# ----------------------------------------------------------------------- names

STARS = [
    ("* FROM l JOIN r ON l.k = r.k", "K V K0 W"),
    ("* FROM l JOIN r USING (k)", "K V W"),
    ("* FROM l NATURAL JOIN r NATURAL JOIN s", "K V W X"),
    ("l.*, r.* FROM l JOIN r USING (k)", "K V K0 W"),
    ("*, k, l.k, r.k AS k FROM l JOIN r USING (k)", "K V W K0 K1 K2"),
    ("ROWTIME, * FROM l", "ROWTIME K V"),
    ("v + 1, v + 1 AS k0, k, k FROM l", "EXPR$0 K0 K K1"),
    ('* FROM q', "k K"),
    ("a.k, b.k FROM l a JOIN l b ON a.k = b.k", "K K0"),
]  # fmt: skip


@pytest.mark.parametrize(("select", "names"), STARS)
def test_names_of_columns(select: str, names: str) -> None:
    """S-105, S-106."""
    assert [o.name for o in bound(f"SELECT STREAM {select}").sink.values] == names.split()


def test_views_say_what_their_sql_says() -> None:
    """A view in a query is its SQL in brackets, whatever its columns are called; its names are its own schema's."""
    inner = "SELECT STREAM ROWTIME, l.k, w FROM l OVER (ROWS 2 PRECEDING) JOIN r USING (k) WHERE w > 1"
    outer = "SELECT STREAM * FROM {} OVER (RANGE INTERVAL '1' SECOND PRECEDING) AS v JOIN s ON v.a = s.k"
    by_view = bound(f"CREATE VIEW vv (a, b) AS {inner}; {outer.format('vv')}")
    by_query = bound(outer.format(f"({inner.replace('l.k, w', 'l.k AS a, w AS b')})"))
    assert by_view.root == by_query.root


def test_functions_have_their_names_in_sql() -> None:
    query = bound("SELECT STREAM UPPER(LOWER('Ab')), CHAR_LENGTH('ab'), MOD(v, 2) FROM l")
    assert [show(o.expr) for o in query.sink.values] == ["UCASE(LCASE('Ab'))", "LEN('ab')", "(L.V % 2)"]
    for name in by_name("ksqldb").keys() - by_name("sqlstream").keys():
        with pytest.raises(SqlError, match=rf"unknown function {name}|{name} is not deterministic"):
            bound(f"SELECT STREAM {name}(v) FROM l")


@pytest.mark.parametrize(("type_", "bits"), [(Scalar.INT, 31), (Scalar.BIGINT, 63)])
def test_whole_numbers_are_right_or_a_failure(type_: Scalar, bits: int) -> None:
    rng, least = random.Random(bits), -(2**bits)
    edges = [least, least + 1, -least - 1, -least - 2, -1, 0, 1, 2, None]
    values = [*edges, *(rng.randrange(least, -least) >> rng.randrange(bits) for _ in range(200))]
    pairs = [*itertools.product(edges, edges), *((rng.choice(values), rng.choice(values)) for _ in range(2000))]
    frame = pl.DataFrame(pairs, schema=dict.fromkeys("ab", polars_type(type_)), orient="row")
    a, b = (Col(name, type_) for name in "ab")
    plain: dict[str, Any] = {
        "add": (operator.add, [a, b]), "sub": (operator.sub, [a, b]), "mul": (operator.mul, [a, b]),
        "div": (lambda x, y: int(Fraction(x, y)), [a, b]),
        "neg": (lambda x, _: -x, [a]), "abs": (lambda x, _: abs(x), [a]),
    }  # fmt: skip
    for name, (exact, args) in plain.items():
        out, failed = evaluate(frame, [("v", typing.call(f"sql.{name}", args))])
        for (x, y), got, bad in zip(pairs, out["v"].to_list(), failed.to_list(), strict=True):
            there = x is not None and (y is not None or len(args) == 1)
            right = exact(x, y) if there and not (name == "div" and y == 0) else None
            fits = right is not None and least <= right < -least
            assert (got, bad) == (right if fits else None, there and not fits), (name, x, y)


def test_a_name_outside_its_schema() -> None:
    program = Program("sqlstream")
    list(program.statements("CREATE STREAM a.x (v INT); SET SCHEMA 'b'; CREATE STREAM y (v INT);"))
    assert set(program.catalog.sources) == {"A.X", "B.Y"}
    found = program.find("x")
    assert found is not None
    assert found.name == "A.X"


# ---------------------------------------------------------------- whole grammar


def test_whatever_the_text_only_errors_of_ours_come() -> None:
    """Statements with words taken out, doubled and exchanged: bound, or refused with a place."""
    page = (ROOT / "docs/dialects/sqlstream.md").read_text(encoding="utf-8")
    statements = [s for s in re.findall(r"`((?:SELECT|CREATE|INSERT)[^`]+;)`", page) if "FOREIGN" not in s]
    declared = re.search(r"```sql sqlstream\n(.*?)```", page, re.DOTALL)
    assert declared is not None
    rng = random.Random(7)
    for _ in range(400):
        words = re.findall(r"'[^']*'|\w+|[^\w\s]", rng.choice(statements))
        for _ in range(rng.randrange(1, 3)):
            i, j = rng.randrange(len(words)), rng.randrange(len(words))
            match rng.randrange(3):
                case 0:
                    words[i : i + 1] = []
                case 1:
                    words[i:i] = [words[j]]
                case _:
                    words[i], words[j] = words[j], words[i]
            words = words or [";"]
        program = Program("sqlstream")
        list(program.statements(declared[1]))
        try:
            list(program.statements(" ".join(words)))
        except SqlError as error:
            assert error.line is not None, f"{' '.join(words)}: {error}"
        except BraidError as error:
            raise AssertionError(f"no place: {' '.join(words)}") from error


def test_none_of_these_words_is_reserved() -> None:
    """S-109."""
    words = "value stream version id price zone name quantity"
    columns = ", ".join(f"{w} INT" for w in words.split())
    query = bound(f"CREATE STREAM odd ({columns}); SELECT STREAM {', '.join(words.split())} FROM odd;")
    assert [o.name for o in query.sink.values] == words.upper().split()


# ------------------------------------------------------------------------ pages


def test_the_page_of_the_dialect_names_every_statement() -> None:
    page = (ROOT / "docs/dialects/sqlstream.md").read_text(encoding="utf-8")
    words = set(re.findall(r"[A-Z]+", page))
    assert set(SQLSTREAM.statements) <= words
    assert set(SQLSTREAM.creates) <= words


def ids(text: str, letters: str) -> set[int]:
    """The numbers of `S-1`, `S-3 to S-5` … in a text."""
    found = re.findall(rf"\b{letters}-(\d+)(?: to {letters}-(\d+))?", text)
    return {n for first, last in found for n in range(int(first), int(last or first) + 1)}


def test_every_rule_and_every_fixture_is_named() -> None:
    """The page of the dialect names every rule, besides its sentence on all of them; the case pages every fixture."""
    page = (ROOT / "docs/dialects/sqlstream.md").read_text(encoding="utf-8").replace("S-1 to S-150, S-160 to S-172", "")
    cases = [p.read_text(encoding="utf-8") for p in (ROOT / "tests/cases/sqlstream").rglob("*.md")]
    assert ids(page, "S") == {*range(1, 151), *range(160, 173)}
    titles = "\n".join(text.splitlines()[0] for text in cases)
    assert ids(titles, "SF") == set(range(1, 32))


# ------------------------------------------------------- pushdown changes nothing

WINDOWS_OF = (
    "",
    "OVER (RANGE INTERVAL '3' SECOND PRECEDING)",
    "OVER (ROWS 2 PRECEDING)",
    "OVER (RANGE BETWEEN INTERVAL '4' SECOND PRECEDING AND INTERVAL '1' SECOND PRECEDING)",
    "OVER (ORDER BY STEP(ROWTIME BY INTERVAL '4' SECOND) RANGE CURRENT ROW)",
)
HOWS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
VALUE = {"l": "V", "r": "W", "s": "X"}


def random_query(rng: random.Random) -> str:
    """A join of two or three streams with conditions in ON and WHERE."""

    def source(name: str) -> str:
        return f"{name} {rng.choice(WINDOWS_OF)}"

    def some(conditions: list[str]) -> list[str]:
        return [c for c in conditions if rng.random() < 0.2]

    two = ["l.v > 1", "r.w > 1", "l.v < r.w", "l.v = r.w", "r.w IS NULL", "l.v IS NULL"]
    three = [*two, "s.x > 1", "r.w = s.x"]
    how, and_how = rng.choice(HOWS), rng.choice(HOWS)
    on = " AND ".join(["l.k = r.k", *some(two)])
    match rng.randrange(4):
        case 0:
            text, conditions = f"{source('l')} {how} {source('r')} ON {on}", two
        case 1:
            last = " AND ".join(["l.k = s.k", *some(three)])
            text = f"{source('l')} {how} {source('r')} ON {on} {and_how} {source('s')} ON {last}"
            conditions = three
        case 2:
            text, conditions = f"{source('l')}, {source('r')}", [*two, "l.k = r.k", "l.k = r.k"]
        case _:
            text = f"{source('l')} {how} ({source('r')} CROSS JOIN {source('s')}) ON l.k = r.k"
            conditions = three
    where = some(conditions)
    emission = rng.choice(("arrival", "expiry", "istream"))
    return f"SET 'braid.outer.emission' = '{emission}'; SELECT STREAM * FROM {text}" + (
        f" WHERE {' AND '.join(where)}" if where else ""
    )


def random_history(rng: random.Random) -> list[tuple[str, int, dict[str, int]]]:
    clocks = dict.fromkeys(VALUE, 0)
    made = []
    for _ in range(rng.randrange(12, 30)):
        stream = rng.choice("lrs")
        clocks[stream] += rng.choice([0, 0, 0, 1000, 1000, 2000])
        made.append((stream, clocks[stream], {"K": rng.choice([1, 1, 1, 2]), VALUE[stream]: rng.randrange(4)}))
    return made


@pytest.mark.parametrize("seed", range(24))
def test_pushdown_changes_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle gives the same rows in the same order where every condition stays as it was written."""
    rng = random.Random(seed)
    sql, history = random_query(rng), random_history(rng)
    given = []
    for _ in range(2):
        with Driver(dialect="sqlstream", runtime="reference") as d:
            d.execute(DECLARED + sql)
            for stream, time, value in history:
                d.write(stream, value=value, timestamp=time)
            rows = d.read("query")
            d.finish()
            given.append([*rows, *d.read("query")])
        monkeypatch.setattr("braid.bind.sqlstream.query.with_where", lambda tree, where: (tree, where))
    assert given[0] == given[1], sql
