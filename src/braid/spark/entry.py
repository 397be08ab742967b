"""What Spark loads by name in processes of its own: the source and the stages.

In: a job's text. Out: nothing of their own; `source.py` and `stage.py` do the work.
Rule: this module is light. A query's start goes through four short-lived Python processes that only want to see these
classes, so what they compute with (Polars, Arrow) is imported when there is something to compute.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.datasource import ReadAllAvailable, SupportsTriggerAvailableNow
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

if TYPE_CHECKING:
    from braid.spark.source import Document, Planner, Slice

FORMAT = "braid"

SCHEMA = StructType(
    [
        StructField("stage", IntegerType()),
        StructField("frame", IntegerType()),
        StructField("bucket", IntegerType()),
        StructField("kind", IntegerType()),
        StructField("blob", BinaryType()),
    ]
)
TEXT = StructType([StructField("text", StringType())])
NAME = StructType([StructField("name", StringType())])


class BraidSource(DataSource):  # type: ignore[misc]
    """Option `job`: the job's text. It stands in the plan of the running query only, never in its checkpoint."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return SCHEMA

    def streamReader(self, schema: StructType) -> Reader:
        return Reader(str(self.options["job"]))


class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Plans batches in a process beside the driver, reads them in tasks."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._made: Planner | None = None

    def __reduce__(self) -> tuple[type[Reader], tuple[str]]:
        return Reader, (self._text,)

    @property
    def _planner(self) -> Planner:
        if self._made is None:
            from braid.spark.source import Planner

            self._made = Planner(self._text)
        return self._made

    def initialOffset(self) -> Document:
        return self._planner.beginning()

    def getDefaultReadLimit(self) -> Any:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._planner.freeze()

    def latestOffset(self, start: Document, limit: Any) -> Document:
        return self._planner.latest(start)

    def partitions(self, start: Document, end: Document) -> Sequence[Slice]:
        return self._planner.slices(start, end)

    def read(self, partition: Slice) -> Iterator[Any]:
        from braid.spark.source import read

        return read(self._text, partition)

    def commit(self, end: Document) -> None:
        self._planner.committed(end)

    def stop(self) -> None:
        pass


class StageProcessor(StatefulProcessor):  # type: ignore[misc]
    """One stage; Spark calls it once per bucket and batch."""

    def __init__(self, text: str, stage: int) -> None:
        self._text, self._stage = text, stage

    def init(self, handle: Any) -> None:
        self._state = handle.getMapState("state", NAME, TEXT)  # one: each costs a task some 15 ms

    def handleInputRows(self, key: tuple[int], rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        from braid.spark.stage import handle

        return handle(self._text, self._stage, key[0], rows, self._state)

    def close(self) -> None:
        pass
