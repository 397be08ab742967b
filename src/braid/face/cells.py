"""What calls of a session give: rows, plans, handles of queries; how a notebook shows them, and warnings.

In: rows with the names and types of their columns, running queries. Out: lists of tuples that are pandas, Polars or
Arrow on request; HTML in which nothing of a record is markup; Python's warnings, at the caller's line.
Rule: what is shown in a notebook is what `repr` says, as a table or a picture.
"""

from __future__ import annotations

import functools
import html
import inspect
import os
import re
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import polars as pl

from braid.errors import BraidError, printable
from braid.face.tabular import Terminal, cell
from braid.face.waiting import count
from braid.types import Type, polars_type

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import pyarrow as pa

    from braid.face.engine import Engine, Report
    from braid.spark.query import RunningQuery
    from braid.stage.waiting import Waiting

Waited = TypeVar("Waited")

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SHOWN = 20  # rows of a table in a notebook
PAUSE = 0.5  # s between two lines of progress


class Public:
    """What a person sees of an object: its public names. What it raises says what to do in Python."""

    def __init_subclass__(cls) -> None:
        for name, method in list(vars(cls).items()):
            if inspect.isfunction(method) and not name.startswith("_"):
                setattr(cls, name, _speaking(method))

    def __dir__(self) -> list[str]:
        names = {n for c in type(self).__mro__[:-1] for n in vars(c)}
        return sorted(n for n in {*names, *getattr(self, "__slots__", ())} if not n.startswith("_"))


def _speaking(method: Callable[..., Waited]) -> Callable[..., Waited]:
    """The method, whose errors are of this door."""

    @functools.wraps(method)
    def speaks(*args: Any, **more: Any) -> Waited:
        try:
            return method(*args, **more)
        except BraidError as e:
            e.message, e.hint = in_python(e.message), e.hint and in_python(e.hint)
            e.details = [in_python(line) for line in e.details]
            raise

    return speaks


_COMMANDS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(found), instead)
    for found, instead in (
        (r"braid upgrade FILE", "session.upgrade('…')"),
        (r"braid (upgrade|reset|drop) QUERY", r"session.\1('…')"),
        (r"braid (upgrade|reset|drop) ([\w.-]*\w) --cascade", r"session.\1('\2', cascade=True)"),
        (r"braid (upgrade|reset|drop) ([\w.-]*\w)", r"session.\1('\2')"),
        (r"braid rm ([\w.-]*\w)", r"session.drop('\1')"),
        (r"braid drops ([\w.-]*\w)", r"session.drops('\1')"),
        (r"give this one another --store", "give this one another store"),
        (r"--delete-topic", "delete_topic=True"),
        (r"--kafka HOST:PORT", "connect(kafka='HOST:PORT')"),
    )
)


def in_python(text: str) -> str:
    """A text that names commands, with what does the same in a session."""
    for found, instead in _COMMANDS if "braid " in text or "--" in text else ():
        text = found.sub(instead, text)
    return text


def warn(text: str) -> None:
    """A warning at the line of the user's that led here."""
    text = in_python(text)
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)


def tell(said: Iterable[Report]) -> None:
    for one in said:
        warn(one.text)


# ----------------------------------------------------------------------- rows


class Rows(list[tuple[Any, ...]]):
    """Rows in their order, as tuples. `columns`: the names; values as docs/files-and-topics.md has them."""

    def __init__(
        self, columns: Sequence[str] = (), rows: Iterable[Sequence[Any]] = (), types: Sequence[Type] | None = None
    ) -> None:
        """`types`: of the columns, where they are known; else they are those of the values."""
        super().__init__(map(tuple, rows))
        self.columns = tuple(columns)
        self._types = types if types and len(types) == len(self.columns) else [None] * len(self.columns)

    def to_polars(self) -> pl.DataFrame:
        """Of names that come twice the second has a number behind it."""
        values = zip(*self, strict=True) if self else ((),) * len(self.columns)
        return pl.DataFrame([_series(*x) for x in zip(_apart(self.columns), self._types, values, strict=True)])

    def to_arrow(self) -> pa.Table:
        return self.to_polars().to_arrow()

    def to_pandas(self) -> pd.DataFrame:
        """Whole numbers with nulls among them are of pandas' `Int64`: a float would change their digits. Arrays, maps
        and structures are lists and dictionaries."""
        import pandas as pd

        made = {s.name: _of_pandas(s) for s in self.to_polars()}
        return pd.DataFrame(made, columns=list(made))

    def _repr_html_(self) -> str:
        return table_of(self.columns, self)


def _series(name: str, t: Type | None, values: Sequence[Any]) -> pl.Series:
    """Values as a column of their type, where Python's values are of it."""
    if t is None:
        return pl.Series(name, values)
    made = polars_type(t)
    if made == pl.Binary:  # shown as text
        return pl.Series(name, values, None if values else pl.String)
    try:
        return pl.Series(name, values, made)
    except (TypeError, pl.exceptions.PolarsError):
        return pl.Series(name, values)


def _of_pandas(column: pl.Series) -> pd.Series[Any]:
    """A column with the same values."""
    import pandas as pd

    if column.dtype.is_nested():
        return pd.Series(column.to_list(), dtype=object)
    if column.dtype.is_integer() and column.null_count():
        return pd.Series(pd.array(column.to_list(), dtype="Int64"))
    return column.to_pandas()


def _apart(names: Sequence[str]) -> list[str]:
    seen: Counter[str] = Counter()
    made: list[str] = []
    for name in names:
        seen[name] += 1
        made.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return made


def table_of(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """HTML of the first rows."""
    head = "".join(f"<th>{_text(c)}</th>" for c in header)
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell(v))}</td>' for v in row)}</tr>" for row in rows[:SHOWN])
    more = f"<p>{len(rows) - SHOWN:,} more rows</p>" if len(rows) > SHOWN else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _text(value: str) -> str:
    return html.escape(printable(value))


class Plan(str):
    """A plan as text, which a notebook shows as it stands."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return f"<pre>{_text_lines(self)}</pre>"


class Lines(list[str]):
    """What was done, line by line, as a command says it."""

    def __str__(self) -> str:
        return "\n".join(self)

    def __repr__(self) -> str:
        return str(self) or "nothing to do"

    def _repr_html_(self) -> str:
        return f"<pre>{_text_lines(repr(self))}</pre>"


def _text_lines(text: str) -> str:
    return "\n".join(_text(line) for line in text.split("\n"))


# -------------------------------------------------------------------- queries


class Handle(Public):
    """A started query."""

    def __init__(self, running: RunningQuery, engine: Engine) -> None:
        self._started, self._engine = running, engine

    @property
    def _running(self) -> RunningQuery:
        """The query, also where it was changed since and goes on as another one."""
        return self._engine.newest(self._started)

    def __repr__(self) -> str:
        return f"<{self.name}: {self.status()}, {', '.join(f'{n} {what}' for what, n in self._counts().items())}>"

    def _repr_html_(self) -> str:
        return page_of("", [self])

    def _counts(self) -> Mapping[str, str]:
        p = self._running.progress()
        made = {"records in": p.rows_in, "out": p.rows_out, "dropped": sum(p.drops.values())}
        return {what: f"{n:,}" for what, n in made.items()} | {"waiting": count(self._running.waiting())}

    def _cells(self) -> Mapping[str, str]:
        return {"query": self.name, "status": self.status(), **self._counts()}

    @property
    def name(self) -> str:
        return self._running.name

    def status(self) -> Literal["running", "stopped", "failed"]:
        return self._running.status()

    def stop(self) -> None:
        """Ends the query; executed again, its statement goes on from here."""
        self._running.stop()
        self._tell()

    def await_termination(self, timeout: float | None = None) -> bool:
        """Waits (s) for the end; raises `BraidError` with the reason if the query failed."""
        return self._watched(lambda: self._running.await_termination(timeout))

    def await_idle(self) -> None:
        """Waits until what is there now has been processed and published."""
        self._watched(self._running.await_idle)

    def drops(self) -> list[dict[str, Any]]:
        """Rows that the query dropped, with reason and place."""
        return self._running.drops()

    def waiting(self) -> Sequence[Waiting]:
        """Rows that a clock lets go later: how many, until when (ms), whose clock it is and who holds it up."""
        return self._running.waiting()

    def _watched(self, wait: Callable[[], Waited]) -> Waited:
        """What a wait gives, with progress; then what there is to say. What is raised is not told once more."""
        try:
            with in_place(self._line):
                done = wait()
        except BraidError:
            self._tell(raised=True)
            raise
        self._tell()
        return done

    def _tell(self, raised: bool = False) -> None:
        if self._engine.running.get(self.name) is self._running:
            tell(said for said in self._engine.news_of(self.name) if not (raised and said.error))

    def _line(self) -> str:
        from braid.face.metrics import progress_line

        return progress_line(self.name, self._running.progress())


def page_of(title: str, handles: Iterable[Handle]) -> str:
    """HTML of queries, each a row."""
    rows = [h._cells() for h in handles]
    head = f"<p>{_text(title)}</p>" if title else ""
    return head + (table_of(list(rows[0]), [list(r.values()) for r in rows]) if rows else "<p>no queries</p>")


class Result(Sequence[Handle]):
    """What statements gave: the handles of their queries, of which it is a sequence; and `rows` of the last statement
    that shows some (SHOW, DESCRIBE, a query over tables). `lines`: what was done besides, as commands say it."""

    def __init__(self, handles: Sequence[Handle] = (), rows: Rows | None = None, lines: Sequence[str] = ()) -> None:
        self.handles, self.rows, self.lines = tuple(handles), Rows() if rows is None else rows, Lines(lines)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of `rows`."""
        return self.rows.columns

    @overload
    def __getitem__(self, at: int) -> Handle: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[Handle, ...]: ...

    def __getitem__(self, at: int | slice) -> Handle | tuple[Handle, ...]:
        return self.handles[at]

    def __len__(self) -> int:
        return len(self.handles)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Result) and (self.handles, self.rows) == (other.handles, other.rows)

    def __hash__(self) -> int:
        return hash(self.handles)

    def __repr__(self) -> str:
        rows = f"{len(self.rows)} row{'s' * (len(self.rows) != 1)}" if self.columns else ""
        said = [*self.lines, *map(repr, self.handles), *([rows] if rows else [])]
        return f"<braid result: {', '.join(said) or 'done'}>"

    def _repr_html_(self) -> str:
        shown = [self.lines._repr_html_()] if self.lines else []
        shown += [page_of("", self.handles)] if self.handles else []
        shown += [self.rows._repr_html_()] if self.columns else []
        return "".join(shown) or "<p>done</p>"


@contextmanager
def in_place(line: Callable[[], str]) -> Iterator[None]:
    """Shows a line that changes while something goes on, where somebody looks: on a terminal and in a notebook."""
    with _place() as put:
        if put is None:
            yield
            return
        over = threading.Event()

        def go() -> None:
            while not over.wait(PAUSE):
                put(printable(line()))

        watch = threading.Thread(target=go, daemon=True)
        watch.start()
        try:
            yield
        finally:
            over.set()
            watch.join()


@contextmanager
def _place() -> Iterator[Callable[[str], None] | None]:
    """What puts a text in the place of the one before, which is empty in the end; None where nobody looks."""
    console = Terminal(stderr=True)
    if console.is_jupyter:
        from IPython.display import display

        shown = display({"text/plain": ""}, raw=True, display_id=True)
        yield lambda text: shown.update({"text/plain": text}, raw=True)
        shown.update({"text/plain": ""}, raw=True)
    elif console.is_terminal:
        with console.status("") as status:
            yield status.update
    else:
        yield None
