"""Queries in queries whose names meet: aliases and columns called like those of other levels.

In: a question in a dialect's SQL (`batch_law.py`), a `random.Random`. Out: one that means the same.
Rule: an alias may be that of a level below, the name of a table or a column, a keyword in quotes, or look like a name
that only a plan has; what the result's columns are called does not change. ksqlDB's queries hold no others: there the
sources are read by such names.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace

from batch_law import Question, Statement

COLUMNS = ("k", "_row_id", "n", "s", "v0", "a.k", "group_0", "aggregate_0", "select")
ALIASES = ("a", "b", "t", "k", "v0", "x0", "result", "a.b", "a/", "from", ".KEY1")
VIEW = re.compile(r"^(CREATE MATERIALIZED VIEW v AS )(.*);$", re.MULTILINE)
STREAM_VIEW = re.compile(r"^(CREATE VIEW o AS )(.*);$", re.MULTILINE)
INSERT = re.compile(r"^(INSERT INTO o )(SELECT (STREAM|TABLE) .*);$", re.MULTILINE)
CREATE_AS = re.compile(r"^(CREATE (?:STREAM|TABLE) o.* AS )(SELECT .*);$", re.MULTILINE)
SOURCE = re.compile(r"\b(FROM|JOIN) ([a-z])\b(?! AS)")


def met(rng: random.Random, question: Question) -> Question:
    """One that means the same, and in which names of levels meet."""
    match question.dialect:
        case "risingwave":
            steps = tuple(
                replace(c, sql=_within(rng, c.sql, VIEW, question)) if isinstance(c, Statement) else c
                for c in question.calls
            )
            return replace(question, sql=_within(rng, question.sql, VIEW, question), calls=steps)
        case "sqlstream":
            return replace(question, sql=_within(rng, question.sql, STREAM_VIEW, question, "SELECT STREAM"))
        case "lenses":
            fields = [c for c in question.columns if c[0] != "_"]  # neither the key nor its window
            return replace(question, sql=INSERT.sub(lambda m: _named(rng, m, fields), question.sql))
        case _:
            return replace(question, sql=CREATE_AS.sub(lambda m: f"{m[1]}{_renamed(rng, m[2])};", question.sql))


def _within(rng: random.Random, script: str, made: re.Pattern[str], q: Question, word: str = "SELECT") -> str:
    """The query of a view as a sub-query of another, twice: its columns take other names, and their own again."""

    def nested(m: re.Match[str]) -> str:
        if "EMIT ON" in m[2]:
            return m[0]
        sql = m[2]
        others = [f'"{n}"' for n in COLUMNS[: len(q.columns)]] + [f"z{i}" for i in range(len(q.columns))]
        others = rng.sample(others[: len(q.columns)], len(q.columns))
        for before, after in ((q.columns, others), (others, q.columns)):
            sql = _over(rng, sql, before, after, word)
        return f"{m[1]}{sql};"

    return made.sub(nested, script)


def _over(rng: random.Random, sql: str, before: Sequence[str], after: Sequence[str], word: str) -> str:
    """A query over another, which calls its columns otherwise."""
    known = [a for a in ALIASES if word == "SELECT" or "." not in a]  # SQLstream's hold no dots
    below = re.findall(r'\bAS "?(\w+)"?(?= JOIN| [A-Z]+ JOIN| ON|\)|$)', sql)  # the aliases that it has itself
    x = f'"{rng.choice([*below, *known] if rng.random() < 0.3 or not below else below)}"'
    shown = ", ".join(f"{x}.{b} AS {a}" for b, a in zip(before, after, strict=True))
    if word == "SELECT" and rng.random() < 0.4:
        return f"WITH {x} AS ({sql}) SELECT {shown} FROM {x}"
    return f"{word} {shown} FROM ({sql}) AS {x}"


def _named(rng: random.Random, m: re.Match[str], columns: Sequence[str]) -> str:
    """A query of Lenses' as a WITH query, which another one reads by some name."""
    if "_key" in m[2].partition(" FROM ")[0]:
        return m[0]
    x = rng.choice(["zz", "`k`", "`from`", "`a.b`", "`v0`"])
    alias = rng.choice(["a", "b", "n", "v0", "`from`", "`a.b`", "`a/`", "x0", "w1"])
    shown = ", ".join(f"{alias}.{c} AS {c}" for c in columns)
    return f"WITH {x} AS ({m[2]});\n{m[1]}SELECT {m[3]} {shown} FROM {x} AS {alias};"


def _renamed(rng: random.Random, query: str) -> str:
    """A query of ksqlDB's whose sources, each called by a letter, are read by other names."""
    found = sorted({m[2] for m in SOURCE.finditer(query)})
    names = rng.sample(["a", "b", "c", "k", "n", "e0", "rowkey_1", "`from`", "`.KEY1`", "`A.B`", "`A/B`"], len(found))
    aliases = dict(zip(found, names, strict=True))
    query = re.sub(r"\b([a-z])\.(?=[a-zA-Z])", lambda m: f"{aliases.get(m[1], m[1])}.", query)
    return SOURCE.sub(lambda m: f"{m[1]} {m[2]} AS {aliases[m[2]]}", query)
