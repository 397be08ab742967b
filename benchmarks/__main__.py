"""`python -m benchmarks [NAME …] [--rows N] …`: runs benchmarks, shows their tables, writes their pages in `docs/`.

In: names (none: all of the first page) and sizes. Out: tables on the terminal; with `--write` pages, and their figures
as JSON.
Rule: a benchmark that fails does not take the others with it: it is named at the end, and the exit code is 1. Each has
a process of its own; with `--small`, which has no time to start six JVMs, they share one.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import machine
from benchmarks.harness import Sizes
from benchmarks.report import INTRODUCTION, KAFKA, NEXMARK, Report, of_goals, page, terminal

PAGES = {
    "benchmarks": (
        "interval",
        "shapes",
        "joins",
        "chains",
        "windows",
        "topics",
        "small",
        "state",
        "groups",
        "hot",
        "wide",
        "cores",
        "pulls",
    ),
    "benchmarks-nexmark": ("nexmark",),
    "benchmarks-kafka": ("kafka", "kafka_avro", "kafka_latency"),
}
BEGIN = {"benchmarks": INTRODUCTION, "benchmarks-nexmark": NEXMARK, "benchmarks-kafka": KAFKA}
NAMES = tuple(name for names in PAGES.values() for name in names)
LONG = ("shapes", "cores", "pulls", "wide")  # not for a look: long, or nothing to see in small batches
SMALL = Sizes(90_000, 10_000, 60_000, 1, 2, 15, (10_000, 100_000), 8, "2g")
LONGEST = 3 * 3600  # s of one benchmark
ROOT = Path(__file__).parent.parent


def main() -> int:
    args = _arguments()
    sizes = replace(SMALL if args.small else Sizes(), **_given(args))
    if args.into:
        (name,) = args.names
        Path(args.into).write_text(json.dumps(_here(name, sizes).document()))
        return 0
    reports, failed = {}, []
    with TemporaryDirectory(prefix="braid-bench-") as folder:
        for name in args.names or [n for n in PAGES["benchmarks"] if not (args.small and n in LONG)]:
            print(f"{name}", flush=True)
            taken = [*machine.describe(), ("sizes", _shown(sizes))]
            try:
                made = _here(name, sizes) if args.small else _apart(name, sizes, Path(folder) / f"{name}.json")
            except Exception:
                traceback.print_exc()
                failed.append(name)
                continue
            for table in made.tables:
                print(terminal(table), flush=True)
            reports[name] = replace(made, taken=taken)
            if args.write:
                _keep(reports)
    goals = [g for r in reports.values() for g in r.goals]
    if goals:
        print(terminal(of_goals(goals)))
    if goals and args.small:
        print("A small batch is mostly fixed cost: the goals are for the sizes of `make bench`.")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _keep(reports: Mapping[str, Report]) -> None:
    """Writes the pages and their figures; what was not measured this time stays as it was."""
    for title, names in PAGES.items():
        made = {name: report.document() for name, report in reports.items() if name in names}
        if not made:
            continue
        figures = ROOT / "docs" / f"{title}.json"
        known = (json.loads(figures.read_text()) if figures.exists() else {}) | made
        known = {name: known[name] for name in names if name in known}
        figures.write_text(json.dumps(known, indent=1) + "\n")
        text = page({name: Report.of(x) for name, x in known.items()}, BEGIN[title])
        (ROOT / "docs" / f"{title}.md").write_text(text)


def _shown(sizes: Sizes) -> str:
    return ", ".join(f"{f.name.replace('_', ' ')} {_text(getattr(sizes, f.name))}" for f in fields(sizes))


def _here(name: str, sizes: Sizes) -> Report:
    """One benchmark, in this process."""
    made: Report = importlib.import_module(f"benchmarks.{name}").run(sizes)
    return made


def _apart(name: str, sizes: Sizes, into: Path) -> Report:
    """One benchmark, in a process of its own."""
    options = [x for f in fields(sizes) for x in (f"--{f.name.replace('_', '-')}", _text(getattr(sizes, f.name)))]
    env = os.environ | {"POLARS_MAX_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks", name, "--into", str(into), *options]
    subprocess.run(command, cwd=ROOT, env=env, check=True, timeout=LONGEST)
    return Report.of(json.loads(into.read_text()))


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _given(args: argparse.Namespace) -> dict[str, object]:
    return {f.name: getattr(args, f.name) for f in fields(Sizes) if getattr(args, f.name) is not None}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--small", action="store_true", help="sizes for a look: under three minutes in all")
    parser.add_argument("--write", action="store_true", help="write the pages in docs/, and their figures")
    parser.add_argument("--into", help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, help="of a side (4,000,000)")
    parser.add_argument("--keys", type=int, help="different ones (200,000)")
    parser.add_argument("--batch", type=int, help="rows of a micro-batch, all inputs together (1,000,000)")
    parser.add_argument("--rounds", type=int, help="turns that variants take (2)")
    parser.add_argument("--slow-batches", type=int, help="of Spark's join with RocksDB (3)")
    parser.add_argument("--small-batches", type=int, help="of 1,000 rows (100)")
    parser.add_argument("--state", type=lambda t: tuple(map(int, t.split(","))), help="rows of live state, with commas")
    parser.add_argument("--state-batches", type=int, help="of 11,000 rows on each (40)")
    parser.add_argument("--memory", help="of the JVM (6g)")
    parser.add_argument("--engines", help="beside Braid in nexmark: 'Flink, heap;Spark' (all)")
    parser.add_argument("--cores", type=int, help="that Spark uses (2)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
