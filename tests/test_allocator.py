"""How long the allocator keeps memory: ours at every door, a user's word last."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from braid.allocator import KEPT, NAME, told


def test_what_a_user_says_comes_last() -> None:
    assert told({}) == {NAME: KEPT}
    assert told({NAME: "dirty_decay_ms:0"}) == {NAME: f"{KEPT},dirty_decay_ms:0"}
    assert told(told({NAME: "dirty_decay_ms:0"})) == {NAME: f"{KEPT},dirty_decay_ms:0"}


def test_what_polars_leaves_there_is_no_users_word() -> None:
    code = "import os, polars; from braid.allocator import told; print(told(os.environ))"
    env = {k: v for k, v in os.environ.items() if k != NAME}
    shown = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    assert shown.strip() == str({NAME: KEPT})
    shown = subprocess.run(
        [sys.executable, "-c", code], env=env | told(env), capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == str({NAME: KEPT})


@pytest.mark.parametrize(("words", "kept"), [(["--help"], KEPT), (["why-not", "--help"], None)])
def test_a_command_has_it_before_polars(words: list[str], kept: str | None) -> None:
    """What reads a page at a time gives pages back at once."""
    code = (
        f"import sys; sys.argv = ['braid', *{words}]\n"
        "from braid.face.cli import main\n"
        "assert 'polars' not in sys.modules\n"
        "try: main()\nexcept SystemExit: pass\n"
        f"import os; print(os.environ.get('{NAME}') if 'polars' not in sys.modules else None)"
    )
    env = {k: v for k, v in os.environ.items() if k != NAME}
    shown = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == str(kept)
