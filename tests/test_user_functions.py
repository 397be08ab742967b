"""Functions of users: files that are wrong, results that are wrong, and how code travels and is recognized."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from braid.bind.catalog import Catalog
from braid.bind.program import Program
from braid.errors import BraidError
from braid.expr import user
from braid.expr.annotations import deterministic
from braid.expr.loading import of_files, of_object, of_text
from braid.functions import Column
from braid.plan.canonical import canonical, wording
from braid.testing import Driver
from braid.types import Scalar

HEAD = "from braid.functions import Column, Rows, deterministic\nimport polars as pl\n"
DECLARED = "CREATE STREAM s (k INT KEY, v STRING) WITH (kafka_topic='s', value_format='JSON', partitions=1);"


def of(body: str) -> user.Functions:
    return of_text(HEAD + body, "f.py")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("def f(:", "f.py:3: invalid syntax"),
        ("x = 1", "f.py has no function"),
        ("import nothing_of_that_name", "f.py:3: ModuleNotFoundError: No module named"),
        ("def g():\n  return 1 / 0\ng()", "f.py:4: ZeroDivisionError: division by zero"),
        ("@deterministic\ndef f(x) -> Column[str]: ...", "f.py:3: x has no annotation"),
        ("@deterministic\ndef f(x: str) -> Column[str]: ...", "f.py:3: x is no column"),
        ("@deterministic\ndef f(x: Column[str]): ...", "f.py:3: its result has no annotation"),
        ("@deterministic\ndef f(x: Column[set]) -> Column[str]: ...", "f.py:3: set is no type of SQL"),
        ("@deterministic\ndef f(x: Column[list]) -> Column[str]: ...", "f.py:3: list is no type of SQL"),
        ("@deterministic\ndef f(x: 'Column[what]') -> Column[str]: ...", "f.py:3: its annotations cannot be read"),
        ("@deterministic\ndef f() -> Column[str]: ...", "f.py:3: f takes nothing"),
        ("@deterministic\ndef f(*, x: Column[str]) -> Column[str]: ...", "f.py:3: x is an argument by name"),
        ("@deterministic\nclass f:\n  n: Column[int]", "f has no accumulate"),
        ("@deterministic\nclass f:\n  def accumulate(self, x: Column[int]): ...\n"
         "  def result(self) -> Column[int]: ...", "f.py:5: f keeps nothing"),
        ("from typing import TypeVar\nT = TypeVar('T')\n@deterministic\ndef f(x: Column[str]) -> Column[T]: ...",
         "f.py:5: nothing says what T is"),
        ("from decimal import Decimal\n@deterministic\ndef f(x: Column[str]) -> Column[Decimal]: ...",
         "f.py:4: a Decimal has digits and a scale"),
        ("@deterministic\ndef f(x: Column[str]) -> Column[str]: ...\n@deterministic(name='f')\n"
         "def g(x: Column[str]) -> Rows[str]: ...", "f.py:5: F is a scalar function at f.py:3"),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong(body: str, said: str) -> None:
    with pytest.raises(BraidError) as e:
        of(body)
    assert said in e.value.message and "\n" not in e.value.message


@pytest.mark.parametrize(
    ("dialect", "name"),
    [("ksqldb", "len"), ("ksqldb", "now"), ("ksqldb", "sum"), ("lenses", "length"), ("sqlstream", "upper")],
)
def test_a_name_that_is_built_in_stays_what_it_is(dialect: str, name: str) -> None:
    made = of(f"@deterministic\ndef {name}(x: Column[str]) -> Column[str]: ...")
    with Driver(dialect) as d, pytest.raises(BraidError, match=rf"f.py:3: {name.upper()} is a built-in function"):
        d.functions(made)
    with pytest.raises(BraidError, match=rf"{name.upper()} is a built-in function"):
        list(Program(dialect, Catalog(functions=made)).statements("EXPLAIN x;"))


def test_a_name_of_another_dialect_is_free() -> None:
    made = of("@deterministic\ndef len(x: Column[str]) -> Column[str]: ...")
    program = Program("sqlstream", Catalog(functions=made))
    list(program.statements("CREATE STREAM s (v VARCHAR(9)); CREATE VIEW o AS SELECT STREAM LEN(v) AS x FROM s;"))


def test_a_name_has_one_file(tmp_path: Path) -> None:
    paths = [tmp_path / "a.py", tmp_path / "b.py"]
    for path in paths:
        path.write_text(f"{HEAD}@deterministic\ndef f(x: Column[str]) -> Column[str]:\n  return x\n", encoding="utf-8")
    with pytest.raises(BraidError, match=r"F is defined in two files: a.py:3 and b.py:3"):
        of_files([str(p) for p in paths])
    with pytest.raises(BraidError, match="cannot read"):
        of_files([str(tmp_path / "none.py")])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return x.head(0)", "f.py:3: F gave 0 values for 2 rows"),
        ("return x.str.len_chars()", "f.py:3: F gave UInt32, not String (VARCHAR)"),
        ("return 'a'", "f.py:3: F gave str, not a column"),
    ],
)
@pytest.mark.parametrize("runtime", ["local", "reference"])
def test_a_result_that_is_wrong(body: str, said: str, runtime: Any) -> None:
    with Driver(runtime=runtime) as d:
        d.functions(of(f"@deterministic\ndef f(x: Column[str]) -> Column[str]:\n  {body}"))
        d.execute(f"{DECLARED} CREATE STREAM o AS SELECT k, f(v) AS v FROM s;")
        d.write("s", 1, {"V": "a"})
        d.write("s", 2, {"V": "b"})
        with pytest.raises(BraidError) as e:
            d.read("o")
        assert said.replace("2 rows", "") in e.value.message


def plan_with(body: str, path: str = "f.py") -> Any:
    with Driver() as d:
        d.functions(of_text(f"{HEAD}@deterministic\ndef f(x: Column[str]) -> Column[str]:\n  {body}", path))
        d.execute(f"{DECLARED} CREATE STREAM o AS SELECT k, f(v) AS v FROM s;")
        return d._program.queries["O"]


def test_code_is_part_of_the_fingerprint() -> None:
    then, now, moved = plan_with("return x"), plan_with("return x + x"), plan_with("return x", "other.py")
    assert canonical(then) != canonical(now) and canonical(then) == canonical(moved)
    assert "return x" not in canonical(then)
    assert wording(then).splitlines()[1].startswith("-- f: a function of f.py, ")
    assert wording(then) != wording(now)


def test_halving_calls_little() -> None:
    """One bad row of a thousand costs some twenty calls, and no other row."""
    sizes: list[int] = []

    @deterministic
    def careful(x: Column[int]) -> Column[int]:
        sizes.append(len(x))
        if (x == 617).any():
            raise ValueError
        return x

    (overload,) = of_object(careful, b"").named["CAREFUL"]
    with pytest.MonkeyPatch.context() as patch, pytest.warns(UserWarning, match="CAREFUL failed"):
        patch.setattr(user, "definition_of", lambda _: careful)
        made, failed = user.called(overload.code, pl.DataFrame({"x": range(1000)}), Scalar.BIGINT)
    assert failed.arg_true().to_list() == [617] == made.is_null().arg_true().to_list()
    assert made.drop_nulls().sum() == sum(range(1000)) - 617 and len(sizes) < 25


def test_python_calls_them_as_before() -> None:
    @deterministic
    def double(x: Column[int]) -> Column[int]:
        """Twice as much.

        Really."""
        return x * 2

    assert double(pl.Series([1, 2])).to_list() == [2, 4]
    assert double.doc == "Twice as much."


TYPES = """
from decimal import Decimal
import datetime as dt
@deterministic
def same_int(x: Column[int]) -> Column[int]: return x.cast(pl.Int8)
@deterministic
def none_of(x: Column[int]) -> Column[str]: return pl.Series([None] * len(x))
@deterministic
def days(x: Column[dt.date], y: Column[dt.time]) -> Column[dt.datetime]:
    return pl.DataFrame([x.alias('x'), y.alias('y')]).select(pl.col('x').dt.combine(pl.col('y')))['x']
@deterministic
def nearly(x: Column[int]) -> Column[float]: return x.cast(pl.Float32)
"""


def test_results_of_another_width_are_cast() -> None:
    with Driver() as d:
        d.functions(of(TYPES))
        d.execute(
            f"{DECLARED} CREATE STREAM o AS SELECT k, same_int(k) AS a, none_of(k) AS b, nearly(k) AS c, "
            "days(PARSE_DATE(v, 'yyyy-MM-dd'), PARSE_TIME('10:00', 'HH:mm')) AS d FROM s;"
        )
        d.write("s", 5, {"V": "1970-01-02"})
        (row,) = d.read("o")
        assert row.value == {"A": 5, "B": None, "C": 5.0, "D": 86_400_000 + 36_000_000}
        d.write("s", 1000, {"V": "1970-01-02"})  # no Int8
        with pytest.warns(UserWarning, match="SAME_INT failed for a row: InvalidOperationError: ") as told:
            (row,) = d.read("o")
        assert [(w.filename, w.lineno) for w in told] == [("f.py", 7)]
        assert row.value["A"] is None and len(d.drops("o")) == 1


def test_show_and_describe() -> None:
    with Driver() as d:
        d.functions(of(TYPES))
        assert d.execute("DESCRIBE FUNCTION days;") == [("DAYS", "scalar", "DATE, TIME")]
        assert ("NEARLY", "scalar", "BIGINT") in (d.execute("SHOW FUNCTIONS;") or [])


def test_none_of_them_without() -> None:
    with Driver() as d, pytest.raises(BraidError, match="unknown function NEARLY"):
        d.execute(f"{DECLARED} CREATE STREAM o AS SELECT k, nearly(k) AS n FROM s;")
