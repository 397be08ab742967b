"""The local runtime: a physical plan run in this process, without a JVM.

In: a plan and chunks, batch by batch. Out: written records in order, and drops. `snapshot` and `restore` stand for a
checkpoint.
Rule: it calls what Spark's tasks call (`ingest.ingested`, `bucket.run_stage`, `emit.projected`, `emit.written`) and
adds nothing of its own but the loop over stages and buckets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from braid.lower.physical import Exchange, Plan
from braid.operators.arrangement import MemoryRuns
from braid.operators.changes import no_rows
from braid.stage.bucket import BucketState, run_stage
from braid.stage.drops import DROPS
from braid.stage.emit import first_rows, merged, projected, written
from braid.stage.ingest import Chunk, clocked, ingested
from braid.stage.materialized import Materialized, keeper, of_bucket
from braid.stage.rescaled_state import rescaled
from braid.stage.wire import Exchanging, split


@dataclass(frozen=True, slots=True)
class Outputs:
    """A batch's records (columns of `emit.WRITTEN`), in order; dropped rows (columns of `drops.DROPS`)."""

    records: pl.DataFrame
    dropped: pl.DataFrame


class LocalQuery:
    """One running query with its state in memory."""

    def __init__(self, plan: Plan, partitions: int, buckets: int) -> None:
        self.plan, self.partitions, self.buckets = plan, partitions, buckets
        self.batch = 0
        self.rows: dict[int, tuple[int, int]] = {}  # into each step so far, and out of it
        self._states = [[BucketState(MemoryRuns()) for _ in range(self._width(i))] for i in range(len(plan.stages))]

    def _width(self, stage: int) -> int:
        return 1 if self.plan.stages[stage].single else self.buckets

    def run(self, chunks: Iterable[Chunk]) -> Outputs:
        """Processes one batch."""
        frame, dropped = self.results(chunks)
        return Outputs(written(self.plan.query.sink, frame, self.partitions), dropped)

    def results(self, chunks: Iterable[Chunk]) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The same with typed rows in place of records."""
        frames: list[list[dict[int, list[pl.DataFrame]]]] = [
            [{} for _ in range(self._width(i))] for i in range(len(self.plan.stages))
        ]
        steps: list[pl.DataFrame] = []
        dropped: list[pl.DataFrame] = []
        for chunk in (x for x in chunks if not self.plan.leaves[x.leaf].spared):
            made = ingested(self.plan, chunk)
            steps.append(made.steps)
            dropped.append(made.dropped)
            first = self.plan.leaves[chunk.leaf].stage
            for b, part in split(made.rows, self.buckets, self.plan.stages[first]):
                frames[first][b].setdefault(chunk.leaf, []).append(part)
        for stage, number, row in first_rows(self.plan) if self.batch == 0 else ():
            for b, part in split(row, self.buckets, stage):
                frames[stage.number][b].setdefault(number, []).append(part)
        results: list[pl.DataFrame] = []
        for stage in self.plan.stages:
            for b, state in enumerate(self._states[stage.number]):
                prefix = f"{self.batch}-{stage.number}-{b}"
                seen = steps if clocked(stage) else []
                outcome = run_stage(self.plan, stage, state, frames[stage.number][b], seen, prefix)
                kept = keeper(self.plan, stage, state, prefix)
                going = [(x, Exchanging(x)) for x in stage.exchanges]
                for number, frame in outcome.frames:
                    for exchange, exchanging in (pair for pair in going if pair[0].source == number):
                        out, lost = exchanging.piece(frame)
                        self._forward(out, exchange, frames)
                        dropped.append(lost)
                    if not going:
                        out, lost = projected(self.plan, frame)
                        results.append(out)
                        if kept is not None:
                            kept.take(out)
                        dropped.append(lost)
                dropped.append(outcome.dropped)
                for n, (came, went) in outcome.rows.items():
                    before = self.rows.get(n, (0, 0))
                    self.rows[n] = (before[0] + came, before[1] + went)
                if kept is not None:
                    kept.rows.close()
        self.batch += 1
        return merged(results), pl.concat([no_rows(DROPS), *dropped])

    def _forward(
        self, rows: pl.DataFrame, exchange: Exchange, frames: list[list[dict[int, list[pl.DataFrame]]]]
    ) -> None:
        for b, part in split(rows, self.buckets, self.plan.stages[exchange.stage]):
            frames[exchange.stage][b].setdefault(exchange.source, []).append(part)

    # ------------------------------------------------------------ restarts

    def snapshot(self) -> list[list[str]]:
        """The manifests of all buckets, as a checkpoint would hold them; the runs stay where they are."""
        return [[state.dumps() for state in buckets] for buckets in self._states]

    def restore(self, manifests: list[list[str]]) -> None:
        """Starts again from a snapshot."""
        self._states = [
            [BucketState.loads(text, state.runs) for text, state in zip(texts, states, strict=True)]
            for texts, states in zip(manifests, self._states, strict=True)
        ]

    def upgraded(self, plan: Plan) -> LocalQuery:
        """A plan that takes the place of this one, and goes on from here."""
        made = LocalQuery(plan, self.partitions, self.buckets)
        made.batch, made._states = self.batch, self._states
        return made

    def rescale(self, buckets: int) -> None:
        """Goes on in so many buckets."""
        runs_of = lambda stage, bucket: MemoryRuns()  # noqa: E731
        self._states = rescaled(self.plan, self._states, buckets, runs_of, f"spread-{self.batch}")
        self.buckets = buckets

    def standing(self, keys: list[str]) -> Materialized:
        """The rows of its result that stand, by these columns."""
        return Materialized([(m, s.runs) for s in self._states[-1] for m in of_bucket(s.document())], keys)

    def state_size(self) -> list[dict[str, object]]:
        """Manifests of every step and bucket, for EXPLAIN --state."""
        return [
            {"stage": i, "bucket": b, "steps": state.manifests}
            for i, states in enumerate(self._states)
            for b, state in enumerate(states)
        ]
