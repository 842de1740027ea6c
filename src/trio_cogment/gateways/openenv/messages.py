"""The messages of OpenEnv: what a client asks for, and what it is answered.

The same requests come over a WebSocket, `{"type": "step", "data": {...}}`, and as the bodies of `POST /reset` and
`POST /step`. A request that makes no sense raises `RefusedError`, which is an answer, too.
"""

from __future__ import annotations

import base64
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from trio_cogment.base.errors import CogmentError, InvalidArgumentError
from trio_cogment.spaces import Observation
from trio_cogment.spaces.base import shown
from trio_cogment.spaces.json_values import loads, to_json_value

#: As in OpenEnv, an identifier of an episode has at most this many characters; so has the name of a trial.
MAX_NAME_CHARACTERS = 255
_MAX_SEED = 2**63 - 1


class ErrorCode(enum.Enum):
    """Why a request was refused, in OpenEnv's words."""

    #: The message is not JSON.
    INVALID_JSON = "INVALID_JSON"
    #: The message has no type that is known.
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    #: A field of the message is missing, or wrong.
    VALIDATION_ERROR = "VALIDATION_ERROR"
    #: The message makes sense, but not now; or the trial has failed.
    EXECUTION_ERROR = "EXECUTION_ERROR"
    #: The server has as many sockets as it may.
    CAPACITY_REACHED = "CAPACITY_REACHED"
    #: The environment cannot be made.
    FACTORY_ERROR = "FACTORY_ERROR"
    #: The server closes the socket.
    SESSION_ERROR = "SESSION_ERROR"


class RefusedError(CogmentError):
    """A request cannot be granted.

    Attributes:
        code: why, for programs.
        details: further fields of the answer.
    """

    def __init__(self, code: ErrorCode, text: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.details = dict(details or {})

    def document(self) -> dict[str, Any]:
        """Return the answer for a WebSocket."""
        return {"type": "error", "data": {"message": str(self), "code": self.code.value, **self.details}}


@dataclass(frozen=True, slots=True)
class Reset:
    """Begin an episode.

    Attributes:
        seed: of the environment; None goes on with the generator that it has.
        episode_id: the id of the trial; empty: any.
        trial: a name for the trial, by which several sockets find each other; empty: a trial of one's own.
        seat: the actor to be; empty: the first that is free.
        seats: the actors that are sockets in this trial; empty: those for which the server has nobody else.
        options: of the environment.
        frames: the seat gets a picture with each observation, if the environment draws any.
    """

    seed: int | None = None
    episode_id: str = ""
    trial: str = ""
    seat: str = ""
    seats: tuple[str, ...] = ()
    options: Mapping[str, Any] | None = None
    frames: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """Act; `fields` are those of the action."""

    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class State:
    """Tell the state of the episode."""


@dataclass(frozen=True, slots=True)
class Close:
    """End the session."""


@dataclass(frozen=True, slots=True)
class Mcp:
    """A request of the Model Context Protocol."""

    request: Any


Request: TypeAlias = Reset | Step | State | Close | Mcp


@dataclass(frozen=True, slots=True)
class Turn:
    """What a seat is told: it is its turn, or its part is over.

    Attributes:
        observation: the newest; its reward is the sum of all since the last turn, and None if there were none.
        done: its part is over.
        seat: whose it is.
    """

    observation: Observation
    done: bool
    seat: str


def parse_message(text: str | bytes) -> Request:
    """Return the request that came over a WebSocket.

    Raises:
        RefusedError: it makes no sense.
    """
    try:
        found = loads(text)
    except InvalidArgumentError as error:
        raise RefusedError(ErrorCode.INVALID_JSON, f"message: {error}") from None
    if not isinstance(found, dict):
        raise _invalid("message", "an object", found)
    kind = found.get("type")
    data = found.get("data", {})
    if kind == "reset":
        return parse_reset(data)
    if kind == "step":
        if "data" not in found:
            raise RefusedError(ErrorCode.VALIDATION_ERROR, "step: data: expected the fields of an action, got none")
        return Step(_object("step: data", data))
    if kind == "state":
        return State()
    if kind == "close":
        return Close()
    if kind == "mcp":
        return Mcp(data)
    expected = "expected reset, step, state, close or mcp"
    raise RefusedError(ErrorCode.UNKNOWN_TYPE, f"message: type: {expected}; got {shown(kind)}")


def parse_reset(data: Any) -> Reset:
    """Return the request for an episode, from the data of a message or the body of `POST /reset`.

    Raises:
        RefusedError: a field is unknown or wrong.
    """
    fields = _object("reset", data)
    known = ("seed", "episode_id", "trial", "seat", "seats", "options", "frames")
    if unknown := sorted(fields.keys() - set(known)):
        text = f"reset: expected the fields {', '.join(known)}; got {shown(unknown[0])}, too"
        raise RefusedError(ErrorCode.VALIDATION_ERROR, f"{text}; what is the environment's own belongs into options")
    options = fields.get("options")
    frames = fields.get("frames")
    if not isinstance(frames, bool | None):
        raise _invalid("reset: frames", "true or false", frames)
    return Reset(
        seed=_seed(fields.get("seed")),
        episode_id=_name("reset: episode_id", fields.get("episode_id")),
        trial=_name("reset: trial", fields.get("trial")),
        seat=_name("reset: seat", fields.get("seat")),
        seats=_names("reset: seats", fields.get("seats")),
        options=None if options is None else _object("reset: options", options),
        frames=bool(frames),
    )


def parse_step(body: Any) -> tuple[Step, float | None]:
    """Return the action of a body of `POST /step`, and the seconds that it may take, if it says so.

    Raises:
        RefusedError: a field is wrong.
    """
    fields = _object("step", body)
    if "action" not in fields:
        raise RefusedError(ErrorCode.VALIDATION_ERROR, "step: action: expected the fields of an action, got none")
    seconds = fields.get("timeout_s")
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0):
        raise _invalid("step: timeout_s", "a positive number of seconds", seconds)
    return Step(_object("step: action", fields["action"])), seconds


def observation_data(turn: Turn) -> dict[str, Any]:
    """Return what OpenEnv calls the result of a reset or step.

    Raises:
        SpaceError: a part of the observation cannot be JSON.
    """
    told = turn.observation
    observation: dict[str, Any] = {
        "value": to_json_value(told.value),
        "terminated": told.terminated,
        "truncated": told.truncated,
        "info": to_json_value(told.info),
    }
    if told.action_mask is not None:
        observation["action_mask"] = to_json_value(told.action_mask)
    if told.frame is not None:
        data = base64.b64encode(told.frame.data).decode()
        observation["frame"] = {"media_type": told.frame.media_type, "base64": data}
    return {
        "observation": observation,
        "reward": to_json_value(told.reward),
        "done": turn.done,
        "metadata": {"seat": turn.seat},
    }


def mcp_answer(request: Any) -> dict[str, Any]:
    """Return the JSON-RPC response to a request of the Model Context Protocol: there are no tools."""
    if not isinstance(request, dict) or request.get("jsonrpc") != "2.0" or not isinstance(request.get("method"), str):
        return _rpc_error(None, -32600, "expected a request of JSON-RPC 2.0 with a method")
    request_id = request.get("id")
    if not isinstance(request_id, str | int | None):
        return _rpc_error(None, -32600, "id: expected a string or an integer")
    method = request["method"]
    if method == "tools/list":
        return {"jsonrpc": "2.0", "id": request_id, "result": {"tools": []}}
    if method == "tools/call":
        return _rpc_error(request_id, -32602, "the environment has no tools; its actions are taken by step")
    return _rpc_error(request_id, -32601, f"method: expected tools/list or tools/call, got {shown(method)}")


def _rpc_error(request_id: str | int | None, code: int, text: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text, "data": None}}


def _invalid(field: str, expected: str, got: Any) -> RefusedError:
    return RefusedError(ErrorCode.VALIDATION_ERROR, f"{field}: expected {expected}, got {shown(got)}")


def _object(field: str, found: Any) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise _invalid(field, "an object", found)
    return found


def _seed(found: Any) -> int | None:
    if found is not None and (isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= _MAX_SEED):
        raise _invalid("reset: seed", f"an integer from 0 to {_MAX_SEED}", found)
    return found


def _name(field: str, found: Any) -> str:
    if found is None:
        return ""
    if not isinstance(found, str) or len(found) > MAX_NAME_CHARACTERS or not _writable(found):
        raise _invalid(field, f"a string of at most {MAX_NAME_CHARACTERS} characters", found)
    return found


def _writable(text: str) -> bool:
    """Whether UTF-8 has all characters; JSON can escape halves of a pair that UTF-8 has not."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _names(field: str, found: Any) -> tuple[str, ...]:
    if found is None:
        return ()
    if not isinstance(found, list):
        raise _invalid(field, "a list of names", found)
    return tuple(_name(f"{field}[{position}]", name) for position, name in enumerate(found))
