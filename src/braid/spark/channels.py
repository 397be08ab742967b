"""Spark's own channels: who may speak to its processes, and who can read what they say.

In: a master URL and the user's settings. Out: lines for `braid doctor`.
Rule: on one node all stays on the loopback address (`conf.LOCAL_SETTINGS`). Between machines Spark authenticates and
encrypts only where it is told to, so what it is told is looked at; settings given on the command line go before those
of spark-defaults.conf.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from braid.spark.conf import SETTINGS, on_one_node


@dataclass(frozen=True, slots=True)
class Wanted:
    """One of `ways` (setting and value) keeps others from `what`. The first is what we advise."""

    what: str
    ways: tuple[tuple[str, str], ...]


WANTED = (
    Wanted("anybody who reaches a port may give Spark work to do", (("spark.authenticate", "true"),)),
    Wanted(
        "records can be read and changed on the network",
        (("spark.network.crypto.enabled", "true"), ("spark.ssl.rpc.enabled", "true")),
    ),
    Wanted("records lie open in Spark's temporary files", (("spark.io.encryption.enabled", "true"),)),
    Wanted("Spark's web page is open to all", (("spark.ui.enabled", "false"), ("spark.acls.enable", "true"))),
)


def examined(master: str, conf: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    """A line a channel, and whether it is safe."""
    if on_one_node(master):
        yield "ok    Spark's ports are open to this machine only", True
        return
    known = {s.key: s.value for s in SETTINGS} | _defaults() | dict(conf)
    for wanted in WANTED:
        found = next((f"{k}={v}" for k, v in wanted.ways if known.get(k, "").strip().lower() == v), None)
        if found is not None:
            yield f"ok    {master}: {found}", True
        else:
            key, value = wanted.ways[0]
            yield f"miss  {master}: {wanted.what}: --conf {key}={value} (docs/security.md)", False


def _defaults() -> dict[str, str]:
    """The settings of spark-defaults.conf: a name, then blanks, `=` or `:`, then the value."""
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(_find_spark_home(), "conf")
    try:
        lines = Path(folder, "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    found = (re.match(r"\s*([^\s=:#!][^\s=:]*)\s*[=:\s]\s*(.*?)\s*$", line) for line in lines)
    return {m[1]: m[2] for m in found if m}
