"""The commands of pages that need an S3 server: on a real one, and on one in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("obstore")

from pages import PAGES, has
from test_docs import run_console


@pytest.mark.parametrize("server", ["memory", pytest.param("fresh_gateway", marks=pytest.mark.objects)])
@pytest.mark.parametrize("name", [name for name in PAGES if has(name, "console", "s3")])
def test_pages(
    name: str, server: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request.getfixturevalue(server)
    monkeypatch.chdir(tmp_path)
    run_console(name, tmp_path, spark=False, s3=True)
