"""Requests of pages about trials: start, stop, parameters."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.orchestrator_pb2 import TerminateTrialRequest, TrialStartRequest
from trio_cogment.base.errors import AlreadyExistsError, InvalidArgumentError
from trio_cogment.base.services import SERVICES, TRIAL_ID, ServiceKind
from trio_cogment.dashboard._board import Board
from trio_cogment.rpc import CallOpener, methods_of
from trio_cogment.web.replies import Reply, json_data
from trio_cogment.web.routing import AnyRoute, Route, Visit

_METHODS = methods_of(SERVICES[ServiceKind.LIFECYCLE].descriptor())
_START, _STOP, _READ = (_METHODS[name].path for name in ("StartTrial", "TerminateTrial", "GetTrialInfo"))
_MAX_BODY_BYTES = 256 * 1024
_MAX_PARAMS_BYTES = 64 * 1024


class TrialPages:
    """See the module.

    Args:
        calls_of: returns what makes the calls of a visitor.
        board: the trials.
        defaults: returns the parameters of trials that are started without any.
    """

    def __init__(
        self, calls_of: Callable[[Visit], CallOpener], board: Board, defaults: Callable[[], TrialParams]
    ) -> None:
        self._calls_of = calls_of
        self._board = board
        self._defaults = defaults

    def routes(self, prefix: str) -> list[AnyRoute]:
        """Return the routes.

        Args:
            prefix: of their paths.
        """
        return [
            Route("GET", f"{prefix}/defaults", self.defaults, right=_START),
            Route("POST", f"{prefix}/trials", self.start, right=_START, max_body_bytes=_MAX_BODY_BYTES),
            Route("GET", f"{prefix}/trials/{{trial_id}}/params", self.params, right=_READ),
            Route("POST", f"{prefix}/trials/{{trial_id}}/stop", self.stop, right=_STOP, max_body_bytes=_MAX_BODY_BYTES),
        ]

    async def defaults(self, _visit: Visit) -> Reply:
        """Answer with the default parameters."""
        return json_data({"params": params_json(self._defaults())})

    async def params(self, visit: Visit) -> Reply:
        """Answer with the parameters of a trial."""
        return json_data({"params": params_json(self._board.params(visit.who, visit.parameters["trial_id"]))})

    async def start(self, visit: Visit) -> Reply:
        """Start a trial: `{"params": ..., "trial_id": ..., "user_id": ...}`; without `params` with the default ones."""
        body = visit.json_object()
        request = TrialStartRequest(trial_id_requested=_text(body, "trial_id"), user_id=_text(body, "user_id"))
        params = body.get("params")
        if params is None:
            request.config.SetInParent()
        else:
            if not isinstance(params, dict):
                raise InvalidArgumentError("params: expected an object")
            try:
                ParseDict(params, request.params)
            # The parser lets some of what its own conversions raise through.
            except (ParseError, TypeError, ValueError, AttributeError) as error:
                raise InvalidArgumentError(f"params: {error}") from None
        reply = await self._calls_of(visit).unary(_METHODS["StartTrial"], request)
        if not reply.trial_id:
            raise AlreadyExistsError(f"trial_id: {request.trial_id_requested!r} is taken")
        return json_data({"trial_id": reply.trial_id}, 201)

    async def stop(self, visit: Visit) -> Reply:
        """End a trial: `{"hard": true}` at once, else in good order."""
        hard = visit.json_object().get("hard", False)
        if not isinstance(hard, bool):
            raise InvalidArgumentError("hard: expected true or false")
        trial_id = visit.parameters["trial_id"]
        self._board.one(visit.who, trial_id)  # an unknown one is no success here
        request = TerminateTrialRequest(hard_termination=hard)
        calls = self._calls_of(visit)
        await calls.unary(_METHODS["TerminateTrial"], request, metadata=((TRIAL_ID, trial_id),))
        return json_data({})


def params_json(params: TrialParams | None) -> Any:
    """Return parameters as JSON; None: there are none, or they are too large for a page."""
    if params is None or params.ByteSize() > _MAX_PARAMS_BYTES:
        return None
    return json.loads(json.dumps(MessageToDict(params, preserving_proto_field_name=True)))


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name, "")
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{name}: expected text")
    return value
