"""The site of `make docs`: the Markdown pages as they are, by Sphinx and its Markdown parser.

In: README, CHANGELOG, docs/ and the pages of examples/; the navigation is the list of docs/README.md. Out: build/site.
Rule: no page says anything for the site's sake. A link to another file of the repository leads to a page that shows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import mermaidx
from docutils import nodes
from pygments.lexers import guess_lexer_for_filename
from pygments.lexers.special import TextLexer
from pygments.util import ClassNotFound
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

ROOT = Path(__file__).parents[2]

project = html_title = "Braid"
root_doc = "README"
include_patterns = ["README.md", "CHANGELOG.md", "docs/**", "examples/**"]
exclude_patterns = [".*", "build", "src", "tests", "benchmarks"]
extensions = ["myst_parser"]
myst_heading_anchors = 6
smartquotes = False  # `--sink` begins with two hyphens
html_theme = "furo"
html_static_path = html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
html_use_index = html_copy_source = html_show_copyright = html_show_sphinx = False
suppress_warnings = ["misc.highlighting_failure", "myst.header"]  # SQL that Pygments does not know; H3 below H1

DECISIONS = "docs/decisions/README"
PLAIN = ("csv", "input", "output", "standing", "query", "refused", "drops", "explain")  # blocks without colours


def sections(text: str) -> Iterator[tuple[str, list[str]]]:
    """The headings of the list of pages, and the pages below each: its items begin with a link."""
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        yield part.splitlines()[0], re.findall(r"^- \[[^\]]+\]\(([^)#]+)\)", part, re.MULTILINE)


def contents(pages: list[str], *options: str) -> str:
    return "\n".join(["", "", "```{toctree}", *options, "", *pages, "```", ""])


def navigation(app: Sphinx, docname: str, source: list[str]) -> None:
    """Puts the contents behind the first page, and the decisions behind theirs."""
    if docname == root_doc:
        for caption, pages in sections((ROOT / "docs" / "README.md").read_text(encoding="utf-8")):
            paths = ((ROOT / "docs" / page).resolve().relative_to(ROOT).as_posix() for page in pages)
            found = ["self" if p == f"{root_doc}.md" else f"/{p}" for p in paths]
            source[0] += contents(found, ":hidden:", f":caption: {caption}")
        source[0] += contents(["/docs/README"], ":hidden:", ":caption: Everything")
    elif docname == DECISIONS:
        source[0] += contents(["0*"], ":glob:", ":titlesonly:")


def other_files(app: Sphinx, doctree: nodes.document) -> None:
    """Links to what is no page lead to one that shows it. (`FILES`, by their paths.)"""
    here = app.env.docname
    for link in list(doctree.findall(lambda n: isinstance(n, addnodes.pending_xref | addnodes.download_reference))):
        target = unquote(link["reftarget"]).partition("#")[0]
        path = ROOT / f"{target}.md" if link.get("refdomain") == "doc" else (ROOT / here).parent / target
        name = path.resolve().relative_to(ROOT).as_posix()
        if target and path.exists() and name.removesuffix(".md") not in app.env.found_docs:
            FILES.add(name)
            uri = app.builder.get_relative_uri(here, page_of(app, name))
            link.replace_self(nodes.reference("", "", *link.children, internal=True, refuri=uri))


FILES: set[str] = set()


def page_of(app: Sphinx, name: str) -> str:
    """The page that shows a file, or a folder."""
    pages = (name.removesuffix(".md"), f"{name}/README")
    return next((page for page in pages if page in app.env.found_docs), f"file/{name}")


def shown_files(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """A page for each file that a page links to; for a folder, the list of what is in it."""
    shown: set[str] = set()
    while FILES - shown:
        name = min(FILES - shown)
        shown.add(name)
        here, path = page_of(app, name), ROOT / name
        if here != f"file/{name}":
            continue
        if path.is_dir():
            inside = sorted(f"{name}/{p.name}" for p in path.iterdir() if not p.name.startswith(("_", ".")))
            FILES.update(inside)
            uris = ((escape(x), app.builder.get_relative_uri(here, page_of(app, x))) for x in inside)
            body = "".join(f'<p><a href="{uri}">{x}</a></p>' for x, uri in uris)
        else:
            text = path.read_text(encoding="utf-8")
            body = app.builder.highlighter.highlight_block(text, lexer(name, text))
        yield here, {"title": escape(name), "body": f"<h1>{escape(name)}</h1>{body}"}, "page.html"


def lexer(name: str, text: str) -> str:
    try:
        return str(guess_lexer_for_filename(name, text).aliases[0])
    except (ClassNotFound, IndexError):
        return "text"


def diagrams(app: Sphinx, doctree: nodes.document) -> None:
    """Draws Mermaid's diagrams, as GitHub does, as wide as the page; on a narrow screen they are moved sideways."""
    blocks = [b for b in doctree.findall(nodes.literal_block) if b.get("language") == "mermaid"]
    for i, block in enumerate(blocks):
        svg = mermaidx.render(block.astext()).svg().replace("my-svg", f"diagram-{i}")
        inner = f'<div style="min-width:30rem">{svg}</div>'
        html = f'<div style="background:#fff;overflow-x:auto;padding:.5rem">{inner}</div>'
        block.replace_self(nodes.raw("", html, format="html"))


def first_page(app: Sphinx, exception: Exception | None) -> None:
    """Whoever opens the folder is led to the first page."""
    moved = f'<meta http-equiv="refresh" content="0; url={root_doc}.html">'
    page = f'<!doctype html><html lang="en"><meta charset="utf-8">{moved}<title>{project}</title></html>\n'
    (Path(app.outdir) / "index.html").write_text(page, encoding="utf-8")


class Words(SearchEnglish):
    """Words with hyphens are words: as-of would be two that no search looks for."""

    js_splitter_code = r"function splitQuery(query) { return query.match(/[\p{L}\p{N}_]+(-[\p{L}\p{N}_]+)*/gu) || []; }"

    def split(self, text: str) -> list[str]:
        return re.findall(r"\w+(?:-\w+)*", text)


def setup(app: Sphinx) -> dict[str, bool]:
    for kind in PLAIN:
        app.add_lexer(kind, TextLexer)
    app.add_search_language(Words)
    app.connect("source-read", navigation)
    app.connect("doctree-read", other_files, priority=100)  # before Sphinx copies what is linked to
    app.connect("doctree-read", diagrams)
    app.connect("html-collect-pages", shown_files)
    app.connect("build-finished", first_page)
    return {"parallel_read_safe": False, "parallel_write_safe": False}
