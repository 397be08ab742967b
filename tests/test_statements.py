"""ksqlDB's statements around queries at their doors: ASSERT, PRINT, TERMINATE, PAUSE and RESUME in a store."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from braid.bind.program import Program
from braid.errors import SqlError
from braid.face.catalogue import Catalogue
from braid.records.wire import Wires
from braid.store import opened
from braid.testing import Driver
from braid.topics import TopicStore
from cli_help import Said, braid
from effort import examples

S = "CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);\n"
O = "CREATE STREAM o AS SELECT k, v + 1 AS w FROM s;\n"
ROW = "INSERT INTO s (rowtime, k, v) VALUES ({n}, {n}, {n});\n"

pytestmark = pytest.mark.usefixtures("folder")


def test_assert_and_print_at_the_prompt() -> None:
    rows = "".join(ROW.format(n=n) for n in range(3))
    said = braid("sql", "--store", "s", stdin=S + rows + "PRINT s FROM BEGINNING INTERVAL 2; PRINT s;\n")
    assert said.code == 0 and said.err.split() == ["2", "records", "0", "records"]
    told = [line.split() for line in said.out.splitlines()[3:]]
    assert told == [
        ["rowtime", "key", "value", "partition"],
        ["1970-01-01T00:00:00.000Z", "0", '{"V":', "0}", "0"],
        ["1970-01-01T00:00:00.002Z", "2", '{"V":', "2}", "0"],
    ]
    checks = "ASSERT TOPIC s WITH (partitions=1);" + "".join(
        f"ASSERT VALUES s (k, v) VALUES ({n}, {n});" for n in (0, 1)
    )
    assert braid("sql", "--store", "s", stdin=checks).code == 0
    said = braid("sql", "--store", "s", stdin=checks.replace("(1, 1)", "(1, 2)"))
    assert said.code == 1 and 'record 2 of S has value {"V": 1}, not {"V": 2}' in said.err


def test_assert_waits_for_what_may_still_come() -> None:
    said = braid("sql", "--store", "s", stdin=S + "ASSERT NOT EXISTS TOPIC s TIMEOUT 50 MILLISECONDS;")
    assert said.code == 1 and "there is a topic s" in said.err
    said = braid("run", "-e", S + "SET 'ksql.assert.topic.default.timeout.ms' = '50'; ASSERT TOPIC t;", "--store", "s")
    assert said.code == 1 and "there is no topic t" in said.err


def test_a_look_at_what_a_query_writes_waits_for_it() -> None:
    for look in ("ASSERT VALUES o (k, w) VALUES (1, 2);", "PRINT o FROM BEGINNING;", "ASSERT TOPIC O;"):
        said = braid("run", "-e", S + O + look, "--store", "s")
        assert said.code == 1 and "waits for it to be done" in said.err and "--until-idle" in said.err


@pytest.mark.spark
def test_asserted_when_the_queries_are_done(folder: Path) -> None:
    from braid.testing.on_spark import shared_session

    shared_session()
    text = S + ROW.format(n=1) + O + "ASSERT TOPIC O; ASSERT VALUES o (k, w) VALUES (1, {w}); PRINT o FROM BEGINNING;"
    said = braid("run", "-e", text.format(w=2), "--store", "a", "--until-idle", "--quiet")
    assert said.code == 0 and '1    {"W": 2}  0' in said.out, said.err
    said = braid("run", "-e", text.format(w=3), "--store", "b", "--until-idle", "--quiet")
    assert said.code == 1 and 'has value {"W": 2}, not {"W": 3}' in said.err


@pytest.mark.spark
def test_a_topic_that_a_query_of_the_file_goes_on_to_write_stays(folder: Path) -> None:
    """Another query wrote it before, and is dropped: its records are there."""
    from cli_help import on_shared_spark, records

    to = "WITH (connector = 'kafka', topic = 'out') FORMAT PLAIN ENCODE JSON;"
    table = "CREATE TABLE t (id INT, v VARCHAR);"
    for text in (
        f"{table} INSERT INTO t VALUES (1, 'x'); CREATE SINK a AS SELECT id, v FROM t {to}",
        f"{table} DROP SINK a; CREATE SINK b AS SELECT v FROM t {to}",
    ):
        (folder / "q.sql").write_text(text, encoding="utf-8")
        words = ("run", "q.sql", "--store", "s", "--dialect", "risingwave", "--until-idle", "--quiet")
        assert on_shared_spark(*words, cwd=folder).code == 0
    assert [r["value"] for r in records("out")] == [{"id": 1, "v": "x"}, {"v": "x"}]


@pytest.mark.spark
def test_a_query_is_paused_resumed_and_terminated() -> None:
    from braid.testing.on_spark import shared_session

    shared_session()
    text = S + O + ROW.format(n=1) + "ASSERT VALUES o (k, w) VALUES (1, 2); PAUSE o;\n.queries\n" + ROW.format(n=2)
    text += "RESUME o; ASSERT VALUES o (k, w) VALUES (2, 3); TERMINATE ALL;\n.queries\nSHOW QUERIES; DESCRIBE o;"
    said = braid("sql", "--store", "s", stdin=text)
    assert said.code == 0, said.err
    seen = [line.split() for line in said.out.splitlines()]
    assert ["O", "stopped", "1", "1", "0", "0"] in seen and ["W", "INTEGER", "VALUE"] in seen
    assert TopicStore(opened("s")).end_offsets("O") == [2]
    again = braid("sql", "--store", "s", stdin=ROW.format(n=3) + "ASSERT VALUES o (k, w) VALUES (1, 2); SHOW QUERIES;")
    assert again.code == 0 and "note" not in again.err  # nothing stands still: it is gone
    braid("sql", "--store", "s", stdin=O + "ASSERT TOPIC O;")  # made again it goes on
    assert TopicStore(opened("s")).end_offsets("O") == [3]


@pytest.mark.spark
def test_the_same_from_python() -> None:
    import braid as package
    from braid.testing.on_spark import shared_session

    with package.connect(store="s", spark=shared_session()) as session:
        (first,) = session.execute(S + O + ROW.format(n=1))
        first.await_idle()
        session.execute("ASSERT VALUES o (k, w) VALUES (1, 2); PAUSE o;" + ROW.format(n=2))
        assert first.status() == "stopped"
        session.execute("RESUME o;")[0].await_idle()
        (third,) = session.execute(WHOLE.format(more="", n=3) + ROW.format(n=3) + ROW.format(n=4))
        third.await_idle()
        assert len(session.execute("PRINT o FROM BEGINNING;").rows) == 3
        session.execute("ASSERT VALUES o (k, w) VALUES (2, 3); TERMINATE o;")
        assert third.status() == "stopped" and session.execute("SHOW QUERIES;").rows == []


@pytest.mark.spark
def test_what_is_paused_in_a_file_does_not_start() -> None:
    said = braid("run", "-e", S + O + "PAUSE o;", "--store", "s", "--until-idle")
    assert said.code == 0 and "the file has no query to run" in said.err


# ------------------------------------------------------------------ catalogue


def program() -> Program:
    return Catalogue(TopicStore(opened("s")), "ksqldb").program("cell")


def done(text: str) -> list[str]:
    return [type(e.bound).__name__ for e in program().statements(text)]


def test_altered_streams_stand_altered() -> None:
    alter = "ALTER STREAM s ADD COLUMN w INT, ADD x STRING;"
    assert done(S + alter) == ["SourceDeclared", "Altered"]
    assert [c.name for c in program().catalog.sources["S"].columns] == ["K", "V", "W", "X"]
    assert done(S + alter.lower()) == ["Again", "Again"]  # the same file again
    with pytest.raises(SqlError, match="a column is removed"):
        done(S.replace("CREATE", "CREATE OR REPLACE"))
    done(alter + "DROP STREAM s;")
    assert not program().standing


def test_a_terminated_query_is_gone_and_its_stream_stands() -> None:
    done(S + O + "TERMINATE o;")
    p = program()
    assert not p.queries and not p.catalog.queries and "O" in p.catalog.sources
    with pytest.raises(SqlError, match="no query writes O"):
        done("PAUSE o;")
    assert done("INSERT INTO o SELECT k, v AS w FROM s;") == ["QueryBound"]
    assert done(O) == ["QueryBound"] and list(program().queries) == ["O"]
    assert done("TERMINATE ALL; DROP STREAM o; DROP STREAM s;")[0] == "Terminated" and not program().standing


# ----------------------------------------------------------------- RUN SCRIPT


def write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")


def test_a_script_stands_in_the_place_of_its_statement() -> None:
    write("main/run.sql", "DEFINE t = 's';\nRUN SCRIPT 'more/types.sql';\n" + S.replace("v INT", "v PAIR, n ${n}") + O)
    write("main/more/types.sql", "RUN SCRIPT 'more/n.sql'; CREATE TYPE pair AS INT; -- no end")
    write("main/more/n.sql", "DEFINE n = 'BIGINT'; SHOW VARIABLES;")
    said = braid("explain", "main/run.sql", "--store", "s")
    assert said.code == 0 and "W = (S.V + 1)" in said.out
    said = braid("check", "main/run.sql", "--store", "s")
    assert "4 statements, no problem" in said.out
    write("demo.sql", S + ROW.format(n=1))
    assert "1 row into s" in braid("sql", "--store", "s", stdin="RUN SCRIPT 'demo.sql'; PRINT s FROM BEGINNING;").out


def test_what_is_wrong_in_a_script_is_told_with_its_name() -> None:
    write("main.sql", "RUN SCRIPT 'a.sql';\nRUN SCRIPT 'b.sql';")
    write("a.sql", S + "\nSELECT FROM s;")
    write("b.sql", "\nDESCRIBE z;")
    said = braid("check", "main.sql", "--store", "s")
    assert said.code == 1 and "at line 3, column 8 of a.sql" in said.err and "at line 2, column 10 of b.sql" in said.err
    write("a.sql", "RUN SCRIPT 'main.sql';")
    said = braid("check", "main.sql", "--store", "s")
    assert said.code == 1 and "a.sql runs itself" in said.err and "it is run by a.sql -> main.sql -> a.sql" in said.err
    for n in range(11):
        write(f"n{n}.sql", f"RUN SCRIPT 'n{n + 1}.sql';")
    assert "scripts run scripts, 10 deep" in braid("check", "n0.sql", "--store", "s").err
    write("many.sql", "RUN SCRIPT './many.sql';\n" * 40)  # would be read 40 ** 10 times
    assert "many.sql runs itself" in braid("check", "many.sql", "--store", "s").err


@pytest.mark.parametrize("path", ["../out.sql", "link.sql", "folder/../../out.sql", "/etc/hostname", "linked/out.sql"])
def test_a_script_lies_below_the_folder(path: str, folder: Path) -> None:
    write("in/main.sql", f"RUN SCRIPT '{path}';")
    write("out.sql", S)
    Path("in/folder").mkdir()
    Path("in/link.sql").symlink_to(folder / "out.sql")
    Path("in/linked").symlink_to(folder)
    said = braid("check", "in/main.sql", "--store", "s")
    assert said.code == 1 and "is outside of the folder of scripts" in said.err
    assert said.err.splitlines()[1] == "  at line 1, column 12"


def test_what_is_no_script() -> None:
    write("text.sql", S)
    Path("text.sql").write_bytes(b"\xff")
    for path, why in (
        ("none.sql", "No such file"),
        (".", "is not a plain file"),
        ("text.sql", "is not UTF-8"),
        ("a\0", "out"),
    ):
        said = braid("sql", "--store", "s", stdin=f"RUN SCRIPT '{path}';")
        assert said.code == 1 and why in said.err, said.err
    write("ok.sql", S)
    assert braid("sql", "--store", "s", stdin=f"RUN SCRIPT '{Path('ok.sql').resolve()}';").code == 0
    with pytest.raises(SqlError, match="RUN SCRIPT is for braid run and the prompt"):
        list(Program("ksqldb").statements("RUN SCRIPT 'ok.sql';"))


# ---------------------------------------------------------- CREATE OR REPLACE

WHOLE = "CREATE OR REPLACE STREAM o AS SELECT k, v + 1 AS w{more} FROM s WHERE v <> {n};\n"
SUMS = "CREATE OR REPLACE TABLE t AS SELECT k % 2 AS g, SUM(v) AS n FROM s{where} GROUP BY k % 2;\n"


def test_a_replacement_is_judged_by_what_the_catalogue_holds() -> None:
    done(S + O)
    assert done(WHOLE.format(more="", n=2)) == ["QueryBound"]
    assert done(WHOLE.format(more="", n=2)) == ["Again"]
    assert done(WHOLE.format(more=", v", n=2)) == ["QueryBound"]
    with pytest.raises(SqlError, match="column V INTEGER is removed"):
        done(WHOLE.format(more="", n=3))


@pytest.mark.spark
def test_a_run_goes_on_with_what_took_the_place_of_its_queries() -> None:
    """From file to file, and at the prompt; what the checkpoint is of can be run again, what it was of cannot."""
    from braid.testing.on_spark import shared_session

    shared_session()

    def run(text: str) -> Said:
        return braid("run", "-e", text, "--store", "s", "--until-idle", "--quiet")

    rows = [ROW.format(n=n) for n in range(8)]
    assert run(S + rows[1] + rows[2] + O + SUMS.format(where="")).code == 0
    new = WHOLE.format(more="", n=4) + SUMS.format(where=" WHERE v <> 4")
    assert run(rows[3] + rows[4] + new).code == 0
    assert run(rows[5] + new).code == 0  # the same again
    assert "was made by another query" in run(rows[6] + O).err
    text = rows[6] + rows[7] + WHOLE.format(more=", v AS x", n=7) + SUMS.format(where="") + "ASSERT TOPIC O;"
    assert braid("sql", "--store", "s", stdin=text).code == 0
    p = program()
    assert p.queries["O"].sink.values[-1].name == "X"
    assert values("O") == ['{"W":2}', '{"W":3}', '{"W":4}', '{"W":6}', '{"W":7,"X":6}']
    assert values("T") == [f'{{"N":{n}}}' for n in (1, 2, 4, 9, 8, 16)]


def values(topic: str) -> list[str]:
    store = TopicStore(opened("s"))
    found: list[str] = store.parsed(topic, 0, 0, store.end_offsets(topic)[0], Wires())["_value"].to_list()
    return found


# ------------------------------------------------------------------------ law


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(examples(8, 1)))
def test_what_runs_is_replaced_and_paused_at_random(seed: int) -> None:
    """Whatever the cuts and buckets, and whenever somebody looks, the output is the reference's."""
    steps = history(random.Random(seed))
    wanted = played(steps, "reference", None, None, frozenset())
    assert any(rows for rows in wanted.values())
    for batch, buckets in ((None, 1), (1, 4), (3, 2)):
        looks = frozenset(random.Random(f"{seed}{batch}").sample(range(len(steps)), 8))
        assert played(steps, "local", batch, buckets, looks) == wanted


def history(r: random.Random) -> list[str]:
    """Statements over a stream of which one query filters, one counts, one joins what both give, one asks for HAVING,
    and one filters a table."""
    steps = [S, O, SUMS.format(where=""), BEHIND, OFTEN.format(n=2), FEW.format(n=3)]
    paused = set[str]()
    for n in range(40):
        steps.append(f"INSERT INTO s (rowtime, k, v) VALUES ({n}, {r.randrange(4)}, {r.randrange(6)});")
        match r.randrange(10):
            case 0:
                steps.append(WHOLE.format(more=", v AS x", n=r.randrange(6)))
            case 1:
                steps.append(SUMS.format(where=r.choice(["", f" WHERE v <> {r.randrange(6)}"])))
            case 2 | 3:
                name = r.choice("ot")
                steps.append(f"{'RESUME' if name in paused else 'PAUSE'} {name};")
                paused ^= {name}
            case 4:
                steps.append("restart")
            case 5:
                steps.append(OFTEN.format(n=r.randrange(1, 4)))
            case 6:
                steps.append(FEW.format(n=r.randrange(1, 5)))
    return steps


OFTEN = "CREATE OR REPLACE TABLE h AS SELECT v AS w, COUNT(*) AS n FROM s GROUP BY v HAVING COUNT(*) % {n} = 0;\n"
FEW = "CREATE OR REPLACE TABLE f AS SELECT g, n FROM t WHERE n % {n} <> 1;\n"
BEHIND = "CREATE STREAM b AS SELECT o.k, w, n FROM o LEFT JOIN t ON o.k = t.g;\n"


def played(
    steps: list[str], runtime: str, batch: int | None, buckets: int | None, looks: frozenset[int]
) -> dict[str, list[object]]:
    with Driver(runtime=runtime, batch=batch, buckets=buckets) as d:  # type: ignore[arg-type]
        seen: dict[str, list[object]] = {name: [] for name in "otbhf"}
        for i, step in enumerate(steps):
            if step == "restart":
                d.restart()
            else:
                d.execute(step)
            if i > 5 and (i in looks or i == len(steps) - 1):
                for name, rows in seen.items():
                    rows += [(r.key, str(r.value), r.timestamp) for r in d.read(name)]
        return seen


# --------------------------------------------------------------- tests in SQL


def test_tests_in_sql() -> None:
    """Those of docs/case-pages.md; and each way in which one can fail."""
    page = (Path(__file__).parent.parent / "docs" / "case-pages.md").read_text(encoding="utf-8")
    shown = page.split("```text\n--@test")[1].split("```")[0]
    write("tests/good.sql", f"-- two\n--@test{shown}")
    write("tests/other.sql", S)  # no test
    said = braid("test", "tests")
    assert said.code == 0 and "good.sql  (2 tests)" in said.out and "1 passed, 0 failed" in said.out
    bad = shown.replace("(2, 1, 2, 1)", "(2, 1, 2, 9)").replace("id, b FROM a", "id, b, c FROM a")
    write("bad.sql", f"--@test{bad}--@test: what is not there\nSELECT 1 FROM z EMIT CHANGES;\n")
    said = braid("test", "bad.sql", "--runtime", "reference")
    assert said.code == 1
    told = [line.strip() for line in said.out.splitlines() if "bad.sql:" in line]
    assert told[0].startswith(
        'bad.sql:7: a join: record 1 of J has value {"FOO": 2, "BAR": 1}, not {"FOO": 2, "BAR": 9}'
    )
    assert told[1] == "bad.sql:9: a column is not removed: it was to be refused"
    assert told[2].startswith("bad.sql:15: what is not there: unknown stream or table Z")
