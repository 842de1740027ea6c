"""Checks of a trial's parameters, and of ids that become metadata.

Parameters are checked once, before a trial begins; the machine does not check them again. The check works on a copy, so
that whoever made the parameters cannot change a trial that runs.

Ids are printable ASCII because they travel as gRPC metadata, whose ASCII values allow no other characters; names follow
the same rule. An id is limited in length, as an overlong one would make peers refuse every call that carries it. Names
must differ, as messages and rewards are addressed to names.
"""

from __future__ import annotations

import math
import re

from trio_cogment.api.common_pb2 import ActorParams, TrialParams
from trio_cogment.base.errors import InvalidArgumentError

DEFAULT_ENVIRONMENT_NAME = "env"

#: Ids travel as metadata with every call; HTTP/2 peers limit the whole header block, often to 8 KiB.
MAX_ID_LENGTH = 512

#: Every buffered tick holds all the messages of its tick in memory.
MAX_BUFFERED_TICKS = 10_000

#: What the API means by 0 (and the reference by everything below 2).
DEFAULT_BUFFERED_TICKS = 2

#: The clock of a server is not finer than a millisecond.
MAX_TICK_HZ = 1000.0

_PRINTABLE = re.compile(r"[\x20-\x7e]*")


def validate_params(params: TrialParams) -> TrialParams:
    """Return a copy of `params` that the trial machine takes; the grammar of endpoints is not looked at.

    Args:
        params: what the hooks, or the caller, made.

    Raises:
        InvalidArgumentError: the text names the field and what was expected.
    """
    result = TrialParams()
    result.CopyFrom(params)
    environment = result.environment
    if not environment.name:
        environment.name = DEFAULT_ENVIRONMENT_NAME
    _check_name("environment.name", environment.name)
    if not 0 <= environment.tick_hz <= MAX_TICK_HZ:
        raise InvalidArgumentError(
            f"environment.tick_hz: expected ticks a second, at most {MAX_TICK_HZ:g} (0: no clock), "
            f"got {environment.tick_hz:g}"
        )
    if not result.actors:
        raise InvalidArgumentError("actors: at least one actor was expected")
    names: set[str] = set()
    for index, actor in enumerate(result.actors):
        _check_actor(f"actors[{index}]", actor)
        if actor.name == environment.name:
            raise InvalidArgumentError(f"actors[{index}].name: '{actor.name}' is the environment's name")
        if actor.name in names:
            raise InvalidArgumentError(f"actors[{index}].name: '{actor.name}' was used before; names must differ")
        names.add(actor.name)
    if result.nb_buffered_ticks > MAX_BUFFERED_TICKS:
        raise InvalidArgumentError(f"nb_buffered_ticks: at most {MAX_BUFFERED_TICKS} was expected")
    return result


def buffered_ticks(params: TrialParams) -> int:
    """Return how many ticks a trial's samples are held back for, the current one included."""
    return max(params.nb_buffered_ticks, DEFAULT_BUFFERED_TICKS)


def validate_trial_id(text: str) -> str:
    """Return `text` if it can be a trial's id, else raise InvalidArgumentError."""
    if not text:
        raise InvalidArgumentError("trial id: it must not be empty")
    return _check_id("trial id", text)


def validate_user_id(text: str) -> str:
    """Return `text` if it can be a user's id (it may be empty), else raise InvalidArgumentError."""
    return _check_id("user id", text)


def _check_id(what: str, text: str) -> str:
    if len(text) > MAX_ID_LENGTH:
        raise InvalidArgumentError(f"{what}: at most {MAX_ID_LENGTH} characters were expected")
    if not _PRINTABLE.fullmatch(text):
        raise InvalidArgumentError(f"{what}: printable ASCII was expected, it travels as metadata")
    # HTTP drops blanks around a header's value, so such an id would arrive as another one.
    if text != text.strip():
        raise InvalidArgumentError(f"{what}: blanks at its ends do not survive as metadata")
    return text


def _check_name(field: str, name: str) -> None:
    if not name:
        raise InvalidArgumentError(f"{field}: it must not be empty")
    if not _PRINTABLE.fullmatch(name):
        raise InvalidArgumentError(f"{field}: printable ASCII was expected")


def _check_actor(field: str, actor: ActorParams) -> None:
    _check_name(f"{field}.name", actor.name)
    _check_name(f"{field}.actor_class", actor.actor_class)
    for name in ("initial_connection_timeout", "response_timeout"):
        seconds: float = getattr(actor, name)
        if not (math.isfinite(seconds) and seconds >= 0):
            raise InvalidArgumentError(f"{field}.{name}: seconds, finite and not negative, were expected (0: no limit)")
