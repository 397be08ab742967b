"""Files that stand for the topics of sources: what `--source NAME=PATH` asks for.

In: patterns by name, the catalog's declarations. Out: files for a query on Spark, inputs for whoever reads them here.
Rule: names are found as everywhere (`first_match`); how a file is read follows from the declaration alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from braid.bind.bound import Declared
from braid.bind.program import first_match
from braid.files.input import open_files
from braid.files.watch import Files
from braid.plan.logical import Query, Source, sources
from braid.stage.inputs import Input


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """`patterns`: path or glob by name; `declared`: by name; `cache`: a folder for parsed files."""

    patterns: Mapping[str, str]
    declared: Mapping[str, Declared]
    cache: str = ""

    def names(self) -> list[str]:
        """The declared names that files stand for."""
        return [n for n in (first_match(name, self.declared) for name in self.patterns) if n is not None]

    def topics(self) -> set[str]:
        """The topics that are not read."""
        return {self.declared[n].topic for n in self.names()}

    def of(self, query: Query) -> dict[str, Files]:
        """The files of a query's sources."""
        return {s.name: found for s in sources(query.root) if (found := self._files(s)) is not None}

    def opened(self) -> dict[str, Callable[[Source], Input]]:
        """By declared name, what opens the files as they are now."""

        def opened(source: Source) -> Input:
            files = self._files(source)
            assert files is not None
            return open_files(source, files.pattern, self.cache, files.options)

        return dict.fromkeys(self.names(), opened)

    def _files(self, source: Source) -> Files | None:
        name = first_match(source.name, self.patterns)
        if name is None:
            return None
        options = {"delimiter": source.encoding.delimiter}
        declared = self.declared.get(source.name)
        if declared is not None and declared.null_value is not None:
            options["null_value"] = declared.null_value
        return Files(self.patterns[name], options)
