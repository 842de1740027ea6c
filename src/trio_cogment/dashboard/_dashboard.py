"""The dashboard of one platform: its routes, and what pages ask of trials and models."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

import trio
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from trio_cogment._version import __version__
from trio_cogment.access import PAGES
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.model_registry_pb2 import ModelVersionInfo
from trio_cogment.api.orchestrator_pb2 import TerminateTrialRequest, TrialStartRequest
from trio_cogment.base.errors import AlreadyExistsError, InvalidArgumentError
from trio_cogment.base.host import Host
from trio_cogment.base.services import SERVICES, TRIAL_ID, ServiceKind
from trio_cogment.dashboard._board import Board
from trio_cogment.dashboard._elsewhere import VisitorCalls
from trio_cogment.dashboard._live import Budget, Tab
from trio_cogment.dashboard._log import LogRing
from trio_cogment.dashboard._server_pages import Measured, ServerPages
from trio_cogment.dashboard._stored import StoredPages, attachment
from trio_cogment.dashboard._views import LogView, ServerView, TrialsView, TrialView
from trio_cogment.platform import Platform
from trio_cogment.rpc import CallOpener, methods_of
from trio_cogment.sdk import DatastoreClient, ModelRegistryClient
from trio_cogment.sdk.spec import Spec
from trio_cogment.servers.discovery import DirectoryClient
from trio_cogment.web.assets import Assets
from trio_cogment.web.common_pages import about
from trio_cogment.web.replies import Reply, Send, Streamed, json_data, redirect, script_page
from trio_cogment.web.routing import AnyRoute, Route, Socket, SocketRoute, Visit

# Requests of pages about trials: start, stop, parameters.

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
        """Start a trial: `{"params": ..., "trial_id": ..., "user_id": ...}`; without `params` with the default ones.

        With `"branch_of"`, the id of a stored trial, and `"tick"` it goes on with that one, by default with its
        parameters.
        """
        body = visit.json_object()
        request = TrialStartRequest(trial_id_requested=_text(body, "trial_id"), user_id=_text(body, "user_id"))
        params, branch_of, tick = body.get("params"), _text(body, "branch_of"), body.get("tick")
        if branch_of:
            if type(tick) is not int or not 0 <= tick < 2**63:
                raise InvalidArgumentError("tick: expected a number of 0 or more")
            request.take_up.trial_id, request.take_up.tick_id = branch_of, tick
        if params is None:
            if not branch_of:
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
        self._board.one(visit.who, trial_id)  # an unknown one is not a success here
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


# Models for pages: their versions, which came of which, and what is in them.

_MODELS = "/cogmentAPI.ModelRegistrySP/RetrieveModels"
_VERSIONS = "/cogmentAPI.ModelRegistrySP/RetrieveVersionInfos"
_DATA = "/cogmentAPI.ModelRegistrySP/RetrieveVersionData"
_MAX_MODELS = 1000
_MAX_VERSIONS = 1000
_MAX_DIGITS = 9


class ModelPages:
    """See the module.

    Args:
        registry_of: returns the registry, for the calls of a visitor.
    """

    def __init__(self, registry_of: Callable[[Visit], Awaitable[ModelRegistryClient]]) -> None:
        self._registry_of = registry_of

    def routes(self, prefix: str) -> list[AnyRoute]:
        """Return the routes.

        Args:
            prefix: of their paths.
        """
        return [
            Route("GET", f"{prefix}/models", self.models, right=_MODELS),
            Route("GET", f"{prefix}/models/{{name}}", self.versions, right=_VERSIONS),
            Route("GET", f"{prefix}/models/{{name}}/{{version}}", self.data, right=_DATA),
        ]

    async def models(self, visit: Visit) -> Reply:
        """Answer with the models."""
        found: list[dict[str, Any]] = []
        registry = await self._registry_of(visit)
        async for model in registry.list_models():
            if len(found) < _MAX_MODELS:
                found.append({"name": model.model_id, "data": dict(model.user_data)})
        return json_data({"models": found})

    async def versions(self, visit: Visit) -> Reply:
        """Answer with a model and its last versions."""
        registry, name = await self._registry_of(visit), visit.parameters["name"]
        info = await registry.model_info(name)
        found: deque[dict[str, Any]] = deque(maxlen=_MAX_VERSIONS)
        async for version in registry.list_versions(name):
            found.append(_version(version))
        return json_data({"name": name, "data": dict(info.user_data), "versions": list(found)})

    async def data(self, visit: Visit) -> Streamed:
        """Answer with the data of a version."""
        registry = await self._registry_of(visit)
        name, text = visit.parameters["name"], visit.parameters["version"]
        if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS):
            raise InvalidArgumentError(f"version: expected a number, got {text[:64]!r}")
        info = await registry.version_info(name, int(text))

        async def write(send: Send) -> None:
            async with aclosing(registry.stream(name, info.version_number)) as pieces:
                async for piece in pieces:
                    await send(piece)

        saved = attachment(f"{name}-{info.version_number}")
        return Streamed(200, b"application/octet-stream", write, (saved,))


def _version(info: ModelVersionInfo) -> dict[str, Any]:
    return {
        "number": info.version_number,
        "time": info.creation_timestamp / 1e9,
        "archived": info.archived,
        "hash": info.data_hash,
        "size": info.data_size,
        "data": dict(info.user_data),
    }


#: Where the dashboard is.
PATH = "/dashboard"
_API = f"{PATH}/api"
_RIGHT = PAGES + "dashboard"


class Dashboard:
    """See the package; made when the first of its routes is wanted.

    Args:
        platform: what is shown.
        calls: make the calls of visitors.
        log: the last records of the log.
        types: of payloads.
        directory: what is registered where; None: nothing is shown of it.
        metrics: what is measured; None: nothing.
        pages: other pages of the server, by what links to them say.
        host: the clock.
        began: when the server started, on Trio's clock.
    """

    def __init__(
        self,
        platform: Platform,
        calls: VisitorCalls,
        log: LogRing,
        *,
        types: Spec | None,
        directory: DirectoryClient | None,
        metrics: Measured | None,
        pages: Mapping[str, str],
        host: Host,
        began: float,
    ) -> None:
        self._calls = calls
        self._log = log
        self._types = types
        self._pages = pages
        self._board = Board(platform.orchestrator, trio.current_time)
        self._budget = Budget()
        self._trials = TrialPages(calls.here, self._board, lambda: platform.orchestrator.default_params)
        self._stored = StoredPages(self._datastore_of, version=__version__, wall_clock=host.wall_clock)
        self._models = ModelPages(self._registry_of)
        self._server = ServerPages(
            platform.orchestrator, directory=directory, metrics=metrics, clock=trio.current_time, began=began
        )

    def routes(self) -> list[AnyRoute]:
        """Return the routes of all its pages."""
        return [
            *Assets("trio_cogment.dashboard").routes(f"{PATH}/assets"),
            Route("GET", "/", _home, right=None, foreign=True),
            Route("GET", PATH, self._page, right=_RIGHT),
            Route("GET", f"{_API}/me", self._me, right=_RIGHT),
            SocketRoute(f"{PATH}/live", self._live, right=_RIGHT),
            *self._trials.routes(_API),
            *self._stored.routes(_API),
            *self._models.routes(_API),
            *self._server.routes(_API),
        ]

    async def _datastore_of(self, visit: Visit) -> DatastoreClient:
        return DatastoreClient(await self._calls.of(ServiceKind.DATASTORE, visit), spec=self._types)

    async def _registry_of(self, visit: Visit) -> ModelRegistryClient:
        return ModelRegistryClient(await self._calls.of(ServiceKind.MODEL_REGISTRY, visit))

    async def _page(self, visit: Visit) -> Reply:
        assets = f"{PATH}/assets"
        styles = ("/assets/vendor/uplot.css", f"{assets}/dashboard.css")
        icon, script = f"{assets}/icon.svg", f"{assets}/dashboard.js"
        return script_page(visit.request, "Dashboard", script, *styles, icon=icon, skip="")

    async def _me(self, visit: Visit) -> Reply:
        grant = visit.who.grant
        roles = sorted(role.value for role in grant.roles)
        return json_data({"name": grant.name, "roles": roles, "pages": dict(self._pages)})

    async def _live(self, visit: Visit, socket: Socket) -> None:
        board, identity = self._board, visit.who
        tab = Tab(
            visit,
            socket,
            trials=lambda search: TrialsView(board, identity, search),
            trial=lambda trial_id, samples: TrialView(board, identity, trial_id, samples),
            log=lambda: LogView(self._log),
            figures=lambda: ServerView(self._server.figures),
            datastore=lambda: self._datastore_of(visit),
            budget=self._budget,
        )
        await tab.run()


async def _home(visit: Visit) -> Reply:
    """Lead people to the dashboard, and tell programs what this is."""
    request = visit.request
    if not request.wants_html:
        return await about(visit)
    return redirect(request, PATH)
