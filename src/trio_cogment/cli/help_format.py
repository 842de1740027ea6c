"""Layout of help: names of variables and of flags are never cut, however narrow the terminal is."""

from __future__ import annotations

from collections.abc import Iterable

import click

#: A first column narrower than this looks worse than a word that is cut.
_NARROWEST_COLUMN = 10
#: What click leaves free at the right of the second column.
_MARGIN = 2


class _HelpFormatter(click.HelpFormatter):
    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write flags and what they mean; the column of the flags is as narrow as the longest word demands."""
        listed = list(rows)
        longest = max((len(word) for _, text in listed for word in text.split()), default=0)
        room = self.width - longest - col_spacing - _MARGIN
        super().write_dl(listed, max(_NARROWEST_COLUMN, min(col_max, room)), col_spacing)


class HelpContext(click.Context):
    """The context of every command, which lays out its help."""

    formatter_class = _HelpFormatter
