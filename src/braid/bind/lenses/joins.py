"""Joins: which combinations of streams and tables exist, what ON says, and the node of each.

In: a join as written, its two sources. Out: what it gives: the node below WHERE, the key of its rows, which columns may
be missing.
Rule: `ALLOWED` says what exists; a hint names only what would be accepted. A filter of ON stands below the join where
its side is not kept, else it only decides whether a row matches. `on := term {AND term}`; a term compares one source
with the other by `=`, or is a condition over one source. What SQL's precedence makes of `a AND b OR c` counts; only
where that is refused, and reading it as `a AND (b OR c)` is not, it is read so, with a notice. Parentheses always win.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from braid.bind.env import Env
from braid.bind.expressions import bind_expr, bind_predicate, conjuncts, with_span
from braid.bind.lenses.facets import CONVERTS, PRIMITIVES, format_of, type_name
from braid.bind.lenses.scope import Given, Relation, Sources, aliases_read, default_name, rules
from braid.bind.select.pushing import keeps, on_enters
from braid.bind.settings import LensesSettings
from braid.errors import SqlError
from braid.expr import typing
from braid.expr.nodes import Cast, Col, Expr
from braid.plan.joins import Join, Pad, StreamStreamJoin, StreamTableJoin, TableTableJoin
from braid.plan.logical import Filter, How, Kind, Node
from braid.sql import ast
from braid.types import Scalar

NAMES: dict[How, str] = {"inner": "JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "OUTER JOIN"}
ALL: tuple[How, ...] = ("inner", "left", "right", "full")
ALLOWED: dict[tuple[Kind, Kind], tuple[How, ...]] = {
    ("stream", "stream"): ALL,
    ("table", "table"): ALL,
    ("table", "stream"): ("right",),
    ("stream", "table"): ("inner", "left"),
}
FOR_EVER = (
    "a stream row without a match is remembered until its table row comes: SET braid.lenses.retention=1d to forget it"
)
NO_KEY = "ON compares nothing of both sources: all rows meet, in one bucket, and the result has no key"
SHARED = "several rows share a key: ON is not on the primary key; a topic shows the last of them"


def bind_join(j: ast.Join, sources: Sources, env: Env, notices: list[str]) -> Given:
    """`notices`: grows by what is said of the join."""
    left, right = sources.relations
    settings = env.settings.lenses
    how, swapped = _how(j, left, right, settings)
    _check_within(j, how, left, right)
    _check_formats(j, left, right)
    on = bind_on(j.on, sources, env.text) if j.on is not None else On((_on_keys(j, left, right),), (), ())
    notices += [*swapped, *on.notices]
    if not on.equalities:
        notices.append(NO_KEY)
    keys = tuple(Col(f"{env.prefix}.KEY{i + 1}", e.left.type) for i, e in enumerate(on.equalities))
    node = _node(j, left, right, how, on, keys, settings)
    kind: Kind = "table" if left.kind == right.kind == "table" else "stream"
    if isinstance(node, StreamTableJoin) and node.remembers and node.retention is None:
        notices.append(FOR_EVER)
    if isinstance(node, TableTableJoin) and not _on_primary_keys(on, left, right):
        notices.append(SHARED)
    key = _key(keys, on.equalities, env.text)
    key_format = (
        left.key_format if j.on is None else left.key_family if key is None else format_of(key.type, left.key_family)
    )
    counts = [r.partitions for r in (left, right) if r.partitions is not None]
    missing, barred = _nullable(left, right, how, keys), sources.barring("in a join")
    equated = tuple((e.left, e.right, k) for e, k in zip(on.equalities, keys, strict=True))
    return Given(env, node, kind, barred, rules("SELECT", barred), key, key_format, max(counts, default=None),
                 lambda: missing, equated)  # fmt: skip


# --------------------------------------------------------------------- checks


def _how(j: ast.Join, left: Relation, right: Relation, settings: LensesSettings) -> tuple[How, list[str]]:
    """The kind of join, if it exists between these two."""
    assert j.how != "cross"
    if j.how in ALLOWED[left.kind, right.kind]:
        return j.how, []
    outer_table = (left.kind, right.kind, j.how) == ("stream", "table", "full")
    if outer_table and settings.outer_table == "left":
        return "left", [f"{left.alias} OUTER JOIN {right.alias} runs as LEFT JOIN (braid.lenses.outer.table)"]
    kinds = " or ".join(NAMES[h] for h in ALLOWED[left.kind, right.kind])
    message = f"{NAMES[j.how]} of {left.kind} {left.alias} and {right.kind} {right.alias} is not possible"
    hint = f"between a {left.kind} and a {right.kind} write {kinds}"
    if (left.kind, right.kind, j.how) == ("table", "stream", "inner"):
        hint += f", or swap the sides: {right.alias} JOIN {left.alias}"
    if outer_table:
        hint += ", or SET braid.lenses.outer.table='left'"
    raise SqlError(message, j.how_span, hint)


def _check_within(j: ast.Join, how: How, left: Relation, right: Relation) -> None:
    streams = left.kind == right.kind == "stream"
    if streams and j.within is None:
        hint = f"write {left.alias} {NAMES[how]} {right.alias} ON ... WITHIN 1h"
        raise SqlError("a join of two streams needs WITHIN", j.how_span, hint)
    if not streams and j.within is not None:
        raise SqlError("WITHIN is for two streams: a table has no window", j.within.span, "leave WITHIN out")


def _check_formats(j: ast.Join, left: Relation, right: Relation) -> None:
    """Keys of different initial formats cannot be joined, whatever ON says."""
    if left.key_format == right.key_format:
        return
    message = f"the keys of {left.alias} ({left.key_format}) and {right.alias} ({right.key_format}) differ in format"
    one, format = right, left.key_format
    if PRIMITIVES.get(left.key_format) in CONVERTS.get(right.key_format, ()):
        one, format = left, right.key_format
    free = format not in PRIMITIVES or PRIMITIVES.get(one.key_format) in CONVERTS.get(format, ())
    what = "*" if free else f"CAST(_key AS {format}) AS _key, ..."
    select = f"SELECT {one.kind.upper()} {what} FROM {one.alias}"
    hint = f"INSERT INTO another-topic STORE KEY AS {format} {select}; then join that topic"
    raise SqlError(message, j.how_span, hint)


def _on_keys(j: ast.Join, left: Relation, right: Relation) -> Equality:
    """Without ON: the whole keys."""
    if left.key is None or right.key is None:
        without = left if left.key is None else right
        raise SqlError(f"the records of {without.alias} have no key", j.how_span, "write ON a.x = b.y")
    windowed = next((r for r in (left, right) if r.windows is not None), None)
    if windowed is not None:
        hint = f"write ON {left.alias}._key = {right.alias}._key, which leaves windows out"
        raise SqlError(f"the keys of {windowed.alias} have windows", j.how_span, hint)
    if left.key.type != right.key.type:
        types = f"{type_name(left.key.type)} and {type_name(right.key.type)}"
        hint = f"write ON {left.alias}.x = {right.alias}.y"
        raise SqlError(f"without ON whole keys are compared; they are {types}", j.how_span, hint)
    return equal(left.key, right.key, None)


def _on_primary_keys(on: On, left: Relation, right: Relation) -> bool:
    """Does every row of the result have a key of its own?"""
    sides = ({e.left for e in on.equalities}, {e.right for e in on.equalities})
    return all(set(r.node.row_key) <= side and r.node.row_key for r, side in zip((left, right), sides, strict=True))


# ---------------------------------------------------------------------- nodes


def _node(
    j: ast.Join, left: Relation, right: Relation, how: How, on: On, keys: tuple[Col, ...], settings: LensesSettings
) -> Join:
    l_keys, r_keys = tuple(e.left for e in on.equalities), tuple(e.right for e in on.equalities)
    l_if, r_if = typing.all_of(on.left_only), typing.all_of(on.right_only)
    l, left_if = _filtered(left.node, l_if, on_enters(how, "left"))
    r, right_if = _filtered(right.node, r_if, on_enters(how, "right"))
    if left.kind == right.kind == "table":
        return TableTableJoin(l, r, how, l_keys, r_keys, keys, by_key=False, left_if=left_if, right_if=right_if)
    if left.kind == right.kind:
        assert j.within is not None
        pad: Pad = "eager" if settings.outer == "eager" else "deferred"
        within, grace = j.within.before.ms, settings.grace
        return StreamStreamJoin(l, r, how, l_keys, r_keys, keys, within, within, grace, None, pad, "pad",
                                left_if=left_if, right_if=right_if)  # fmt: skip
    kept: Literal["inner", "left"] = "inner" if how == "inner" else "left"
    retention = settings.retention if kept == "left" else None
    if left.kind != "stream":
        l, r, l_keys, r_keys, left_if = r, l, r_keys, l_keys, right_if
    return StreamTableJoin(l, r, kept, l_keys, r_keys, keys, "pad", by_key=False, retention=retention, left_if=left_if)


def _filtered(node: Node, term: Expr | None, enters: bool) -> tuple[Node, Expr | None]:
    """The side and its own condition: below the join, or part of the match."""
    return (Filter(node, term), None) if term is not None and enters else (node, term)


def _key(keys: tuple[Col, ...], equalities: tuple[Equality, ...], text: str) -> Expr | None:
    """One equality: the common value. Several: a structure with the left expressions' names."""
    if len(keys) < 2:
        return keys[0] if keys else None
    taken: dict[str, Expr] = {}
    for k, e in zip(keys, equalities, strict=True):
        assert e.written is not None
        name = default_name(e.written, text)
        n = 2
        free = name
        while free in taken:
            free, n = f"{name}_{n}", n + 1
        taken[free] = k
    return typing.struct(list(taken.items()))


def _nullable(left: Relation, right: Relation, how: How, keys: tuple[Col, ...]) -> frozenset[str]:
    """The plan columns of the result that may be missing."""
    found = left.nullable | right.nullable
    if keeps(how, "right"):
        found |= {c.name for c in left.node.schema}
    if keeps(how, "left"):
        found |= {c.name for c in right.node.schema}
    return found | (frozenset(k.name for k in keys) if how == "full" else frozenset())


def merged(
    fields: list[tuple[Relation, str, Expr]], equated: tuple[tuple[Expr, Expr, Expr], ...]
) -> list[tuple[Relation, str, Expr]]:
    """The fields of `*` over a join: two of one name that ON equates are one, with the key's value."""
    made: list[tuple[Relation, str, Expr]] = []
    for r, name, e in fields:
        other = next((x for s, n, x in fields if n == name and s is not r), None)
        pair = {e, other}
        same = next((k for a, b, k in equated if {_bare(a), _bare(b)} == pair), None) if other is not None else None
        if same is None:
            made.append((r, name, e))
        elif all((n, x) != (name, same) for _, n, x in made):
            made.append((r, name, same))
    return made


def _bare(e: Expr) -> Expr:
    """A side of an equality without its widening."""
    return e.arg if isinstance(e, Cast) else e


# --------------------------------------------------------------------------- ON


INTEGERS = (Scalar.INT, Scalar.BIGINT)


@dataclass(frozen=True, slots=True)
class Equality:
    """Both sides in one type. `written`: the left source's side, whose name a composite key takes."""

    left: Expr
    right: Expr
    written: ast.Expr | None


@dataclass(frozen=True, slots=True)
class On:
    equalities: tuple[Equality, ...]
    left_only: tuple[Expr, ...]
    right_only: tuple[Expr, ...]
    notices: tuple[str, ...] = ()


def bind_on(on: ast.Expr, sources: Sources, text: str) -> On:
    """The terms of ON, each put to its side."""
    try:
        return _terms(conjuncts(on), sources)
    except SqlError as refused:
        regrouped = _regrouped(on, text)
        if regrouped is None:
            raise
        try:
            found = _terms(regrouped, sources)
        except SqlError:
            raise refused from None
        notice = "ON mixes AND and OR: it is read as terms joined by AND, OR inside them; write the parentheses"
        return On(found.equalities, found.left_only, found.right_only, (notice,))


def _terms(parts: list[ast.Expr], sources: Sources) -> On:
    equalities: list[Equality] = []
    sides: tuple[list[Expr], list[Expr]] = ([], [])
    for part in parts:
        found = _term(part, sources)
        if isinstance(found, Equality):
            equalities.append(found)
        else:
            sides[found[0]].append(found[1])
    return On(tuple(equalities), tuple(sides[0]), tuple(sides[1]))


def _term(e: ast.Expr, sources: Sources) -> Equality | tuple[int, Expr]:
    """An equality of both sources, or (0 left, 1 right, condition) over one of them."""
    said = rules("ON", sources)
    bound = bind_predicate(e, said)
    read = aliases_read(bound, sources)
    if len(read) < 2:
        return (0 if read in ([], [sources.relations[0].alias]) else 1), bound
    both = f"{read[0]} and {read[1]}"
    if isinstance(e, ast.Binary) and e.op == "OR":
        hint = "join on terms separated by AND; an OR may hold conditions of one source only"
        raise SqlError(f"this OR in ON reads both {both}", e.span, hint)
    if not isinstance(e, ast.Binary) or e.op != "=":
        hint = "in ON both sources meet by = only; write other comparisons in WHERE"
        raise SqlError(f"this condition of ON reads both {both}, and is no equality", e.span, hint)
    left, right = bind_expr(e.left, said), bind_expr(e.right, said)
    for side, x in ((left, e.left), (right, e.right)):
        if len(aliases_read(side, sources)) != 1:
            hint = f"one source on each side of =, such as ON {read[0]}.a = {read[1]}.b"
            raise SqlError(f"one side of = in ON reads both {both}", x.span, hint)
    if aliases_read(left, sources) == [sources.relations[0].alias]:
        return _equality(left, right, e.left, e)
    return _equality(right, left, e.right, e)


def _equality(left: Expr, right: Expr, written: ast.Expr, e: ast.Binary) -> Equality:
    with with_span(e.span):
        return equal(left, right, written)


def equal(left: Expr, right: Expr, written: ast.Expr | None) -> Equality:
    """Both sides of one type: integers are widened, nothing else."""
    if left.type == right.type:
        return Equality(left, right, written)
    if left.type in INTEGERS and right.type in INTEGERS:
        wide = Scalar.BIGINT
        return Equality(typing.cast(left, wide), typing.cast(right, wide), written)
    types = f"{type_name(left.type)} and {type_name(right.type)}"
    raise SqlError(f"keys of {types} cannot be joined", hint="CAST one side to the type of the other")


# ---------------------------------------------------------------- precedence


def _regrouped(e: ast.Expr, text: str) -> list[ast.Expr] | None:
    """The terms of `a AND b OR c` with OR binding more tightly; None where parentheses leave nothing to regroup."""
    operands, operators = _flat(e, text)
    if not {"AND", "OR"} <= set(operators):
        return None
    terms = [operands[0]]
    for op, operand in zip(operators, operands[1:], strict=True):
        if op == "AND":
            terms.append(operand)
        else:
            last = terms.pop()
            terms.append(ast.Binary("OR", last, operand, last.span))
    return terms


def _flat(e: ast.Expr, text: str, inner: bool = False) -> tuple[list[ast.Expr], list[str]]:
    """Operands and operators of AND and OR in written order, down to parentheses."""
    if not isinstance(e, ast.Binary) or e.op not in ("AND", "OR") or (inner and _in_parentheses(e, text)):
        return [e], []
    operands, operators = _flat(e.left, text, True)
    more, others = _flat(e.right, text, True)
    return [*operands, *more], [*operators, e.op, *others]


def _in_parentheses(e: ast.Expr, text: str) -> bool:
    return text[: e.span.start].rstrip().endswith("(") and text[e.span.end :].lstrip().startswith(")")
