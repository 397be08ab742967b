"""What a file of functions imports: `from braid.functions import Column, deterministic`. (docs/user-functions.md)"""

from braid.expr.annotations import Column, Int, Rows, deterministic

__all__ = ["Column", "Int", "Rows", "deterministic"]
