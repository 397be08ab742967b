"""The syntax tree: one for all dialects. `queries`: expressions, FROM and SELECT; `statements`: what stands around."""

from braid.sql.ast.queries import *  # noqa: F403
from braid.sql.ast.statements import *  # noqa: F403
