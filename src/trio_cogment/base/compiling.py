"""Markers for the compiler of a compiled wheel; without effect where the sources run.

mypyc knows this decorator by its name in `mypy_extensions`, a package that nobody needs to run anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**_attributes):
        """Return the class as it is."""
        return lambda decorated: decorated
