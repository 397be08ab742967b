"""SELECT items and GROUP BY: the columns of a result, named and typed.

In: items as written, the scope of FROM. Out: named expressions; for a grouped query its keys and aggregations too.
Rule: `*` gives every column, with its source's name before it in a join; what has no name gets KSQL_COL_<n>.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from braid.bind.expressions import Aggregations, Rules, Whole, bind_expr, with_span
from braid.bind.ksqldb.scope import Namer, Sources
from braid.bind.ksqldb.windows import Emitted
from braid.bind.names import repeated
from braid.bind.select.grouping import Groups
from braid.bind.select.items import Item
from braid.bind.settings import Settings
from braid.bind.sources import check_key_type
from braid.errors import Span, SqlError
from braid.expr import typing
from braid.expr.aggregates import is_flat, is_of_times, shaped
from braid.expr.nodes import Expr
from braid.sql import ast
from braid.types import Array, Map, Struct


def is_copy(e: ast.Expr | None) -> bool:
    """AS_VALUE(…): the value of its argument, but another expression."""
    return isinstance(e, ast.Call) and e.name == "AS_VALUE"


@dataclass(slots=True, kw_only=True)
class Grouping(Groups):
    """`limits`: how many values some aggregates keep at most."""

    scope: Sources
    over_table: bool
    limits: Mapping[str, int]
    window: Emitted | None

    def rules(self, clause: str) -> Rules:
        return Rules(clause, self._column, self._aggregate, self.known)

    def instead(self, name: str) -> str:
        return f"add {name} to GROUP BY" + ("" if self.over_table else f", or write LATEST_BY_OFFSET({name})")

    def _column(self, n: ast.Name) -> Expr:
        if self.window is not None and n.parts[-1] in self.window.names and self._is_bound(n):
            return self.window.names[n.parts[-1]]
        return self.column(n)

    def _is_bound(self, n: ast.Name) -> bool:
        """Is it the bound of the groups? The name of a source may stand before it, where that has none itself."""
        if len(n.parts) == 1:
            return True
        found = [e for e in self.scope.entries if e.alias == n.parts[0]]
        return len(n.parts) == 2 and len(found) == 1 and found[0].declared.windowed is None

    def _aggregate(self, call: ast.Call) -> Expr:
        args = self.arguments(call)
        star = args is None
        if not args and is_of_times(call.name):
            star, args = False, [self.scope.entries[0].time]
        shape = shaped(call.name, args or [], star, call.distinct, self.over_table)
        self._check_format(call.name, shape.arg)
        limit = self.limits.get(call.name)
        options = shape.options if limit is None else (*shape.options, limit)
        return self.aggregations.column(call.name, shape.arg, shape.type, options, shape.code)

    def _check_format(self, name: str, arg: Expr | None) -> None:
        """ksqlDB keeps groups in the format of the first source's values."""
        source = self.scope.entries[0].declared
        format = source.encoding.value_format
        if format.single != "line":
            return
        hint = (
            f"group a stream of other values: CREATE STREAM … WITH (value_format='JSON') AS SELECT … FROM {source.name}"
        )
        if not is_flat(name):
            raise SqlError(f"{name} keeps more of a group than a field of {format.name} values holds", hint=hint)
        if arg is not None and isinstance(arg.type, Array | Map | Struct):
            raise SqlError(f"{name} takes {arg.type} here, which {format.name} values do not hold", hint=hint)


def bind_grouping(
    group_by: tuple[ast.Expr, ...],
    scope: Sources,
    steps: int,
    over_table: bool,
    settings: Settings,
    window: Emitted | None = None,
) -> Grouping:
    limits = {"COLLECT_LIST": settings.collect_list, "COLLECT_SET": settings.collect_set}

    def below(e: ast.Expr, clause: str) -> Expr:
        return bind_expr(e, Rules(clause, scope.column))

    made = Grouping(below, Aggregations(".AGG"), scope=scope, over_table=over_table, limits=limits, window=window)
    for n, e in enumerate(group_by, steps + 1):
        with with_span(e.span):
            check_key_type("of GROUP BY", made.group_by(e, f".KEY{n}").type)
    return made


def bind_items(
    items: tuple[ast.SelectItem, ...],
    scope: Sources,
    grouping: Grouping | None,
    keys_last: bool = False,
    bounds: bool = False,
    column: Callable[[ast.Name], Expr] | None = None,
    whole: Whole | None = None,
) -> list[Item]:
    """All columns of the result, in order. `keys_last`: wildcards give a source's keys behind its values. `bounds`:
    wildcards give those of windows, too, as they do in joins. `column`: what names mean, if not what they mean in the
    scope. `whole`: asked first about each expression, where nothing is grouped."""
    plain = Rules("SELECT", column or (scope.column), whole=whole)
    rules = plain if grouping is None else grouping.rules("SELECT")
    namer = Namer(scope.taken())
    found: list[Item] = []
    for item in items:
        match item.expr:
            case ast.Star(qualifier=qualifier):
                with with_span(item.span):
                    found += _star(qualifier, item.span, scope, grouping, keys_last, bounds or scope.is_join)
            case ast.Arrow(base=base, field="*"):
                found += _fields(base, item, rules, namer)
            case e:
                bound = bind_expr(e, rules)
                found.append(Item(item.alias or _name(e, scope, namer), bound, item.span, e))
    _check_names(found)
    return found


def _star(
    qualifier: str | None, span: Span, scope: Sources, grouping: Grouping | None, keys_last: bool, bounds: bool
) -> list[Item]:
    found: list[Item] = []
    if qualifier is None and scope.synthetic is not None:
        name, key = scope.synthetic
        found.append(Item(name, key if grouping is None else grouping.lifted(key, name), span, None))
    if qualifier is not None:
        scope.check_alias(qualifier)
    columns = list(scope.visible(qualifier, bounds and grouping is None))
    if keys_last:
        order = [e.alias for e in scope.entries]
        columns.sort(key=lambda x: (order.index(x[0].alias), x[1].place == "key"))
    for entry, c in columns:
        name = f"{entry.alias}_{c.name}" if scope.is_join else c.name
        col = entry.col(c)
        found.append(Item(name, col if grouping is None else grouping.lifted(col, c.name), span, None))
    return found


def _fields(base: ast.Expr, item: ast.SelectItem, rules: Rules, namer: Namer) -> list[Item]:
    """`s->*`: a column for each field."""
    bound = bind_expr(base, rules)
    if not isinstance(bound.type, Struct):
        raise SqlError(f"->* needs a STRUCT, not {bound.type}", item.span, "name the column itself")
    return [
        Item(namer.field(f.name), typing.field(bound, f.name), item.span, ast.Arrow(base, f.name, item.span))
        for f in bound.type.fields
    ]


def _name(e: ast.Expr, scope: Sources, namer: Namer) -> str:
    match e:
        case ast.Name(parts=parts):
            name, owners = parts[-1], scope.owners(parts[-1])
            if len(owners) < 2:
                return name
            column = scope.column(e)
            return next(f"{x.alias}_{name}" for x, c in owners if c == column)
        case ast.Arrow(field=name):
            return namer.field(name)
        case _:
            return namer.expression()


def _check_names(items: list[Item]) -> None:
    if (i := repeated(items, lambda i: i.name)) is not None:
        raise SqlError(f"the result has two columns {i.name}", i.span, "give one of them another name with AS")
