"""Draw the trial's tables into `docs/trial-states.md`, as mermaid state diagrams.

`--check` writes nothing and fails if the drawing is stale; a test does the same.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.trial._stream_table import ACTOR_STREAM, ENVIRONMENT_STREAM, StreamState, Verdict
from trio_cogment.trial._trial_table import ANNOUNCED, TRANSITIONS, Action, Phase

TARGET = Path(__file__).resolve().parent.parent / "docs" / "trial-states.md"

HEAD = """\
# The states of a trial

Drawn by `tools/draw_states.py` from the tables in `src/trio_cogment/trial/`; change those, not this page. The reasons
are in the essays at the head of each table. A pair of state and input that is not drawn either has no effect that
can be seen here, or cannot happen (it is an error, and changes nothing).
"""


def draw() -> str:
    """Return the whole page."""
    trial = [(phase, after, symbol, action) for (phase, symbol), (after, action) in TRANSITIONS.items()]
    parts = [
        HEAD,
        "## The trial\n",
        "Each line reads: input, then what the machine does. `WAIT_FINAL` and `WAIT_ACKS` are seen as `TERMINATING`.\n",
        _diagram(Phase.CREATED, Phase.ENDED, [entry for entry in trial if _moves(entry) or entry[3] != Action.NOTHING]),
        "| from | to | announced |\n|---|---|---|",
        *(
            f"| {phase.name} | {after.name} | {', '.join(TrialState.Name(state) for state in states) or 'nothing'} |"
            for (phase, after), states in ANNOUNCED.items()
        ),
        "",
    ]
    for title, table in (("an actor", ACTOR_STREAM), ("the environment", ENVIRONMENT_STREAM)):
        entries = [(state, after, symbol, verdict) for (state, symbol), (after, verdict) in table.items()]
        shown = sorted(entry for entry in entries if _moves(entry) or entry[3] is Verdict.DELIVER)
        parts += [f"## The stream of {title}\n", _diagram(StreamState.IDLE, None, shown)]
    return "\n".join(parts).rstrip("\n") + "\n"


def _moves(entry: tuple[IntEnum, IntEnum, IntEnum, IntEnum]) -> bool:
    return entry[0] is not entry[1]


def _diagram(first: IntEnum, last: IntEnum | None, entries: Iterable[tuple[IntEnum, IntEnum, IntEnum, IntEnum]]) -> str:
    # One arrow for all the inputs that lead from one state to another by the same deed.
    arrows: dict[tuple[str, str, str], list[str]] = {}
    for state, after, symbol, deed in entries:
        arrows.setdefault((state.name, after.name, deed.name), []).append(symbol.name)
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first.name}"]
    for (before, to, name), symbols in arrows.items():
        lines.append(f"    {before} --> {to}: {', '.join(symbols)} / {name}")
    if last is not None:
        lines.append(f"    {last.name} --> [*]")
    return "\n".join([*lines, "```", ""])


def main() -> None:
    """Write the page, or compare it with the one that is there."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="fail instead of writing when the drawing is stale")
    page = draw()
    if parser.parse_args().check:
        if not TARGET.exists() or TARGET.read_text() != page:
            sys.exit(f"{TARGET.name} is stale: run tools/draw_states.py")
        return
    TARGET.write_text(page)


if __name__ == "__main__":
    main()
