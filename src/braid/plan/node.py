"""What every node of a logical plan says of itself.

In: nothing. Out: `PlanNode` and its kinds: `OfOne` has one input, `OfTwo` has two.
Rule: a fact of a node stands in its class, and is asked of the node. mypy tells whoever adds a node which are missing;
nobody below has a list of classes that ends in a default.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Literal, Self

from braid.expr.nodes import Col, Expr

if TYPE_CHECKING:
    from braid.plan.epochs import Bound
    from braid.plan.logical import How, Node

Mode = Literal["append", "upsert", "retract"]


class PlanNode(ABC):
    """A frozen dataclass: its fields say what it means, these properties what follows from them."""

    @property
    @abstractmethod
    def called(self) -> str:
        """What people call it, where a row is dropped or time is spent."""

    @property
    @abstractmethod
    def inputs(self) -> tuple[Node, ...]:
        """The nodes below, from left to right."""

    @abstractmethod
    def over(self, change: Callable[[Node], Node]) -> Self:
        """The same node over changed inputs."""

    @property
    @abstractmethod
    def schema(self) -> tuple[Col, ...]:
        """The columns that its rows have."""

    @property
    @abstractmethod
    def mode(self) -> Mode:
        """append: rows only; upsert: the last row of a key stands, -1 is a tombstone; retract: a multiset."""

    @property
    @abstractmethod
    def row_key(self) -> tuple[Expr, ...]:
        """The key of its rows: the message key of a stream, the primary key of a table, the key of a join or group."""

    @property
    @abstractmethod
    def clocked_by(self) -> tuple[Node, ...]:
        """The inputs whose clock it reads."""

    @property
    def watermarks(self) -> tuple[Bound, ...]:
        """The watermarks that it reads: only rows that come in epochs have some."""
        return ()

    @abstractmethod
    def computes(self) -> Iterator[Expr]:
        """The expressions over the columns of its inputs."""

    def reads(self) -> Iterator[Expr]:
        """What it computes, and what tells rows apart that it keeps."""
        return self.computes()

    def walk(self) -> Iterator[Node]:
        """The node itself, then those below, from left to right."""
        yield self  # type: ignore[misc]  # each kind of node is in the union `Node`
        for x in self.inputs:
            yield from x.walk()


class OfOne(PlanNode):
    """A node over one input; unless it says otherwise, it reads no clock."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def clocked_by(self) -> tuple[Node, ...]:
        return ()

    def over(self, change: Callable[[Node], Node]) -> Self:
        return replace(self, input=change(self.input))  # type: ignore[type-var]  # each kind is a dataclass


class Passing(OfOne):
    """A node whose rows are those of its input, or some of them: what it does not say otherwise is so of its input."""

    @property
    def schema(self) -> tuple[Col, ...]:
        return self.input.schema

    @property
    def mode(self) -> Mode:
        return self.input.mode

    @property
    def row_key(self) -> tuple[Expr, ...]:
        return self.input.row_key


class OfTwo(PlanNode):
    """A join of two inputs: its rows are those of the left side, then those of the right."""

    left: Node
    right: Node
    how: How

    @property
    @abstractmethod
    def joins(self) -> str:
        """What meets what."""

    @property
    def called(self) -> str:
        return f"{self.joins} {self.how} join"

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    def over(self, change: Callable[[Node], Node]) -> Self:
        return replace(self, left=change(self.left), right=change(self.right))  # type: ignore[type-var]

    @property
    def schema(self) -> tuple[Col, ...]:
        return (*self.left.schema, *self.right.schema)

    def _known_by_both(self) -> tuple[Expr, ...]:
        """The keys of both sides' rows."""
        return (*self.left.row_key, *self.right.row_key)

    def _kept_tables(self) -> Iterator[Expr]:
        """What the rows of the sides that are tables are known by."""
        return chain.from_iterable(x.row_key for x in self.inputs if x.mode != "append")
