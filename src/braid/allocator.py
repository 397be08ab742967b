"""How long Polars' allocator keeps freed memory before it gives it back to the system.

In: an environment. Out: what a process is told in its own, before it imports Polars.
Rule: a batch needs what the batch before it needed. By itself Polars gives freed pages back after half a second, and
the next batch asks for them again, one by one, which was a tenth of all CPU. Ten seconds carry them on.
What a user says of the allocator comes last and wins.
"""

from __future__ import annotations

from collections.abc import Mapping

NAME = "_RJEM_MALLOC_CONF"
KEPT = "dirty_decay_ms:10000,muzzy_decay_ms:10000"
_POLARS = "dirty_decay_ms:500,muzzy_decay_ms:1000"  # what Polars leaves in the environment when it is imported


def told(environment: Mapping[str, str]) -> dict[str, str]:
    theirs = environment.get(NAME, "").removeprefix(_POLARS).strip(",")
    return {NAME: ",".join(filter(None, (KEPT, theirs.removeprefix(KEPT).strip(","))))}
