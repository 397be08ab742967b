"""Files of clients' settings: `--kafka-config`, `--registry-config`.

In: a path. Out: names and values.
Rule: one setting in a line, name=value; `#` begins a comment. Values are secrets: no message shows one.
"""

from __future__ import annotations

from collections.abc import Collection

from braid.errors import BraidError


def read_settings(path: str | None, option: str, own: Collection[str], example: str) -> dict[str, str]:
    """The settings of a file; none where there is none. `own`: those that Braid gives itself."""
    if path is None:
        return {}
    try:
        with open(path, encoding="utf-8") as f:
            lines = f.read().splitlines()
    except OSError as e:
        raise BraidError(f"{option} {path}: {e.strerror}", "name a file of settings, name=value in a line") from None
    except UnicodeDecodeError:
        raise BraidError(f"{option} {path} is not UTF-8 text") from None
    made: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = (x.strip() for x in text.partition("="))
        if not equals or not name:
            raise BraidError(f"{path}, line {number} is no setting", f"write name=value, such as {example}")
        if name in own:
            raise BraidError(f"{path}, line {number}: {name} is Braid's own to set", "leave it out")
        made[name] = value
    return made
