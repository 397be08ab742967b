"""Schema registries: which schema an id in front of a record names, and which ids a subject has.

In: ids, subjects (`subject_of`), schemas. Out: schemas, ids; `RegistryAway` where it does not answer; a `BraidError`
where it knows none; `Incompatible` where what is registered already forbids a schema.
Rule: an id names one schema for ever. The kinds of registries are in `topics/registries.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from braid.errors import Away, BraidError


@dataclass(frozen=True, slots=True)
class Schema:
    """`kind`: see `schemas`. `references`: (name, subject, version) of what the text refers to. `message`: the
    one of a Protobuf file that is written, the first if it has no name."""

    kind: str
    text: str
    references: tuple[tuple[str, str, int], ...] = ()
    message: str = ""


class UnknownSchema(BraidError):
    """An id that names no schema."""


class Incompatible(BraidError):
    """A schema that readers of what a subject has could not use."""


class RegistryAway(Away):
    """It does not answer."""


class Registry(Protocol):
    def by_id(self, id: int) -> Schema:
        """The schema of this number; a `BraidError` where there is none."""
        ...

    def latest(self, subject: str) -> tuple[int, Schema] | None:
        """The last version of a subject, with its id."""
        ...

    def version(self, subject: str, version: int) -> Schema:
        """A version, counted from 1: what a reference names."""
        ...

    def check(self, subject: str, schema: Schema) -> None:
        """Raises `Incompatible` where `register` would."""
        ...

    def register(self, subject: str, schema: Schema) -> int:
        """The id of the schema in this subject, a new version if it has none of this text."""
        ...

    def forget(self, subject: str) -> None:
        """The subject has no versions any more; its schemas keep their ids."""
        ...


def subject_of(topic: str, facet: str) -> str:
    """The subject of a topic's keys or values."""
    return f"{topic}-{facet}"


def referred(registry: Registry, schema: Schema) -> dict[str, str]:
    """The texts of all that a schema refers to, near and far, by the names it uses; the farthest first."""
    found: dict[str, str] = {}

    def visit(s: Schema) -> None:
        for name, subject, version in s.references:
            if name not in found:
                there = registry.version(subject, version)
                visit(there)
                found[name] = there.text

    visit(schema)
    return found
