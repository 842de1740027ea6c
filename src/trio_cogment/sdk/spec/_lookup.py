"""Finding a message by the name that somebody wrote."""

from __future__ import annotations

from collections.abc import Mapping

from trio_cogment.base.suggestions import suggestion
from trio_cogment.sdk.spec._messages import well_known_file


def resolve(names: Mapping[str, object], wanted: str) -> str | None:
    """Return the full name of the message that a name means, None if there is none.

    The published generator knows no dotted packages: in its files, such a message is named without its package.
    """
    if wanted in names:
        return wanted
    if "." in wanted:
        return None
    found = [name for name in names if name.rpartition(".")[2] == wanted]
    return found[0] if len(found) == 1 else None


def advice(names: Mapping[str, object], wanted: str) -> str:
    """Return what to try instead of a name that no message has."""
    file = well_known_file(wanted)
    if file is not None:
        return f"add {file!r} to import.proto"
    last = wanted.rpartition(".")[2]
    known = [name for name in names if not name.startswith("google.")]
    same = [name for name in known if name.rpartition(".")[2] == last]
    if same:
        return f"did you mean {' or '.join(map(repr, same[:3]))}?"
    if not known:
        return "import.proto names no file with a message"
    listed = ", ".join(known[:5]) + (", ..." if len(known) > 5 else "")
    return suggestion(wanted, known, f"expected the full name of a message: {listed}")
