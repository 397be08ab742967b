"""Tables whose rows come and go, and how they are written by key.

In: the rows that a step's input gave at the current place. Out: the results, row by row.
Rule: rows of tables are known by their own key, so several may be written under one. (docs/rules/lenses.md)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from braid.expr.nodes import Expr
from braid.plan import logical
from braid.reference.rows import Row, Run
from braid.reference.steps import OneInput, Step


def signed(rows: Sequence[Row], run: Run, node: logical.Node, stands: dict[str, Row]) -> Iterator[tuple[str, Row]]:
    """A table's changes as rows that go and rows that come, each with the text of its own key: an upsert takes the old
    row back first. `stands` are the rows now, by that text; it is kept up to date."""
    upserts = node.mode == "upsert"
    for row in rows:
        key = run.key(node.row_key, -1, row)
        text = "" if key is None else key.text
        if upserts and text in stands:
            old = stands.pop(text)
            yield text, Row(old.values, row.time, row.headers, True, row.cause, old.origin | row.origin)
        if not row.gone:
            stands[text] = row
            yield text, row
        elif not upserts:
            stands.pop(text, None)
            yield text, row


class MaterializeStep(OneInput[logical.Materialize]):
    """A table as rows that come and go."""

    def __init__(self, node: logical.Materialize, number: int, run: Run, source: Step) -> None:
        super().__init__(node, number, run, source)
        self._stands: dict[str, Row] = {}

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        (rows,) = inputs
        return [row for _, row in signed(rows, self._run, self.node.input, self._stands)]


class UpsertStep:
    """A table with combinations as upserts by the key it is written under.

    All that one record caused is one change: of each combination only what it is afterwards counts. Under a key, those
    that came or changed are written; if there are none, but some went, the most recently written of those that remain
    is written again, or a tombstone. Under a null key every row that comes is written, and nothing else.
    """

    def __init__(self, run: Run, number: int, root: logical.Node, key: Sequence[Expr]) -> None:
        self._run, self.number, self._root, self._key = run, number, root, key
        self._stands: dict[str, dict[str, Row]] = {}  # written key -> own key -> row; the last written last

    def process(self, rows: Sequence[Row]) -> list[Row]:
        out: dict[int, Row] = {}  # by the number of the row that says it
        last: dict[tuple[str, str], int] = {}  # of each combination under each key
        for i, row in enumerate(rows):
            written = self._run.key(self._key, self.number, row)
            own = self._run.key(self._root.row_key, self.number, row)
            if written is not None:
                last[written.text, "" if own is None else own.text] = i
            elif not row.gone:
                out[i] = row
        changed = {k: i for k, i in last.items() if not (rows[i].gone and k[1] not in self._of(k[0]))}
        changed = dict(sorted(changed.items(), key=lambda x: x[1]))
        came = {text for (text, _), i in changed.items() if not rows[i].gone}
        for text, own_text in changed:
            self._of(text).pop(own_text, None)
        speaks = {text: i for (text, _), i in changed.items()}  # a key at which none came speaks once, at its last row
        for (text, own_text), i in changed.items():
            stands = self._of(text)
            if not rows[i].gone:
                stands[own_text] = rows[i]
                out[i] = rows[i]
            elif text not in came and speaks[text] == i:
                rest = list(stands.values())
                out[i] = _written_again(rest[-1], rows[i]) if rest else rows[i]
        return [out[i] for i in sorted(out)]

    def _of(self, text: str) -> dict[str, Row]:
        return self._stands.setdefault(text, {})


def _written_again(row: Row, cause: Row) -> Row:
    return replace(cause, values=row.values, gone=False, origin=row.origin | cause.origin)
