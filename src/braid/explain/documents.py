"""EXPLAIN: what a query's plan is, as data and as pictures.

In: a logical query (lowered here). Out: a document, as `--format json` prints it; its text, Mermaid and DOT forms.
Rule: facts come from plan nodes only; what is not known before a run prints as `?`. Rendering reads only the document.
The topology is of the logical plan alone: the steps of its meaning, before anything says how they run. A re-key stands
where a key changes; a repartition where a join's sides have declared numbers of partitions that differ: on the side
with fewer, to the number of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

from braid.bind.bound import QueryBound
from braid.bind.program import Program
from braid.errors import BraidError, SqlError
from braid.explain.words import Words, equal, of_step
from braid.expr.nodes import Call, Expr, Lit
from braid.expr.show import show
from braid.lower.lower import lower
from braid.lower.physical import Exchange, Leaf, Plan, Stage, Step
from braid.plan import analytic, epochs, groups, joins, logical, over, sliding
from braid.plan.canonical import kind_of
from braid.plan.groups import names
from braid.plan.logical import Node, Query
from braid.plan.node import Mode
from braid.stage import checkpoint, state_file
from braid.store import ObjectStore
from braid.topics import checkpoint_paths

# -------------------------------------------------------------------- topology


Fact = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Told:
    """A step that others read: its number, the key of its rows, its partitions where they are declared."""

    number: int
    key: tuple[Expr, ...]
    partitions: int | None


@dataclass(slots=True)
class _Topology:
    nodes: list[Fact] = field(default_factory=list)

    def add(self, op: str, inputs: Sequence[_Told], **facts: Any) -> int:
        self.nodes.append({"id": len(self.nodes), "op": op, "inputs": [s.number for s in inputs], **facts})
        return len(self.nodes) - 1

    def walk(self, node: Node) -> _Told:
        match node:
            case logical.Source(name=name, kind=kind, partitions=partitions):
                number = self.add("source", (), name=name, kind=kind, partitions=partitions)
                return _Told(number, node.spread_by, partitions)
            case joins.ForeignKeyJoin():
                left, right = self.rekeyed(self.walk(node.left), node.left_keys), self.walk(node.right)
                number = self.add("join", (left, right), how=node.how, on=equal(node.equalities))
                return self.rekeyed(_Told(number, node.keys, left.partitions), node.row_key)
            case joins.OnKeys():
                return self._join(node)
            case groups.Aggregate(input=below, keys=keys, spread_by=spread_by):
                windows = below if isinstance(below, groups.TimeWindows) else None
                x = self.rekeyed(self.walk(below if windows is None else windows.input), tuple(e for _, e in spread_by))
                x = x if windows is None else _Told(self.add("windows", (x,)), x.key, x.partitions)
                number = self.add(node.called, (x,), by=[show(e) for _, e in keys])
                return _Told(number, tuple(c for c, _ in spread_by), x.partitions)
            case logical.Filter(predicate=predicate):
                x = self.walk(node.input)
                return _Told(self.add("filter", (x,), predicate=show(predicate)), x.key, x.partitions)
            case logical.Lateral():
                x = self.walk(node.input)
                return _Told(self.add("lateral", (x,)), x.key, x.partitions)
            case (
                logical.Project() | groups.TimeWindows() | groups.Final() | groups.Closed()
                | logical.Materialize() | sliding.SlidingJoin() | epochs.Changes() | epochs.OnTime() | epochs.Windows()
                | epochs.Clocked() | epochs.RegularJoin() | epochs.AsOfJoin() | epochs.TemporalJoin() | epochs.Union()
                | epochs.EmitOnClose() | epochs.TemporalFilter() | epochs.Coalesce() | over.Over() | analytic.Analytic()
            ):  # fmt: skip
                read = tuple(self.walk(x) for x in node.inputs)
                return _Told(self.add(kind_of(type(node)).lower(), read), node.row_key, read[0].partitions)
        assert_never(node)

    def rekeyed(self, x: _Told, keys: tuple[Expr, ...]) -> _Told:
        """The step with its rows by another key, if it is another."""
        if x.key == keys:
            return x
        return _Told(self.add("re-key", (x,), by=[show(k) for k in keys]), keys, x.partitions)

    def _join(self, node: joins.OnKeys) -> _Told:
        left, right = (self.rekeyed(self.walk(x), by) for x, by in zip(node.inputs, node.spread_by, strict=True))
        most = max((s.partitions for s in (left, right) if s.partitions is not None), default=None)
        left, right = self._repartitioned(left, most), self._repartitioned(right, most)
        number = self.add("join", (left, right), how=node.how, on=equal(node.equalities))
        return _Told(number, node.keys[: len(node.equalities)], most)

    def _repartitioned(self, x: _Told, most: int | None) -> _Told:
        if x.partitions is None or most is None or x.partitions == most:
            return x
        return _Told(self.add("repartition", (x,), partitions=most), x.key, most)


def topology(query: Query) -> list[Fact]:
    """Sources, filters, re-keys, repartitions, joins, the projection and the sink."""
    t, sink = _Topology(), query.sink
    root = t.walk(query.root)
    columns = {o.name: show(o.expr) for o in (*sink.key, *sink.values)}
    project = _Told(t.add("project", (root,), columns=columns), sink.written_key, root.partitions)
    t.add("sink", (project,), name=sink.name, kind=sink.kind, partitions=sink.partitions)
    return t.nodes


# ------------------------------------------------------------------- documents


Document = dict[str, Any]
NOTHING: Document = {}


def explain_query(
    query: logical.Query,
    partitions: Callable[[str], int | None],
    state: Sequence[Mapping[str, Any]] | None = None,
    begun: checkpoint.Document | None = None,
) -> Document:
    """The plan of a query. `partitions`: a topic's count if it is known; `state`: manifests of a running query, which
    has `begun` so."""
    plan = lower(query) if begun is None else checkpoint.as_begun(lower(query), begun)
    nodes = [
        *(_leaf(leaf, plan) for leaf in plan.leaves if not leaf.spared),
        *(_step(s, x, plan) for x in plan.stages for s in x.steps),
    ]
    sink = query.sink
    out_partitions = sink.partitions or partitions(sink.topic) or "?"
    nodes.append(_sink(plan, plan.sink))
    document: Document = {
        "query": query.name,
        "dialect": query.dialect,
        "sink": {
            **_place(sink),
            **({} if sink.into else {"partitions": out_partitions}),
            "mode": _written_mode(query),
            "key": [o.name for o in sink.key] or [show(e, names(query.root)) for e in sink.record_key],
        },
        "nodes": nodes,
        "stages": [_stage(s, plan) for s in plan.stages],
        "topology": topology(query),
        "notices": list(query.notices),
        "refusals": [],
    }
    if state is not None:
        _add_state(document, state)
    return document


def explain_program(sql: str, program: Program, store: ObjectStore | None) -> list[Document]:
    """The plans of all queries of a text, and what was refused. `store`: add the state of the last committed batch."""
    dialect = program.dialect
    documents: list[Document] = []
    try:
        for effect in program.statements(sql):
            query = effect.query
            if query is not None:
                passing = isinstance(effect.bound, QueryBound) and effect.bound.transient  # it keeps nothing
                state = begun = None
                if store is not None and not passing:
                    state = committed_state(store, query.name)
                    begun = checkpoint.load(checkpoint_paths.own(store).at(query.name))
                documents.append(explain_query(query, lambda _: None, state, begun))
    except SqlError as e:
        documents.append(_refused(e, dialect))
    return documents


def _refused(e: SqlError, dialect: str) -> Document:
    refusal = {"message": e.message, "line": e.line, "column": e.column, "hint": e.hint, "text": e.render()}
    nothing: Document = {"nodes": [], "stages": [], "topology": [], "notices": []}
    return {"query": None, "dialect": dialect, "sink": None, **nothing, "refusals": [refusal]}


def committed_state(store: ObjectStore, query: str) -> list[dict[str, Any]]:
    """The state manifests of a query's last committed batch, read without Spark."""
    batch, state = state_file.latest(checkpoint_paths.own(store).at(query))
    if batch < 0:
        raise BraidError(f"no committed state of {query} in {store}", "run it first")
    return [{"place": place, "steps": document["steps"]} for place, document in sorted(state.items())]


def _leaf(leaf: Leaf, plan: Plan) -> Document:
    source = leaf.source
    keys = [_key(k) for k in _shown(leaf.keys)]
    rekey = _shown(leaf.keys) != source.spread_by
    notes = [f"re-keyed by {', '.join(keys)}"] if rekey and keys else []
    if source.timestamp is not None:
        of = "time from column" if source.timestamp.made is None else "time from what is made of column"
        notes.append(f"{of} {source.timestamp.field}")
    if source.begin != "earliest":
        notes.append(f"begins at {source.begin}" + (" ms" if isinstance(source.begin, int) else ""))
    if source.message_key is not None:
        notes.append(f"message key must equal {source.message_key}")
    clock = "highest time shown, minimum over live partitions" if leaf.clocked else None
    where, columns = {"source": source.name, "topic": source.topic}, {"columns": [c.name for c in leaf.columns]}
    made = Words("read", keys, clock=clock, notes=notes, mode=source.mode)
    return _node(leaf.number, made, source.kind, where=where, columns=columns) | {"rekey": rekey}


def _step(step: Step, stage: Stage, plan: Plan) -> Document:
    said = of_step(step)
    mine = next((e for e in plan.exchanges if e.stage == stage.number and e.source in step.inputs), None)
    return _node(step.number, said, "stream" if said.mode == "append" else "table", step.inputs, mine) | said.more


def _sink(plan: Plan, number: int) -> Document:
    last = plan.stages[-1]
    exchange = next((e for e in plan.exchanges if e.stage == last.number), None)
    sink, known = plan.query.sink, names(plan.query.root)
    columns = {"columns": {o.name: show(o.expr, known) for o in (*sink.key, *sink.values)}}
    keys = [o.name for o in sink.key] or [show(e, known) for e in sink.record_key]
    made = Words("write", keys, mode=_written_mode(plan.query))
    moved = None if last.steps else exchange
    return _node(number, made, sink.kind, [last.output], moved, _place(sink), columns)


def _place(sink: logical.Sink) -> Document:
    return {"into": str(sink.into)} if sink.into else {"topic": sink.topic}


def _node(
    number: int,
    said: Words,
    kind: str,
    inputs: Sequence[int] = (),
    moved: Exchange | None = None,
    where: Document = NOTHING,
    columns: Document = NOTHING,
) -> Document:
    """What is told of every node, in one order. `moved`: how rows come to it that another stage gives."""
    return {
        "id": number,
        "op": said.op,
        "how": said.how,
        "kind": kind,
        **where,
        "inputs": list(inputs),
        "keys": list(said.keys),
        **columns,
        "residual": said.residual,
        "mode": said.mode,
        "rekey": moved is not None,
        "state": [k._asdict() for k in said.state],
        "clock": said.clock,
        "notes": [*([_moved(moved)] if moved is not None else []), *said.notes],
    }


def _moved(by: Exchange) -> str:
    return f"re-keyed: {by.reason}{'' if by.folding is None else '; several rows of a group in an epoch go as one'}"


def _written_mode(query: logical.Query) -> Mode:
    """Of rows that come and go, a topic gets upserts; a table elsewhere has what the statement says."""
    mode = query.root.mode
    kept = bool(query.sink.into) and query.sink.kind == "table"
    return "upsert" if mode == "retract" or kept else mode


def _stage(stage: Stage, plan: Plan) -> Document:
    """Its rows are spread by the exchange's key: those that sources read as they are read, those `from` other stages
    by sending them on."""
    reads = [leaf.number for leaf in plan.leaves if leaf.stage == stage.number and not leaf.spared]
    fed = [s.number for s in plan.stages if any(e.stage == stage.number for e in s.exchanges)]
    exchange = {"by": [_key(k) for k in _shown(stage.keys)], "buckets": 1 if stage.single else "?", "from": fed}
    if stage.anywhere:
        exchange["anywhere"] = True
    return {"nodes": [*reads, *(s.number for s in stage.steps)], "exchange": exchange}


def _add_state(document: Document, state: Sequence[Mapping[str, Any]]) -> None:
    """Live rows and bytes of every step, added up over buckets."""
    totals: dict[int, dict[str, dict[str, int]]] = {}
    for bucket in state:
        for number, manifest in bucket["steps"].items():
            for name, kept in manifest.items():
                if not isinstance(kept, Mapping) or "runs" not in kept:
                    continue
                total = totals.setdefault(int(number), {}).setdefault(name, {"rows": 0, "bytes": 0, "runs": 0})
                for _, rows, size, *_ in kept["runs"]:
                    total["rows"] += rows
                    total["bytes"] += size
                    total["runs"] += 1
    for node in document["nodes"]:
        node["live"] = totals.get(node["id"], {})


def _key(e: Expr) -> str:
    match e:
        case Call(function="pg.date_bin", args=(Lit(), time, Lit())):  # of a lowered plan, not of a user
            return f"the window of {show(time)}"
        case _:
            return show(e)


def _shown(keys: Sequence[Expr]) -> tuple[Expr, ...]:
    """The keys that a user knows: a constant stands beside keys whose NULLs are keys, too."""
    return tuple(k for k in keys if not isinstance(k, Lit))


# -------------------------------------------------------------------- pictures


def render_text(document: Document) -> str:
    """The plan as an indented tree, the sink on top."""
    nodes = {n["id"]: n for n in document["nodes"]}
    sink = document["sink"]
    key = ", ".join(sink["key"]) or "none"
    where = f"{sink['into']} (" if "into" in sink else f"topic {sink['topic']} (partitions {sink['partitions']}, "
    head = f"{document['query']}: {sink['mode']} into {where}key {key})"
    lines = [head, *_tree(nodes, document["nodes"][-1]["id"], "", "", set())]
    for i, stage in enumerate(document["stages"]):
        by = ", ".join(stage["exchange"]["by"]) or ("epoch" if stage["exchange"].get("anywhere") else "one bucket")
        how = "exchange" if stage["exchange"]["from"] else "spread"
        lines.append(f"stage {i}: {how} by {by}; nodes {', '.join(str(n) for n in stage['nodes']) or '-'}")
    moved = [n["partitions"] for n in document["topology"] if n["op"] == "repartition"]
    lines += [f"repartition: the side with fewer partitions goes to {n}" for n in moved]
    lines += [f"notice: {n}" for n in document["notices"]]
    return "\n".join(lines)


def _tree(nodes: Mapping[int, Document], number: int, first: str, rest: str, told: set[int]) -> list[str]:
    """`told`: the nodes that stand above already; one that is read again is only named."""
    node = nodes[number]
    if number in told:
        return [f"{first}[{number}] {title(node)}, as above"]
    told.add(number)
    lines = [f"{first}[{number}] {title(node)}"]
    inputs = node["inputs"]
    bar = "│ " if inputs else "  "
    for text in details(node):
        lines.append(f"{rest}{bar}  {text}")
    for i, x in enumerate(inputs):
        last = i == len(inputs) - 1
        lines += _tree(nodes, x, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "), told)
    return lines


def title(node: Document) -> str:
    """One line that names a node."""
    match node["op"]:
        case "read":
            return f"read {node['kind']} {node['source']}"
        case "write":
            return f"write {node['kind']} {node.get('into') or node['topic']}"
        case "filter":
            return f"filter {node['predicate']}"
        case op:
            how = f"{node['how']} " if node["how"] else ""
            return f"{how}{op}" + (f" on {', '.join(node['keys'])}" if node["keys"] else "")


def details(node: Document) -> list[str]:
    """Further lines of a node: clock, state, notes."""
    made = [*node["notes"]]
    if node["op"] in ("write", "project"):
        made += [f"{name} = {text}" for name, text in node["columns"].items()]
    if node["clock"] and node["op"] != "read":
        made.append(f"clock: {node['clock']}")
    for s in node["state"]:
        made.append(f"keeps {s['side']}: {s['keeps']}, {_until(s)}" + ("" if s["bounded"] else " (unbounded)"))
    for name, live in node.get("live", {}).items():
        made.append(f"state {name}: {live['rows']} rows, {live['bytes']} bytes, {live['runs']} runs")
    return made


def _until(state: Document) -> str:
    if state["until"] == "never":
        return "permanently"
    return f"each until {state['until']}" if state["keeps"].endswith("rows") else f"until {state['until']}"


def render_texts(documents: Sequence[Document]) -> str:
    """Several plans, one below the other."""
    return "\n\n".join(map(render_text, documents))


def render_mermaid(documents: Sequence[Document]) -> str:
    """The plans as one Mermaid flowchart, a box for each query."""
    lines = ["flowchart BT"]
    for i, document in enumerate(documents):
        lines.append(f'  subgraph q{i}["{_escaped(document["query"])}"]')
        for node in document["nodes"]:
            text = "<br/>".join(_escaped(t) for t in [title(node), *details(node)])
            rekey = "|re-key|" if node["rekey"] and len(node["inputs"]) == 1 else ""
            lines.append(f'    q{i}n{node["id"]}["{text}"]')
            lines += [f"    q{i}n{x} -->{rekey} q{i}n{node['id']}" for x in node["inputs"]]
        lines.append("  end")
    return "\n".join(lines)


def render_dot(documents: Sequence[Document]) -> str:
    """The plans as one Graphviz digraph, a cluster for each query."""
    lines = ["digraph braid {", "  rankdir=BT; node [shape=box, fontname=sans];"]
    for i, document in enumerate(documents):
        lines.append(f'  subgraph cluster{i} {{ label="{_quoted(document["query"])}";')
        for node in document["nodes"]:
            text = "\\n".join(_quoted(t) for t in [title(node), *details(node)])
            lines.append(f'    q{i}n{node["id"]} [label="{text}"];')
            lines += [f"    q{i}n{x} -> q{i}n{node['id']};" for x in node["inputs"]]
        lines.append("  }")
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "#quot;").replace("<", "&lt;").replace(">", "&gt;")
