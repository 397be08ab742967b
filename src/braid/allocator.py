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


# A process that only forks starts no threads of its own: after a fork only the one that forked is there.
STILL = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}


def still(environment: Mapping[str, str]) -> dict[str, str]:
    """The same for a process that only forks: neither Polars' allocator nor Arrow's has threads."""
    return {NAME: f"{told(environment)[NAME]},background_thread:false", **STILL}


def told(environment: Mapping[str, str]) -> dict[str, str]:
    theirs = environment.get(NAME, "").removeprefix(_POLARS).strip(",")
    return {NAME: ",".join(filter(None, (KEPT, theirs.removeprefix(KEPT).strip(","))))}
