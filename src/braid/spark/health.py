"""How the machines of a run do: executors that are there and that were lost, tasks that failed and were done again,
calls to the object store that were made again.

In: a session. Out: `Health`; lines for people on what has changed since the last look.
Rule: figures and addresses only. A look costs a few calls of the JVM an executor, and changes nothing; a JVM that is
gone has none.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from braid.native import LINES
from braid.store import objects

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER = "driver"
SHORT = 120  # characters of a reason
ON_PURPOSE = re.compile(r"idle|decommission|requested|finished", re.IGNORECASE)  # an executor that Spark let go


@dataclass(frozen=True, slots=True)
class Health:
    """`executors`: where they are, by their ids; `lost`: why they went, those that Spark let go not among them;
    `failed`: attempts of tasks, each of which was done again or ended its batch; `again`: calls of this process to the
    object store. `cluster`: the work is done by executors, and not by this machine alone."""

    cluster: bool = False
    executors: Mapping[str, str] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)
    failed: int = 0
    again: int = 0

    def since(self, before: Health | None) -> Health:
        """Without the tasks that had failed before."""
        return self if before is None else replace(self, failed=self.failed - min(before.failed, self.failed))

    def document(self) -> dict[str, int]:
        return {
            "executors": len(self.executors),
            "executors_lost": len(self.lost),
            "tasks_failed": self.failed,
            "store_again": self.again,
            "json_lines_compiled": LINES.compiled,
            "json_lines_python": LINES.python,
        }

    def line(self, restarts: int, again: int = 0) -> str:
        """What a user on call wants to see: nothing where all is well on one machine. `again`: calls of tasks."""
        parts, counts = list[str](), (("failed tasks", self.failed), ("store asked again", self.again + again))
        if self.cluster:
            lost = f" ({len(self.lost)} lost)" if self.lost else ""
            parts.append(f"executors {len(self.executors)}{lost}" if self.executors else f"no executor is left{lost}")
        parts += [f"{name} {n:,}" for name, n in counts if n]
        parts += [f"restarts {restarts:,}"] if restarts else []
        return "  ".join(parts)


NONE = Health()


def look(spark: SparkSession, before: Health = NONE) -> Health:
    """As things stand; `before` where the JVM does not tell."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    from braid.spark.conf import on_one_node

    context = spark.sparkContext
    with contextlib.suppress(Py4JError, OSError, AttributeError):
        found = context._jsc.sc().statusStore().executorList(False)
        every = [found.apply(i) for i in range(found.size())]
        there, lost, failed = dict[str, str](), dict[str, str](), 0
        for x in every:
            name = str(x.id())
            failed += int(x.failedTasks())
            if name == DRIVER:
                continue
            if x.isActive() and (place := str(x.hostPort())):  # it has registered
                there[name] = place.rpartition(":")[0]
            elif x.isActive():
                continue
            elif not ON_PURPOSE.search(why := _reason(x)):
                lost[name] = why
        return Health(not on_one_node(context.master), there, lost, failed, objects.tried_again())
    return before


def _reason(executor: Any) -> str:
    found = executor.removeReason()
    lines = str(found.get()).split("\n") if found.isDefined() else [""]
    return lines[0][:SHORT]


def changes(before: Health, now: Health, begun: bool) -> Iterator[str]:
    """Lines on executors that went, and where a run has `begun` to work on those that came."""
    left = len(now.executors)
    for name in now.lost.keys() - before.lost.keys():
        where = before.executors.get(name)
        on, why = f" on {where}" if where else "", now.lost[name].strip(" .")
        is_left = f"{left or 'none'} {'is' if left < 2 else 'are'} left"
        yield f"the executor {name}{on} is lost{f' ({why})' if why else ''}; {is_left}"
    if before.executors and not now.executors:
        yield "no executor is left: the batch goes on when a worker comes back"
    for name in now.executors.keys() - before.executors.keys() if begun else ():
        yield f"the executor {name} on {now.executors[name]} has come; there {'is' if left == 1 else 'are'} {left}"
