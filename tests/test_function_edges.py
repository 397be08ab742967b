"""Every scalar function of ksqldb has its edges in a case page: NULL, what is empty, limits of numbers, what fails.

In: the pages `cases/ksqldb/functions/edges_of_*.md`: a section a function, whose query holds calls of it alone; below,
the calls that fail. Out: a failure that names the function and what its page lacks.
Rule: which edges a function has follows from what its calls are given. A call that should fail does, and no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from braid.expr.functions import FUNCTIONS
from braid.expr.lambdas import LAMBDAS
from braid.sql import ast
from braid.sql.dialects.ksqldb import KSQLDB as WORDS
from braid.sql.parser import parse
from braid.testing.cases import blocks
from braid.testing.driver import Driver
from braid.types import Array, Map

PAGES = sorted((Path(__file__).parent / "cases/ksqldb/functions").glob("edges_of_*.md"))
SCALAR = [name for name, f in FUNCTIONS.items() if name.isupper() and f.kind == "scalar"]
KNOWN = sorted({*SCALAR, *LAMBDAS})
LIMITS = {0, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 1.7976931348623157e308, -1.7976931348623157e308, 4.9e-324}
EMPTY = {"array": {"A0", "S0"}, "map": {"M0"}, "bytes": {"B0"}}
NEVER = {"CHR", "UUID", "TRUNC", "TIMEADD", "TIMESUB"}  # their rows could fail, with what ksqldb gives them none does


def calls() -> Iterator[tuple[str, ast.Call, bool]]:
    """The calls of all pages, by function, and whether they fail."""
    for page in PAGES:
        for block in blocks(page.read_text(encoding="utf-8")):
            if block.kind == "query":
                (query,) = parse(block.text.split("----")[0], WORDS).statements
                yield from ((x.expr.name, x.expr, False) for x in query.query.items if isinstance(x.expr, ast.Call))
            elif block.kind == "sql" and "AS SELECT" in block.text:
                (made,) = parse(block.text, WORDS).statements
                assert isinstance(made, ast.CreateAs)
                yield from ((x.expr.name, x.expr, True) for x in made.query.items if isinstance(x.expr, ast.Call))


def given(call: ast.Call) -> Iterator[str]:
    """What a call is given, in words: kinds of values, and which are at their edge."""
    for e in call.args:
        match e:
            case ast.Literal(value=None):
                yield "NULL"
            case ast.Cast(arg=ast.Literal(value=None), type=t):
                yield from ("NULL", *(["array"] if isinstance(t, Array) else ["map"] if isinstance(t, Map) else []))
            case ast.Literal(value=""):
                yield from ("text", "empty text")
            case ast.Literal(value=str()):
                yield "text"
            case ast.Literal(value=bool()):
                pass
            case ast.Literal(value=value):
                yield from ("number", *(["limit"] if value in LIMITS else []))
            case ast.ArrayLiteral():
                yield "array"
            case ast.MapLiteral():
                yield "map"
            case ast.Name(parts=(name,)):
                yield from (f"empty {kind}" for kind, names in EMPTY.items() if name in names)
                yield from ["text", "empty text"] if name == "T0" else []


NEEDS = {"text": "empty text", "array": "empty array", "map": "empty map", "number": "limit"}


@pytest.mark.parametrize("name", KNOWN)
def test_a_function_has_its_edges(name: str) -> None:
    mine = [(call, fails) for f, call, fails in calls() if f == name]
    assert mine, f"no page has {name}"
    if name == "PI":
        return
    have = {word for call, _ in mine for word in given(call)}
    lacks = {"NULL", *(edge for kind, edge in NEEDS.items() if kind in have)} - have
    assert not lacks, f"{name} has no call with {', '.join(sorted(lacks))}"
    can_fail = name in FUNCTIONS and FUNCTIONS[name].fallible is not None and name not in NEVER
    assert not can_fail or any(fails for _, fails in mine), f"{name} has no call that fails"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_each_failing_call_fails(page: Path) -> None:
    """A page shows that one of them does: here each alone."""
    sql = [b.text for b in blocks(page.read_text(encoding="utf-8")) if b.kind == "sql"]
    for text in sql[1:]:
        head, body = text.split("AS SELECT k,\n")
        for item in body.split("\nFROM one;")[0].split(",\n"):
            with Driver() as d:
                d.execute(sql[0] + f"{head}AS SELECT k, {item} FROM one;")
                d.write("one", 1, {"T0": "", "B0": "", "A0": [], "S0": [], "M0": {}}, 1)
                assert len(d.drops("failing")) == 1, item
