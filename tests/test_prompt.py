"""`braid sql`: a script on stdin, then the prompt itself on a pseudo-terminal."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from rich.console import Console

from braid.face.catalogue import Catalogue
from braid.face.prompt import Names, coloured, function_names, keywords
from braid.face.shell import STILL, Shell, complete, pieces
from braid.store import opened
from braid.topics import TopicStore
from braid.topics.store_value import Store
from cli_help import braid
from crash import processes

L = "CREATE STREAM l (k INT KEY, v STRING) WITH (kafka_topic='l', value_format='JSON', partitions=1);\n"
ROW = "INSERT INTO l (rowtime, k, v) VALUES ({time}, {k}, '{v}');\n"

pytestmark = pytest.mark.usefixtures("folder")


def lines(text: str) -> list[list[str]]:
    """The words of each line; columns stand two blanks apart."""
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines() if line.strip()]


# --------------------------------------------------------------- as a script


def test_statements_in_turn() -> None:
    r = L.replace(" l ", " r ").replace("'l'", "'r'")
    join = "SELECT l.k AS k, l.v AS lv, r.v AS rv FROM l JOIN r\n  WITHIN 10 SECONDS ON l.k = r.k EMIT CHANGES;\n"
    rows = ROW.format(time=5, k=1, v="a;b") + ROW.format(time=6, k=1, v="x").replace(" l ", " r ")
    said = braid("sql", "--store", "s", stdin=L + r + rows + join + "SHOW STREAMS; DESCRIBE l;\nEXPLAIN " + join)
    assert said.code == 0
    told = lines(said.out)
    assert told[:4] == [["1 row into l"], ["1 row into r"], ["K", "LV", "RV"], ["1", "a;b", "x"]]
    assert ["L", "l", "KAFKA", "JSON"] in told and ["K", "INTEGER", "KEY"] in told
    assert "inner stream-stream join on L.K = R.K" in said.out
    assert said.err.split() == ["1", "row"]


def test_a_refused_statement_changes_nothing_and_the_rest_goes_on() -> None:
    bad = "SELECT k,\n  w FROM l EMIT CHANGES;\n"
    said = braid("sql", "--store", "s", stdin=L + bad + "SELEC;\n.what\nSHOW STREAMS")
    assert said.code == 1
    assert "unknown column W\n  at line 2, column 3\n      w FROM l EMIT CHANGES;\n      ^\n" in said.err
    assert "did you mean SELECT?" in said.err and "there is no command .what" in said.err
    assert lines(said.out)[-1] == ["L", "l", "KAFKA", "JSON"]


def test_what_a_topic_cannot_take_is_not_declared() -> None:
    again = L.replace("STREAM l", "STREAM again").replace("partitions=1", "partitions=3")
    said = braid("sql", "--store", "s", stdin=L + again + "SHOW STREAMS;")
    assert said.code == 1 and "AGAIN" not in said.out


def test_a_file_first_and_dot_commands(folder: Path) -> None:
    (folder / "q.sql").write_text("-- dialect: ksqldb\n" + L)
    (folder / "rows.sql").write_text(ROW.format(time=1, k=1, v="a") + ROW.format(time=2, k=2, v="b"))
    script = (
        ".read rows.sql\n.topics\n.read none.sql\nSELECT * FROM l EMIT CHANGES LIMIT 1;\n.help\n.quit\nSHOW STREAMS"
    )
    said = braid("sql", "q.sql", "--store", "s", stdin=script)
    told = lines(said.out)
    assert ["l", "1", "2"] in told and ["1", "a"] in told and ["2", "b"] not in told
    assert "cannot read none.sql" in said.err and ".dialect" in said.out and ["L", "l", "KAFKA", "JSON"] not in told


def test_a_table_shows_what_was_taken_back() -> None:
    table = "CREATE TABLE t (k INT PRIMARY KEY, v STRING) WITH (kafka_topic='t', value_format='JSON', partitions=1);\n"
    rows = [{"key": 1, "value": {"V": "a"}, "timestamp": 1}, {"key": 1, "value": None, "timestamp": 2}]
    braid("put", "t", "--store", "s", stdin="\n".join(map(json.dumps, rows)))
    said = braid("sql", "--store", "s", stdin=table + "SELECT * FROM t EMIT CHANGES;")
    assert [x[:2] for x in lines(said.out)] == [["K", "V"], ["+", "1"], ["-", "1"]]


def test_names_live_in_their_dialect() -> None:
    said = braid("sql", "--store", "s", stdin=L + ".dialect SQLstream\n.dialect ksqldb\nSHOW STREAMS;\n.dialect foo")
    assert "sqlstream\nksqldb\n" in said.out and "L" in said.out.split()
    assert "unknown dialect 'foo'" in said.err


def test_define_holds_from_statement_to_statement() -> None:
    said = braid("sql", "--store", "s", stdin="DEFINE t = 'l';\n" + L.replace("'l'", "'${t}'") + "SHOW STREAMS;")
    assert said.code == 0 and ["L", "l", "KAFKA", "JSON"] in lines(said.out)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT ';", False),
        ("SELECT ';';", True),
        ("SELECT 1; -- so", True),
        ("SELECT 1 -- so;", False),
        ("/* ;", False),
        ("SELECT 1; SELECT", False),
        (".help", True),
        ("-- only this", True),
    ],
)
def test_when_a_text_is_whole(text: str, whole: bool) -> None:
    assert complete(text, "ksqldb") is whole


def shell(folder: Path) -> Shell:
    quiet = Console(file=open(os.devnull, "w"))  # noqa: SIM115
    made = Shell("ksqldb", Store(opened(str(folder / "s"))), quiet, quiet, False, "local[1]")
    for piece in pieces(L + "CREATE TABLE towns (id INT PRIMARY KEY, name STRING) WITH (kafka_topic='t', "
                        "value_format='JSON', partitions=1);", made):  # fmt: skip
        made.run(piece)
    return made


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("SEL", ["SELECT"]),
        ("sel", ["select"]),
        ("SELECT * FROM to", ["towns"]),
        ("SELECT towns.na", ["name"]),
        ("SELECT t.", ["K", "V", "ID", "NAME"]),
        ("SELECT UCA", ["UCASE"]),
        (".di", [".dialect"]),
        (".dialect ris", ["risingwave"]),
        ("SELECT ", []),
    ],
)
def test_completion(typed: str, offered: list[str], folder: Path) -> None:
    found = [c.text for c in Names(shell(folder)).get_completions(Document(typed), CompleteEvent())]
    assert [x for x in offered if x not in found] == [] and (offered or not found)


def test_colours_keep_the_text() -> None:
    text = "SELECT ucase(\"a b\"), 'it''s', 12 -- so\nFROM s;"
    found = coloured(text, keywords("ksqldb"), function_names("ksqldb"))
    assert "\n".join("".join(piece for _, piece in line) for line in found) == text
    styled = {piece: style for line in found for style, piece in line if style}
    assert styled == {
        "SELECT": "class:keyword",
        "ucase": "class:function",
        "'it''s'": "class:string",
        "12": "class:number",
        "-- so": "class:comment",
        "FROM": "class:keyword",
    }


FILES = {
    "ksqldb": ("SELECT k, v FROM rows EMIT CHANGES;", "CREATE STREAM ROWS"),
    "risingwave": ("SELECT k, v FROM rows ORDER BY k;", "CREATE SOURCE rows"),
    "sqlstream": ("SELECT STREAM k, v FROM rows;", "CREATE STREAM ROWS"),
    "lenses": ("SELECT STREAM k, v FROM rows;", "CREATE STREAM rows"),
}


@pytest.mark.parametrize("dialect", FILES)
def test_files_at_once(dialect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are declared and read without a word of SQL before; nothing of them goes into the store."""
    monkeypatch.chdir(tmp_path)
    for n in range(2):
        Path(f"rows{n}.csv").write_text(f"k,v,_key\n{n},v{n},{n}\n")
    sql, made = FILES[dialect]
    words = ("sql", "--dialect", dialect, "--store", "s", "--source", "rows=rows*.csv")
    for expected in (True, False):  # the second time it stands in the catalogue
        said = braid(*words, stdin=sql)
        assert said.code == 0, said.err
        assert [line.split()[-2:] for line in said.out.splitlines()][1:] == [["0", "v0"], ["1", "v1"]]
        assert (made in said.err) == expected
    assert TopicStore(opened("s")).names() == []


@pytest.mark.parametrize("name", ["orders", "Orders", '"ORDERS"', "IF NOT EXISTS orders"])
def test_a_source_that_the_text_declares_is_not_guessed(name: str, tmp_path: Path) -> None:
    """Also where the declaration comes behind other statements, or the file could not be guessed."""
    (tmp_path / "orders.csv").write_text("id,at\n1,5\n")
    (tmp_path / "others.csv").write_text("v\n7\n")
    options = "WITH (kafka_topic='t', value_format='JSON', timestamp='at')"
    made = f"CREATE STREAM {name} (id STRING KEY, at BIGINT) {options};"
    text = f"SHOW STREAMS;\n{made}\nSELECT * FROM orders EMIT CHANGES;\nSELECT * FROM others EMIT CHANGES;\n"
    files = [x for n in ("orders", "others") for x in ("--source", f"{n}={tmp_path}/{n}.csv")]
    for more, stdin in (((), text), (("-e", text), None)):
        said = braid("sql", "--store", "s", *files, *more, stdin=stdin)
        assert said.code == 0, said.err
        assert lines(said.out)[-4:] == [["ID", "AT"], ["1", "5"], ["V"], ["7"]]
        assert "STREAM ORDERS (" not in said.err


OTHERS = {
    "risingwave": (
        """CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR); CREATE TABLE u (id INT, w VARCHAR);
           INSERT INTO t VALUES (1, 'a'), (2, 'b'); INSERT INTO u VALUES (1, 'x'); UPDATE t SET v = 'c' WHERE id = 2;
           SELECT t.id, v, w FROM t LEFT JOIN u ON t.id = u.id ORDER BY 1; SELECT nope FROM t;""",
        [
            *(["2 rows into t"], ["1 row into u"], ["1 row updated in t"]),
            *(["id", "v", "w"], ["1", "a", "x"], ["2", "c", "null"]),
        ],
    ),
    "sqlstream": (
        """CREATE STREAM s (ts TIMESTAMP NOT NULL, k INT); CREATE TABLE t (k INT PRIMARY KEY, name VARCHAR(5));
           INSERT INTO t VALUES (1, 'one');
           INSERT INTO s (ts, k) VALUES (TIMESTAMP '2020-01-01 00:00:00', 1);
           SELECT STREAM s.k, name FROM s JOIN t ON s.k = t.k; SELECT STREAM nope FROM s;""",
        [["1 row into T"], ["1 row into S"], ["K", "NAME"], ["1", "one"]],
    ),
    "lenses": (
        """SET defaults.topic.autocreate=true;
           CREATE TABLE readings(_key STRING, value INT) FORMAT (STRING, JSON);
           INSERT INTO readings(_key, value) VALUES ("a", 1), ("b", 2);
           SELECT STREAM * FROM readings WHERE value > 1; SELECT STREAM nope FROM readings;""",
        [["2 rows into readings"], ["_key", "value"], ["b", "2"]],
    ),
}


@pytest.mark.parametrize("dialect", OTHERS)
def test_the_other_dialects(dialect: str) -> None:
    script, told = OTHERS[dialect]
    said = braid("sql", "--dialect", dialect, "--store", "s", stdin=script)
    assert lines(said.out) == told, said.err
    assert said.code == 1 and "nope" in said.err and "^" in said.err
    assert {"SELECT", "FROM", "JOIN"} <= keywords(dialect)


def prompted(*texts: str, dialect: str = "ksqldb") -> str:
    """What a prompt says on stderr: as somebody comes in, and of statements."""
    err = io.StringIO()
    shell = Shell(dialect, Store(opened("s")), Console(file=io.StringIO()), Console(file=err), False, "local[1]")
    shell.greet()
    for text in texts:
        shell.run(text)
    shell.close()
    return err.getvalue()


def test_a_prompt_says_what_stands_still(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query of the catalogue runs under `braid run`; what it made is as old as that."""
    views = "CREATE TABLE t (k INT PRIMARY KEY); CREATE MATERIALIZED VIEW v AS SELECT k FROM t;"
    for dialect, text in (("ksqldb", f"{L}CREATE STREAM o AS SELECT k, v FROM l;"), ("risingwave", views)):
        list(Catalogue(TopicStore(opened("s")), dialect).program("cell").statements(text))
        for topic in ("l", "O", "t", "v"):
            TopicStore(opened("s")).create(topic, 1)
    select = "SELECT * FROM o EMIT CHANGES;"
    assert prompted() == f"note: O {STILL}\n"
    assert prompted(select, select) == f"note: O {STILL}\n" * 2 + "0 rows\n" * 2
    assert prompted("SELECT * FROM l EMIT CHANGES;") == f"note: O {STILL}\n0 rows\n"
    assert prompted("SELECT k FROM t;", "SELECT k FROM v;", dialect="risingwave") == f"note: v {STILL}\n" * 2
    assert prompted(dialect="lenses") == ""
    monkeypatch.setattr("braid.face.shell.holder", lambda path: 1)  # a run of another process
    assert prompted(select) == "0 rows\n"


@pytest.mark.spark
def test_a_query_of_the_prompt_runs_on_spark_and_goes_on_next_time() -> None:
    from braid.testing.on_spark import shared_session

    shared_session()
    query = "CREATE STREAM o AS SELECT k, v FROM l WHERE v <> 'no';\n"
    show = "SELECT * FROM o EMIT CHANGES;\n.queries\nDROP STREAM o;\n.queries"
    first = "".join(ROW.format(time=n, k=n, v=v) for n, v in enumerate(("a", "no", "b")))
    said = braid("sql", "--store", "s", stdin=L + query + first + show)
    assert said.code == 0 and "O is running" in said.err
    assert [x[:2] for x in lines(said.out)[3:6]] == [["K", "V"], ["0", "a"], ["2", "b"]]
    assert ["O", "running", "3", "2", "0", "0"] in lines(said.out) and lines(said.out)[-1][0] == "query"
    again = braid("sql", "--store", "s", stdin=L + query + ROW.format(time=9, k=9, v="c") + show)
    assert ["O", "running", "1", "1", "0", "0"] in lines(again.out) and ["9", "c"] in lines(again.out)
    other = braid("sql", "--store", "s", stdin=L + query.replace("'no'", "'x'") + "SHOW STREAMS;")
    assert other.code == 1 and "was made by another query" in other.err and ["O", "O"] not in lines(other.out)


@pytest.mark.spark
def test_a_query_that_was_left_running_goes_on_when_it_is_typed_again() -> None:
    """Its statement stands in the catalogue; typed a third time, while it runs, it changes nothing."""
    from braid.testing.on_spark import shared_session

    shared_session()
    query = "CREATE STREAM o AS SELECT k, v FROM l;\n"
    for n in range(2):
        said = braid("sql", "--store", "s", stdin=L + query + query + ROW.format(time=n, k=n, v="v") + ".queries")
        assert said.code == 0 and said.err.count("O is running\n") == 1 and "O is running already" in said.err
        assert ["O", "running", "1", "1", "0", "0"] in lines(said.out)
    assert TopicStore(opened("s")).end_offsets("O") == [2]


# ------------------------------------------------------------ on a terminal


class Terminal:
    """`braid sql` on a pseudo-terminal of its own, as a user has it."""

    def __init__(self, *words: str, cwd: Path) -> None:
        self._fd, other = pty.openpty()
        start = "import os, runpy; os.login_tty(0); runpy.run_module('braid', run_name='__main__')"
        env = {**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "XDG_STATE_HOME": str(cwd / "state")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", start, *words], cwd=cwd, env=env, stdin=other, stdout=other, stderr=other
        )
        os.close(other)
        self._seen = ""

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def _comes(self) -> bool:
        """Whether there is more to read within a moment; `select` takes no descriptor from 1,024 on."""
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return bool(poll.poll(100))

    def until(self, text: str, seconds: float = 20) -> str:
        """Waits for a text on the screen, behind what was waited for before."""
        deadline = time.monotonic() + seconds
        while text not in self._seen:
            assert time.monotonic() < deadline, f"no {text!r} in {self._seen!r}"
            if self._comes():
                self._seen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", os.read(self._fd, 65536).decode())
        before, _, self._seen = self._seen.partition(text)
        return before

    def close(self) -> None:
        self.process.kill()
        self.process.wait(30)
        os.close(self._fd)


@pytest.fixture
def terminal(folder: Path) -> Iterator[Terminal]:
    made = Terminal("sql", "--store", "s", cwd=folder)
    yield made
    made.close()


def test_the_prompt(terminal: Terminal, folder: Path) -> None:
    """Several lines, a refusal, Tab, a live tail that Ctrl-C ends, history, the end."""
    terminal.until("ksqldb>")
    first, second = L.strip().split(" WITH")
    terminal.type(first + "\r")
    terminal.until("...")
    terminal.type("WITH" + second + "\r")
    terminal.until("ksqldb>")
    terminal.type("SELECT k, w FROM l EMIT CHANGES;\r")
    assert "unknown column W" in terminal.until("^") + terminal.until("hint: L has K, V")
    terminal.until("ksqldb>")
    terminal.type("SELECT * FROM l EMIT CHAN\t")
    terminal.until("CHANGES")
    terminal.type(";\r")
    deadline = time.monotonic() + 60
    for n in range(2):
        record = json.dumps({"key": n, "value": {"V": f"row{n}"}, "timestamp": n})
        assert braid("put", "l", "--store", folder / "s", stdin=record).code == 0
        terminal.until(f"row{n}", deadline - time.monotonic())
    terminal.type("\x03")
    terminal.until("2 rows")
    terminal.until("ksqldb>")
    terminal.type("INSERT INTO l (rowtime, k, v) VALUES (9, 9, 'x');\r")
    terminal.until("1 row into l")
    terminal.until("ksqldb>")
    terminal.type("half a line\x03")
    terminal.until("ksqldb>")
    terminal.type("\x1b[A")  # up: the last statement
    terminal.until("VALUES (9, 9, 'x');")
    terminal.type("\x03")
    terminal.until(
        "ksqldb>"
    )  # it may be the line that Ctrl-C ends, drawn once more: then this Ctrl-D comes between two
    for _ in range(20):
        terminal.type("\x04")
        with contextlib.suppress(subprocess.TimeoutExpired):
            assert terminal.process.wait(3) == 0
            break
    assert terminal.process.poll() == 0
    assert TopicStore(opened(folder / "s")).end_offsets("l") == [3]
    assert "EMIT CHANGES" in (folder / "state" / "braid" / "history").read_text()


@pytest.mark.spark
@pytest.mark.operations
def test_a_jvm_that_dies_is_told_in_a_line_and_begun_anew(terminal: Terminal, folder: Path) -> None:
    query = "CREATE STREAM o AS SELECT k, v FROM l;\r"
    terminal.until("ksqldb>")
    terminal.type(L.strip() + "\r")
    terminal.until("ksqldb>")
    terminal.type(query)
    terminal.until("O is running", 120)
    terminal.until("ksqldb>")
    (jvm,) = processes.jvms(terminal.process.pid)
    os.kill(jvm, signal.SIGKILL)
    terminal.type(".queries\r")
    said = terminal.until("hint: DROP a query", 60)
    assert "error: Spark's JVM has ended, killed or out of memory" in said and "Traceback" not in said
    terminal.until("ksqldb>")
    terminal.type("INSERT INTO l (rowtime, k, v) VALUES (9, 9, 'x');\rDROP STREAM o;\r" + query)
    terminal.until("O is running", 120)
    deadline = time.monotonic() + 60
    while TopicStore(opened(folder / "s")).end_offsets("O") != [1]:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    terminal.type("\x04")
    assert terminal.process.wait(60) == 0
