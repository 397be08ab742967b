"""README's picture shows what docs/start.md says, and that page is run by tests/test_docs.py."""

import re

from pages import matches
from picture import PICTURE, bare, drawn, files, said, text_of


def test_the_picture_shows_the_page() -> None:
    svg = PICTURE.read_text(encoding="utf-8")
    (sql,) = [b for b in files() if b.kind == "sql"]
    want = f"$ cat {sql.argument.split()[-1]}" + sql.text + "".join(f"$ {x.command}{''.join(x.output)}" for x in said())
    assert matches([bare(want)], [text_of(svg)])
    assert re.findall(r"https?://[^\"]+", svg) == ["http://www.w3.org/2000/svg"], "nothing is fetched"


def test_a_picture_of_something_else_is_told() -> None:
    printed = [x.output for x in said()]
    assert text_of(drawn(printed)) != text_of(drawn([[*printed[0], "more"], *printed[1:]]))
