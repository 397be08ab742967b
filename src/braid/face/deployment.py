"""`braid check`: the problems of a file, and what `braid run` would do with it on a store: the plan of a deployment.

In: SQL, a store. Out: every problem; of a store that is there, for each query whether it goes on, begins, or cannot go
on and why.
Rule: nothing is written, and nothing is judged here: what there is is compared as a run compares it. What is not told
(`--source`, `--sink`) is taken as it was the last time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import click
from rich.console import Console

from braid.bind.program import check_program
from braid.errors import BraidError
from braid.face.catalogue import over
from braid.face.request import Prepared, Request, check_files, checkpoint_of, compared, polls_of, prepare
from braid.plan.logical import Query
from braid.stage import checkpoint
from braid.store import ObjectStore
from braid.topics import checkpoint_paths
from braid.topics.interface import Topics, open_topics


@dataclass(frozen=True, slots=True)
class Outlook:
    """`refused`: why the query cannot go on."""

    query: str
    says: str
    refused: BraidError | None = None


def checked(request: Request, err: Console) -> bool:
    """Tells it all; whether a run would take the file."""
    program = over(request.store, request.dialect, request.functions, request.folder)
    problems, read = check_program(request.sql, program)
    for problem in problems:
        err.print(problem.render(), style="red", markup=False)
    if problems:
        err.print(f"{len(problems)} problem{'s' * (len(problems) > 1)}")
        return False
    told = request.sources or request.sinks or request.checkpoint or request.store.objects.path is None
    found = list(outlooks(request)) if told or os.path.isdir(request.store.objects.url) else []
    refused = sum(outlook.refused is not None for outlook in found)
    verdict = f"{refused} quer{'ies' if refused > 1 else 'y'} cannot go on" if refused else "no problem"
    click.echo(f"{read} statement{'s' * (read != 1)}, {verdict}")
    for outlook in found:
        click.echo(f"  {outlook.query} {outlook.says}")
        if outlook.refused is not None:
            err.print(outlook.refused.render(), style="red", markup=False)
    return not refused


def outlooks(request: Request) -> Iterator[Outlook]:
    """Of the queries of a file, in the order in which they start."""
    prepared, store = prepare(request), open_topics(request.store)
    polls_of(prepared, request, store, lambda text: None)
    for query in prepared.queries:
        if query.name not in prepared.push:
            try:
                yield Outlook(query.name, _says(query, prepared, request, store))
            except BraidError as e:
                yield Outlook(query.name, "cannot go on", e)


def _says(query: Query, prepared: Prepared, request: Request, store: Topics) -> str:
    folder = _folder(query, request, store)
    known = checkpoint.load(folder)
    sink = "topic" if known is None else str(known.settings.get("sink", "topic"))
    found, last = compared(query, folder, prepared, request, store, sink)
    check_files(query, folder, prepared, request)
    if found is None:
        return "is new"
    return "goes on; it has no batch yet" if last is None else f"goes on after batch {last}"


def _folder(query: Query, request: Request, store: Topics) -> ObjectStore:
    """Of its checkpoint: where the request says, or wherever this store knows it to lie."""
    where = checkpoint_of(query, request, store)
    if request.checkpoint:
        return where
    folders = (parent.at(query.name) for parent in checkpoint_paths.parents(store.root))
    return next((f for f in folders if f.has(checkpoint.NAME)), where)
