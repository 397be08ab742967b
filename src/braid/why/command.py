"""`braid why-not`: why a row is missing; `braid why`: why one is there.

In: what is asked of a query, or of a topic, as options or as a line of the prompt. Out: an answer; it, printed.
Rule: of a query one of key, place and time is asked for, of a topic a key or an offset.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import click

from braid.errors import BraidError
from braid.expr.user import Functions
from braid.face.plans import File
from braid.face.tabular import json_line, seen, time_option
from braid.store import ObjectStore
from braid.topics.store_value import Store
from braid.why.asking import Asked, Input, asked
from braid.why.deriving import DEEPEST, Writers, Writing
from braid.why.deriving import why as derived
from braid.why.tree_words import Derivation
from braid.why.words import Answer

DAY = 86_400_000
SECONDS = 10.0  # for which changes are looked for
OPTIONS = ("--key", "--input", "--since", "--until")
FLAG = "--event-time"
WHY_OPTIONS = ("--offset", "-p", "--key", "--depth")


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a query: a key, a record, or a time, at which records were read or (`event_time`) which they
    have. `values`: whether keys and values are shown; `file`: its
    statements and their dialect, where the store does not keep them; `what_if`: for so many seconds changes are looked
    for that would have made a row."""

    key: str | None = None
    input: str | None = None
    since: str | None = None
    until: str | None = None
    event_time: bool = False
    values: bool = True
    file: File | None = None
    what_if: float = SECONDS


def why_not(
    store: Store, query: str, what: Question, functions: Functions, parent: ObjectStore | None = None
) -> Answer:
    """What became of the records of a key, of one record, or of all of a time."""
    return answered(query, what, partial(asked, store, query, functions, parent, what.values, what.file, what.what_if))


def answered(query: str, what: Question, opened: Callable[[], Asked]) -> Answer:
    """The answer to a question, which is checked before what was read is `opened`."""
    if [what.key, what.input, what.since].count(None) != 2:
        raise BraidError(f"what of {query} is asked?", "--key KEY, or --input TOPIC:PARTITION:OFFSET, or --since TIME")
    if (what.until is not None or what.event_time) and what.since is None:
        name = "--until" if what.until is not None else "--event-time"
        raise BraidError(f"{name} needs --since", "--since TIME --until TIME")
    place = None if what.input is None else Input.of(what.input)
    first = None if what.since is None else _time("--since", what.since)
    last = None if what.until is None else _time("--until", what.until)
    if first is not None and last is not None and last <= first:
        raise BraidError(f"--until {what.until} is not after --since {what.since}", "--since TIME --until TIME")
    made = opened()
    if place is not None:
        return made.of_input(place)
    if what.key is not None:
        return made.of_key(what.key)
    assert first is not None
    return made.of_time(first, last, what.event_time)


def _time(name: str, given: str) -> int:
    """A time of an option; a time of day is the last such (UTC)."""
    if not re.fullmatch("([01]?[0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?", given.strip(), re.ASCII):
        return time_option(name, given)
    now = datetime.now(UTC)
    hour, _, rest = given.strip().partition(":")
    at = time_option(name, f"{now:%Y-%m-%d}T{hour:>02}:{rest}Z")
    return at if at <= now.timestamp() * 1000 else at - DAY


def why_not_of(store: Store, line: str, functions: Functions) -> Answer:
    """The same of a line of the prompt: NAME --key KEY."""
    usage = "write .why-not NAME --key KEY, --input TOPIC:PARTITION:OFFSET, or --since TIME [--until TIME]"
    query, given, flags = _words(line, ".why-not", OPTIONS, usage, (FLAG,))
    more: dict[str, Any] = {name.removeprefix("--"): value for name, value in given.items()}
    return why_not(store, query, Question(**more, event_time=FLAG in flags), functions)


def _words(
    line: str, command: str, options: Sequence[str], usage: str, flags: Collection[str] = ()
) -> tuple[str, Mapping[str, str], Collection[str]]:
    """A line of the prompt: a name, options with their values, flags."""
    try:
        name, *rest = shlex.split(line)
    except ValueError:
        raise BraidError(f"{command} needs a name, and what is asked of it", usage) from None
    named = [w for w in rest if w in flags]
    rest = [w for w in rest if w not in flags]
    given = dict(zip(rest[::2], rest[1::2], strict=False))
    if len(rest) % 2 or not given or given.keys() - set(options):
        raise BraidError(f"what of {name} is asked?", usage)
    return name, given, named


@dataclass(frozen=True, slots=True)
class Which:
    """Which rows of a topic are asked for: the one at an offset, or the last of a key. `depth`: through how many
    queries; `values`, `file`: as of a `Question`."""

    offset: int | None = None
    partition: int | None = None
    key: str | None = None
    depth: int = 1
    values: bool = True
    file: File | None = None


def why(store: Store, topic: str, which: Which, functions: Functions, parent: ObjectStore | None = None) -> Derivation:
    """Why rows of a topic are there."""
    return explained(topic, which, lambda: Writers(store, functions, parent, which.values, which.file))


def explained(topic: str, which: Which, opened: Callable[[], Writing]) -> Derivation:
    """The same of queries that are `opened`."""
    if (which.offset is None) == (which.key is None):
        raise BraidError(f"which row of {topic}?", "--offset N [-p PARTITION], or --key KEY")
    if which.partition is not None and which.offset is None:
        raise BraidError("-p needs --offset", "--offset N -p PARTITION")
    if min(which.offset or 0, which.partition or 0) < 0:
        raise BraidError("offsets and partitions are counted from 0")
    if not 1 <= which.depth <= DEEPEST:
        raise BraidError(f"--depth {which.depth}: it is from 1 to {DEEPEST}")
    return derived(opened(), topic, which.offset, which.partition, which.key, which.depth)


def why_of(store: Store, line: str, functions: Functions) -> Derivation:
    """The same of a line of the prompt: TOPIC --offset N."""
    usage = "write .why TOPIC --offset N [-p PARTITION], or --key KEY"
    topic, given, _ = _words(line, ".why", WHY_OPTIONS, usage)
    numbers = {n: given[n] for n in ("--offset", "-p", "--depth") if n in given}
    if not all(x.isdecimal() for x in numbers.values()):
        raise BraidError(f"which row of {topic}?", usage)
    offset, partition, depth = (int(numbers[n]) if n in numbers else None for n in ("--offset", "-p", "--depth"))
    return why(store, topic, Which(offset, partition, given.get("--key"), depth or 1), functions)


def print_answer(answer: Answer | Derivation, as_json: bool) -> None:
    """Prints an answer."""
    click.echo(json_line(answer.document()) if as_json else seen(str(answer)))
