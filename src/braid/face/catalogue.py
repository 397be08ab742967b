"""The store's catalogue: what was declared in it, by dialect and name.

In: a store, a dialect. Out: a `Program` in which all of it stands; what its later statements make or drop is kept.
Rule: statements are kept as they were written, with the settings and variables that held, and bound anew by each
reader: there is no second form of a declaration. A file is replaced whole, so it can be read while a run goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from braid.bind.bound import Declared, SourceDeclared, TypeMade
from braid.bind.catalog import Catalog
from braid.bind.dialects import DIALECTS, dialect_named
from braid.bind.program import Mode, Program, Standing, first_match
from braid.errors import BraidError, SqlError
from braid.expr.user import NONE, Functions
from braid.face.frames import all_declared
from braid.face.scripts import scripts_in
from braid.records.wire import Wires
from braid.sql.declare import text as quoted_text
from braid.topics.documents import called, changed, document
from braid.topics.files import is_name, parsed
from braid.topics.interface import Topics, open_topics
from braid.topics.store_value import Store

FORMAT = 1


def over(
    store: Store,
    dialect: str,
    functions: Functions = NONE,
    folder: str | None = None,
) -> Program:
    """A program for a look at a file of statements: all that was declared in the store stands, and nothing is kept.
    `folder`: of its scripts."""
    program = Catalogue(open_topics(store), dialect, functions).program("file").copy()
    program.scripts = None if folder is None else scripts_in(folder)
    return program


def written_as(store: Topics, topic: str) -> Wires:
    """How the topic's records are written, as far as anybody has declared it here."""
    found = declared_over(store, topic)
    return Wires() if found is None else found.wires


def declared_over(store: Topics, topic: str) -> Declared | None:
    """What somebody has declared over a topic; None where nobody has."""
    for catalogue in (Catalogue(store, dialect) for dialect in DIALECTS):
        if not catalogue.kept:
            continue
        sources = catalogue.program("once").catalog.sources.values()
        found = next((d for d in sources if d.topic == topic), None)
        if found is not None:
            return found
    return None


def statement_of(store: Store, name: str, dialect: str | None, functions: Functions = NONE) -> tuple[str, str] | None:
    """The statement of a query of a store, with what it leans on, and its dialect; None where that is no plain name.
    Of an INSERT INTO … SELECT into what was there before only the file has the statement."""
    if not is_name(name):
        return None
    topics, found, fallen = open_topics(store), dict[str, str](), dict[str, str]()
    there = list[str]()
    for d in DIALECTS if dialect is None else (dialect,):
        catalogue = Catalogue(topics, d, functions)
        if not catalogue.kept:
            continue
        program = catalogue.program("file")
        known = {s.by or n: s for n, s in program.standing.items() if s.by or n in program.queries}
        there += known
        if (query := first_match(name, known)) is not None:
            found[d] = _with_settings(known[query])
        elif (lost := first_match(name, program.catalog.fallen)) is not None:
            fallen[lost] = program.catalog.fallen[lost]
    if len(found) > 1:
        raise BraidError(f"{name} is a query in {' and in '.join(found)}", "name one of them: --dialect")
    for lost, why in fallen.items() if not found else ():
        raise BraidError(
            f"{lost} was declared in {store.objects}, but cannot be read any more: {why}", "give the file of statements"
        )
    if not found and (name.endswith(".sql") or not there):
        return None
    if not found:
        hint = f"queries of {store.objects}: {', '.join(dict.fromkeys(there)) or 'none'}"
        raise BraidError(f"there is no file {name}, and no statement of a query {name} in {store.objects}", hint)
    ((d, text),) = found.items()
    return text, d


def _with_settings(s: Standing) -> str:
    sets = [text for text in s.sets if text.lstrip()[:3].upper() == "SET"]
    defined = [f"DEFINE {n} = {quoted_text(value)}" for n, value in s.variables.items()]
    return "".join(f"{text};\n" for text in (*defined, *sets, s.text))


class Catalogue:
    """The declarations of a store in one dialect. A store that is not there has none, and is not made. `functions`: of
    the user; what was made with them stands where they are given."""

    def __init__(self, store: Topics, dialect: str, functions: Functions = NONE) -> None:
        self._store, self._registry, self._functions = store, store.registry, functions
        self.dialect = dialect_named(dialect).name
        self._name = f"catalogue/{self.dialect}"

    @property
    def kept(self) -> bool:
        """Whether anything was ever declared."""
        return document(self._store.root, self._name) is not None

    def program(self, mode: Mode) -> Program:
        """A program in which all that was declared stands. What does not bind any more is left out: `fallen`."""
        program = Program(self.dialect, self._empty, mode=mode, keeper=self)
        waiting, fallen = self._read(), dict[str, str]()
        while waiting:
            tried = [(s, _falls(program, s)) for s in waiting]
            left = [s for s, why in tried if why is not None]
            fallen = {s.name: why for s, why in tried if why is not None}
            if len(left) == len(waiting):
                break
            waiting = left
        program.catalog = Catalog(
            program.catalog.sources,
            program.catalog.queries,
            views=program.catalog.views,
            indexes=program.catalog.indexes,
            types=program.catalog.types,
            connections=program.catalog.connections,
            schemas=program.catalog.schemas,
            written_functions=program.catalog.written_functions,
            registry=self._registry,
            stored=self._store.sizes(),
            functions=self._functions,
            fallen=fallen,
        )
        return program

    @property
    def _empty(self) -> Catalog:
        made = Catalog(registry=self._registry, functions=self._functions)
        for declared in all_declared(self._store.root, self.dialect):
            made = made.apply(SourceDeclared(declared))
        return made

    def made(self, standing: Standing) -> None:
        self._change((standing.name,), (standing,))

    def gone(self, names: Sequence[str]) -> None:
        self._change(names, ())

    def begin_anew(self, query: str) -> None:
        """The query does not run any more; what it makes stays declared."""
        for s in self._read():
            if s.name == query and not s.anew:
                self._change((), (replace(s, anew=True),))

    # ------------------------------------------------------------------ file

    def _change(self, without: Sequence[str], more: Sequence[Standing]) -> None:
        if not more and not self.kept:
            return

        def after(data: bytes | None) -> bytes | None:
            before = self._standing(data)
            names = {s.name for s in more}
            after = [s for s in before if s.name not in {*without, *names} and s.of not in without] + list(more)
            entries = [_entry(s) for s in after]
            made = json.dumps({"format": FORMAT, "statements": entries}, ensure_ascii=False, indent=1)
            return None if after == before else made.encode()

        changed(self._store.root, self._name, after)

    def _read(self) -> list[Standing]:
        return self._standing(document(self._store.root, self._name))

    def _standing(self, data: bytes | None) -> list[Standing]:
        if data is None:
            return []
        try:
            return list(_entries(parsed(data)))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as e:
            hint = "remove it: it holds declarations only, which the files of statements make again"
            raise BraidError(f"{called(self._store.root, self._name)} is no catalogue: {e}", hint) from None


def _entry(s: Standing) -> dict[str, Any]:
    made = {"name": s.name, "text": s.text, "sets": s.sets, "variables": s.variables}
    return made | {field: x for field, x in {"of": s.of, "anew": s.anew, "by": s.by}.items() if x}


def _entries(document: Any) -> Iterator[Standing]:
    if document["format"] != FORMAT:
        raise ValueError(f"it is of format {document['format']}, this version reads {FORMAT}")
    for x in document["statements"]:
        texts = [
            x["name"],
            x["text"],
            x.get("of", ""),
            x.get("by", ""),
            *x["sets"],
            *x["variables"],
            *x["variables"].values(),
        ]
        if not all(isinstance(t, str) for t in texts):
            raise ValueError("a statement is no text")
        sets, variables, anew = tuple(x["sets"]), dict(x["variables"]), x.get("anew") is True
        yield Standing(x["name"], x["text"], sets, variables, x.get("of", ""), anew, x.get("by", ""))


def _falls(program: Program, s: Standing) -> str | None:
    """Binds a kept statement under its own settings and types; why it does not bind (yet), or None."""
    alone = Program(program.dialect, replace(program.catalog, types={}), variables=dict(s.variables))
    types = dict(program.catalog.types)
    try:
        for text in (*s.sets, s.text):
            for effect in alone.statements(f"{text};"):
                if isinstance(effect.bound, TypeMade) and text is s.text:
                    types[effect.bound.name] = effect.bound.type
    except SqlError as e:
        return e.message
    before = program.catalog
    program.catalog = replace(alone.catalog, types=types)
    if s.by:  # what an INSERT has made stands; the query is not of the catalogue
        program.catalog = replace(program.catalog, queries=before.queries, inserts=before.inserts)
        program.standing[s.name] = s
        return None
    queries = program.queries | alone.queries
    program.queries = {n: q for n, q in queries.items() if n in program.catalog.queries}
    program.standing[s.name] = s
    return None
