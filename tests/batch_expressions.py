"""Random expressions that say the same in a dialect's SQL and in DuckDB's.

In: a `random.Random`, the columns that can be named, the dialect's words. Out: `E`: both texts and the type.
Rule: only what both sides define alike: no overflow, no division by zero, no text beyond the basic plane.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

WORDS = {
    "lenses": {"upper": "UPPERCASE", "length": "LEN"},
    "ksqldb": {"upper": "UCASE", "length": "LEN"},
    "risingwave": {"upper": "upper", "length": "length"},
    "sqlstream": {"upper": "UPPER", "length": "CHAR_LENGTH"},
}


class E(NamedTuple):
    """An expression in the dialect's words and in DuckDB's."""

    sql: str
    duck: str
    type: str


def same(text: str, type: str) -> E:
    return E(text, text, type)


def of_type(columns: Sequence[E], *types: str) -> list[E]:
    return [c for c in columns if c.type in types]


def value(rng: random.Random, columns: Sequence[E], dialect: str) -> E:
    """A column, or an expression over some."""
    chosen = rng.choice(columns)
    if rng.random() < 0.55:
        return chosen
    if chosen.type in ("int", "long"):
        return number(rng, of_type(columns, "int", "long"), of_type(columns, "text"), dialect)
    if chosen.type == "text":
        return text(rng, of_type(columns, "text"), columns, dialect)
    return chosen


def number(rng: random.Random, numbers: Sequence[E], texts: Sequence[E], dialect: str) -> E:
    a, b = rng.choice(numbers), rng.choice(numbers)
    type = "long" if "long" in (a.type, b.type) else "int"
    match rng.randrange(7):
        case 0:
            return E(f"{a.sql} + 1", f"{a.duck} + 1", a.type)
        case 1:
            return E(f"{a.sql} - {b.sql}", f"{a.duck} - {b.duck}", type)
        case 2:
            return E(f"{a.sql} * 2", f"{a.duck} * 2", a.type)
        case 3:
            b = rng.choice(of_type(numbers, a.type))  # ksqlDB wants one type here
            return E(f"COALESCE({a.sql}, {b.sql} + 7)", f"COALESCE({a.duck}, {b.duck} + 7)", a.type)
        case 4:
            b, p = rng.choice(of_type(numbers, a.type)), predicate(rng, numbers, dialect)
            return E(
                f"CASE WHEN {p.sql} THEN {a.sql} ELSE {b.sql} END",
                f"CASE WHEN {p.duck} THEN {a.duck} ELSE {b.duck} END",
                a.type,
            )
        case 5 if texts:
            t = rng.choice(texts)
            return E(f"{WORDS[dialect]['length']}({t.sql})", f"length({t.duck})", "int")
    return a


def text(rng: random.Random, texts: Sequence[E], columns: Sequence[E], dialect: str) -> E:
    a, b = rng.choice(texts), rng.choice(texts)
    match rng.randrange(4):
        case 0:
            return E(f"{WORDS[dialect]['upper']}({a.sql})", f"upper({a.duck})", "text")
        case 1:
            return E(f"COALESCE({a.sql}, {b.sql}, 'none')", f"COALESCE({a.duck}, {b.duck}, 'none')", "text")
        case 2:
            p = predicate(rng, columns, dialect)
            return E(
                f"CASE WHEN {p.sql} THEN {a.sql} ELSE 'else' END",
                f"CASE WHEN {p.duck} THEN {a.duck} ELSE 'else' END",
                "text",
            )
    return a


def predicate(rng: random.Random, columns: Sequence[E], dialect: str) -> E:
    """A condition, false or null for some rows."""
    if rng.random() < 0.25:
        a, b = predicate(rng, columns, dialect), predicate(rng, columns, dialect)
        word = rng.choice(["AND", "OR"])
        return E(f"({a.sql} {word} {b.sql})", f"({a.duck} {word} {b.duck})", "flag")
    c = rng.choice(columns)
    match c.type:
        case "int" | "long":
            others = of_type(columns, "int", "long")
            o = rng.choice(others)
            tail = rng.choice(
                [" > 0", " <= 2", " <> 1", " IS NULL", " IS NOT NULL", " BETWEEN 0 AND 2", " IN (1, 3)", None]
            )
            return (
                E(c.sql + tail, c.duck + tail, "flag")
                if tail
                else E(f"{c.sql} < {o.sql}", f"{c.duck} < {o.duck}", "flag")
            )
        case "text":
            tail = rng.choice([" <> 'x'", " = 'y'", " IS NOT NULL", " IS NULL", " LIKE 'r%'"])
            if dialect == "lenses" and "LIKE" in tail:
                tail = " = ''"
            return E(c.sql + tail, c.duck + tail, "flag")
        case "flag":
            return E(f"NOT {c.sql}", f"NOT {c.duck}", "flag") if rng.random() < 0.5 else c
        case "double":
            return E(f"{c.sql} < 1.5", f"{c.duck} < 1.5", "flag")
    return E(f"{c.sql} IS NOT NULL", f"{c.duck} IS NOT NULL", "flag")
