"""A secret in SQL, in an address or behind `password=` is shown nowhere, however it is spelled."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from braid.bind.program import Program, check_program
from braid.errors import BraidError, SqlError, without_secrets
from braid.sinks.named import sink_of
from braid.tables.named import is_table, table_of
from cli_help import braid
from effort import examples

SECRET = "zzSECRETzz"
DIALECTS = ("ksqldb", "risingwave", "sqlstream", "lenses")
VALUES = (
    "'{}'", "$${}$$", "$t${}$t$", "E'{}'", "e'\\\\x{}'", "\n'{}'", '"{}"', "`{}`", "'{}", '"{}', "$${}", "{}",
    "'a''{}'", "'{}''", "''{}'", "1{}", "‘{}’", "'x' '{}'", "SECRET {}", "'s3://KEY:{}@bucket/p'", "'https://h/p?sig={}'",
    "'jdbc:postgresql://etl:{}@h:1/shop'", "'user:{}@h'", "('{}')", "['{}']", "-'{}'", "'${{x}}{}'", "'@{}'",
)  # fmt: skip
NAMES = ("password", "passwrod", "pasword", "PASSWORD", '"password"', "'password'", "`password`", "s3.secret.key",
         "properties.sasl.password", "passwd", "colour", "jdbc.url", "location", "token", "a.b")  # fmt: skip
BETWEEN = ("=", " = ", " /* c */ = ", "\n=\n", " -- c\n = ", "=\t", " ", "==", ":=", "=>")
LISTS = {
    "ksqldb": ("CREATE STREAM o (k INT KEY, v STRING) WITH ({});", "CREATE TABLE x WITH ({}) AS SELECT * FROM o;",
               "SET {};", "DEFINE {};", "CREATE SINK CONNECTOR c WITH ({});"),
    "risingwave": ("CREATE SINK x FROM o WITH ({});", "CREATE SINK x AS SELECT id FROM o WITH ({});",
                   "CREATE SOURCE s (a INT) WITH ({}) FORMAT PLAIN ENCODE JSON;", "CREATE SECRET s WITH ({}) AS 'a';",
                   "CREATE SOURCE s (a INT) WITH (connector='kafka') FORMAT PLAIN ENCODE AVRO ({});", "SET {};"),
    "sqlstream": ("CREATE OR REPLACE FOREIGN STREAM s (a INT) SERVER f OPTIONS ({});",
                  "CREATE SERVER f FOREIGN DATA WRAPPER w OPTIONS ({});", "CREATE STREAM s (a INT) OPTIONS ({});"),
    "lenses": ("CREATE TABLE t (_key INT, v STRING) FORMAT (INT, JSON) PROPERTIES ({});", "SET {};",
               "INSERT INTO t SELECT STREAM * FROM s PROPERTIES ({});"),
}  # fmt: skip
AROUND = ("{}", "connector='postgres', host='h', user='etl', {}, database='shop', table='x'", "{}, type='upsert'",
          "kafka_topic='s', {}", "'a'='b', {}", "connector='jdbc', {}, table.name='x'")  # fmt: skip


def drawn(r: random.Random, dialect: str) -> str:
    value = r.choice(VALUES).format(SECRET)
    misspelled = r.random() < 0.15  # then only names that are a secret's tell that what follows is one
    name = r.choice(NAMES[:7] if misspelled else NAMES)
    option = r.choice(AROUND).format(name + r.choice(BETWEEN) + value)
    text = r.choice(LISTS[dialect]).format(option)
    if misspelled:
        text = text.replace(" WITH ", r.choice((" WIHT ", " with\n", " WITH(", " ")), 1)
    if r.random() < 0.1:
        text = text.replace("CREATE", "CRAETE", 1)
    return text.replace("; ", "\n") if r.random() < 0.1 else text


def told(dialect: str, text: str) -> list[BraidError]:
    """Every problem of a text, by each way that finds some."""
    found: list[BraidError] = list(check_program(text, Program(dialect))[0])
    try:
        list(Program(dialect).statements(text))
    except BraidError as e:
        found.append(e)
    return found


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_spelling_of_a_secret_is_shown(dialect: str) -> None:
    r, shown, lines = random.Random(len(dialect)), list[str](), 0
    first = "CREATE TABLE o (id INT PRIMARY KEY, c VARCHAR);\n" if dialect == "risingwave" else ""
    for _ in range(examples(3000, 600)):
        text = first + drawn(r, dialect)
        for e in told(dialect, text):
            said = e.render() + repr(e) + str(e) + e.message + (e.hint or "")
            lines += "^" in said
            if SECRET in said:
                shown.append(f"{text}\n-> {e.render()}")
    assert not shown, f"{len(shown)}:\n" + "\n\n".join(shown[:8])
    assert lines > 20  # some lines are shown all the same


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_quote_too_many(dialect: str) -> None:
    """Before a value, where no word says that options begin: the value is no string then."""
    text = f"""CREATE SINK x AS SELECT id FROM o ("password"= ''{SECRET}', type='upsert');"""
    said = [e.render() + e.message + (e.hint or "") for e in told(dialect, text)]
    assert said and not [x for x in said if SECRET in x]


def test_what_is_harmless_is_shown() -> None:
    sql = "CREATE STREAM s (k INT KEY) WITH (kafka_topic='orders', valu_format='JSON', partitions=3);"
    with pytest.raises(SqlError) as e:
        list(Program("ksqldb").statements(sql))
    assert "kafka_topic='orders', valu_format='****', partitions=3" in e.value.render()
    with pytest.raises(SqlError) as e:
        list(Program("ksqldb").statements("CREATE STREAM s (k INT KEY) WITH (kafka_topic='s'); SELECT 'a' FROM nope;"))
    assert "SELECT 'a' FROM nope" in e.value.render()


@pytest.mark.parametrize(
    "text",
    [
        f"delta:s3://KEY:{SECRET}@bucket/p",
        f"delta:s3://KEY:a/{SECRET}@bucket/p",
        f"delta:https://h/p?sig={SECRET}",
        f"delta:abfss://c@h/p?sv=1&token={SECRET}&x=2",
        f"postgres://etl:{SECRET}@h/d#t",
        f"postgres:host=h password={SECRET}#t",
        f"postgres:host=h passwrod={SECRET}#t",
        f"postgres:host=h password='{SECRET}#t",
        f"postgres:host=h password = '{SECRET}' nonsense#t",
        f"postgres://h/d?password={SECRET}&nonsense=1#t",
        f"postgres:{SECRET}#t",
        f"iceberg:s3://KEY:{SECRET}@b",
        f"s3://KEY:{SECRET}@bucket/x.csv",
        f"https://host/x.csv?X-Amz-Signature={SECRET}",
    ],
)
def test_addresses_show_no_secret(tmp_path: Path, text: str) -> None:
    for makes in (sink_of, table_of if is_table(text) else sink_of):
        try:
            made = makes(text)
        except BraidError as e:
            assert SECRET not in e.render() + repr(e)
        else:
            assert SECRET not in made.described() or "://" not in text
    sql = "CREATE TABLE c (k INT PRIMARY KEY) WITH (kafka_topic='c', value_format='JSON', partitions=1);"
    (tmp_path / "q.sql").write_text(f"{sql}\nCREATE TABLE p AS SELECT * FROM c;")
    for words in (("--source", f"c={text}"), ("--source", f"c=snapshot:{text}"), ("--sink", f"P={text}")):
        said = braid("run", tmp_path / "q.sql", "--dialect", "ksqldb", "--store", tmp_path / "s", "--until-idle",
                     *words)  # fmt: skip
        assert SECRET not in said.out + said.err, words


def test_what_is_no_secret_stays() -> None:
    for text in (
        "write postgres://USER@HOST/DATABASE#TABLE, postgres:@FILE or postgres:'$NAME'",
        "write password = '$NAME', of the environment, or '@FILE'",
        "a file with postgresql://USER:PASSWORD@HOST/DATABASE, or behind password= with a password",
        "s3://bucket/path is not there",
        'password authentication failed for user "etl"',
        "the token of the run has changed: a = b",
    ):
        assert without_secrets(text) == text


@pytest.mark.parametrize("text", ["a", "secret", "://", "://?", "='", "pas", "x-amz-", "access_key", "token=", "'' "])
def test_a_long_text_is_looked_through_in_time(text: str) -> None:
    """Where it was looked through again from each place, 200,000 characters took an hour: longer than a test may."""
    said = without_secrets(f"password=zz {text * (200_000 // len(text))} = ")
    assert said.startswith("password=*** ")
