"""A checkpoint, looked at before Spark is started: what its query was (`braid.json`), where it goes on.

In: the folder of a checkpoint and the document of a query that is to start. Out: the document to run by; the last
committed batch, or an error.
Rule: `braid.json` is written before Spark starts, compared before anything else in the folder is opened. A difference
is shown and refused, and nothing is changed. What was only a default then and now (buckets, partitions) stays as it was
recorded: other numbers would lose the state without a word. Of Spark's part only what a restart reads is looked at: the
newest offsets and commits, the state after the last batch. A file that a kill left behind beyond these belongs to a
batch that is done again.

Spark writes a file beside each of its files, `.NAME.crc`: "crc\\0", the size of a block, and the CRC-32 of each block.
Where there is none (on other file systems) only the content is looked at.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import os
import re
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from braid.errors import BraidError, anew
from braid.expr.meanings import MEANING, version
from braid.expr.show import bare
from braid.lower.physical import Plan
from braid.plan.canonical import canonical, changed_expressions, wording
from braid.plan.groups import Aggregation, names
from braid.plan.logical import Query
from braid.stage import state_file
from braid.topics import whereabouts
from braid.topics.files import (
    force,
    is_name,
    items,
    members,
    parsed,
    private_folder,
    read_small,
    text,
    whole,
    why,
    write_atomic,
)

FORMAT = 5
NAME = "braid.json"
READY = "ready.json"  # that all was worked out anew, and this checkpoint takes the place of another
RESET = "reset.json"  # that the query is to begin anew (`stage/begun.py`)
RESCALE = "rescale.json"  # that it is to be spread otherwise (`stage/rescale.py`)
KEEPS = "keeps"  # the setting of a query whose result is kept by key
IN_PLACE = "in_place"  # of one whose rows are not spread anew by the key of the result (`Plan.in_place`)
_SHOWN = 60  # lines of a difference
_WIDEST = 100  # characters of a line of a plan
_SPREAD = 1_000_000  # buckets, partitions, tasks
_OF_SPARK = ("metadata", "offsets", "commits", "sources", "state")


class ValuesChanged(BraidError):
    """A checkpoint of a query some of whose expressions, `changed`, give other values in this version; none: it is
    carried out in another way."""

    def __init__(self, query: str, folder: str, then: int, changed: Sequence[str]) -> None:
        how = "gives other values than" if changed else "is carried out in another way than by"
        what = f"the query {query} {how} {version(then)}, by which the checkpoint {folder} was made"
        hint = f"{anew(folder)}; or go on with braid {version(then)}"
        details = [f"  another value in {version(MEANING)}: {text}" for text in changed]
        super().__init__(what, hint, details[:_SHOWN])
        self.query, self.then, self.changed = query, then, changed


def together(refused: Sequence[ValuesChanged]) -> BraidError:
    """All of them in one error."""
    first, *more = refused
    if not more:
        return first
    versions = " or ".join(version(n) for n in sorted({e.then for e in refused}))
    what = f"{len(refused)} queries give other values than {versions}, by which their checkpoints were made"
    details = [f"  {e.query}: another value in {version(MEANING)}: {text}" for e in refused for text in e.changed]
    details += [f"  {e.query}: carried out in another way" for e in refused if not e.changed]
    hint = f"braid reset QUERY lets each begin anew; or go on with braid {versions}"
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

    @property
    def fingerprint(self) -> str:
        """Of the plan, for offset documents."""
        return self.origin or self.hash[:16]


def open_or_create(directory: str | Path, document: Document, asked: Collection[str] = ()) -> Document:
    """Records `document`, or compares it with what is recorded and gives that.

    `asked`: which of `buckets`, `outputs`, `shuffle` the user gave; the others take the recorded number.
    """
    folder = str(directory)
    known = load(folder)
    if known is None:
        _refuse_foreign(folder)
        private_folder(folder)
        _write(folder, document)
        return document
    _refuse(folder, _differences(known, document, asked))
    if document.store and not known.store:  # of a version that did not record it
        known = replace(known, store=document.store)
        _write(folder, known)
    return known


def upgrade(directory: str | Path, old: Plan, new: Plan) -> None:
    """What `old` has recorded is from here on that of `new`, which takes its place (`plan.upgrade`)."""
    known = load(directory)
    if known is None or known.plan != canonical(old.query):
        return
    numbers = new.in_place_of(replace(old, numbers=dict(known.numbers))).numbers
    kept = tuple(sorted((n, as_) for n, as_ in numbers.items() if n != as_))
    plan, sql = canonical(new.query), wording(new.query)
    made = replace(known, plan=plan, sql=sql, origin=known.fingerprint, numbers=kept, meaning=MEANING)
    _write(str(directory), made)


def respread(directory: str, known: Document, buckets: int, shuffle: int, bucket_ids: Sequence[int]) -> Document:
    """The query goes on in so many buckets and tasks."""
    made = replace(known, buckets=buckets, shuffle=shuffle, bucket_ids=tuple(bucket_ids))
    made = replace(made, rescaled=known.rescaled or buckets != known.buckets)
    _write(directory, made)
    return made


def check_plan(
    directory: str | Path, query: Query, sink: str, old: Query | None = None, store: str | None = None
) -> Document | None:
    """The recorded document, if it was made by this query, or by the one whose place it takes, on this store; for a
    look before anything is started."""
    known = load(directory)
    if known is None:
        _refuse_foreign(str(directory))
        return None
    if store is not None:
        whereabouts.refuse_other(store, str(directory), known.store)
    if old is not None and known.plan == canonical(old):
        return known
    settings = {**known.settings, "dialect": query.dialect, "sink": sink}
    now = replace(
        known, query=query.name, plan=canonical(query), sql=wording(query), settings=settings, meaning=MEANING
    )
    if replace(known, plan=now.plan, meaning=MEANING) == now and known.plan != now.plan:  # the same words
        _refuse_values(str(directory), known, query)
    _refuse(str(directory), _differences(known, now, ()))
    return known


def _anew(folder: str) -> str:
    return f"{anew(folder)}; or run what it was made by"


def _refuse_values(folder: str, known: Document, query: Query) -> None:
    """A query that has not changed: what has is what its expressions give."""
    if known.meaning == MEANING:
        return
    changed = changed_expressions(known.plan, query) or ()
    called = names(query.root)
    texts = dict.fromkeys(x.shown if isinstance(x, Aggregation) else bare(x, called) for x in changed)
    raise ValuesChanged(query.name, folder, known.meaning, list(texts))


def _refuse(folder: str, differences: list[str]) -> None:
    if differences:
        what = f"the checkpoint {folder} was made by another query"
        raise BraidError(what, _anew(folder), differences)


def load(directory: str | Path) -> Document | None:
    """The recorded document; None where nothing is recorded."""
    path = os.path.join(directory, NAME)
    if os.path.exists(os.path.join(directory, RESET)):
        name = os.path.basename(directory)
        raise BraidError(f"a reset of {name} was begun, and did not come to its end", f"braid reset {name} ends it")
    if not os.path.exists(directory) and os.path.exists(os.path.join(f"{directory}~next", READY)):
        name = os.path.basename(directory)
        raise BraidError(f"an upgrade of {name} was begun, and did not come to its end", "braid upgrade FILE ends it")
    try:
        data = read_small(path)
    except FileNotFoundError:
        return None
    except OSError as e:
        raise BraidError(f"{path} cannot be read: {e.strerror}", "a checkpoint is a folder of its own") from e
    try:
        x = members(parsed(data))
        version = whole(x["format"], "format")
        if version != FORMAT:
            hint = f"use the {'newer' if version > FORMAT else 'older'} braid again; or {anew(str(directory))}"
            raise BraidError(f"{path} has format {version}; this version of braid has format {FORMAT}", hint)
        found = _from_json(x)
        if x["hash"] != found.hash:
            raise ValueError("its plan and its hash do not agree")
        return found
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        hint = f"put it back from a copy; or {anew(str(directory))}"
        raise BraidError(f"{path} cannot be read: {why(e)}", hint) from e


def _refuse_foreign(folder: str) -> None:
    """A folder in which Spark has written, but not for us."""
    there = [name for name in _OF_SPARK if os.path.exists(os.path.join(folder, name))]
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


def _write(folder: str, document: Document) -> None:
    data = json.dumps(_to_json(document), indent=1, ensure_ascii=False).encode()
    write_atomic(os.path.join(folder, NAME), data, folder, fsync=True)


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
        meaning=whole(x.get("meaning", 1), "meaning", 1),
        store=text(x.get("store", ""), "store"),
        rescaled=x.get("rescaled", False) is True,
    )


# ---------------------------------------------------------------- Spark's part


SPARK = "spark"  # folder in the checkpoint
_PLACE, _NUMBER = re.compile("[0-9]{1,9}/[0-9]{1,9}"), re.compile("[0-9]{1,9}")
_MAGIC = b"crc\0"


def last_batch(folder: str, known: Document) -> int | None:
    """The last batch that was committed; None where none was. A torn or missing file is refused."""
    root = os.path.join(folder, SPARK)
    offsets, commits = _numbers(os.path.join(root, "offsets")), _numbers(os.path.join(root, "commits"))
    states = state_file.batches(folder)
    if not (offsets or commits or states):
        return None
    try:
        if not offsets and not commits:
            raise _torn(os.path.join(root, "offsets"), f"it is missing; there is the state of batch {states[-1]}")
        _json(os.path.join(root, "metadata"), _whole(os.path.join(root, "metadata")))
        last = commits[-1] if commits else -1
        newest = offsets[-1] if offsets else -1
        if newest not in (last, last + 1):
            missing = os.path.join(root, "offsets", str(last)) if newest < last else _next(root, last)
            raise _torn(missing, f"it is missing; batch {newest} was begun, batch {last} is committed")
        for number in offsets[-2:]:
            _check_offsets(os.path.join(root, "offsets", str(number)), known.fingerprint)
        if last >= 0 and not _half_committed(root, last, newest):
            _check_lines(os.path.join(root, "commits", str(last)))
        elif last >= 0:
            last -= 1
        if last >= 0:
            state_file.check(folder, last)
            _check_spread(folder, last, known)
    except BraidError as e:
        raise BraidError(e.message, f"put it back from a copy; or {anew(folder)}") from e
    return last if last >= 0 else None


def _half_committed(root: str, last: int, newest: int) -> bool:
    """Whether a loss of power has torn Spark's word that the last batch is done. No batch was begun behind it, so it is
    done again, and found done."""
    try:
        _check_lines(os.path.join(root, "commits", str(last)))
    except BraidError:
        return last == newest
    return False


def mend(folder: str) -> None:
    """Takes such a word away, before Spark reads it."""
    root = os.path.join(folder, SPARK)
    offsets, commits = _numbers(os.path.join(root, "offsets")), _numbers(os.path.join(root, "commits"))
    if offsets and commits and _half_committed(root, commits[-1], offsets[-1]):
        for name in (str(commits[-1]), f".{commits[-1]}.crc"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(root, "commits", name))


def _check_spread(folder: str, last: int, known: Document) -> None:
    """The state is in as many buckets as the query, but in the midst of a rescale, which is ended when it starts."""
    found = state_file.buckets(folder, last)
    if found == known.buckets or (found is None and not known.rescaled):
        return
    if not os.path.exists(os.path.join(folder, RESCALE)):
        is_in = f"it is in {'other' if found is None else found} buckets"
        raise _torn(state_file.path_of(folder, last), f"{is_in}, and {NAME} beside it says {known.buckets}")


def begun(folder: str) -> bool:
    """Whether a batch was begun behind the last that was committed."""
    root = os.path.join(folder, SPARK)
    return (_numbers(os.path.join(root, "offsets")) or [-1])[-1] > (_numbers(os.path.join(root, "commits")) or [-1])[-1]


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a query has come: what its source wrote for the last batch that was committed, and for the last that was
    planned."""

    committed: Mapping[str, Any]
    planned: Mapping[str, Any]

    def rows(self, leaves: Collection[int]) -> tuple[int, int]:
        """Up to which row all of these leaves over one source of files have been read for good, and up to which any of
        them has been given some to read."""
        places = [f"{leaf}/0" for leaf in leaves]
        return (
            min(int(self.committed["next"].get(p, 0)) for p in places),
            max(int(self.planned["next"].get(p, 0)) for p in places),
        )

    def closed(self, leaves: Collection[int]) -> bool:
        """Whether an end of these was processed."""
        return any(f"{leaf}/0" in self.planned["ended"] for leaf in leaves)


def offsets_digest(folder: str, batch: int, fsync: bool = False) -> str:
    """What a batch reads, as Spark has written it down before the batch began. `fsync`: that it stays on the disk."""
    root = os.path.join(folder, SPARK)
    with open(os.path.join(root, "offsets", str(batch)), "rb") as f:
        lines = f.read().split(b"\n")[2:]
    there = (f"offsets/{batch}", f"offsets/.{batch}.crc", "offsets", "metadata", ".metadata.crc", "", os.pardir)
    for name in there if fsync else ():
        with contextlib.suppress(FileNotFoundError):
            force(os.path.join(root, name))
    return hashlib.sha256(b"\n".join(lines)).hexdigest()


def digest_of(document: str) -> str:
    """The same of a batch that was not begun, by the text of its document."""
    return hashlib.sha256(document.encode()).hexdigest()


def forget_begun(folder: str, batch: int) -> None:
    """A batch that nobody has seen was not begun."""
    offsets = (os.path.join(folder, SPARK, "offsets", name) for name in (str(batch), f".{batch}.crc"))
    for path in (*offsets, state_file.path_of(folder, batch)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def document_of(folder: str, batch: int) -> dict[str, Any]:
    """What the source wrote for a batch that Spark has begun: where it ends."""
    return _document(os.path.join(folder, SPARK, "offsets"), batch)


def reached(folder: str) -> Reached:
    """How far a query has come, of a checkpoint that `last_batch` has looked through."""
    root = os.path.join(folder, SPARK)
    offsets, commits = _numbers(os.path.join(root, "offsets")), _numbers(os.path.join(root, "commits"))
    last = [_document(os.path.join(root, "offsets"), x[-1] if x else None) for x in (commits, offsets)]
    return Reached(*last)


def _document(root: str, batch: int | None) -> dict[str, Any]:
    """What the source wrote for a batch; of none, the beginning."""
    documents = [] if batch is None else _check_lines(os.path.join(root, str(batch)))[1:]
    return next((d for d in documents if isinstance(d, dict) and "plan" in d), {"next": {}, "ended": []})


def _next(root: str, last: int) -> str:
    return os.path.join(root, "commits", str(last + 1))


def _check_offsets(path: str, fingerprint: str) -> None:
    try:
        for document in _check_lines(path)[1:]:
            if isinstance(document, dict) and "plan" in document:  # others are of DataFrames' sources
                if document["plan"] != fingerprint:
                    raise _torn(path, "it is of another plan")
                _check_document(document)
    except (ValueError, KeyError) as e:
        raise _torn(path, why(e)) from e


def _check_document(x: dict[str, Any]) -> None:
    """Refuses offsets that no planner wrote (`spark/source.py`)."""
    whole(x["batch"], "batch", -1)
    for place, offset in members(x["next"], "next").items():
        if not _PLACE.fullmatch(place):
            raise ValueError(f"{place!r:.40} is no source and partition")
        whole(offset, "an offset")
    for name in ("ended", "idle", "silent"):
        for place in items(x.get(name, []) if name == "silent" else x[name], name):
            if not _PLACE.fullmatch(text(place, name)):
                raise ValueError(f"{place!r:.40} is no source and partition")
    for leaf, ends in members(x.get("captured", {}), "captured").items():
        if not _PLACE.fullmatch(f"{leaf}/0"):
            raise ValueError(f"{leaf!r:.40} is no source")
        for end in items(ends, "captured"):
            whole(end, "an end")
    for place, seen in members(x.get("seen", {}), "seen").items():
        topic, _, partition = place.rpartition("/")
        if not is_name(topic) or not _NUMBER.fullmatch(partition):
            raise ValueError(f"{place!r:.40} is no topic and partition")
        end, crc = items(seen, "seen")
        whole(end, "an end"), whole(crc, "a checksum", 0, (1 << 32) - 1)


def _check_lines(path: str) -> list[object]:
    """The documents of a file of Spark's logs: a version, then JSON line by line (`-`: nothing)."""
    version, *lines = _whole(path).split(b"\n")
    if not re.fullmatch(rb"v[0-9]+", version) or not lines:
        raise _torn(path, "it does not begin as Spark begins it")
    return [_json(path, line) for line in lines if line != b"-"]


def _json(path: str, data: bytes) -> object:
    try:
        return parsed(data)
    except ValueError as e:
        raise _torn(path, f"it is not JSON ({why(e)})") from e


def _whole(path: str) -> bytes:
    """The file's bytes, which are those that were written."""
    try:
        data = read_small(path)
    except FileNotFoundError:
        raise _torn(path, "it is missing") from None
    except OSError as e:
        raise _torn(path, str(e.strerror)) from e
    try:
        sums = read_small(os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.crc"))
    except FileNotFoundError:
        sums = b""
    if sums[:4] == _MAGIC and len(sums) >= 8:
        size = int.from_bytes(sums[4:8], "big")
        blocks = [data[i : i + size] for i in range(0, len(data), size)] if size else []
        if b"".join(zlib.crc32(x).to_bytes(4, "big") for x in blocks) != sums[8:]:
            raise _torn(path, "it is not what its checksum says")
    if not data:
        raise _torn(path, "it is empty")
    return data


def _numbers(folder: str) -> list[int]:
    """The names in a folder that are numbers, in order."""
    return sorted(int(name) for name in _listed(folder) if name.isdecimal() and name.isascii())


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _torn(path: str, why: str) -> BraidError:
    return BraidError(f"{path} is damaged: {why}")
