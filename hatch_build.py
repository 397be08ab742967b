"""What a wheel has beside Python: the compiled core, where it can be built (`native/build.py`)."""

from __future__ import annotations

import importlib.util
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Core(BuildHookInterface):  # type: ignore[misc]
    """Called by hatchling for each wheel. In an editable install `make install` builds it in place."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        found = Path(self.root, "native", "build.py")
        if version == "editable" or self.target_name != "wheel" or not found.exists():
            return
        spec = importlib.util.spec_from_file_location("braid_native_build", found)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        core = module.built()
        if core is not None:
            for path in (core, core.with_suffix(".source")):
                build_data["force_include"][str(path)] = f"braid/{path.name}"
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["pure_python"], build_data["tag"] = False, f"py3-none-{platform}"
