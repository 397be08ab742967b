"""`braid doctor`: what this machine has, which settings are in force, and how to mend what is missing.

In: nothing; the address of a cluster, whose workers are looked at. Out: lines on the terminal; whether Braid can run
here.
Rule: every problem comes with its remedy.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Mapping
from types import MappingProxyType

from rich.console import Console
from rich.table import Table

from braid import native
from braid.errors import BraidError
from braid.face import quick_start
from braid.store import NOWHERE, ObjectStore
from braid.topics.broker import Broker
from braid.topics.store_value import Store

LIBRARIES = ("pyspark", "polars", "polars-hash", "pyarrow", "pandas", "protobuf", "confluent-kafka")


def examine(
    java_only: bool,
    out: Console,
    master: str = "local[*]",
    conf: Mapping[str, str] = MappingProxyType({}),
    store: Store | None = None,
) -> bool:
    """Prints the examination. `java_only`: nothing but an error about Java. `store`: a
    folder that the workers of a cluster are to see, or a place in an object store that all must be able to use; its
    broker is looked at, too."""
    from braid.spark.conf import LOCAL_SETTINGS, SCRATCH_SETTINGS, SETTINGS, examined_channels, on_one_node
    from braid.spark.jvm import java_version
    from braid.spark.private import own_folder

    fine = True
    try:
        java = java_version()
    except BraidError as e:
        out.print(e.render() if java_only else f"miss  {e}", markup=False)
        fine = False
    if java_only:
        return fine
    if fine:
        out.print(f"ok    Java {java}")
    out.print(f"ok    Python {platform.python_version()} ({sys.executable})", markup=False)
    for name in LIBRARIES:
        try:
            out.print(f"ok    {name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            fine = False
            out.print(f"miss  {name}: pip install {name}")
    out.print(f"ok    {_memory_gib():.0f} GiB of memory, {os.cpu_count()} cores")
    out.print("ok    connectors: topic store, Kafka, CSV, JSON lines, Parquet")
    core, why = native.loaded()
    by = "the compiled core" if core is not None else f"Python, without the compiled core: {why}"
    out.print(f"ok    JSON lines are read by {by}", markup=False)
    fine_here = fine
    store = store or Store(NOWHERE)
    if (broker := store.broker) is not None:
        fine = _examined(store, broker, out) and fine
    reached = store.objects.path is not None or _usable(store.objects, out)
    fine = fine and reached
    out.print(quick_start.described(), markup=False)
    out.print(f"ok    logs of Spark go to {own_folder('log')}", markup=False)
    for told, safe in examined_channels(master, conf):
        fine = fine and safe
        out.print(told, markup=False)
    if not on_one_node(master) and fine_here:
        from braid.spark.workers import examined

        seen = store.objects if reached else None
        for told, well in examined(master, conf, seen, lambda text: out.print(f"      {text}", markup=False)):
            fine = fine and well
            out.print(told, markup=False)
    out.print("\nSettings that Braid makes in every session, or for each query:")
    table = Table("setting", "value", "because", box=None, header_style="bold")
    for s in (*SETTINGS, *SCRATCH_SETTINGS, *(LOCAL_SETTINGS if on_one_node(master) else ())):
        table.add_row(s.key, s.value, s.reason)
    width = None if out.is_terminal else 240
    Console(file=out.file, highlight=False, markup=False, emoji=False, width=width).print(table)
    return fine


def _examined(store: Store, broker: Broker, out: Console) -> bool:
    """Whether a broker answers, and how results get there."""
    from braid.topics import access
    from braid.topics.interface import open_topics

    try:
        count = len(open_topics(store).names())
        out.print(f"ok    Kafka at {store} answers, with {count} topics to see", markup=False)
        access.try_transaction(broker, "doctor", None)
        out.print(f"ok    results go there {store.delivery}", markup=False)
        return True
    except BraidError as e:
        out.print(f"miss  {e}", markup=False)
        return False


def _usable(store: ObjectStore, out: Console) -> bool:
    """Whether this machine can use a store in an object store."""
    from braid.store.probing import check

    try:
        check(store.url)
    except BraidError as e:
        out.print(f"miss  {e.message}; {e.hint}" if e.hint else f"miss  {e.message}", markup=False)
        return False
    out.print(f"ok    {store} can be read and written from here", markup=False)
    return True


def _memory_gib() -> float:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
