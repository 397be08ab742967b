"""What `braid run` is asked for, and the checks before anything happens; files in the place of topics (`--source`).

In: a request. Out: a program that has been checked whole: its queries, what they read and write, what they go on from.
Rule: names, files, sinks and checkpoints are refused here, before anything is created or started; nothing is written.
Names are found as everywhere (`first_match`); how a file is read follows from the declaration alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from braid.bind.bound import (
    Again,
    BatchAsked,
    Declared,
    Filled,
    Inserted,
    Printed,
    QueryBound,
    RowAsserted,
    RowsChanged,
    TablesAsked,
    TopicAsserted,
)
from braid.bind.program import Effect, Program, first_match, named_by
from braid.errors import BraidError, SqlError
from braid.expr.user import NONE, Functions
from braid.face import polls
from braid.face.assertions import looks_at
from braid.face.begin import check_read
from braid.face.catalogue import over
from braid.face.metrics import MaxDrops
from braid.face.verify import held_of
from braid.files.input import needs_time, open_files
from braid.files.listing import look, matches
from braid.files.watch import Files, FileWatch, watched
from braid.lower.lower import lower
from braid.plan.joins import StreamStreamJoin
from braid.plan.logical import Node, Query, Source, in_topological_order, sources
from braid.sinks.interface import Sink, held_in
from braid.sinks.named import sink_at, sink_of
from braid.spark.query_options import RunOptions
from braid.stage import batches, checkpoint, lineage
from braid.stage.inputs import Input
from braid.store import ObjectStore
from braid.tables.named import is_table
from braid.topics import checkpoint_paths
from braid.topics.files import check_name
from braid.topics.interface import Topics
from braid.topics.registered import is_registered
from braid.topics.store import TopicStore
from braid.topics.store_value import Store


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """`patterns`: path or glob by name; `declared`: by name; `cache`: a folder for parsed files; `deleted`: by name the
    column of its files that says which rows are."""

    patterns: Mapping[str, str]
    declared: Mapping[str, Declared]
    cache: str = ""
    deleted: Mapping[str, str] = field(default_factory=dict)

    def names(self) -> list[str]:
        """The declared names that files stand for."""
        return [n for n in (first_match(name, self.declared) for name in self.patterns) if n is not None]

    def topics(self) -> set[str]:
        """The topics that are not read."""
        return {self.declared[n].topic for n in self.names()}

    def of(self, query: Query) -> dict[str, Files]:
        """The files of a query's sources."""
        return {s.name: found for s in sources(query.root) if (found := self._files(s)) is not None}

    def opened(self) -> dict[str, Callable[[Source], Input]]:
        """By declared name, what opens the files as they are now."""

        def opened(source: Source) -> Input:
            files = self._files(source)
            assert files is not None
            return open_files(source, files.pattern, self.cache, files.options)

        return dict.fromkeys(self.names(), opened)

    def _files(self, source: Source) -> Files | None:
        name = named_by(source.name, self.patterns)
        if name is None:
            return None
        says = named_by(source.name, self.deleted)
        more = {} if says is None else {"deleted": self.deleted[says]}
        return Files(self.patterns[name], self.declared[source.name].in_files | more)


@dataclass(frozen=True, slots=True)
class Request:
    """What `braid run` was asked for. `asked`: of each of its queries; its `close` asks for `until_idle`, too.
    `sources`, `sinks`: declared name -> path (or `console`), or a table elsewhere. `deleted`: see `SourceFiles`.
    `every`: s between two looks at such a table; `accept_deletes`: a look that finds most rows of a file gone is taken.
    `folder`: of scripts."""

    sql: str
    dialect: str
    store: Store
    sources: Mapping[str, str] = field(default_factory=dict)
    sinks: Mapping[str, str] = field(default_factory=dict)
    asked: RunOptions = field(default_factory=RunOptions)
    master: str = "local[*]"
    checkpoint: ObjectStore | None = None
    until_idle: bool = False
    conf: Mapping[str, str] = field(default_factory=dict)
    quiet: bool = False  # no progress
    fail_fast: bool = False  # a query that fails ends the others
    tell: bool = True  # what the statements announce, and the summary
    metrics: str | None = None  # a file of JSON lines, `-` for stdout
    metrics_port: str | None = None
    max_drops: MaxDrops | None = None
    functions: Functions = NONE
    folder: str | None = None
    deleted: Mapping[str, str] = field(default_factory=dict)
    every: float = 10.0
    accept_deletes: bool = False

    @property
    def files(self) -> dict[str, str]:
        """The sources that are read from files."""
        return {name: text for name, text in self.sources.items() if not is_table(text)}

    @property
    def tables(self) -> dict[str, str]:
        """The sources that are looked at."""
        return {name: text for name, text in self.sources.items() if is_table(text)}

    def target(self, query: Query) -> str:
        """Where its results go, in the words of `--sink`; empty: to their topic. `--sink` goes before the statement."""
        name = named_by(query.sink.name, self.sinks)
        return str(query.sink.into or "") if name is None else self.sinks[name]

    def sink_for(self, query: Query) -> Sink | None:
        if (name := named_by(query.sink.name, self.sinks)) is not None:
            return sink_of(self.sinks[name])
        return None if query.sink.into is None else sink_at(query.sink.into)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A program that has been checked whole: nothing has happened yet. `push`: names of queries that only print;
    `replaced`: by name, those whose place a query takes."""

    program: Program
    effects: tuple[Effect, ...]
    queries: tuple[Query, ...]  # in topological order
    push: frozenset[str] = frozenset()
    replaced: Mapping[str, Query] = field(default_factory=dict)


def prepare(request: Request, reworks: bool = False) -> Prepared:
    """Parses, binds and checks all statements. `reworks`: changed queries are recomputed."""
    program = over(request.store, request.dialect, request.functions, request.folder)
    program.reworks = reworks
    effects = tuple(program.statements(request.sql))
    for option, names in (("--source", request.sources), ("--sink", request.sinks)):
        for name in names:
            if first_match(name, program.catalog.sources) is None:
                known = ", ".join(program.catalog.sources) or "none"
                raise BraidError(f"{option} {name}: no such stream or table is declared", f"declared: {known}")
    for topic in program.topics():
        check_name(topic)
    _check_written(effects, program, request)
    queries, push = _queries(effects, program)
    for pattern in request.files.values():
        look(pattern, empty=True)
    for name in request.deleted:
        there = first_match(name, program.catalog.sources)
        if first_match(name, request.files) is None or there is None or program.catalog.sources[there].kind != "table":
            hint = f"it goes with --source {name}=PATH of a declared table"
            raise BraidError(f"--deleted {name}: no table {name} is read from files", hint)
    for query in queries:
        _check_times(query.root, request.files)
    polls.check_read(queries, request.tables)
    check_read(request.asked.begins, {s.topic for q in queries for s in sources(q.root)})
    _check_sinks(queries, request)
    order = in_topological_order(queries, lambda q: {s.topic for s in sources(q.root)}, lambda q: q.sink.topic)
    replaced: dict[str, Query] = {}
    for effect in effects:
        if isinstance(effect.bound, QueryBound) and effect.bound.upgrades is not None:
            replaced.setdefault(effect.bound.query.name, effect.bound.upgrades)
    return Prepared(program, effects, tuple(order), push, replaced)


def _check_written(effects: Sequence[Effect], program: Program, request: Request) -> None:
    """What is read from files is not written: nobody would read it."""
    declared = program.catalog.sources
    in_files = [declared[n] for n in (first_match(x, declared) for x in request.sources) if n is not None]
    names = {d.topic: d.name for d in in_files}
    for effect in effects:
        match effect.bound:
            case Inserted(target=target) | RowsChanged(target=target) | Filled(target=target) if target.topic in names:
                name, span = names[target.topic], effect.statement.span
                table = named_by(name, request.tables) is not None
                do, where = ("change it there", "elsewhere") if table else ("add a file", "files")
                hint = f"{do}, or leave --source {name}=… out"
                raise SqlError(f"{name} is read from {where}, and cannot be written", span, hint, request.sql)
            case _:
                pass


def _queries(effects: Sequence[Effect], program: Program) -> tuple[list[Query], frozenset[str]]:
    """The queries that are still wanted at the end of the file; push queries numbered from the second on."""
    found: list[Query] = []
    push: list[str] = []
    for effect in effects:
        match effect.bound:
            case QueryBound(query=query, transient=True):
                push.append(query.name if not push else f"{query.name}.{len(push) + 1}")
                found.append(replace(query, name=push[-1]))
            case QueryBound(query=Query() as query) | Again(query=Query() as query) if (
                program.queries.get(query.name) is query and query.name not in program.catalog.paused
            ):
                found.append(query)
            case _:
                pass
    return found, frozenset(push)


def _check_sinks(queries: Sequence[Query], request: Request) -> None:
    """What does not go to a topic cannot be read by the next query, and must not be read by a source."""
    for name, target in request.sinks.items():
        writers = [q for q in queries if q.sink.name.lower() == name.lower()]
        if not writers:
            raise BraidError(f"--sink {name}: no query of this file writes it", "name what a CREATE … AS makes")
        if len(writers) > 1 and target != "console":
            both = " and ".join(q.name for q in writers)
            raise BraidError(f"--sink {name}: {both} write it, so it must go to a topic", f"leave --sink {name}=… out")
        topics = {q.sink.topic for q in writers}
        reader = next((q for q in queries if any(s.topic in topics for s in sources(q.root))), None)
        if reader is not None:
            raise BraidError(
                f"--sink {name}: {reader.name} reads it, so it must go to a topic", f"leave --sink {name}=… out"
            )
    filled: dict[str, str] = {}
    for query in queries:
        to, name = request.sink_for(query), query.sink.name
        if to is None or (folder := to.folder) is None:
            continue
        if folder in filled:
            raise BraidError(f"the sinks {filled[folder]} and {name} name one folder", "give each its own")
        filled[folder] = name
        part = to.written_to()
        source = next((x for x, path in request.files.items() if part and matches(path, part)), None)
        if source is not None:
            raise BraidError(
                f"the sink {name}: --source {source} would read what is written to {request.target(query)}",
                "write it to a folder that the pattern of the source does not take in",
            )


def _check_times(node: Node, bound: Mapping[str, str]) -> None:
    """A windowed join over files needs times."""
    for at in node.walk():
        if isinstance(at, StreamStreamJoin) and at.by_key:
            for source in sources(at):
                if named_by(source.name, bound) is not None:
                    needs_time(source)


WAITS = "write --until-idle"


def check_asked(prepared: Prepared, request: Request) -> None:
    """What queries of this file write is there when they are done, and not before."""
    made = {q.sink.name for q in prepared.queries}
    for effect in prepared.effects:
        match effect.bound:
            case RowsChanged(target=target, query=query) if any(r.declared.name in made for r in query.reads):
                hint = "write it into a file of its own, and run that behind this one"
                raise BraidError(f"a statement that changes {target.name} reads a view of this file", hint)
            case Filled(target=target, asked=asked) if any(r.name in made for r in asked.reads):
                hint = "write it into a file of its own, and run that behind this one"
                raise BraidError(f"an INSERT INTO {target.name} reads what a query of this file writes", hint)
            case TablesAsked(reads=reads) if any(r.name in made for r in reads) and not request.until_idle:
                raise BraidError("a query over a table that this file fills waits for it to be done", WAITS)
            case TopicAsserted() | RowAsserted() | Printed() if not request.until_idle:
                topic = looks_at(effect.bound)
                if topic is not None and first_match(topic, [q.sink.topic for q in prepared.queries]) is not None:
                    raise BraidError(
                        "a statement that reads what a query of this file writes waits for it to be done", WAITS
                    )
            case BatchAsked(query=query) if (
                any(r.declared.name in made for r in query.reads) and not request.until_idle
            ):
                raise BraidError("a query over a view of this file waits for it to be done", WAITS)


def source_files(prepared: Prepared, request: Request, cache: str = "") -> SourceFiles:
    """What is read from files. `cache`: a folder for those that are parsed here."""
    return SourceFiles(request.files, prepared.program.catalog.sources, cache, request.deleted)


def polls_of(prepared: Prepared, request: Request, store: Topics, tell: Callable[[str], None]) -> polls.Polls:
    """Whoever looks at tables that lie elsewhere, which are checked."""
    made = polls.Polls(request.tables, tell, store, request.accept_deletes)
    made.check(prepared.program.catalog.sources)
    return made


def check_checkpoints(prepared: Prepared, request: Request, store: Topics) -> tuple[dict[str, int], list[FileWatch]]:
    """Refuses checkpoints of other queries, and files that do not go on where the last run ended, before anything is
    made. Gives the last batch of those that are resumed, and the files of all."""
    resumed, changed, watches = dict[str, int](), list[checkpoint.ValuesChanged](), list[FileWatch]()
    wanted = [query for query in prepared.queries if query.name not in prepared.push]
    for query in wanted:
        try:
            _, last = compared(query, checkpoint_of(query, request, store), prepared, request, store)
        except checkpoint.ValuesChanged as e:  # all of them are told
            changed.append(e)
            continue
        if last is not None:
            resumed[query.name] = last
    if changed:
        raise checkpoint.together(changed)
    for query in wanted:
        watches += check_files(query, checkpoint_of(query, request, store), prepared, request)
    return resumed, watches


def compared(
    query: Query, folder: ObjectStore, prepared: Prepared, request: Request, store: Topics, sink: str = "topic"
) -> tuple[checkpoint.Document | None, int | None]:
    """What a checkpoint has recorded, and its last batch, where the query goes on from it; refused where it does not,
    or its sink is not its own. `sink`: where results go that have none."""
    to = request.sink_for(query)
    described = sink if to is None else to.described()
    found = checkpoint.check_plan(folder, query, described, prepared.replaced.get(query.name), store.root)
    last = batches.last_batch(folder, found) if found is not None else None
    run = str(found.settings.get("run")) if found is not None else None
    if to is not None:
        to.check(query.sink, run, last is not None, request.asked.overwrite)
    if found is not None:
        lineage.check(folder, query.name, last, store, held_by(query, to, found, store, request.asked.adopt_table))
    elif to is None and store.dense and store.exists(query.sink.topic):
        lineage.check_new(folder, query.name, query.sink.topic, store)
    return found, last


def held_by(
    query: Query, to: Sink | None, found: checkpoint.Document, store: Topics, adopted: bool = False
) -> lineage.Held | None:
    """What the output holds, where it can tell."""
    if to is not None:
        run = str(found.settings.get("run"))
        return held_in(to, query.sink, store, run, adopted) if to.recalls else None
    return held_of(store, found) if isinstance(store, TopicStore) else None


def check_files(query: Query, folder: ObjectStore, prepared: Prepared, request: Request) -> list[FileWatch]:
    """Refuses files that do not go on where the checkpoint in `folder` ends; gives those that do."""
    watches = watched(lower(query), source_files(prepared, request).of(query), folder, not request.until_idle)
    for watch in watches:
        watch.check()
    return watches


def check_broker(prepared: Prepared, request: Request, store: Topics) -> None:
    """Refuses what a broker does not let the queries do."""
    if not request.store.in_kafka:
        return
    from braid.topics import access

    access.check_speculation(request.conf.get("spark.speculation"))
    files = source_files(prepared, request).topics()
    files |= {s.topic for q in prepared.queries for s in sources(q.root) if is_registered(s.topic)}
    for query in prepared.queries:
        stays = query.name in prepared.push or bool(request.target(query))
        reads = {s.topic for s in sources(query.root)} - files
        access.check(store, query.name, reads, None if stays else query.sink.topic)


def checkpoint_of(query: Query, request: Request, store: Topics) -> ObjectStore:
    return (request.checkpoint or checkpoint_paths.own(store.root)).at(query.name)
