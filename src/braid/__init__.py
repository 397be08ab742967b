"""Braid: streaming SQL joins on Spark, with the exact meaning of the system you know.

    import braid
    session = braid.connect(dialect="ksqldb", store="data")

Rule: importing this package imports neither Spark nor Polars; `connect` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from braid.errors import BraidError, SqlError

if TYPE_CHECKING:
    from braid.face.session import Session, connect

__all__ = ["BraidError", "Session", "SqlError", "connect"]


def __getattr__(name: str) -> Any:
    if name in ("connect", "Session"):
        from braid.face import session

        return getattr(session, name)
    raise AttributeError(f"module 'braid' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
