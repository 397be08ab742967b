"""A user's aggregates for random queries: one that tells every order apart, one that a table's rows can leave again."""

from braid.expr.loading import of_text

OWN = of_text(
    """
from braid.functions import Column, deterministic


@deterministic
class in_order:
    hash: Column[int] = 0
    power: Column[int] = 1

    def accumulate(self, value: Column[int]) -> None:
        self.hash = (self.hash * 31 + value.fill_null(17)) % 1000003
        self.power = self.power * 31 % 1000003

    def merge(self, later: "in_order") -> None:
        self.hash = (self.hash * later.power + later.hash) % 1000003
        self.power = self.power * later.power % 1000003

    def result(self) -> Column[int]:
        return self.hash


@deterministic
class balance:
    total: Column[int] = 0

    def accumulate(self, left: Column[int], right: Column[int]) -> None:
        self.total = self.total + left.fill_null(0) * right.fill_null(1)

    def retract(self, left: Column[int], right: Column[int]) -> None:
        self.total = self.total - left.fill_null(0) * right.fill_null(1)

    def merge(self, later: "balance") -> None:
        self.total = self.total + later.total

    def result(self) -> Column[int]:
        return self.total
""",
    "histories.py",
)
