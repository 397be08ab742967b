"""How the source is built, beside the contracts of `make lint`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import grimp

from braid.plan.drop_reasons import Reason
from braid.sinks.interface import Sink
from braid.store.remote import RemoteStore

SOURCE = Path(__file__).parents[1] / "src" / "braid"


def test_no_file_imports_itself_by_way_of_others() -> None:
    """But for types that are made of each other: a node and the union of all nodes, a cursor and the words it reads."""
    graph = grimp.build_graph("braid", exclude_type_checking_imports=True, cache_dir=None)
    assert len(graph.modules) > 200
    arrows = [(m, n) for m in graph.modules for n in graph.find_modules_directly_imported_by(m)]
    assert [graph.find_shortest_chain(n, m) for m, n in arrows if graph.chain_exists(n, m)] == []


def test_files_are_short_enough_to_be_read() -> None:
    lengths = {p.relative_to(SOURCE): len(p.read_text(encoding="utf-8").splitlines()) for p in SOURCE.rglob("*.py")}
    assert {name: lines for name, lines in lengths.items() if lines > 600} == {}


def test_no_hint_says_to_delete_a_checkpoint() -> None:
    """Who did so got every result once more into the output: a query begins anew by `braid reset`."""
    texts = {p.name: re.sub(r"[\"\s]+", " ", p.read_text(encoding="utf-8")) for p in SOURCE.rglob("*.py")}
    assert [name for name, text in texts.items() if "delete the checkpoint" in text] == []


DOOR = "face/session.py: connect"  # each of its parameters is a word of its user


def functions() -> Iterator[tuple[str, int, int]]:
    """Each function's place, its lines and its parameters."""
    for p in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(p.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.end_lineno is not None:
                a = node.args
                names = [x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg) if x is not None]
                place = f"{p.relative_to(SOURCE)}: {node.name}"
                yield place, node.end_lineno - node.lineno + 1, len([n for n in names if n not in ("self", "cls")])


def test_functions_are_short_and_take_few_things() -> None:
    assert [x for x in functions() if (x[1] > 65 or x[2] > 9) and x[0] != DOOR] == []


def naming(format: str) -> list[str]:
    """The files with a string, but for docstrings, that names a format."""
    name = re.compile(rf"\b{format}\b")
    texts = {p: p.read_text(encoding="utf-8") for p in SOURCE.rglob("*.py")}
    found = (p for p, text in texts.items() if name.search(text) and any(map(name.search, strings(text))))
    return sorted(str(p.relative_to(SOURCE)) for p in found)


def strings(text: str) -> Iterator[str]:
    tree = ast.parse(text)
    places = (n for n in ast.walk(tree) if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef))
    prose = {id(n.body[0].value) for n in places if n.body and isinstance(n.body[0], ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value


def test_who_reads_and_writes_asks_the_list_of_formats() -> None:
    """A registry that says no kind means AVRO."""
    assert naming("AVRO") == ["records/formats/named.py", "records/schemas/avro.py", "topics/registries.py"]
    assert naming("DELIMITED") == ["records/formats/named.py"]


def test_only_the_broker_s_own_files_ask_whether_it_is_one() -> None:
    """Who writes or reads topics, or fills a sink, cannot tell which it is."""
    asked = re.compile(r"isinstance\([^)]*KafkaTopics\)|output\.kind|isinstance\([^)]*Sink\)")
    places = (p for p in SOURCE.rglob("*.py") if asked.search(p.read_text(encoding="utf-8")))
    assert sorted(str(p.relative_to(SOURCE)) for p in places) == ["sinks/kafka.py", "topics/access.py"]


def test_the_text_of_a_drop_reason_stands_in_one_file() -> None:
    """Whoever drops rows takes a reason of the list, and the page about drops has a row for each."""
    droppers = {"drop", "dropped_rows", "drops_of", "at_source"}
    calls = (n for p in SOURCE.rglob("*.py") for n in ast.walk(ast.parse(p.read_text(encoding="utf-8"))))
    said = [
        ast.unparse(c) for c in calls
        if isinstance(c, ast.Call) and getattr(c.func, "attr", getattr(c.func, "id", "")) in droppers
        and any(isinstance(a, ast.Constant) and a.value in {*Reason} - {"value"} for a in c.args)
    ]  # fmt: skip
    assert said == []
    page = (SOURCE.parents[1] / "docs/semantics/drops.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z ]+)` \| ([^|]+) \|", page, re.MULTILINE)
    assert [name for name, _ in rows] == [*Reason]
    assert [name for name, text in rows if not text.startswith(Reason(name).sentence)] == []


def test_a_sentence_of_a_reason_is_in_the_list_alone() -> None:
    """And a function that can fail says so by its builder: there is no second list that knows functions by name."""
    texts = {str(p.relative_to(SOURCE)): p.read_text(encoding="utf-8") for p in SOURCE.rglob("*.py")}
    for reason in Reason:
        found = [f for f, text in texts.items() if reason.sentence in text]
        assert [f for f in found if reason.sentence in " ".join(strings(texts[f]))] == ["plan/drop_reasons.py"], reason
    by_name = re.compile(r"^WHY\b|reasons\.WHY", re.MULTILINE)
    assert [f for f, text in texts.items() if by_name.search(text)] == []


def test_the_page_about_sinks_names_all_that_a_sink_is_and_does() -> None:
    page = (SOURCE.parents[1] / "docs/adding-a-sink.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`[^|]+) \|", page, re.MULTILINE)
    told = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert {"target", "partitions", *told} == {name for name in vars(Sink) if not name.startswith("_")}


def test_the_page_about_object_stores_names_all_that_one_needs() -> None:
    page = (SOURCE.parents[1] / "docs/adding-an-object-store.md").read_text(encoding="utf-8")
    cells = re.findall(r"^ *\| (`[^|]+) \|", page, re.MULTILINE)
    told = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert told == {"prefix", *RemoteStore.__abstractmethods__}


# --------------------------------------------------------------- where a thing lies


def asking(question: str, but: str = "") -> list[str]:
    """Each line outside of the folder `but` that asks this, by its file."""
    found = ((p.relative_to(SOURCE), p.read_text(encoding="utf-8")) for p in sorted(SOURCE.rglob("*.py")))
    return [str(p) for p, text in found if p.parts[0] != but for _ in re.finditer(question, text)]


def test_a_url_is_read_at_a_door() -> None:
    """Behind it a store is a value. Two doors take a folder and its URL for different things: one copy, or a place of
    backups."""
    assert asking(r"\bis_url\(", but="store") == ["face/backup.py", "face/restore.py"]


def test_whether_there_is_a_broker_is_asked_of_the_store() -> None:
    assert asking(r"\bbroker is (not )?None") == [
        "topics/interface.py",
        "topics/store_value.py",
        "topics/store_value.py",
    ]


PLACES = {"folder", "store", "checkpoint", "root"}
PATHS = re.compile(r"(str|Path|os\.PathLike\[str\])( \| (None|Path|str|os\.PathLike\[str\]))*")


def test_stores_and_checkpoints_are_handed_on_as_values() -> None:
    """What is left are folders of this machine: results, copies of files, scratch."""
    texts = [
        f"{p.relative_to(SOURCE)}: {node.name}({x.arg})"
        for p in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(p.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
        for x in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        if x.arg in PLACES and x.annotation is not None and PATHS.fullmatch(ast.unparse(x.annotation))
    ]
    assert len(texts) < 75, texts
    assert [x for x in texts if x.startswith("stage/")] == ["stage/run_files.py: run_prefix(checkpoint)"]


def test_a_checkpoint_has_one_body_wherever_it_lies() -> None:
    """Two facts of a bucket: each object costs a request, so a task's runs share one; and there a driver that was
    taken over may still write, so a state is only created."""
    asks = [x for x in asking(r"\.path is (not )?None", but="store") if x.startswith(("stage/", "topics/"))]
    topics = ["topics/interface.py", "topics/interface.py", "topics/registries.py"]  # these have two forms
    frames = ["topics/registered.py", "topics/registered.py"]  # Spark reads their rows from files
    assert asks == ["stage/checkpoint_runs.py", "stage/state_file.py", *topics[:2], *frames, *topics[2:]]


def bodies(module: str) -> dict[str, set[str]]:
    """What the classes of a file do, by their names."""
    tree = ast.parse((SOURCE / module).read_text(encoding="utf-8"))
    classes = [n for n in tree.body if isinstance(n, ast.ClassDef)]
    return {c.name: {f.name for f in c.body if isinstance(f, ast.FunctionDef)} - {"__init__"} for c in classes}


def test_what_a_registry_does_is_written_once() -> None:
    """Where its documents are differs in how one is read and written; of a server all is its own."""
    found = bodies("topics/registries.py")
    asked = {"by_id", "latest", "version", "check", "register", "forget"}
    assert [name for name, does in found.items() if asked & does] == ["StoreRegistry", "HttpRegistry"]
    assert found["Memory"] == found["Folder"] == {"names", "get", "put", "shown", "now", "change"}
    assert found["InObjects"] == {"now", "change", "_of"}


def test_what_an_item_of_order_by_means_is_asked_in_one_place() -> None:
    """By its place, by its name, else an expression."""
    assert asking("there is no column number") == ["bind/select/items.py"]


def test_one_function_asks_what_was_meant() -> None:
    texts = {str(p.relative_to(SOURCE)): p.read_text(encoding="utf-8") for p in SOURCE.rglob("*.py")}
    assert [name for name, text in texts.items() if "did you mean" in text] == ["guess.py"]


def test_a_select_is_bound_by_one_class_of_each_kind() -> None:
    """Dialects add to them; none has its own."""
    places: dict[str, list[str]] = {}
    for p in (SOURCE / "bind").rglob("*.py"):
        for node in ast.walk(ast.parse(p.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(p.relative_to(SOURCE / "bind").as_posix())
    shared = {"scope.py": ("Column", "Table", "Scope"), "items.py": ("Item", "Result"), "grouping.py": ("Groups",),
              "tree.py": ("Leaf", "Joined", "Policy"), "pushing.py": ("Shares",)}  # fmt: skip
    homes = {name: [f"select/{file}"] for file, names in shared.items() for name in names}
    assert {name: places[name] for name in homes} == homes
    assert places["Env"] == ["env.py"]
    assert len(places["From"]) == 1


ROOMS = ("stage", "topics", "face", "spark", "sql", "store")


def test_the_page_of_the_architecture_has_a_line_for_each_file() -> None:
    """What a file is for, as its first sentence says: who looks for something finds it there by its name."""
    page = (SOURCE.parents[1] / "docs/architecture.md").read_text(encoding="utf-8")
    lines = re.findall(rf"^\| `((?:{'|'.join(ROOMS)})/\w+\.py)` \| (.+) \|$", page, re.MULTILINE)
    files = [p for room in ROOMS for p in sorted((SOURCE / room).glob("*.py")) if p.name != "__init__.py"]
    wanted = [(f"{p.parent.name}/{p.name}", first_sentence(p)) for p in files]
    assert lines == wanted, "\n".join(f"| `{name}` | {text} |" for name, text in wanted)


def first_sentence(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split()).replace("|", "\\|")
