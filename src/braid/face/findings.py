"""`braid doctor --query`: what is wrong with a query, in order of harm.

In: the `Condition` of a query. Out: `Finding`s: what, with what was measured; what helps; the command that shows more.
Rule: a finding is something that costs rows, time or memory, and can be measured; what may be so by the nature of the
data (few records, a stop) is none. One function a kind, in `CHECKS`; each gives at most a few. docs/troubleshooting.md
names every kind: a test compares.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import click

from braid.expr.user import Functions
from braid.face.condition import Condition, Record, condition, histories
from braid.face.metrics import met_nothing
from braid.face.plans import File
from braid.face.tabular import json_line, seen, time_text
from braid.operators.changes import NEVER
from braid.plan.drop_reasons import Reason
from braid.stage.event_times import PartitionTimes, SourceTimes
from braid.stage.measured import HOT, MANY
from braid.stage.waiting import Waiting
from braid.store import ObjectStore
from braid.topics.store_value import Store

BEHIND = 60_000  # ms of event time that a clock may be behind the newest record while rows wait for it
APART = 600_000  # ms that partitions may be apart where none waits
SILENT = 300.0  # s without a batch, while records wait
GROWN = 1.2  # times as many records that are not read as before
FEW = 1_000  # records of a small batch
OVERHEAD = 0.5  # of a batch's time: more is lost on what is not work on its records
BUSY = 0.5  # of the time of a run: more is taken by batches
DROPPED, SURE = 0.01, 10  # share of the records that may be dropped for one reason, from so many rows on
DROPPED_FEW = 0.1  # the share of fewer
KEEPS, LEAST = 0.3, 100  # of the records into a step that stay in its state, from so many on
CALLS = 10  # calls to a store that may be made again


@dataclass(frozen=True, slots=True)
class Finding:
    """`kind`: one of `KINDS`; `measured`: figures; `more`: the command that shows more."""

    kind: str
    text: str
    measured: Mapping[str, Any] = field(default_factory=dict)
    hint: str = ""
    more: str = ""


def failed(c: Condition) -> Iterator[Finding]:
    """It does not run, and nobody has stopped it."""
    last = c.records[-1] if c.records else None
    if last is None or c.running or last.get("ended") == "stopped":
        return
    more = c.history
    measured = {"at": last["at"], "error": (last.get("error") or {}).get("text")}
    if "ended" in last:
        text = f"it failed at {time_text(last['at'])}: {measured['error']}"
        yield Finding("failed", text, measured, "mend what it names; the same braid run goes on from there", more)
    else:
        text = f"its last run was killed, or is on another machine: its last batch is of {time_text(last['at'])}"
        yield Finding("failed", text, measured, "the same braid run goes on behind its last batch", more)


def stuck_clock(c: Condition) -> Iterator[Finding]:
    """A clock (watermark) that does not come to the times that its rows wait for, and what holds it."""
    told = set[str]()
    for w in c.waits or ():
        if (found := _held(c, w)) is not None and found.text not in told:
            told.add(found.text)
            yield found
    if not told:
        yield from filter(None, (_apart(c, s) for s in c.sources))


def _held(c: Condition, w: Waiting) -> Finding | None:
    if not (w.exact and w.moments and w.sources) or w.first is None:
        return None
    known = [s.now for s in w.sources if s.now is not None]
    if not known or (w.slowest and len(known) < len(w.sources)):
        return _not_begun(c, w)
    stands = min(known) if w.slowest else max(known)
    mine = [s for s in c.sources if s.source in {x.name for x in w.sources}]
    times = [(t, s.source) for s in mine for p in s.partitions if (t := p.event_time) is not None]
    newest, furthest = max(times, default=(stands, ""))
    if newest - stands < BEHIND or w.now is None or w.first > w.now + newest - stands:
        return None  # or none would go out if it stood at the newest record
    holder = next(s.name for s in w.sources if s.now == stands) if w.slowest else furthest
    text, measured, hint = _holding(c, next(s for s in mine if s.source == holder), stands, newest)
    waits = f"; {_rows(w.rows)} for it, the first until {time_text(w.first)}"
    measured |= {"waiting": w.rows, "clock": stands, "newest": newest}
    return Finding("stuck clock", text + waits, measured, hint, c.asks(f"braid waiting {c.query}"))


def _not_begun(c: Condition, w: Waiting) -> Finding:
    """The clock of a source that has shown too little."""
    source = next(s for s in w.sources if s.now is None)
    held = next((s for s in c.sources if s.source == source.name), None)
    empty = [p.partition for p in held.partitions if p.event_time is None] if held is not None else []
    who = f"partition {_listed(empty)} of {held.topic}" if held is not None and empty else "it"
    who = who.replace("partition", "partitions", 1) if len(empty) > 1 else who
    has = "have" if len(empty) > 1 else "has"
    text = f"the clock (watermark) of {source.name} has not begun: {who} {has} shown no record"
    measured = {"source": source.name, "partitions": empty, "waiting": w.rows}
    waits = f"; {_rows(w.rows)} for it"
    return Finding("stuck clock", text + waits, measured, _LETS_GO, c.asks(f"braid waiting {c.query}"))


_IS_READ = "it moves when these are read: see the lag"
_LETS_GO = "braid run --idle SECONDS lets a silent partition not hold the clock; --end says that nothing will follow"


def _holding(c: Condition, source: SourceTimes, stands: int, newest: int) -> tuple[str, dict[str, Any], str]:
    """What holds a clock, in words; as figures; what helps. `newest`: the highest time of those that it follows."""
    since = _since(c, source)
    text = f"the clock (watermark) of {source.source} is at {time_text(stands)}"
    text += f", {_length(newest - stands)} behind the newest record"
    if since:
        text += f", for {_length(since['unchanged_ms'])} in which {since['records']:,} records came"
    measured: dict[str, Any] = {"source": source.source, "topic": source.topic, "partition": None} | since
    held, furthest = _slowest(source)
    lag = sum(p.lag or 0 for p in source.partitions)
    if held is None or held.event_time is None or held.event_time == furthest:
        why = f"{lag:,} of its records are not read yet" if lag else "it has no newer record"
        return f"{text}: {why}", measured, _IS_READ if lag else _LETS_GO
    measured |= {"partition": held.partition, "event_time": held.event_time, "lag": held.lag}
    behind = f"; {held.lag:,} of its records are not read yet" if held.lag else ""
    shown = f"which has shown nothing newer than {time_text(held.event_time)}{behind}"
    text += f": partition {held.partition} of {source.topic} holds it, {shown}"
    return text, measured, _IS_READ if held.lag else _LETS_GO


def _slowest(source: SourceTimes) -> tuple[PartitionTimes | None, int | None]:
    """The partition that holds a clock, and how far the furthest is."""
    awake = [p for p in source.partitions if not p.idle and p.event_time is not None]
    if len(source.partitions) < 2 or not awake:
        return None, None
    return min(awake, key=lambda p: (p.event_time or NEVER, p.partition)), max(p.event_time or NEVER for p in awake)


def _since(c: Condition, source: SourceTimes) -> dict[str, int]:
    """For how long the clock has stood where it stands, and how many records came meanwhile; nothing where it moved."""
    found = c.of_last_start
    at = [next((s["clock"] for s in x.get("sources", []) if s["leaf"] == source.leaf), None) for x in found]
    n = len(found)
    while n > 1 and at[n - 2] is not None and at[n - 2] == at[-1]:
        n -= 1
    if not found or len(found) - n < 2:
        return {}
    return {
        "unchanged_ms": found[-1]["at"] - found[n - 1]["at"],
        "records": sum(x["rows_in"] for x in found[n:]),
        "batches": len(found) - n,
    }


def _apart(c: Condition, source: SourceTimes) -> Finding | None:
    """A partition that holds a clock for which nothing waits, but by which state is kept; or, where the plan is not
    known, for which as many rows may wait as the last batch says."""
    held, furthest = _slowest(source)
    if held is None or furthest is None or source.clock is None or source.ended or not source.moments:
        return None
    rows = c.batches[-1].get("waiting", 0) if c.waits is None and c.batches else 0
    far = furthest - (held.event_time or NEVER)
    if far < (BEHIND if rows else APART) or source.clock > (held.event_time or NEVER):
        return None
    if not rows and (held.lag or not _since(c, source)):
        return None
    text, measured, hint = _holding(c, source, source.clock, furthest)
    what = f"up to {rows:,} rows may wait for it" if rows else "state is kept for as long"
    more = c.history if rows else c.asks(f"braid explain {c.query} --state")
    return Finding("stuck clock", f"{text}; {what}", measured | {"waiting": rows}, hint, more)


def no_match(c: Condition) -> Iterator[Finding]:
    """Inner joins in which no rows have met."""
    found = c.of_last_start
    inner = {n["id"]: " AND ".join(n["keys"]) for n in c.nodes if n["op"].endswith("join") and n["how"] == "inner"}
    rows = dict[int, tuple[int, int]]()
    for step in (s for x in found for stage in x["stages"] for s in stage.get("steps", [])):
        came, went = rows.get(step["step"], (0, 0))
        rows[step["step"]] = came + step["rows_in"], went + step["rows_out"]
    read = sum(x["rows_in"] for x in found)
    if not found or found[0]["batch"] > 0 or c.waits:
        return
    for text in met_nothing(inner, rows):
        measured = {"records": read, "batches": len(found)}
        hint = "compare the keys of both sides, their types and spelling, and their times"
        since = c.asks(f"braid why-not {c.query} --since 1970-01-01")
        yield Finding("no match", f"{text}; {read:,} records were read", measured, hint, since)


_LOG = "see Spark's log: braid doctor names its folder"


def growing_lag(c: Condition) -> Iterator[Finding]:
    """More comes than is read; or nobody reads."""
    now = sum(p.lag or 0 for s in c.sources for p in s.partitions)
    more = c.history
    if not c.running:
        if now and c.held_by is None:
            where = ", ".join(f"{n:,} of {s.source}" for s in c.sources if (n := sum(p.lag or 0 for p in s.partitions)))
            hint = "start it: braid run FILE"
            text = f"{_unread(now)} ({where}), and the query does not run"
            yield Finding("lag", text, {"lag": now}, hint, c.asks("braid usage"))
        return
    found = [x for x in c.of_last_start if x.get("lag") is not None]
    last = found[-1] if found else None
    silent = time.time() - last["at"] / 1000 if last is not None else 0.0
    if now and silent > SILENT:
        text = f"no batch has come to its end for {_length(silent * 1000)}, and {_unread(now)}"
        yield Finding("lag", text, {"lag": now, "silent_s": round(silent)}, _LOG, more)
    if last is None or len(found) < MANY:
        return
    before = found[max(0, len(found) // 3 - 1)]
    took, read = (last["at"] - before["at"]) / 1000, sum(x["rows_in"] for x in found if x["at"] > before["at"])
    grown = last["lag"] - before["lag"]
    if took <= 0 or last["lag"] < GROWN * before["lag"] or grown < read / max(1, len(found)):
        return
    came = (read + grown) / took
    text = (
        f"the lag grows: {last['lag']:,} records are not read, {before['lag']:,} were {_length(took * 1000)} before;"
        f" {came:,.0f} come a second, {read / took:,.0f} are read"
    )
    measured = {
        "lag": last["lag"],
        "before": before["lag"],
        "come_per_s": round(came),
        "read_per_s": round(read / took),
    }
    yield Finding("lag", text, measured, "see where the time goes (docs/metrics.md), then docs/scale.md", more)


def hot_bucket(c: Condition) -> Iterator[Finding]:
    """One key, or a few, have most of the rows (data skew)."""
    found = c.of_last_start
    rows, fullest, by = Counter[int](), dict[int, Counter[int]](), dict[int, str]()
    for stage in (s for x in found for s in x["stages"] if s.get("hottest") is not None):
        n, hottest = stage["stage"], stage["hottest"]
        rows[n] += stage["rows_in"]
        by[n] = stage["by"]
        if hottest["hot"]:
            fullest.setdefault(n, Counter())[hottest["bucket"]] += round(hottest["share"] * stage["rows_in"])
    for n, buckets in sorted(fullest.items()):
        bucket, count = buckets.most_common(1)[0]
        if len(found) < MANY or count <= HOT * rows[n]:
            continue
        share = count / rows[n]
        text = (
            f"bucket {bucket} of stage {n} has {share:.0%} of its rows: a hot key (data skew) of {by[n] or 'nothing'}"
        )
        measured = {"stage": n, "bucket": bucket, "share": round(share, 4), "by": by[n], "rows": rows[n]}
        hint = "leave a default value out before the join, or join on one more column; more buckets do not help"
        yield Finding("hot bucket", text, measured, hint, c.asks(f"braid explain {c.query} --state"))


def unbounded_state(c: Condition) -> Iterator[Finding]:
    """State that grows with what comes, and that no time takes away."""
    found = c.of_last_start
    half = found[len(found) // 2 :] if len(found) >= MANY else found
    for node in c.nodes:
        open_ = [s for s in node["state"] if not s["bounded"]]
        if not open_:
            continue
        first = _rows_of(half[0], node["id"]) if len(found) >= MANY else 0
        last = _rows_of(half[-1], node["id"]) if half else 0
        came = sum(s["rows_in"] for x in half[1 if len(found) >= MANY else 0 :] for s in _steps(x, node["id"]))
        grown = last - first
        if last < LEAST or not came or grown < KEEPS * came:
            continue
        keeps = _listed(dict.fromkeys(f"{s['side']}: {s['keeps']} until {s['until']}" for s in open_))
        text = (
            f"the state of the {node['op']} (step {node['id']}) has {last:,} rows: {grown / came:.0%} of the {came:,}"
            f" rows that came last have stayed; it keeps {keeps} (unbounded)"
        )
        measured = {"step": node["id"], "rows": last, "grown": grown, "came": came}
        hint = "bound it by time: a window, WITHIN, a watermark (docs/scale.md); or let keys be deleted"
        yield Finding("unbounded state", text, measured, hint, c.asks(f"braid explain {c.query} --state"))


def _rows_of(batch: Record, step: int) -> int:
    sides = (x for s in batch["stages"] for x in s.get("state", {}).get("sides", []))
    return sum(x["rows"] for x in sides if x["step"] == step)


def _steps(batch: Record, step: int) -> Iterator[Record]:
    return (x for s in batch["stages"] for x in s.get("steps", []) if x["step"] == step)


def retries(c: Condition) -> Iterator[Finding]:
    """Starts, tasks and calls to a store that were made again."""
    starts = dict[int, int]()
    tasks, lost = dict[int, int](), dict[int, int]()
    for x in c.records:
        starts[x["started"]] = max(x.get("restarts", 0), starts.get(x["started"], 0))
        run = x.get("run", {})
        tasks[x["started"]] = max(run.get("tasks_failed", 0), tasks.get(x["started"], 0))
        lost[x["started"]] = max(run.get("executors_lost", 0), lost.get(x["started"], 0))
    calls = sum(x.get("store_again", 0) for x in c.batches)
    measured = {
        "restarts": sum(starts.values()),
        "tasks_failed": sum(tasks.values()),
        "executors_lost": sum(lost.values()),
        "store_again": calls,
    }
    called = {"restarts": "restarts", "tasks_failed": "failed tasks", "executors_lost": "lost executors"}
    parts = [f"{measured[name]:,} {text}" for name, text in called.items() if measured[name]]
    parts += [f"{calls:,} calls to the store made again"] if calls >= CALLS else []
    if parts:
        errors = [x["error"]["text"] for x in c.records if x.get("error")]
        why = f"; the last error: {errors[-1]}" if errors else ""
        yield Finding("retries", ", ".join(parts) + why, measured, _LOG, c.history)


def drops(c: Condition) -> Iterator[Finding]:
    """Many rows that were dropped for one reason."""
    found = c.batches
    read, lost = sum(x["rows_in"] for x in found), Counter[str]()
    for x in found:
        lost.update(x["drops"])
    for reason, count in lost.most_common():
        share = count / max(read, count)
        if share < (DROPPED if count >= SURE else DROPPED_FEW):
            continue
        text = f"{count:,} of {read:,} records were dropped: {reason}"
        measured: dict[str, Any] = {"reason": reason, "rows": count, "records": read, "share": round(share, 4)}
        if (first := c.first_drop(reason)) is not None:
            place = {name: first.get(name) for name in ("topic", "partition", "offset", "timestamp", "clock")}
            measured["first"] = place
            if place["topic"] is not None:
                text += f"; the first is {place['topic']}:{place['partition']}:{place['offset']}"
            if reason == Reason.LATE and isinstance(first.get("clock"), int) and isinstance(first["timestamp"], int):
                text += (
                    f", {_length(first['clock'] - first['timestamp'])} behind the clock at {time_text(first['clock'])}"
                )
            elif first.get("message"):
                text += f" ({first['message']})"
        yield Finding("drops", text, measured, _DROP_HINTS.get(reason, ""), c.asks(f"braid drops {c.query}"))


_DROP_HINTS: Mapping[str, str] = {
    Reason.LATE: "a longer grace or watermark keeps them; a record with a wrong time may have moved the clock",
    Reason.MALFORMED: "compare the declaration with what producers write: types, names, format",
    Reason.NULL_KEY: "rows without a key match nothing: take another column, or fill it before",
}


def small_batches(c: Condition) -> Iterator[Finding]:
    """Time that goes into batches and not into their records."""
    found = c.of_last_start
    if len(found) < MANY:
        return
    span = found[-1]["at"] - found[0]["at"] + found[0]["batch_ms"]
    took, rows = sum(x["batch_ms"] for x in found), sum(x["rows_in"] for x in found)
    lost = sum(x["jvm_ms"] + x["publish_ms"] for x in found)
    cut = sum((x.get("lag") or 0) >= x["rows_in"] > 0 for x in found)
    mean = rows / len(found)
    limited, busy = cut > len(found) / 2, took > BUSY * span and lost > OVERHEAD * took
    if mean >= FEW or not (limited or busy):
        return
    text = f"{len(found):,} batches of {mean:,.0f} records: {lost / took:.0%} of their time is Spark's own"
    measured = {"batches": len(found), "records": round(mean, 1), "batch_ms": round(took / len(found)), "cut": cut}
    hint = "records come a few at a time; fewer tasks (--tasks, of a new query) cost less"
    hint = "more was there: a larger --batch-rows takes it in fewer" if limited else hint
    yield Finding("small batches", text, measured, hint, c.history)


CHECKS: Mapping[str, Callable[[Condition], Iterator[Finding]]] = {
    "failed": failed,
    "stuck clock": stuck_clock,
    "no match": no_match,
    "lag": growing_lag,
    "hot bucket": hot_bucket,
    "unbounded state": unbounded_state,
    "retries": retries,
    "drops": drops,
    "small batches": small_batches,
}  # in order of harm


def findings(c: Condition) -> list[Finding]:
    return [finding for check in CHECKS.values() for finding in check(c)]


def _length(ms: float) -> str:
    """A length of time for people, in its two largest units."""
    if (seconds := round(ms / 1000)) < 1:
        return f"{max(0, round(ms))} ms"
    parts = list[str]()
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if (count or parts) and len(parts) < 2:
            parts.append(f"{count:,} {unit}" if count else "")
    return " ".join(filter(None, parts))


def _rows(count: int) -> str:
    return f"{count:,} row{'s wait' if count != 1 else ' waits'}"


def _unread(count: int) -> str:
    return f"{count:,} record{'s are' if count != 1 else ' is'} not read"


def _listed(parts: Any) -> str:
    *rest, last = map(str, parts)
    return f"{', '.join(rest)} and {last}" if rest else last


# -------------------------------------------------------------------------- shown


def print_findings(
    store: Store,
    query: str,
    functions: Functions,
    parent: ObjectStore | None,
    as_json: bool,
    file: File | None = None,
) -> bool:
    """Prints what is wrong with a query; whether nothing is."""
    c = condition(store, query, functions, parent, file)
    found = findings(c)
    if as_json:
        notes = [*c.spoilt, *c.notes]
        click.echo(json_line(_head(c) | {"findings": [asdict(x) for x in found], "notes": notes}))
        return not found
    for line in _lines(c, found):
        click.echo(seen(line))
    return not found


def _head(c: Condition) -> dict[str, Any]:
    found = c.batches
    return {
        "query": c.query,
        "running": c.running,
        "batches": len(found),
        "since": found[0]["at"] if found else None,
        "until": found[-1]["at"] if found else None,
    }


def _lines(c: Condition, found: Sequence[Finding]) -> Iterator[str]:
    told = c.batches
    when = f" from {time_text(told[0]['at'])} to {time_text(told[-1]['at'])}" if told else ""
    how = f"{len(told):,} batch{'es' * (len(told) != 1)} in its metrics.ring{when}"
    runs = "it runs" if c.running else "it does not run"
    verdict = f"{len(found)} thing{'s' * (len(found) != 1)} found" if found else "nothing found"
    yield f"{c.query}: {verdict}; {runs}; {how}"
    for x in found:
        yield f"✗ {x.kind}: {x.text}"
        yield from (f"    hint: {x.hint}",) if x.hint else ()
        yield from (f"    more: {x.more}",) if x.more else ()
    for text in (*c.spoilt, *c.notes):
        yield f"note: {text}"


def print_history(store: Store, query: str, parent: ObjectStore | None) -> None:
    """Prints the records of a query's ring as JSON lines."""
    records, spoilt = histories(store, query, parent)
    for record in records:
        click.echo(json_line(record))
    for text in spoilt:
        click.echo(seen(f"note: {text}"), err=True)
