"""Search for the program of a command."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence


class CommandNotFoundError(Exception):
    """There is no such program on the launcher's PATH."""


class Programs:
    """Finds programs.

    Args:
        path: the folders to look in, as in the variable PATH; None: those of this process. The variable as a script
            may set it counts for what the program itself starts.
        fallbacks: for names that are not found there, the arguments that stand for them.
    """

    def __init__(self, path: str | None = None, fallbacks: Mapping[str, Sequence[str]] | None = None) -> None:
        self._path = path
        self._fallbacks = dict(fallbacks or {})

    def found(self, arguments: Sequence[str]) -> tuple[str, list[str]]:
        """Return the file to run and its arguments, its name first.

        A name with a slash in it is a path, from the folder where the command runs.

        Raises:
            CommandNotFoundError: it is not found.
        """
        name = arguments[0]
        if os.path.dirname(name):
            return name, list(arguments)
        file = shutil.which(name, path=self._path)
        if file is not None:
            return os.path.abspath(file), list(arguments)
        if name in self._fallbacks:
            replaced = [*self._fallbacks[name], *arguments[1:]]
            return replaced[0], replaced
        raise CommandNotFoundError(f"{name}: command not found on PATH")
