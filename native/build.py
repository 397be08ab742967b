"""Builds the compiled core into the package, where cargo is there and the core is not yet that of these sources.

In: `native/`. Out: `src/braid/braid_native.so`, and beside it the digest of its sources and its own checksum.
Rule: nothing depends on it. Without cargo, or where it cannot be built, that is said in a line, and Braid does the same
in Python; BRAID_NATIVE=0 leaves it out.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TO = HERE.parent / "src" / "braid" / "braid_native.so"
PATIENCE = 600.0  # s


def digest() -> str:
    """Of the sources."""
    found = hashlib.sha256()
    for path in [HERE / "Cargo.toml", HERE / "Cargo.lock", *sorted((HERE / "src").glob("*.rs"))]:
        found.update(f"{path.name}\n{path.stat().st_size}\n".encode() + path.read_bytes())
    return found.hexdigest()[:32]


def checksum() -> str:
    """Of the core."""
    return hashlib.sha256(TO.read_bytes()).hexdigest()


def built() -> Path | None:
    """The core of these sources, built where it is not there; None, and a line that says why, where it cannot be."""
    named = TO.with_suffix(".source")
    if os.environ.get("BRAID_NATIVE") == "0":
        return None
    if TO.exists() and named.exists() and named.read_text().split() == [digest(), checksum()]:
        return TO
    if shutil.which("cargo") is None:
        return _without("cargo is not there")
    with tempfile.TemporaryDirectory(prefix="braid-native-") as target:
        words = ["cargo", "build", "--release", "--offline", "--quiet", "--manifest-path", str(HERE / "Cargo.toml")]
        env = os.environ | {"BRAID_SOURCE": digest(), "CARGO_TARGET_DIR": target}
        try:
            subprocess.run(words, env=env, check=True, capture_output=True, text=True, timeout=PATIENCE)
            made = next(p for p in Path(target, "release").iterdir() if p.suffix in (".so", ".dylib"))
            new = TO.with_suffix(f".{os.getpid()}.new")
            shutil.copy(made, new)
            os.replace(new, TO)
            named.write_text(f"{digest()} {checksum()}\n")
        except subprocess.CalledProcessError as e:
            return _without((e.stderr.strip().splitlines() or ["cargo failed"])[0])
        except (OSError, subprocess.TimeoutExpired, StopIteration) as e:
            return _without(f"{type(e).__name__}: {e}")
    return TO


def _without(why: str) -> None:
    print(f"without the compiled core ({why}): Braid does the same in Python", file=sys.stderr)


if __name__ == "__main__":
    built()
