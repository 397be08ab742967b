"""What `braid sql` does with a text: statements and dot commands, carried out against a store.

In: a text that is whole (`complete`). Out: tables and notes on the terminal.
Rule: nothing here needs a terminal, so that a script goes the same way as what is typed. A refused statement is told
and changes nothing; those before it stand. INSERT, SHOW, EXPLAIN and push queries (SELECT … EMIT CHANGES, from the
beginning of their topics) run in this process; the first CREATE … AS or INSERT INTO … SELECT starts Spark and takes the
store's lock, as `braid run` does. What is declared stands in the store's catalogue, also for the next prompt.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from braid.bind.bound import BatchQuery, Declared, Printed, Pull, QueryBound, TablesAsked
from braid.bind.dialects import dialect_named
from braid.bind.program import Program
from braid.errors import BraidError, QueryDied, Span, printable
from braid.explain.documents import explain_query, render_text
from braid.expr.user import NONE, Functions
from braid.face.assertions import PRINTED, Asserted, Looked, StoreLookout
from braid.face.catalogue import Catalogue
from braid.face.effects import Rows, carry_out_all
from braid.face.engine import Engine, EngineWorld, dropped_rows
from braid.face.formatting import counted, readable
from braid.face.infer import statement
from braid.face.metrics import why_late
from braid.face.polls import Polls
from braid.face.pull_queries import StorePullQueries
from braid.face.request import Request, SourceFiles
from braid.face.scripts import scripts_in
from braid.face.tabular import cell, print_table, time_text
from braid.face.tail import Tail
from braid.face.waiting import count
from braid.files.listing import is_awaited, look
from braid.lower.lower import lower
from braid.plan.logical import Query
from braid.plan.logical import sources as read_by
from braid.spark.query_options import QueryOptions
from braid.sql.tokens import Lexer, TokenKind
from braid.tables.named import is_table
from braid.topics.interface import open_topics
from braid.topics.lock import StoreLock, holder
from braid.topics.registered import is_registered
from braid.topics.store_value import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# ------------------------------------------------------------------- the shell


POLL = 0.1  # s between two looks for new records
EVERY = 10.0  # s between two looks at a table that lies elsewhere
DONE: dict[str, str] = {"insert": "into", "update": "updated in", "delete": "deleted from"}
WIDEST = 40  # characters of a column of a live tail, at most

STILL = "does not run: its result is as old as its last run, until braid run, or its statement typed again, takes it on"

COMMANDS = {
    ".help": "this list",
    ".dialect": "the dialect, or another one: .dialect ksqldb",
    ".read": "run the statements of a file: .read FILE",
    ".topics": "the topics of the store",
    ".queries": "the queries that this prompt has started",
    ".drops": "what a query has dropped: .drops NAME; without a name, what all have",
    ".waiting": "the rows of a query that wait for a clock: .waiting NAME",
    ".why": "why a row is there: .why TOPIC --offset N [-p PARTITION], or --key KEY",
    ".why-not": "why a row is missing: .why-not NAME --key KEY, --input TOPIC:PARTITION:OFFSET, or --since TIME",
    ".quit": "leave, as Ctrl-D does; queries that run are stopped and go on from their checkpoints next time",
}
HELP = """\
A statement ends with ; and may take several lines. SELECT … EMIT CHANGES shows rows as they come: Ctrl-C ends that,
and only that. CREATE … AS SELECT starts a query on Spark."""


class Shell:
    """`live`: somebody is looking, so a push query waits for more; without, it ends where the records end."""

    def __init__(
        self,
        dialect: str,
        store: Store,
        out: Console,
        err: Console,
        live: bool,
        master: str,
        sources: Mapping[str, str] | None = None,
        functions: Functions = NONE,
    ) -> None:
        """`sources`: files in place of topics, by name, and tables that lie elsewhere. `broker`: where the topics lie,
        if not in the store. `functions`: of the user."""
        dialect_named(dialect)
        self.dialect, self.live = dialect, live
        self.failed = False
        self._programs: dict[str, Program] = {}
        self._store = open_topics(store)
        self._functions = functions
        self.pulls = StorePullQueries(self._store)
        self._out, self._err, self._master = out, err, master
        self.looked = Looked(StoreLookout(self._store))
        self.engine = Engine(self._store, self._begin, ".drops {}")
        self._noted: set[str] = set()  # queries of which it was said that they stand still
        self._closing = contextlib.ExitStack()
        self._spark: Any = None
        self._sources = {name: text for name, text in (sources or {}).items() if not is_table(text)}
        tables = {name: text for name, text in (sources or {}).items() if is_table(text)}
        self._seen: list[str] = []  # at tables that lie elsewhere; told at the next prompt
        self._polls = Polls(tables, self._seen.append, self._store, False)
        if live:
            self._polls.go_on(EVERY)
            self._closing.callback(self._polls.end)
        self._parsed = self._closing.enter_context(tempfile.TemporaryDirectory(prefix="braid-files-"))

    def declare(self, text: str = "") -> None:
        """Declares sources as `braid infer` would: those that do not stand, and that the text does not declare."""
        for name, pattern in self._sources.items():
            if self.program.find(name) is None and not _declares(text, name):
                root, found = look(pattern)
                first = next((f for f in found if not is_awaited(pattern, f)), found[0])
                made = statement(os.path.join(root, first.name), self.dialect, name)
                self._err.print(made, markup=False)
                list(self.program.statements(made))  # declared, and no more: nobody reads the topic

    @property
    def files(self) -> SourceFiles:
        return SourceFiles(self._sources, self.program.catalog.sources, self._parsed)

    @property
    def program(self) -> Program:
        """The names of the present dialect; those of another one wait until it is chosen again."""
        if self.dialect not in self._programs:
            program = Catalogue(self._store, self.dialect, self._functions).program("cell")
            program.scripts, program.reworks = scripts_in("."), True
            self._programs[self.dialect] = program
        return self._programs[self.dialect]

    def close(self) -> None:
        """Stops the queries and, if this prompt has started it, Spark."""
        self.engine.stop_all()
        self._closing.close()

    def running(self) -> list[str]:
        return list(self.engine.running)

    def greet(self) -> None:
        """What somebody who comes in should know: queries of the catalogue run under `braid run`, not by themselves."""
        still = self._still(self.program.queries)
        if still:
            named = ", ".join(still[:5]) + f" and {len(still) - 5} more" * (len(still) > 5)
            self._err.print(f"note: {named} {STILL}", markup=False, soft_wrap=True)

    def _still(self, queries: Iterable[str]) -> list[str]:
        """Those of the catalogue's queries that run neither here nor in another process."""
        running = {n for n, q in self.engine.running.items() if q.status() == "running"}
        still = [n for n in dict.fromkeys(queries) if n in self.program.queries and n not in running]
        elsewhere = bool(still) and holder(self._store.root) not in (None, os.getpid())
        return [] if elsewhere else still

    def note_age(self, read: Iterable[str]) -> None:
        """Says once of each query that makes what is read here, and stands still, that its result is old."""
        declared = [self.program.catalog.get(n) for n in read]
        made = [d.created_by for d in declared if d is not None and d.created_by is not None]
        for name in self._still(made):
            if name not in self._noted:
                self._noted.add(name)
                self._err.print(f"note: {name} {STILL}", markup=False, soft_wrap=True)

    # ----------------------------------------------------------- a whole text

    def run(self, text: str) -> bool:
        """Carries out a text; False when it asks to leave."""
        try:
            if text.strip().startswith("."):
                return self._command(text.strip())
            self._statements(text)
        except BraidError as e:
            self._refused(e.render())
        except QueryDied as e:
            self._refused(f"error: {e}")
        except KeyboardInterrupt:
            self._err.print("interrupted")
        except Exception:
            if not self._lost_jvm():
                raise
        return True

    def _lost_jvm(self) -> bool:
        """Whether an error means that Spark is gone, and says so. The next query begins it anew."""
        from braid.spark import conf

        if self._spark is None or not conf.jvm_gone():
            return False
        self._refused(f"error: {conf.jvm_lost()}\n  hint: DROP a query and create it again: it goes on")
        self.engine.forget()
        self._closing.close()
        self._spark = None
        return True

    def _refused(self, text: str) -> None:
        self.failed = True
        self._err.print(text, style="red", markup=False)

    def _statements(self, text: str) -> None:
        self.look(self.program.catalog.sources)
        carry_out_all(self.program, text, _World(self))

    def look(self, declared: Mapping[str, Declared]) -> None:
        """At those of these tables that lie elsewhere, for the first time."""
        self._polls.check(declared)
        self._polls.begin(declared.values())
        while self._seen:
            self.note(self._seen.pop(0))

    # ------------------------------------------------------------ dot commands

    def _command(self, line: str) -> bool:
        word, _, rest = line.rstrip(";").partition(" ")
        rest = rest.strip()
        match word:
            case ".help":
                self.table(("command", "does"), list(COMMANDS.items()))
                self._out.print(HELP, markup=False)
            case ".dialect":
                if rest:
                    self.dialect = dialect_named(rest).name
                self._out.print(self.dialect)
            case ".read":
                self._statements(_text_of(rest))
            case ".topics":
                from braid.face.show import TOPICS, sizes

                self.table(TOPICS, list(sizes(self._store)))
            case ".queries":
                self.settle_script()
                seen = [(name, q.status(), q.progress(), q.waiting()) for name, q in self.engine.running.items()]
                counts = [
                    (name, status, p.rows_in, p.rows_out, sum(p.drops.values()), count(waits))
                    for name, status, p, waits in seen
                ]
                self.table(("query", "status", "in", "out", "dropped", "waiting"), counts)
            case ".drops":
                from braid.face.show import print_drops

                print_drops(self._store.root, [rest] if rest else None, "table")
            case ".waiting":
                from braid.face.waiting import print_waiting

                if not rest:
                    raise BraidError(".waiting needs a query", ".waiting NAME; .queries lists them")
                self.settle_script()
                print_waiting(self._store.root, rest, "table", None, None, self._functions)
            case ".why" | ".why-not":
                self._why(word, rest)
            case ".quit" | ".exit":
                return False
            case _:
                raise BraidError(f"there is no command {word}", f"commands: {', '.join(COMMANDS)}")
        return True

    def _why(self, word: str, rest: str) -> None:
        from braid.why.command import print_answer, why_not_of, why_of

        self.settle_script()
        of = why_of if word == ".why" else why_not_of
        print_answer(of(self._store.store, rest, self._functions), as_json=False)

    # ----------------------------------------------------------------- queries

    def tail(self, query: Query) -> None:
        """Rows as they come, until LIMIT, Ctrl-C, or (in a script) there are no more."""
        for topic in sorted({leaf.source.topic for leaf in lower(query).leaves} - self.files.topics()):
            if not self._store.exists(topic) and not is_registered(topic):
                raise BraidError(f"there is no topic {topic}", "declare it with partitions = 1, or braid put it")
        self.settle_script()
        self.note_age(s.name for s in read_by(query.root))
        tail = Tail(query, self._store, self.files.opened())
        rows, types = _Rows(tail.columns, query.sink.kind == "table", self.say), tail.types
        try:
            while True:
                for some in tail.more():
                    shown = [(r, map(readable, r.values, types)) for r in some]
                    rows.show([(*(["-" if r.gone else "+"] * rows.changes), *values) for r, values in shown])
                if tail.over or not self.live:
                    break
                time.sleep(POLL)
        except KeyboardInterrupt:
            self._err.print()
        self._err.print(f"{rows.count} row{'s' * (rows.count != 1)}")
        for text in tail.unmet():
            self.note(f"{text}: compare the keys, and the times, of both sides")
        if lost := dropped_rows(tail.drops):
            why = why_late(tail.late, tail.enough, self.dialect) if tail.late is not None else ""
            self.note(f"the query dropped {lost}" + (f"; the first: {tail.first}" if tail.first else "") + why)

    def start(self, query: Query) -> None:
        """A persistent query, on Spark; it goes on from its checkpoint."""
        if self.engine.runs(query.name):
            self._err.print(f"{query.name} is running already", markup=False)
            return
        self.engine.start(query, QueryOptions(files=self.files.of(query), note=self.note))
        self._err.print(f"{query.name} is running", markup=False)

    def _begin(self) -> SparkSession:
        """Takes the store and starts Spark, once."""
        from braid.face.quick_start import make_behind
        from braid.spark import conf, jvm

        if self._spark is None:
            jvm.java_version()
            self._closing.enter_context(StoreLock(self._store.root, note=lambda x: self._err.print(x, markup=False)))
            self._err.print("starting Spark …")
            own = not conf.running()
            self._spark = conf.session(self._master, jvm.CARRIER)
            if own:
                conf.quiet(self._spark)
                self._closing.callback(make_behind, self._master)
                self._closing.callback(conf.end, self._spark)
        return self._spark

    def note(self, text: str) -> None:
        self._err.print(f"note: {text}", markup=False)

    def news(self) -> None:
        """Says what there is to say of the queries since the last look."""
        while self._seen:
            self.note(self._seen.pop(0))
        try:
            for said in self.engine.news():
                if said.error:
                    self._refused(f"error: {said.text}")
                else:
                    self._err.print(f"warning: {said.text}", style="yellow", markup=False)
        except Exception:
            if not self._lost_jvm():
                raise

    def say(self, text: str) -> None:
        self._out.print(text, markup=False)

    def tell(self, text: str) -> None:
        """Beside what is shown."""
        self._err.print(text, markup=False)

    def table(self, header: Sequence[str], rows: Iterable[Any]) -> None:
        print_table(header, rows, self._out.file)

    def settle_script(self) -> None:
        """A script sees what its queries make of all that is there."""
        if not self.live:
            self.engine.settle()


class _World(EngineWorld):
    """What statements typed at the prompt do."""

    def __init__(self, shell: Shell) -> None:
        files, ticks = shell.files.opened(), shell.program.spoken.ticks
        super().__init__(shell.engine, shell.pulls, files, ticks, shell.looked)
        self._shell = shell
        self.program = shell.program

    def create_topic(self, name: str, partitions: int | None, compacted: bool) -> None:
        if name not in self._shell.files.topics():
            super().create_topic(name, partitions, compacted)

    def declared(self, made: Declared) -> None:
        self._shell.look({made.name: made})

    def note(self, text: str) -> None:
        self._shell.note(text)

    def wrote(self, count: int, name: str, kind: Literal["insert", "update", "delete"]) -> None:
        self._shell.say(f"{count} row{'s' * (count != 1)} {DONE[kind]} {name}")

    def answer(self, query: BatchQuery) -> None:
        self.engine.settle()
        self._shell.note_age(r.declared.name for r in query.reads)
        super().answer(query)

    def pull(self, pull: Pull | TablesAsked) -> None:
        self._shell.settle_script()
        if made := [d.name for d in pull.reads if d.created_by is not None]:
            self._shell.note_age(made)
        super().pull(pull)

    def start(self, bound: QueryBound) -> None:
        if bound.transient:
            self._shell.tail(bound.query)
        else:
            super().start(bound)

    def start_query(self, query: Query) -> None:
        self._shell.start(query)

    def say(self, line: str) -> None:
        self._shell.tell(line)

    def request(self, dialect: str) -> Request:
        return replace(super().request(dialect), sources=self._shell.files.patterns)

    def check(self, asserted: Asserted, span: Span) -> None:
        self.engine.settle()
        super().check(asserted, span)

    def print_topic(self, asked: Printed) -> None:
        """As a push query is shown: until LIMIT, Ctrl-C, or (in a script) there are no more."""
        shell = self._shell
        shell.settle_script()
        rows = _Rows(PRINTED, False, shell.say)
        try:
            for t, *row in self.looked.printed(asked, StoreLookout(self.store).live if shell.live else None):
                rows.show([(time_text(t), *row)])
        except KeyboardInterrupt:
            shell.tell("")
        shell.tell(f"{rows.count} record{'s' * (rows.count != 1)}")

    def explain(self, query: Query) -> None:
        self._shell.say(render_text(explain_query(query, self.partitions)))

    def show(self, header: Sequence[str], rows: Rows) -> None:
        self._shell.table(header, rows)

    def counted(self, rows: int, seconds: float) -> None:
        if self._shell.live:
            self._shell.tell(counted(rows, seconds))


class _Rows:
    """Lines of a table whose rows come one after the other: as wide as its head and its first rows ask for."""

    def __init__(self, columns: Sequence[str], changes: bool, say: Callable[[str], None]) -> None:
        self.changes, self.count = changes, 0
        self._head = [*([""] * changes), *columns]
        self._widths: list[int] = []
        self._say = say

    def show(self, rows: Sequence[Sequence[Any]]) -> None:
        cells = [[printable(cell(v)) for v in row] for row in rows]
        if not self._widths:
            self._widths = [max(len(x[i]) for x in [self._head, *cells]) for i in range(len(self._head))]
            self._widths = [min(w, WIDEST) for w in self._widths]
            self._say(self._line(self._head))
        for x in cells:
            self.count += 1  # first: Ctrl-C may come at any moment, and a row that was seen is counted
            self._say(self._line(x))

    def _line(self, cells: Sequence[str]) -> str:
        return "  ".join(c.ljust(w) for c, w in zip(cells, self._widths, strict=True)).rstrip()


def _declares(text: str, name: str) -> bool:
    found = rf"\bCREATE\b[^;]*?\b(?:STREAM|TABLE|SOURCE)\s+(?:IF\s+NOT\s+EXISTS\s+)?(?:\w+\.)?[\"`]?{re.escape(name)}\b"
    return re.search(found, text, re.IGNORECASE) is not None


def _text_of(path: str) -> str:
    if not path:
        raise BraidError(".read needs a file", ".read demo.sql")
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise BraidError(f"cannot read {path}: {getattr(e, 'strerror', None) or 'it is not UTF-8 text'}") from None


# ------------------------------------------------------------- when is it whole?


def complete(text: str, dialect: str) -> bool:
    """Whether a text can be carried out: it is blank, a dot command, or ends with a `;` that is no part of a string."""
    if not text.strip() or text.lstrip().startswith("."):
        return True
    words = dialect_named(dialect).words
    lexer = Lexer(text, words.name_quotes, {} if words.has_variables else None)
    last = None
    while (tokens := lexer.statement()) is not None:
        if any(t.kind is TokenKind.BAD and t.value.endswith("not closed") for t in tokens):
            return False
        last = tokens[-1]
    return last is None or last.text == ";"


def pieces(text: str, shell: Shell) -> Iterable[str]:
    """A script's dot commands and statements, in their order; what stands last may lack its `;`."""
    held = ""
    for line in text.splitlines(keepends=True):
        if not held.strip() and not line.strip():
            continue
        held += line
        if complete(held, shell.dialect):
            yield held
            held = ""
    if held.strip():
        yield held
