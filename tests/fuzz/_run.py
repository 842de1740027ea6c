"""Shared start of the fuzzing programs: the way into atheris."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path


def run(check: Callable[[bytes], None]) -> None:
    """Fuzz `check` with the arguments of the command line; what it raises is a finding."""
    import atheris  # only `nox -s fuzz` installs it

    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


def instrumented_imports() -> AbstractContextManager[object]:
    """Return the context in which to import the code under test: when fuzzing, it reports its branches."""
    program = Path(sys.argv[0])
    if program.parent.name != "fuzz" or program.stem == "replay":
        return nullcontext()
    import atheris

    context: AbstractContextManager[object] = atheris.instrument_imports(include=["trio_cogment", "hpack"])
    return context
