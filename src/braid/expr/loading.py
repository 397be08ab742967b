"""Loading functions of users: from files, from a session.

In: paths, texts, objects. Out: `Functions`.
Rule: what is wrong with a file is told in one line, with its place. One name has functions of one kind, from one file.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Sequence
from pathlib import Path

from braid.errors import BraidError
from braid.expr.annotations import Definition, Misfit, shape_of
from braid.expr.nodes import Code
from braid.expr.user import NONE, Functions, Overload, namespace

MOST = 4 << 20  # bytes of a file of functions


def of_file(path: str) -> Functions:
    """The functions of a file."""
    try:
        with open(path, "rb") as f:
            data = f.read(MOST + 1)
        text = data.decode()
    except OSError as e:
        raise BraidError(f"cannot read {path}: {e.strerror}") from None
    except UnicodeDecodeError:
        raise BraidError(f"{path} is not UTF-8 text") from None
    if len(data) > MOST:
        raise BraidError(f"{path} has more than {MOST >> 20} MB", "a file of functions is Python code")
    return of_text(text, path)


def of_files(paths: Sequence[str]) -> Functions:
    """The functions of several files. A name has one home."""
    found = NONE
    for path in paths:
        made = of_file(path)
        twice = next((n for n in made.named if n in found.named), None)
        if twice is not None:
            places = " and ".join(x.named[twice][0].place for x in (found, made))
            raise BraidError(
                f"the function {twice} is defined in two files: {places}", "take another name for one of them"
            )
        found |= made
    return found


def of_text(text: str, path: str) -> Functions:
    """The functions of a text, which is told as `path`."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    name = Path(path).name
    found = [
        (d, Code(variable, digest[:32], name, text))
        for variable, d in namespace(text, name).items()
        if isinstance(d, Definition)
    ]
    if not found:
        raise BraidError(f"{path} has no function", "write @deterministic above those that SQL may call")
    return _gathered(found)


def of_object(definition: Definition, pickled: bytes) -> Functions:
    """A function of a session; its digest is that of its source, where Python finds it."""
    try:
        source = inspect.getsource(definition.python).encode()
    except (OSError, TypeError):
        source = pickled
    code = Code(definition.python.__name__, hashlib.sha256(source).hexdigest()[:32], pickled=pickled)
    return _gathered([(definition, code)])


def _gathered(found: Sequence[tuple[Definition, Code]]) -> Functions:
    named: dict[str, list[Overload]] = {}
    for definition, code in found:
        place = definition.place
        try:
            made = Overload(shape_of(definition), code, place)
        except Misfit as e:
            raise BraidError(f"{place}: {e.message}", e.hint) from None
        beside = named.setdefault(definition.name, [])
        beside.append(made)
        if beside[0].shape.kind != made.shape.kind:
            message = f"{place}: {definition.name} is a {beside[0].shape.kind} function at {beside[0].place}"
            raise BraidError(message, "functions of one name are of one kind")
        if made.shape.kind == "aggregate" and len(beside) > 1 and beside[0].shape.variadic:
            raise BraidError(f"{place}: {definition.name} takes any number of values already", "take another name")
    return Functions({n: tuple(o) for n, o in named.items()})
