"""The rules of joins: which combinations exist, and how long rows are kept.

In: kinds of both sides and the kind of join. Out: a refusal with its hint, or nothing; retention in ms.
Rule: one table says what is possible; a hint names only a statement that would be accepted.
"""

from __future__ import annotations

from typing import Literal

from braid.plan.logical import How, Kind, Node, StreamStreamJoin

DAY = 86_400_000

NAMES: dict[How, str] = {"inner": "INNER JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN"}

SUPPORTED: dict[tuple[Kind, Kind], tuple[How, ...]] = {
    ("stream", "stream"): ("inner", "left", "right", "full"),
    ("stream", "table"): ("inner", "left"),
    ("table", "table"): ("inner", "left", "right", "full"),
    ("table", "stream"): (),
}
# With the sides swapped INNER stays INNER and RIGHT becomes LEFT.
SWAPPED: dict[How, Literal["INNER JOIN", "LEFT JOIN"]] = {"inner": "INNER JOIN", "right": "LEFT JOIN"}


def refusal(left: Kind, right: Kind, how: How, left_names: list[str], right_name: str) -> tuple[str, str] | None:
    """Why a stream or table cannot be joined so, and what to write; None if it can. `left_names`: all on the left."""
    left_name = left_names[0]
    if how in SUPPORTED[left, right]:
        return None
    if (left, right) == ("stream", "table"):
        message = f"{NAMES[how]} of stream {left_name} and table {right_name} is not possible"
        return message, "only stream rows emit here: write INNER JOIN or LEFT JOIN"
    message = f"{NAMES[how]} of table {left_name} and stream {right_name} is not possible: a stream stands left"
    if how in SWAPPED and len(left_names) == 1:
        return message, f"swap the sides: FROM {right_name} {SWAPPED[how]} {left_name}"
    if how in SWAPPED:
        made = f"CREATE TABLE … AS SELECT the join of {', '.join(left_names)}"
        return message, f"two statements: {made}, then FROM {right_name} {SWAPPED[how]} its result"
    return message, f"make {right_name} a table first (CREATE TABLE … AS SELECT … GROUP BY), then join two tables"


def held_back(node: Node) -> int:
    """How long the joins of a stream may hold a row back (ms of stream time)."""
    own = node.hold if isinstance(node, StreamStreamJoin) else 0
    return own + max(map(held_back, node.inputs), default=0)


def retention(before: int, after: int, grace: int | None) -> int:
    """How long a row of a stream-stream join is seen: the window and its grace; without GRACE at least a day."""
    lateness = max(DAY - 2 * before, 0) if grace is None else grace
    return max(before + after + lateness, 1)
