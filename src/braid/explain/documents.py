"""EXPLAIN: what a query's plan is, as data and as pictures.

In: a logical query (lowered here). Out: a document, as `--format json` prints it; its text, Mermaid and DOT forms.
Rule: facts come from plan nodes only; what is not known before a run prints as `?`. Rendering reads only the document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, assert_never

from braid.bind.bound import QueryBound
from braid.bind.program import Program
from braid.errors import BraidError, SqlError
from braid.explain.epoch_joins import epoch_notes, epoch_op, epoch_state
from braid.explain.sliding_joins import sliding_notes, sliding_state
from braid.explain.topology import topology
from braid.explain.words import duration
from braid.expr.nodes import Expr, Lit
from braid.expr.show import show
from braid.lower.lower import lower
from braid.lower.physical import Leaf, Plan, Stage, Step
from braid.operators.limit import Limit
from braid.operators.retract import Retract
from braid.operators.upserts import Upserts
from braid.plan import epochs, keyed, logical, sliding
from braid.plan.node import Mode
from braid.stage import state_file

Document = dict[str, Any]


def explain_query(
    query: logical.Query, partitions: Callable[[str], int | None], state: Sequence[Mapping[str, Any]] | None = None
) -> Document:
    """The plan of a query. `partitions`: a topic's count if it is known; `state`: manifests of a running query."""
    plan = lower(query)
    nodes = [*(_leaf(leaf, plan) for leaf in plan.leaves), *(_step(s, x, plan) for x in plan.stages for s in x.steps)]
    sink = query.sink
    out_partitions = sink.partitions or partitions(sink.topic) or "?"
    nodes.append(_sink(plan, max((n["id"] for n in nodes), default=-1) + 1))
    document: Document = {
        "query": query.name,
        "dialect": query.dialect,
        "sink": {
            "topic": sink.topic,
            "partitions": out_partitions,
            "mode": _written_mode(query),
            "key": [o.name for o in sink.key] or [show(e, _names(query.root)) for e in sink.record_key],
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


def explain_program(sql: str, program: Program, store: str | None) -> list[Document]:
    """The plans of all queries of a text, and what was refused. `store`: add the state of the last committed batch."""
    dialect = program.dialect
    documents: list[Document] = []
    try:
        for effect in program.statements(sql):
            query = effect.query
            if query is not None:
                passing = isinstance(effect.bound, QueryBound) and effect.bound.transient  # it keeps nothing
                state = None if store is None or passing else committed_state(store, query.name)
                documents.append(explain_query(query, lambda _: None, state))
    except SqlError as e:
        documents.append(_refused(e, dialect))
    return documents


def _refused(e: SqlError, dialect: str) -> Document:
    refusal = {"message": e.message, "line": e.line, "column": e.column, "hint": e.hint, "text": e.render()}
    nothing: Document = {"nodes": [], "stages": [], "topology": [], "notices": []}
    return {"query": None, "dialect": dialect, "sink": None, **nothing, "refusals": [refusal]}


def committed_state(store: str, query: str) -> list[dict[str, Any]]:
    """The state manifests of a query's last committed batch, read without Spark."""
    batch, state = state_file.latest(str(Path(store) / "checkpoints" / query))
    if batch < 0:
        raise BraidError(f"no committed state of {query} in {store}", "run it first")
    return [{"place": place, "steps": document["steps"]} for place, document in sorted(state.items())]


def _leaf(leaf: Leaf, plan: Plan) -> Document:
    source = leaf.source
    keys = _shown(leaf.keys)
    rekey = keys != source.row_key
    notes = []
    if rekey and keys:
        notes.append(f"re-keyed by {_list(keys)}")
    if source.timestamp is not None:
        notes.append(f"time from column {source.timestamp.field}")
    if source.message_key is not None:
        notes.append(f"message key must equal {source.message_key}")
    return {
        "id": leaf.number,
        "op": "read",
        "how": None,
        "kind": source.kind,
        "source": source.name,
        "topic": source.topic,
        "inputs": [],
        "keys": [show(k) for k in keys],
        "columns": [c.name for c in leaf.columns],
        "residual": None,
        "mode": source.mode,
        "rekey": rekey,
        "state": [],
        "clock": "highest time shown, minimum over live partitions" if leaf.clocked else None,
        "notes": notes,
    }


def _step(step: Step, stage: Stage, plan: Plan) -> Document:
    node = step.node
    exchanged = [s.exchange for s in plan.stages if s.exchange is not None and s.exchange.stage == stage.number]
    mine = next((e for e in exchanged if e.source in step.inputs), None)
    moved = [f"re-keyed: {mine.reason}"] if mine is not None else []
    document: Document = {
        "id": step.number,
        "op": _op(node),
        "how": getattr(node, "how", None),
        "kind": "stream" if node.mode == "append" else "table",
        "inputs": list(step.inputs),
        "keys": _keys(node),
        "residual": None,
        "mode": node.mode,
        "rekey": mine is not None,
        "state": _state(node),
        "clock": _clock(node),
        "notes": moved + _notes(node),
    }
    if isinstance(step.operator, Limit):  # its node is the one below it
        end = f"the query ends after {step.operator.count} rows"
        return document | {"op": "limit", "how": None, "keys": [], "state": [], "clock": None, "notes": [*moved, end]}
    if isinstance(step.operator, Upserts | Retract) and not isinstance(node, epochs.Changes):  # as for a limit
        made = _of_table(step.operator)
        return document | made | {"notes": [*moved, *made["notes"]]}
    if isinstance(node, logical.Filter):
        document["predicate"] = show(node.predicate, _names(node))
    if isinstance(node, epochs.RegularJoin | epochs.TemporalJoin) and node.residual is not None:
        document["residual"] = show(node.residual, _names(node))
    if isinstance(node, logical.Project):
        names = _names(node.input)
        document["columns"] = {c.name: show(e, names) for c, e in node.outputs}
    return document


def _of_table(operator: Upserts | Retract) -> Document:
    """What turns a table into rows that come and go, or such rows into a table again."""
    kept = [{"side": "input", "keeps": "rows", "until": "replaced or deleted", "bounded": False}]
    made: Document = {"how": None, "kind": "table", "keys": [], "state": kept, "clock": None}
    if isinstance(operator, Upserts):
        said = "under each key stands the row that was written last"
        return made | {"op": "upserts", "mode": "upsert", "notes": [said]}
    return made | {
        "op": "materialize",
        "mode": "retract",
        "notes": ["a change is the old row going, the new one coming"],
    }


def _op(node: logical.Node) -> str:
    match node:
        case logical.StreamStreamJoin() | keyed.TwoClockJoin():
            return "stream-stream join"
        case logical.StreamTableJoin() | keyed.RememberingJoin():
            return "stream-table join"
        case logical.TableTableJoin() | keyed.CombiningJoin():
            return "table-table join"
        case sliding.SlidingJoin():
            return "sliding join" if len(node.operands) > 1 else "release"
        case keyed.Lateral():
            return "lateral"
        case keyed.Materialize():
            return "materialize"
        case logical.Filter():
            return "filter"
        case logical.Project():
            return "project"
        case logical.Aggregate():
            return "aggregate"
        case logical.Source():
            return "read"
        case epochs.InEpochs():
            return epoch_op(node)
    assert_never(node)


def _keys(node: logical.Node) -> list[str]:
    match node:
        case logical.StreamStreamJoin() | logical.StreamTableJoin() | logical.TableTableJoin():
            return [f"{show(node.left_key)} = {show(node.right_key)}"]
        case keyed.TwoClockJoin() | keyed.RememberingJoin() | keyed.CombiningJoin():
            return [f"{show(l)} = {show(r)}" for l, r in zip(node.left_keys, node.right_keys, strict=True)]
        case logical.Aggregate(keys=keys):
            return [show(e) for _, e in keys]
        case logical.Source() | logical.Filter() | logical.Project() | keyed.Lateral() | keyed.Materialize():
            return []
        case epochs.RegularJoin() | epochs.AsOfJoin() | epochs.TemporalJoin():
            return [epochs.equality(node.on, i, show) for i in range(len(node.on.left))]
        case sliding.SlidingJoin():
            return [f"{show(l)} = {show(r)}" for m in sliding.meetings(node.tree) for l, r in m.keys]
        case epochs.Coalesce(key=key):
            return [show(e) for e in key]
        case epochs.Changes() | epochs.OnTime() | epochs.Windows() | epochs.Clocked() | epochs.EmitOnClose():
            return []
    assert_never(node)


def _state(node: logical.Node) -> list[Document]:
    match node:
        case logical.StreamStreamJoin():
            until = f"side reaches its time + {duration(node.retention)}"
            rows = [
                {"side": s, "keeps": "rows", "until": f"the stored clock of the {s} {until}", "bounded": True}
                for s in ("left", "right")
            ]
            if node.grace is not None:
                for side, look in (("left", node.after), ("right", node.before)):
                    if node.how in (side, "full"):
                        due = f"a match comes, or stream time passes its time by {duration(look + node.grace)}"
                        rows.append({"side": side, "keeps": "unmatched rows", "until": due, "bounded": True})
            return rows
        case logical.StreamTableJoin():
            return [{"side": "right", "keeps": "last row of a key", "until": "replaced or deleted", "bounded": False}]
        case logical.TableTableJoin():
            return [
                {"side": s, "keeps": "last row of a key", "until": "replaced or deleted", "bounded": False}
                for s in ("left", "right")
            ]
        case keyed.TwoClockJoin():
            return [
                {
                    "side": side,
                    "keeps": "rows",
                    "until": f"the clock of the {other} side passes its time by {duration(look + node.grace)}",
                    "bounded": True,
                }
                for side, other, look in (("left", "right", node.after), ("right", "left", node.before))
            ]
        case keyed.RememberingJoin():
            return _remembered(node)
        case keyed.CombiningJoin():
            return [
                {"side": s, "keeps": "rows", "until": "replaced or deleted", "bounded": False}
                for s in ("left", "right")
            ]
        case logical.Aggregate():
            return [{"side": "input", "keeps": "one row a group", "until": "never", "bounded": False}]
        case logical.Filter(input=x):
            if x.mode == "upsert":
                return [{"side": "input", "keeps": "keys that pass", "until": "deleted", "bounded": False}]
            return []
        case logical.Source() | logical.Project() | keyed.Lateral() | keyed.Materialize():
            return []
        case sliding.SlidingJoin():
            return sliding_state(node)
        case epochs.InEpochs():
            return epoch_state(node)
    assert_never(node)


def _remembered(node: keyed.RememberingJoin) -> list[Document]:
    kept: list[Document] = [{"side": "right", "keeps": "rows", "until": "replaced or deleted", "bounded": False}]
    if node.how == "left":
        until = "a table row completes it"
        if node.retention is not None:
            until += f", or the stream's clock passes its time by {duration(node.retention)}"
        bounded = node.retention is not None
        kept.append({"side": "left", "keeps": "unmatched rows", "until": until, "bounded": bounded})
    return kept


def _clock(node: logical.Node) -> str | None:
    match node:
        case logical.StreamStreamJoin():
            return "maximum of both inputs" + (f", output held back by {duration(node.hold)}" if node.hold else "")
        case keyed.TwoClockJoin():
            return "minimum of both inputs" + (f", output held back by {duration(node.hold)}" if node.hold else "")
        case logical.StreamTableJoin() | keyed.RememberingJoin():
            return "the stream's"
        case sliding.SlidingJoin():
            return "minimum over all streams"
        case logical.TableTableJoin() | keyed.CombiningJoin() | epochs.InEpochs():
            return None
        case logical.Source() | logical.Filter() | logical.Project() | logical.Aggregate():
            return None
        case keyed.Lateral() | keyed.Materialize():
            return None
    assert_never(node)


def _notes(node: logical.Node) -> list[str]:
    match node:
        case logical.StreamStreamJoin():
            window = f"right time within {duration(node.before)} before and {duration(node.after)} after left time"
            notes = [window]
            if node.how != "inner":
                if node.grace is None:
                    notes.append("eager: an unmatched row goes out padded at once; its match goes out too")
                else:
                    notes.append(f"deferred: padded after its window and a grace period of {duration(node.grace)}")
            if node.null_key == "pad":
                notes.append("rows without a key go out padded")
            if node.late == "discard":
                notes.append("rows too late to be stored are dropped")
            return notes
        case keyed.TwoClockJoin():
            window = f"right time within {duration(node.before)} before and {duration(node.after)} after left time"
            notes = [
                f"sliding window: {window}",
                "a row lives until the other side's clock is past its window and a grace period of "
                + duration(node.grace),
            ]
            if node.how != "inner" and node.pad == "eager":
                notes.append("eager: an unmatched row goes out padded at once; its match goes out too")
            return notes + _match_only(node)
        case keyed.RememberingJoin(how=how):
            notes = ["each stream row meets the table as it stands when the row is processed"]
            if how == "left":
                notes.append("an unmatched row goes out padded, and again when a table row completes it")
            return notes + _match_only(node)
        case keyed.CombiningJoin():
            return ["all combinations of rows; several rows may share a key", *_match_only(node)]
        case keyed.Lateral(array=array, element=element):
            return [f"{element.name}: each element of {show(array)}"]
        case logical.StreamTableJoin():
            return ["each stream row meets the table as it stands when the row is processed"]
        case logical.Aggregate(aggregations=aggregations):
            return [", ".join(_aggregate(a) for a in aggregations)]
        case sliding.SlidingJoin():
            return sliding_notes(node)
        case epochs.InEpochs():
            return epoch_notes(node)
        case logical.TableTableJoin() | logical.Source() | logical.Filter() | logical.Project() | keyed.Materialize():
            return []
    assert_never(node)


def _match_only(node: keyed.KeyedJoin) -> list[str]:
    """What only decides on a match, and that all rows of both sides may meet."""
    right_if = None if isinstance(node, keyed.RememberingJoin) else node.right_if
    notes = [f"{side} rows match only if {show(e)}" for side, e in (("left", node.left_if), ("right", right_if)) if e]
    return notes if node.left_keys else [*notes, "no equality: all rows meet in one bucket"]


def _aggregate(a: logical.Aggregation) -> str:
    return f"{a.function}({'*' if a.arg is None else show(a.arg)})"


def _names(node: logical.Node) -> dict[str, str]:
    """What to call the columns that GROUP BY makes: its expressions and aggregates."""
    made = {name: text for x in node.inputs for name, text in _names(x).items()}
    if isinstance(node, logical.Aggregate):
        made |= {c.name: show(e, made) for c, e in node.keys} | {
            a.output.name: _aggregate(a) for a in node.aggregations
        }
    return made


def _sink(plan: Plan, number: int) -> Document:
    last = plan.stages[-1]
    exchange = next((s.exchange for s in plan.stages if s.exchange and s.exchange.stage == last.number), None)
    moved = exchange is not None and not last.steps
    sink, names = plan.query.sink, _names(plan.query.root)
    return {
        "id": number,
        "op": "write",
        "how": None,
        "kind": sink.kind,
        "topic": sink.topic,
        "inputs": [last.output],
        "keys": [o.name for o in sink.key] or [show(e, names) for e in sink.record_key],
        "columns": {o.name: show(o.expr, names) for o in (*sink.key, *sink.values)},
        "residual": None,
        "mode": _written_mode(plan.query),
        "rekey": moved,
        "state": [],
        "clock": None,
        "notes": [f"re-keyed: {exchange.reason}"] if moved and exchange is not None else [],
    }


def _written_mode(query: logical.Query) -> Mode:
    """Of rows that come and go, a topic gets upserts."""
    mode = query.root.mode
    return "upsert" if mode == "retract" else mode


def _stage(stage: Stage, plan: Plan) -> Document:
    """Its rows are spread by the exchange's key: those that sources read as they are read, those `from` other stages
    by sending them on."""
    reads = [leaf.number for leaf in plan.leaves if leaf.stage == stage.number]
    fed = [s.number for s in plan.stages if s.exchange is not None and s.exchange.stage == stage.number]
    return {
        "nodes": [*reads, *(s.number for s in stage.steps)],
        "exchange": {"by": [show(k) for k in _shown(stage.keys)], "buckets": 1 if stage.single else "?", "from": fed},
    }


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


def _shown(keys: Sequence[Expr]) -> tuple[Expr, ...]:
    """The keys that a user knows: a constant stands beside keys whose NULLs are keys, too."""
    return tuple(k for k in keys if not isinstance(k, Lit))


def _list(exprs: Iterable[Any]) -> str:
    return ", ".join(show(e) for e in exprs)


# -------------------------------------------------------------------- pictures


def render_text(document: Document) -> str:
    """The plan as an indented tree, the sink on top."""
    nodes = {n["id"]: n for n in document["nodes"]}
    sink = document["sink"]
    key = ", ".join(sink["key"]) or "none"
    head = (
        f"{document['query']}: {sink['mode']} into topic {sink['topic']} (partitions {sink['partitions']}, key {key})"
    )
    lines = [head, *_tree(nodes, document["nodes"][-1]["id"], "", "")]
    for i, stage in enumerate(document["stages"]):
        by = ", ".join(stage["exchange"]["by"]) or "one bucket"
        how = "exchange" if stage["exchange"]["from"] else "spread"
        lines.append(f"stage {i}: {how} by {by}; nodes {', '.join(str(n) for n in stage['nodes']) or '-'}")
    moved = [n["partitions"] for n in document["topology"] if n["op"] == "repartition"]
    lines += [f"repartition: the side with fewer partitions goes to {n}" for n in moved]
    lines += [f"notice: {n}" for n in document["notices"]]
    return "\n".join(lines)


def _tree(nodes: Mapping[int, Document], number: int, first: str, rest: str) -> list[str]:
    node = nodes[number]
    lines = [f"{first}[{number}] {title(node)}"]
    inputs = node["inputs"]
    bar = "│ " if inputs else "  "
    for text in details(node):
        lines.append(f"{rest}{bar}  {text}")
    for i, x in enumerate(inputs):
        last = i == len(inputs) - 1
        lines += _tree(nodes, x, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))
    return lines


def title(node: Document) -> str:
    """One line that names a node."""
    match node["op"]:
        case "read":
            return f"read {node['kind']} {node['source']}"
        case "write":
            return f"write {node['kind']} {node['topic']}"
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
        return "for ever"
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
