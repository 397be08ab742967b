"""`braid doctor`: what this machine has, which settings are in force, and how to mend what is missing.

In: nothing. Out: lines on the terminal; whether Braid can run here. Rule: every problem comes with its remedy.
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

from braid.errors import BraidError

LIBRARIES = ("pyspark", "polars", "polars-hash", "pyarrow", "pandas", "protobuf")


def examine(
    java_only: bool, out: Console, master: str = "local[*]", conf: Mapping[str, str] = MappingProxyType({})
) -> bool:
    """Prints the examination. `java_only`: nothing but an error about Java."""
    from braid.spark import channels, quick
    from braid.spark.conf import LOCAL_SETTINGS, SETTINGS, java_version, on_one_node
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
    out.print("ok    connectors: topic store, CSV, JSON lines, Parquet (Kafka is not there yet)")
    out.print(quick.described(), markup=False)
    out.print(f"ok    logs of Spark go to {own_folder('log')}", markup=False)
    for told, safe in channels.examined(master, conf):
        fine = fine and safe
        out.print(told, markup=False)
    out.print("\nSettings that Braid makes in every session:")
    table = Table("setting", "value", "because", box=None, header_style="bold")
    for s in (*SETTINGS, *(LOCAL_SETTINGS if on_one_node(master) else ())):
        table.add_row(s.key, s.value, s.reason)
    width = None if out.is_terminal else 240
    Console(file=out.file, highlight=False, markup=False, width=width).print(table)
    return fine


def _memory_gib() -> float:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
