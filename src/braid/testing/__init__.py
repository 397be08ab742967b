"""The test driver: what users test their statements with.

from braid.testing import Driver
"""

from braid.testing.driver import Driver, Record

__all__ = ["Driver", "Record"]
