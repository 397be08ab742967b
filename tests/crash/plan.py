"""A plan of kills, drawn from a seed.

In: a seed, how many, which kinds. Out: kills in turn, each with its moment.
Rule: the seed says what is killed and after how many batches; at which instruction it falls is the machine's doing, so
a plan that failed is run again some times.

Kinds: `driver`, kill -9 of the driver and its JVM; `start`, the same before the first batch; `jvm`, of the JVM alone;
`worker`, of one Python process; `executor`, of one executor of a cluster; `node`, of a worker of a cluster and all that
runs on it, which is up again soon, with nothing; `gone`, the same, and it stays away until `come`; `stall`, the Python
processes of one executor stand still for some seconds; `interrupt`, Ctrl-C; `files`, the node's temporary files are
deleted under the running queries; `broker`, kill -9 of the broker, which is up again soon; `second`, the same command
on another machine, which shares only the object store, while the first goes on, or stands still and wakes later.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

KINDS = {"driver": 5, "worker": 5, "start": 2, "files": 2, "jvm": 1, "interrupt": 1}
ON_CLUSTER = {"executor": 6, "node": 3, "worker": 2, "driver": 1, "gone": 1, "come": 1, "stall": 1, "second": 3}
ON_BROKER = {"driver": 6, "worker": 4, "jvm": 2, "start": 2, "broker": 1, "interrupt": 1}
ENDS_WRITERS = ("driver", "jvm", "worker", "executor", "node", "gone", "broker")


@dataclass(frozen=True, slots=True)
class Kill:
    """`batches`: how many are to be committed after the kill before; `delay`: s after that; `begun`: then as soon as a
    task has begun to write a batch. What follows matters only where the kill is the first of a run. `tiny`: temporary
    files are on a disk that is soon full; `retries`: a task may fail and is done again (else the query dies);
    `in_turn`: queries run one after another (--until-idle)."""

    kind: str
    batches: int
    delay: float
    begun: bool = False
    tiny: bool = False
    retries: bool = True
    in_turn: bool = False


def plan(seed: int, count: int, kinds: dict[str, int] = KINDS) -> Sequence[Kill]:
    rng, moments = random.Random(f"kills {seed}"), random.Random(f"begun {seed}")
    names, weights = list(kinds), list(kinds.values())
    made = []
    for _ in range(count):
        kind = rng.choices(names, weights)[0]
        delay = rng.uniform(0, 8) if kind == "start" else rng.uniform(0, 0.8)
        batches = 0 if kind == "start" else rng.choice([1, 1, 1, 2, 3])
        begun = moments.random() < 0.5 and kind in ENDS_WRITERS
        first = rng.random() < 0.25, rng.random() < 0.6, rng.random() < 0.3
        made.append(Kill(kind, batches, round(delay, 2), begun, *first))
    return made
