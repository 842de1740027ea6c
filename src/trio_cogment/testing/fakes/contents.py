"""Contents that fake participants send: they name their sender and tick, so that misdirected ones are found.

Checkers ignore contents in another form.
"""

from __future__ import annotations

import re
from typing import Any

from google.protobuf.any_pb2 import Any as AnyMessage

from trio_cogment.api.common_pb2 import CommunicationState

#: Fakes send messages at every third tick, actors and environments at different ones.
GREET_ONCE_IN = 3
#: Fields of messages that say nothing in a running trial, whoever sends them.
MEANINGLESS: tuple[dict[str, Any], ...] = (
    {},
    {"state": 9, "details": "an unknown state"},
    {"state": CommunicationState.NORMAL, "details": ""},
    {"state": CommunicationState.NORMAL, "init_output": {}},
    {"state": CommunicationState.LAST, "reward": {"receiver_name": "*", "value": 1e6}},
)

#: Sent on purpose for a wrong tick; no participant may ever get it.
WRONG = b"wrong"
#: The name in an observation that all actors share.
EVERYBODY = "everybody"

_SHOWN = re.compile(r"(.+) sees (\d+)")
_GREETING = re.compile(r"(.+) greets (.+) at (\d+)")
_REWARDED = re.compile(r"(.+) did well at (\d+)")


def action_content(name: str, tick_id: int) -> bytes:
    """Return what a fake actor sends for a tick."""
    return f"{name}:{tick_id}".encode()


def observations_of(actors: list[str], tick_id: int) -> tuple[list[bytes], list[int]]:
    """Return what a fake environment shows at a tick, and which actor sees which of it.

    At even ticks each actor has its own, not in the order of the actors; at odd ones all have the same.
    """
    if tick_id % 2:
        return [f"{EVERYBODY} sees {tick_id}".encode()], [0] * len(actors)
    return [f"{name} sees {tick_id}".encode() for name in reversed(actors)], list(range(len(actors)))[::-1]


def shown_to(content: str) -> tuple[str, int] | None:
    """Return for whom and for which tick an observation was made; None if no fake made it."""
    return _parsed(_SHOWN, content)


def reward_note(name: str, tick_id: int) -> bytes:
    """Return what a fake environment writes beside the reward for what an actor did at a tick."""
    return f"{name} did well at {tick_id}".encode()


def rewarded(note: str) -> tuple[str, int] | None:
    """Return whom and for which tick a reward is; None if no fake gave it."""
    return _parsed(_REWARDED, note)


def greeting(sender: str, receiver: str, tick_id: int) -> AnyMessage:
    """Return the message of one fake participant to another."""
    return AnyMessage(value=f"{sender} greets {receiver} at {tick_id}".encode())


def greeted(text: str) -> tuple[str, str, int] | None:
    """Return sender, receiver and tick of what a fake participant told another; None if none has."""
    found = _GREETING.fullmatch(text)
    return None if found is None else (found[1], found[2], int(found[3]))


def as_text(content: bytes) -> str:
    """Return contents as the history shows them."""
    return content.decode(errors="backslashreplace")


def _parsed(pattern: re.Pattern[str], text: str) -> tuple[str, int] | None:
    found = pattern.fullmatch(text)
    return None if found is None else (found[1], int(found[2]))
