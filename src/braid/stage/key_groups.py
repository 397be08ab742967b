"""Key groups: the hash by which the rows of a state are spread, as those of their stage are.

In: a stage; rows that one of its steps keeps. Out: the hash that the exchange before the stage gave them.
Rule: a step's rows lie by that hash until a step gives them another one: windows mix their bounds into it, which can be
taken out again; rows that get a new key where they are (`Rekey`) have all of the old one in it. Of the rows of a result
that are kept the key is that of the result. What a row tells nothing of, others of its arrival number do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from braid.errors import BraidError
from braid.expr import compile
from braid.expr.nodes import Expr, substituted
from braid.lower.physical import Plan, Stage
from braid.operators.base import Operator
from braid.operators.changes import HASH, key_column
from braid.operators.coalesce import Coalesce
from braid.operators.in_windows import InWindows, hashes_in
from braid.operators.pairing import keys_of
from braid.operators.rekey import Rekey, hash_of_key
from braid.operators.sessions import Sessions
from braid.operators.sliding import Sliding, operand
from braid.operators.windows import TimeWindows

# Of rows of a part of a state, by its name; None: they do not tell. A row whose hash is null has no key: nobody looks
# it up.
KeyGroup = Callable[[str, pl.DataFrame], pl.Series | None]


def key_groups(plan: Plan, stage: Stage) -> dict[int, KeyGroup]:
    """By the number under which a step, or the result, keeps its state."""
    found, after = dict[int, KeyGroup](), dict[int, KeyGroup]()
    for step in stage.steps:
        home = next((after[n] for n in step.inputs if n in after), by_hash)
        if isinstance(step.operator, Sliding):
            home = _of_operands(step.operator)
        found[plan.kept_as(step.number)] = home
        after[step.number] = _after(step.operator, home)
    if stage.keeps:
        windowed = plan.query.sink.window is not None
        own = after.get(stage.output, by_hash)
        found[plan.kept_as(plan.sink)] = _of_keys(plan.query.sink.written_key) if windowed else own
    return found


def by_hash(part: str, rows: pl.DataFrame) -> pl.Series | None:
    """Rows that lie as they came."""
    return rows[HASH]


def _after(operator: Operator, home: KeyGroup) -> KeyGroup:
    """Where the rows are at home that an operator gives."""
    match operator:
        case TimeWindows() | InWindows() | Sessions():
            return _without_windows if home is by_hash else nowhere
        case Rekey(keys=keys) if home is _without_windows:  # of these, whose windows are left out
            return by_hash
        case Rekey(by=by, keys=keys):
            if isinstance(home, _Made):
                by = home.in_terms_of(by, keys)
            return _Made(by) if home is by_hash or isinstance(home, _Made) else nowhere
        case Coalesce(key=key) if key:
            return nowhere
        case Sliding():  # whoever keeps something of its rows gives them a key
            return by_hash
        case _:
            return home


def _without_windows(part: str, rows: pl.DataFrame) -> pl.Series | None:
    """Rows whose last two keys are the bounds of windows, and in the hash: mixing them in once more takes them out."""
    keys = keys_of(rows)
    if not keys:
        return None
    return hashes_in(rows, [rows[k].to_numpy() for k in keys[-2:]])


class _Made:
    """Rows under a key that they got where they are. `by`: what they are spread by, of the columns of that key."""

    def __init__(self, by: Sequence[Expr]) -> None:
        self._by = tuple(by)

    def __call__(self, part: str, rows: pl.DataFrame) -> pl.Series | None:
        made, _ = compile.evaluate(rows, [(key_column(i), e) for i, e in enumerate(self._by)])
        return hash_of_key(made, self._by, whole=False)

    def in_terms_of(self, by: Sequence[Expr], keys: Sequence[Expr]) -> tuple[Expr, ...]:
        """The same, of the columns of `keys`, where these take the place of the key; `by`: that key, made of them."""
        return tuple(substituted(e, {key_column(i): x for i, x in enumerate(by)}) for e in self._by)


def _of_keys(keys: Sequence[Expr]) -> KeyGroup:
    """Rows that hold what they are spread by as their key."""
    return lambda part, rows: hash_of_key(rows, keys, whole=False)


def _of_operands(operator: Sliding) -> KeyGroup:
    """Rows of a sliding join, which keeps no hash."""
    keys = {operand(i): by for i, by in enumerate(operator.by)}

    def home(part: str, rows: pl.DataFrame) -> pl.Series | None:
        made, _ = compile.evaluate(rows, [(key_column(i), e) for i, e in enumerate(keys[part])])
        return hash_of_key(made, keys[part], whole=False)

    return home


def nowhere(part: str, rows: pl.DataFrame) -> pl.Series | None:
    what = "a part of the state does not say by what its rows are spread"
    raise BraidError(what, "braid reset lets the query begin again, with other numbers")
