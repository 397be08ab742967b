"""Names of topics and queries, which are names of directories.

In: a name someone wrote. Out: the same name, or a `BraidError` that says what to write instead.
Rule: a name that passes can be joined to a path on any file system and stays inside its directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from braid.errors import BraidError

MAX_NAME = 200  # a staged file's name is a name and about 45 characters; file systems stop at 255

_ALLOWED = re.compile(r"[A-Za-z0-9._-]+")
_OTHERS = re.compile(r"[^A-Za-z0-9._-]+")


def check_name(name: str, what: str = "topic") -> str:
    """`name` itself where it may name a topic (or another `what`)."""
    if not name:
        raise BraidError(f"a {what} needs a name", "use letters, digits, '.', '_' and '-'")
    if name in (".", ".."):
        raise BraidError(f"{name!r} is not the name of a {what}", "it is a path; use letters, digits, '.', '_' and '-'")
    if "/" in name or "\\" in name:
        last = re.split(r"[/\\]", name)[-1]
        raise BraidError(
            f"{name!r} is not the name of a {what}: it has path parts",
            f"write {last!r}" if _ALLOWED.fullmatch(last) and last not in (".", "..") else "write a plain name",
        )
    if not _ALLOWED.fullmatch(name):
        bad = "".join(sorted(set("".join(_OTHERS.findall(name)))))
        hint = f"write {_OTHERS.sub('_', name)[:MAX_NAME]!r}"
        raise BraidError(f"{name!r} is not the name of a {what}: it has {bad!r} in it", hint)
    if len(name) > MAX_NAME:
        raise BraidError(f"the name {name[:40]!r}… has {len(name)} characters", f"at most {MAX_NAME} are possible")
    return name


def is_name(name: str) -> bool:
    """Whether `check_name` takes it."""
    return name not in (".", "..") and len(name) <= MAX_NAME and _ALLOWED.fullmatch(name) is not None


def check_new_name(name: str, existing: Iterable[str], what: str = "topic") -> str:
    """As `check_name`, and no name of `existing` may differ from it only by case."""
    check_name(name, what)
    for other in existing:
        if other != name and other.lower() == name.lower():
            raise BraidError(
                f"the {what} {name!r} differs from the {what} {other!r} only by case",
                f"some file systems hold them for one; write {other!r} or choose another name",
            )
    return name
