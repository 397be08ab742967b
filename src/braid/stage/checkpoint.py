"""A checkpoint, checked before Spark is started: what its query was (`braid.json`).

In: the folder of a checkpoint and the document of a query that is to start. Out: the document to run by, or an error.
Rule: `braid.json` is written before Spark starts, compared before anything else in the folder is opened. A difference
is shown and refused, and nothing is changed. What was only a default then and now (buckets, partitions) stays as it was
recorded: other numbers would lose the state without a word. It stands under a checksum (`topics/sealed.py`), and where
it is missing beside what a query keeps, that is no new query. How far the query has come says `batches.py`.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from braid.errors import BraidError, anew
from braid.expr.meanings import MEANING, version
from braid.expr.show import bare
from braid.lower.lower import lower
from braid.lower.physical import APART, Plan
from braid.plan.canonical import canonical, changed_expressions, superseded, wording
from braid.plan.groups import Aggregation, names
from braid.plan.logical import Query
from braid.store import ObjectStore
from braid.topics import checkpoint_paths
from braid.topics.files import (
    items,
    members,
    parsed,
    text,
    whole,
    why,
)
from braid.topics.sealed import sealed, unsealed

FORMAT = 7
_READ = (6, FORMAT)  # 6: without a checksum
NAME = "braid.json"
READY = "ready.json"  # that all was worked out anew, and this checkpoint takes the place of another
RESET = "reset.json"  # that the query is to begin anew (`stage/reset_marker.py`)
RESCALE = "rescale.json"  # that it is to be spread otherwise (`stage/rescale.py`)
KEEPS = "keeps"  # the setting of a query whose result is kept by key
PRUNED = "pruned"  # of one that does not keep what nobody reads of a sub-query (`Plan.pruned`)
SHARED = "shared"  # of one that runs a part once that is read more than once (`Plan.shared`)
IN_PLACE = "in_place"  # of one whose rows are not spread anew by the key of the result (`Plan.in_place`)
_SHOWN = 60  # lines of a difference
_WIDEST = 100  # characters of a line of a plan
_SPREAD = 1_000_000  # buckets, partitions, tasks
_BESIDE = {"state", "runs", "cuts.jsonl", "cuts", "planned.json", RESCALE}  # what a query keeps beside it
_OF_SPARK = {"metadata", "offsets", "commits", "sources", "state"}


class ValuesChanged(BraidError):
    """A checkpoint of a query some of whose expressions, `changed`, give other values in this version; none: it is
    carried out in another way."""

    def __init__(self, query: str, folder: ObjectStore, then: int, changed: Sequence[str]) -> None:
        how = "gives other values than" if changed else "is carried out in another way than by"
        made = version(then) if then < MEANING else f"an earlier {version(then)}"
        what = f"the query {query} {how} {made}, by which the checkpoint {folder} was made"
        hint = f"{anew(folder.name)}; or go on with braid {version(then)}"
        if then == MEANING:
            hint = f"braid upgrade FILE lets it go on; or {anew(folder.name)}"
        details = [f"  another value in {version(MEANING)}: {text}" for text in changed]
        super().__init__(what, hint, details[:_SHOWN])
        self.query, self.then, self.changed = query, then, changed


class GoneOn(BraidError):
    """Another driver has changed the checkpoint since this one looked: what is there now counts."""


def together(refused: Sequence[ValuesChanged]) -> BraidError:
    """All of them in one error."""
    first, *more = refused
    if not more:
        return first
    versions = " or ".join(version(n) for n in sorted({e.then for e in refused}))
    what = f"{len(refused)} queries give other values than {versions}, by which their checkpoints were made"
    details = [f"  {e.query}: another value in {version(MEANING)}: {text}" for e in refused for text in e.changed]
    details += [f"  {e.query}: carried out in another way" for e in refused if not e.changed]
    hint = f"braid reset QUERY lets each begin again; or go on with braid {versions}"
    return BraidError(what, hint, details[:_SHOWN])


@dataclass(frozen=True, slots=True)
class Document:
    """`plan`: the canonical text of the logical plan; `sql`: the query in its own words (`canonical.wording`), to show
    what has changed; `settings`: the dialect, its settings and whatever else gives the query its meaning; `sources`:
    (topic, partition) by rank; `files`: the sources that are read from files (`files.log` has their lists).

    `buckets`, `outputs` (partitions of the sink), `shuffle` (partitions of Spark) and `bucket_ids` belong together;
    where there were other buckets once (`rescaled`), the state says for how many it is.
    `origin`: the fingerprint of the first plan, where this one has taken its place; `numbers`: as of `Plan`; `meaning`:
    the number of `expr.meanings` by which values were made; `store`: the id of its store, where it lies outside of that
    (`topics.whereabouts`).
    """

    query: str
    plan: str
    sql: str
    settings: Mapping[str, Any]
    buckets: int
    outputs: int
    shuffle: int
    bucket_ids: tuple[int, ...]
    sources: tuple[tuple[str, int], ...]
    spark: str
    files: tuple[str, ...] = ()
    origin: str = ""
    numbers: tuple[tuple[int, int], ...] = ()
    meaning: int = MEANING
    store: str = ""
    rescaled: bool = False

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.plan.encode()).hexdigest()

    def writes(self) -> tuple[str | None, str | None]:
        """The topic that its results go to, or the folder of files."""
        sink = str(self.settings.get("sink", "topic"))
        if sink == "topic":
            _, query = json.loads(self.plan)
            return str(query["sink"][1]["topic"]), None
        return None, sink.partition(" files in ")[2] or None

    def leaves(self) -> list[str]:
        """The topics of the sources, by the number of their leaf."""
        return [topic for topic, *_ in sources_in(json.loads(self.plan)[1])]

    @property
    def fingerprint(self) -> str:
        """Of the plan, for offset documents."""
        return self.origin or self.hash[:16]


def sources_in(x: object) -> Iterator[tuple[str, str, bool]]:
    """The sources of a canonical text, from left to right: the topic, the kind, whether it is captured."""
    if isinstance(x, list) and len(x) == 2 and x[0] == "Source" and isinstance(x[1], dict):
        yield str(x[1]["topic"]), str(x[1]["kind"]), x[1].get("captured", False) is True
    elif isinstance(x, list | dict):
        for part in x.values() if isinstance(x, dict) else x:
            yield from sources_in(part)


def open_or_create(folder: ObjectStore, document: Document, asked: Collection[str] = ()) -> Document:
    """Records `document`, or compares it with what is recorded and gives that.

    `asked`: which of `buckets`, `outputs`, `shuffle` the user gave; the others take the recorded number.
    """
    known = load(folder)
    if known is None:
        _refuse_foreign(folder)
        if not folder.create(NAME, _dumped(document), fsync=True):
            raise GoneOn(f"another run of {document.query} has just begun", "start this one again")
        return document
    compare(folder, known, document, asked)
    if document.store and not known.store:  # of a version that did not record it
        known = replace(known, store=document.store)
        _write(folder, known)
    return known


def compare(folder: ObjectStore, known: Document, document: Document, asked: Collection[str] = ()) -> None:
    """Refused where the document is another query's than the one that is recorded; see `open_or_create`."""
    _refuse(folder, _differences(known, document, asked))


def shadow(folder: ObjectStore) -> ObjectStore:
    """Where a changed query is worked out anew (`face/upgrade.py`). No query has such a name."""
    return folder.beside("~next")


def renew(folder: ObjectStore, known: Document) -> None:
    """What is recorded is so in this version's format. An older one refuses it from then on."""
    if whole(members(parsed(unsealed(folder.get(NAME))))["format"], "format") != FORMAT:
        _write(folder, known)


def upgrade(folder: ObjectStore, old: Plan, new: Plan) -> None:
    """What `old` has recorded is from here on that of `new`, which takes its place (`plan.upgrade`)."""
    known = load(folder)
    if known is None or known.plan != canonical(old.query):
        return
    numbers = new.in_place_of(replace(old, numbers=dict(known.numbers))).numbers
    kept = tuple(sorted((n, as_) for n, as_ in numbers.items() if n != as_))
    plan, sql = canonical(new.query), wording(new.query)
    made = replace(known, plan=plan, sql=sql, origin=known.fingerprint, numbers=kept, meaning=MEANING)
    _write(folder, made)


def as_begun(plan: Plan, known: Document) -> Plan:
    """The plan of a query that has begun, as it has begun."""
    in_place = int(known.settings.get(IN_PLACE, APART))
    whole = plan.pruned and PRUNED not in known.settings
    alone = SHARED not in known.settings
    return (
        lower(plan.query, in_place=in_place, whole=whole, alone=alone)
        if in_place < plan.in_place or whole or (alone and bool(plan.shared))
        else plan
    )


def as_run(folder: ObjectStore, known: Document, run: str) -> None:
    """The query goes on under another name of its own."""
    _write(folder, replace(known, settings={**known.settings, "run": run}))


def respread(folder: ObjectStore, known: Document, buckets: int, shuffle: int, bucket_ids: Sequence[int]) -> Document:
    """The query goes on in so many buckets and tasks."""
    made = replace(known, buckets=buckets, shuffle=shuffle, bucket_ids=tuple(bucket_ids))
    made = replace(made, rescaled=known.rescaled or buckets != known.buckets)
    _write(folder, made)
    return made


def check_plan(
    folder: ObjectStore, query: Query, sink: str, old: Query | None = None, store: ObjectStore | None = None
) -> Document | None:
    """The recorded document, if it was made by this query, or by the one whose place it takes, on this store; for a
    look before anything is started."""
    known = load(folder)
    if known is None:
        _refuse_foreign(folder)
        return None
    if store is not None:
        checkpoint_paths.refuse_other(store, folder, known.store)
    if old is not None and known.plan == canonical(old):
        return known
    settings = {**known.settings, "dialect": query.dialect, "sink": sink}
    now = replace(
        known, query=query.name, plan=canonical(query), sql=wording(query), settings=settings, meaning=MEANING
    )
    if replace(known, plan=now.plan, meaning=MEANING) == now and known.plan != now.plan:  # the same words
        _refuse_values(folder, known, query)
    _refuse(folder, _differences(known, now, ()))
    return known


def _anew(folder: ObjectStore) -> str:
    return f"braid upgrade FILE lets a changed query go on; or {anew(folder.name)}; or run what it was made by"


def _refuse_values(folder: ObjectStore, known: Document, query: Query) -> None:
    """A query that has not changed: what has is what its expressions give."""
    if known.meaning == MEANING:
        if superseded(known.plan):
            raise ValuesChanged(query.name, folder, known.meaning, [])
        return
    changed = changed_expressions(known.plan, query) or ()
    called = names(query.root)
    texts = dict.fromkeys(x.shown if isinstance(x, Aggregation) else bare(x, called) for x in changed)
    raise ValuesChanged(query.name, folder, known.meaning, list(texts))


def _refuse(folder: ObjectStore, differences: list[str]) -> None:
    if differences:
        what = f"the checkpoint {folder} was made by another query"
        raise BraidError(what, _anew(folder), differences)


def load(folder: ObjectStore) -> Document | None:
    """The recorded document; None where nothing is recorded. Refused where the query is half taken away, or half
    replaced."""
    if folder.has(RESET):
        name = folder.name
        raise BraidError(f"a reset of {name} was begun, and did not come to its end", f"braid reset {name} ends it")
    if shadow(folder).has(READY):
        name = folder.name
        raise BraidError(
            f"an upgrade of {name} was begun, and did not come to its end", f"braid upgrade {name} ends it"
        )
    return recorded(folder)


def recorded(folder: ObjectStore) -> Document | None:
    """The same, whatever goes on beside it."""
    path = folder.called(NAME)
    try:
        data = folder.get(NAME)
    except FileNotFoundError:
        _refuse_headless(folder)
        return None
    except OSError as e:
        raise BraidError(f"{path} cannot be read: {e.strerror}", "a checkpoint is a folder of its own") from e
    try:
        x = members(parsed(unsealed(data)))
        version = whole(x["format"], "format")
        if version not in _READ:
            hint = f"use the newer braid again; or {anew(folder.name)}"
            if version < FORMAT:
                hint = "braid 0.1.0 wrote it, and none reads it any more: run the file on a new store (--store)"
            raise BraidError(f"{path} has format {version}; this version of braid has format {FORMAT}", hint)
        if version == FORMAT:
            unsealed(data, must=True)
        found = _from_json(x)
        if x["hash"] != found.hash:
            raise ValueError("its plan and its hash do not agree")
        return found
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        hint = f"put it back from a copy; or {anew(folder.name)}"
        raise BraidError(f"{path} cannot be read: {why(e)}", hint) from e


def _refuse_headless(folder: ObjectStore) -> None:
    """What a query keeps, and nothing says what query that is."""
    there = {name.partition("/")[0] for name in folder.names("")}
    if found := sorted(there & _BESIDE):
        hint = f"put it back from a copy; or {anew(folder.name)}"
        raise BraidError(f"{folder.called(NAME)} is missing, and {found[0]} is there", hint)


def _refuse_foreign(folder: ObjectStore) -> None:
    """A folder in which Spark has written, but not for us."""
    there = sorted(_OF_SPARK & {*folder.names("")})
    if there:
        what = f"{folder} holds a checkpoint of Spark ({', '.join(there)}), but no {NAME}"
        raise BraidError(what, "name another folder")


# ------------------------------------------------------------------ comparing


def _differences(known: Document, now: Document, asked: Collection[str]) -> list[str]:
    """What is different, for people: field by field, the plan line by line."""
    found: list[str] = []

    def field(name: str, then: object, today: object) -> None:
        if then != today:
            found.append(f"  {name}: {_shown(then)} in the checkpoint, {_shown(today)} now")

    field("query", known.query, now.query)
    for name in sorted({*known.settings, *now.settings}):
        field(f"setting {name}", _plain(known.settings.get(name)), _plain(now.settings.get(name)))
    field("Spark", _feature(known.spark), _feature(now.spark))
    for name, then, today in (
        ("buckets", known.buckets, now.buckets),
        ("outputs", known.outputs, now.outputs),
        ("shuffle", known.shuffle, now.shuffle),
    ):
        if name in asked and then != today:
            other = "" if name == "outputs" else "; braid rescale sets it"
            found.append(f"  {_LONG[name]}: {then} in the checkpoint, {today} now{other}")
    recorded = set(known.sources)
    for topic, partition in sorted(recorded ^ set(now.sources)):
        where = "in the checkpoint only" if (topic, partition) in recorded else "not in the checkpoint"
        found.append(f"  source {topic}, partition {partition}: {where}")
    field("sources read from files", sorted(known.files), sorted(now.files))
    if known.plan != now.plan:
        field("values are those of", version(known.meaning), version(now.meaning))
        found += _difference(known.sql.splitlines(), now.sql.splitlines(), "the query")
        if known.sql == now.sql:  # a setting makes the difference
            found += _difference(_lines(known.plan), _lines(now.plan), "the plan")
    return found


_LONG = {"buckets": "buckets", "outputs": "partitions of the sink", "shuffle": "shuffle partitions of Spark"}


def _difference(then: list[str], now: list[str], what: str) -> list[str]:
    lines = difflib.unified_diff(then, now, f"{what} in the checkpoint", f"{what} now", n=2, lineterm="")
    found = [f"  {line}" for line in lines]
    more = len(found) - _SHOWN
    return found if more <= 0 else [*found[:_SHOWN], f"  … and {more} more lines"]


def _lines(plan: str) -> list[str]:
    """The plan in lines; a plan that is JSON in one line (`plan.canonical`) is laid out."""
    if "\n" not in plan.strip():
        with contextlib.suppress(ValueError):
            return _laid_out(parsed(plan), "", "")
    return plan.splitlines()


def _laid_out(x: Any, indent: str, name: str) -> list[str]:
    """A value in one line if it fits, else a line a part."""
    whole = f"{indent}{name}{_brief(x)}"
    if len(whole) <= _WIDEST or not isinstance(x, list | dict):
        return [whole]
    fields: Mapping[str, Any] | None = x if isinstance(x, dict) else None
    if fields is None and _is_node(x):
        name, fields = f"{name}{x[0]}", x[1]
    if fields is None:
        parts = [line for value in x for line in _laid_out(value, f"{indent}  ", "")]
    else:
        parts = [line for f, value in fields.items() for line in _laid_out(value, f"{indent}  ", f"{f}: ")]
    return [f"{indent}{name}".rstrip(), *parts]


def _brief(x: Any) -> str:
    if _is_node(x):
        return f"{x[0]}({', '.join(f'{f}={_brief(value)}' for f, value in x[1].items())})"
    if isinstance(x, list):
        return f"[{', '.join(map(_brief, x))}]"
    return json.dumps(x, ensure_ascii=False)


def _is_node(x: Any) -> bool:
    """`[its name, {field: value}]`"""
    return isinstance(x, list) and len(x) == 2 and isinstance(x[0], str) and isinstance(x[1], dict)


def _feature(version: str) -> str:
    """`4.2` of `4.2.1`: maintenance releases read each other's checkpoints."""
    return ".".join(version.split(".")[:2])


def _plain(x: Any) -> Any:
    """As it comes back from JSON."""
    return json.loads(json.dumps(x))


def _shown(x: object) -> str:
    return "nothing" if x is None else x if isinstance(x, str) else json.dumps(x, ensure_ascii=False)


# ----------------------------------------------------------------------- JSON


def _write(folder: ObjectStore, document: Document) -> None:
    folder.write(NAME, _dumped(document), fsync=True)


def _dumped(document: Document) -> bytes:
    return sealed(json.dumps(_to_json(document), indent=1, ensure_ascii=False).encode())


def _to_json(d: Document) -> dict[str, Any]:
    return {"format": FORMAT, "query": d.query, "hash": d.hash} | asdict(d) | {"settings": dict(d.settings)}


def _from_json(x: dict[str, Any]) -> Document:
    return Document(
        query=text(x["query"], "query"),
        plan=text(x["plan"], "plan"),
        sql=text(x["sql"], "sql"),
        settings=members(x["settings"], "settings"),
        buckets=whole(x["buckets"], "buckets", 1, _SPREAD),
        outputs=whole(x["outputs"], "outputs", 1, _SPREAD),
        shuffle=whole(x["shuffle"], "shuffle", 1, _SPREAD),
        bucket_ids=tuple(whole(i, "a bucket") for i in items(x["bucket_ids"], "bucket_ids")),
        sources=tuple((text(topic, "a topic"), whole(p, "a partition")) for topic, p in items(x["sources"], "sources")),
        spark=text(x["spark"], "spark"),
        files=tuple(text(name, "a source") for name in items(x["files"], "files")),
        origin=text(x.get("origin", ""), "origin"),
        numbers=tuple((whole(n, "a step"), whole(m, "a step")) for n, m in items(x.get("numbers", []), "numbers")),
        meaning=whole(x["meaning"], "meaning", 1),
        store=text(x.get("store", ""), "store"),
        rescaled=x.get("rescaled", False) is True,
    )
