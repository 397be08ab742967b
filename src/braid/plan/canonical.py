"""The canonical text of a query, for fingerprints in checkpoints, and the names that columns have in kept rows.

In: a logical query. Out: JSON text that is equal iff the queries give the same results and keep the same rows; a name
for each plan column that depends on the same things only.
Rule: types are in it, and what a reader of the result sees; the words of the SQL are not. Sources are numbered from
left to right, columns where they first stand. Columns of a source that nobody reads are left out where the others are
found without them. A field that has its default value is left out, so that a new field does not change old texts; kinds
keep the names that they first had, whatever their classes are called. An expression that gives other values than it
once did has the number since when (`expr.meanings`).
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from decimal import Decimal as PyDecimal
from typing import Any, get_args

from braid.expr import meanings
from braid.expr.nodes import Cast, Code, Col, Expr, columns
from braid.plan import epochs, logical, residuals
from braid.plan.groups import Aggregation
from braid.plan.joins import ForeignKeyJoin, OnKeys, StreamStreamJoin, StreamTableJoin, TableTableJoin
from braid.plan.logical import Node, Query, Source, SourceColumn
from braid.plan.needed import needed
from braid.plan.windows import Hopping, Session
from braid.types import Scalar

# A class is called here as it was called when checkpoints first had it: whoever renames one notes its old name.
RENAMED: Mapping[type, str] = {epochs.Bound: "Watermark"}
# Lengths of windows stood in the nodes themselves when checkpoints first had them, by these names.
LENGTHS: Mapping[tuple[str, type], Mapping[str, str]] = {
    ("TimeWindows", Hopping): {"size": "size", "advance": "advance"},
    ("Sessions", Session): {"gap": "gap"},
    ("Windows", Hopping): {"size": "size", "slide": "advance", "offset": "offset"},
}
# Joins by key and by columns were kinds of their own when checkpoints first had them, with these fields in this order.
JOINS: Mapping[tuple[type, bool], tuple[str, str]] = {
    (StreamStreamJoin, True): (
        "StreamStreamJoin",
        "left right how left_key right_key before after grace retention key null_key late window",
    ),
    (StreamStreamJoin, False): (
        "TwoClockJoin",
        "left right how left_keys right_keys keys before after grace pad left_if right_if",
    ),
    (StreamTableJoin, True): ("StreamTableJoin", "left right how left_key right_key key null_key window"),
    (StreamTableJoin, False): ("RememberingJoin", "left right how left_keys right_keys keys retention left_if"),
    (TableTableJoin, True): ("TableTableJoin", "left right how left_key right_key key window"),
    (TableTableJoin, False): ("CombiningJoin", "left right how left_keys right_keys keys left_if right_if"),
    (ForeignKeyJoin, True): ("ForeignKeyJoin", "left right how left_key right_key key binary"),
}
# Fields that are only words: of the SQL, of declarations, of what is told to people; what is kept to be asked for;
# where results go, which a checkpoint records in a sink's own words; what the key format of a source says already; what
# a dialect says of all its time columns.
WORDS = {"Query": ("sql", "notices", "why"), "Sink": ("columns", "keeps", "retention", "into", "shown_key", "padded"),
         "Source": ("name",), "Encoding": ("binary", "lenient"), "OnTime": ("judged",),
         "Code": ("path", "text", "pickled"), "Final": ("binary",), "Timestamp": ("since_1970",)}  # fmt: skip


def canonical(query: Query) -> str:
    """The text; two queries with the same text run from the same checkpoint."""
    return json.dumps(_Form(query).of(query), ensure_ascii=False, separators=(",", ":"))


def stored_names(query: Query) -> dict[str, str]:
    """Plan column -> its name in kept rows: the same for all queries with the same canonical text."""
    form = _Form(query)
    form.of(query)
    return {name: f"c{n}" for name, n in form.numbers.items()}


def form_of(query: Query, node: Node) -> tuple[str, tuple[str, ...]] | None:
    """The text of a part of a query, equal for parts that differ only in the names of their columns and sources, with
    all columns of these; the names of its columns in the order of the text. None where it hangs on another part."""
    form = _Whole(replace(query, root=node))
    try:
        text = json.dumps(form.of(node), ensure_ascii=False, separators=(",", ":"))
    except KeyError:  # the alias of a source
        return None
    return text, tuple(form.numbers)


def kind_of(class_: type) -> str:
    """What a kind of plan value is called."""
    return RENAMED.get(class_, class_.__name__)


class _Form:
    """JSON data for plan values; a node is `[its name, {field: value}]`."""

    def __init__(self, query: Query) -> None:
        self.numbers: dict[str, int] = {}  # of plan columns
        self._aliases = {s.alias: i for i, s in enumerate(logical.sources(query.root))}
        self._needed = needed(query)
        self.codes: dict[Code, None] = {}  # of users, in order of appearance

    def of(self, x: Any) -> Any:
        match x:
            case Scalar.TIMESTAMPTZ:  # its values are as they were when it had no type of its own
                return Scalar.TIMESTAMP.name
            case Scalar():
                return x.name
            case Cast(arg=arg, type=t) if self.of(t) == self.of(arg.type):  # there was none either
                return self.of(arg)
            case Col(name=name, type=t):
                return ["Col", {"name": self._number(name), "type": self.of(t)}]
            case SourceColumn(name=name, column=column):
                return self._node(x, {"name": self._number(name), "column": self.of(column.type)})
            case Source(alias=alias, key=key):
                read = (replace(c, field="") if key == (c,) else c for c in self._read_of(x))  # a key alone has no name
                return self._node(x, {"alias": self._aliases[alias], "columns": [self.of(c) for c in read]})
            case epochs.Bound(alias=alias):
                return self._node(x, {"alias": self._aliases[alias]})
            case epochs.Clocked(known=known):
                return self._node(x, {"known": [[self._number(name), self.of(bounds)] for name, bounds in known]})
            case tuple() | list():
                return [self.of(i) for i in x]
            case dict():
                return {"map": [[self.of(k), self.of(v)] for k, v in x.items()]}
            case PyDecimal():
                return {"decimal": str(x)}
            case bytes():
                return {"bytes": base64.b64encode(x).decode()}
            case dt.datetime() | dt.date() | dt.time():
                return {"time": x.isoformat()}
            case float():
                return {"double": repr(x)}
            case None | bool() | int() | str():
                return x
        if isinstance(x, Code):
            self.codes[x] = None
        if isinstance(x, OnKeys) and (type(x), x.by_key) in JOINS:
            return self._join(x)
        if is_dataclass(x):
            kind, of = self._node(x, {})
            since = _meaning(x)
            return [kind, of if since == 1 else {**of, "meaning": since}]
        raise TypeError(f"no canonical form for {type(x).__name__}")

    def _join(self, x: OnKeys) -> list[Any]:
        kind, names = JOINS[type(x), x.by_key]
        defaults = {f.name: _default(f) for f in fields(x)} | {"window": None}  # type: ignore[arg-type]
        had = [(name, _had(x, name)) for name in names.split()]
        return [kind, {name: self.of(value) for name, value in had if value != defaults.get(name, MISSING)}]

    def _node(self, x: Any, known: Mapping[str, Any]) -> list[Any]:
        """A node; of some fields the form is known."""
        kind = kind_of(type(x))
        skipped, shown = WORDS.get(kind, ()), [f for f in fields(x) if getattr(x, f.name) != _default(f)]
        of = dict[str, Any]()
        for f in shown:
            value = getattr(x, f.name)
            if f.name in skipped:
                continue
            if (kind, type(value)) in LENGTHS:
                of |= {old: getattr(value, new) for old, new in LENGTHS[kind, type(value)].items()}
            else:
                of[f.name] = known[f.name] if f.name in known else self._field(x, f.name, value)
        return [kind, of]

    def _field(self, x: Any, name: str, value: Any) -> Any:
        """Of a residual of which a part may fail there is said since when that part is NULL."""
        joins = isinstance(x, epochs.RegularJoin | epochs.TemporalJoin)
        if joins and name == "residual" and residuals.parted(value)[1] is not None:
            return self._with_meaning(self.of(value))
        return self.of(value)

    def _with_meaning(self, form: Any) -> Any:
        kind, of = form
        return [kind, {**of, "meaning": 2}]

    def _number(self, column: str) -> int:
        return self.numbers.setdefault(column, len(self.numbers))

    def _read_of(self, source: Source) -> list[SourceColumn]:
        """The columns that are read, and those without which the others would be read otherwise."""
        own = set(columns(source.watermark)) if source.watermark is not None else set()
        fixed = {source.message_key, source.timestamp.field if source.timestamp is not None else None}
        whole = not source.encoding.wrapped or source.encoding.value_format.whole
        return [
            c
            for c in source.columns
            if c.place != "statement"  # which the key says
            and (
                c.name in self._needed
                or c.name in own
                or c.place == "key"
                or (c.place == "value" and (whole or c.field in fixed))
            )
        ]


class _Whole(_Form):
    """The same with all columns of the sources."""

    def _read_of(self, source: Source) -> list[SourceColumn]:
        return list(source.columns)


@dataclass(frozen=True, slots=True)
class SameWindow:
    """Bounds of windows, as they stood in joins apart from the keys of which they are parts."""

    left: tuple[Expr, ...]
    right: tuple[Expr, ...]
    bounds: tuple[Col, ...]


def _had(x: OnKeys, name: str) -> Any:
    """A field of a join as it was: by key it had one equality, bounds of windows apart, and no grace that is eager."""
    match name:
        case "left_key" | "right_key" | "key":
            return getattr(x, f"{name}s")[0]
        case "window" if x.windowed:
            return SameWindow(x.left_keys[-2:], x.right_keys[-2:], x.keys[-2:])
        case "window":
            return None
        case "grace" if isinstance(x, StreamStreamJoin) and x.by_key and x.pad == "eager":
            return None
    return getattr(x, name)


def _meaning(x: object) -> int:
    if isinstance(x, Aggregation):
        return meanings.of_aggregate(x.function, x.code)
    return meanings.of(x) if isinstance(x, Expr) else 1


# ------------------------------------------------------- what has changed of it

Valued = Expr | Aggregation
_VALUED = frozenset(kind_of(x) for x in (*get_args(Expr), Aggregation))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an expression stands, and its form."""

    of: Valued
    form: Any


class _Frame(_Form):
    """The same with places in place of expressions."""

    _inside = False

    def of(self, x: Any) -> Any:
        if self._inside or not isinstance(x, Valued):
            return super().of(x)
        self._inside = True
        made = super().of(x)
        self._inside = False
        return _Place(x, made)

    def _with_meaning(self, form: Any) -> Any:
        return replace(form, form=super()._with_meaning(form.form))


def superseded(then: str) -> bool:
    """Whether a text is of a plan as none is made any more, for words that make another one now: MIN and MAX of rows
    that change were as-of joins with their own rows."""
    return '"left_at":null' in then


def changed_expressions(then: str, query: Query) -> list[Valued] | None:
    """The expressions of a query that had another form in the text `then`; None where anything else had, too."""
    found = list[Valued]()
    same = _compared(json.loads(then), _Frame(query).of(query), found)
    return [x for x in dict.fromkeys(found) if not isinstance(x, Col)] if same else None


def _compared(then: Any, now: Any, found: list[Valued]) -> bool:
    match now:
        case _Place(of=x, form=form):
            if then != form:
                found.append(x)
            return isinstance(then, list) and len(then) == 2 and isinstance(then[0], str) and then[0] in _VALUED
        case list():
            pairs = isinstance(then, list) and len(then) == len(now)
            return pairs and all(_compared(a, b, found) for a, b in zip(then, now, strict=True))
        case dict():
            pairs = isinstance(then, dict) and then.keys() == now.keys()
            return pairs and all(_compared(then[k], v, found) for k, v in now.items())
    return bool(then == now)


def wording(query: Query) -> str:
    """The query in its own words, with what its sources are declared to be: for people who compare two of them."""
    read = [f"-- {s.name}: {s.kind} of topic {s.topic}: {_declared(s)}" for s in logical.sources(query.root)]
    form = _Form(query)
    form.of(query)
    called = [f"-- {c.name}: a function of {c.path or 'the session'}, {c.digest[:12]}" for c in form.codes]
    return "\n".join([*dict.fromkeys([*read, *called]), query.sql.strip()])


def _declared(source: Source) -> str:
    places = {"key": " KEY", "header": " HEADER", "headers": " HEADERS"}
    return ", ".join(
        f"{c.column.name} {c.column.type}{places.get(c.place, '')}"
        for c in source.columns
        if c.place == "value" or c.place in places
    )


def _default(f: Field[Any]) -> Any:
    return f.default if f.default is not MISSING else MISSING
