"""An orchestrator as a server process: what is checked before it starts, and what it serves."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.cli._serving import Program, Running, Surroundings
from trio_cogment.cli._settings import Failure, OrchestratorSettings
from trio_cogment.datastore import TrialStore
from trio_cogment.endpoints import ClientEndpoint, DiscoverEndpoint, parse_endpoint
from trio_cogment.errors import CogmentError
from trio_cogment.metrics import OrchestratorMetrics
from trio_cogment.model_registry import ModelRegistry
from trio_cogment.platform import open_platform
from trio_cogment.spec import load_params
from trio_cogment.trial import validate_params

_log = logging.getLogger(__name__)


def orchestrator_program(settings: OrchestratorSettings) -> Program:
    """Return what an orchestrator serves, and where.

    Raises:
        Failure: no trial could be as the settings say.
    """
    _check_hooks(settings.pre_trial_hooks, discovery=settings.directory is not None)
    params = _load_params(settings)
    return Program(
        name=_name(settings),
        ports=[settings.lifecycle_port, settings.actor_port],
        open=partial(_opened, settings, params),
    )


def _name(settings: OrchestratorSettings) -> str:
    """Return what is announced: everything that is served, as the services are called when they are alone."""
    parts = {
        "orchestrator": True,
        "trial_datastore": settings.storage is not None,
        "model_registry": settings.archive is not None,
        "directory": settings.directory is not None and settings.directory.endpoint is None,
    }
    return ", ".join(name for name, served in parts.items() if served)


@asynccontextmanager
async def _opened(
    settings: OrchestratorSettings, params: TrialParams | None, surroundings: Surroundings
) -> AsyncIterator[Running]:
    configuration = settings.configuration
    async with (
        _storage(settings) as store,
        _registry(settings) as registry,
        open_platform(
            config=configuration.orchestrator,
            rpc_config=configuration.rpc,
            default_params=params,
            pre_trial_hooks=settings.pre_trial_hooks,
            directory=surroundings.directory,
            client_tls=surroundings.client_tls,
            metrics=_metrics(settings, surroundings),
            store=store,
            datastore_config=configuration.datastore,
            model_registry=registry,
        ) as platform,
    ):

        async def stop() -> None:
            if registry is not None:
                registry.stop()
            await platform.orchestrator.stop()

        lifecycle, *others = platform.services
        yield Running(services=[[lifecycle], others], stop=stop)


@asynccontextmanager
async def _storage(settings: OrchestratorSettings) -> AsyncIterator[TrialStore | None]:
    if settings.storage is None:
        yield None
        return
    # What few orchestrators have.
    from trio_cogment.cli._datastore import opened_storage

    async with opened_storage(settings.storage) as store:
        yield store


@asynccontextmanager
async def _registry(settings: OrchestratorSettings) -> AsyncIterator[ModelRegistry | None]:
    if settings.archive is None:
        yield None
        return
    from trio_cogment.cli._model_registry import opened_registry

    async with opened_registry(settings.archive, settings.configuration) as registry:
        yield registry


def _metrics(settings: OrchestratorSettings, surroundings: Surroundings) -> OrchestratorMetrics | None:
    if surroundings.registry is None:
        return None
    from trio_cogment.metrics.prometheus import PrometheusMetrics

    return PrometheusMetrics(settings.configuration.metrics, registry=surroundings.registry)


def _load_params(settings: OrchestratorSettings) -> TrialParams | None:
    if settings.params is None:
        return None
    try:
        params = load_params(settings.params)
        problem = _problem(params, settings)
    except CogmentError as error:
        raise Failure(f"--params: {error}") from error
    if problem is None:
        return params
    text = f"--params: {settings.params}: {problem}"
    # Hooks may mend anything, and with no actors at all it may be meant for starters that bring their own.
    if params.actors and not settings.pre_trial_hooks:
        raise Failure(text)
    _log.warning("%s", text)
    return params


def _problem(params: TrialParams, settings: OrchestratorSettings) -> str | None:
    """Return why no trial could start with these parameters as they are."""
    discovery = settings.directory is not None
    found_here = {"datalog.endpoint"} if settings.storage is not None else set()
    try:
        checked = validate_params(params)
        fields = {f"actors[{number}].endpoint": actor.endpoint for number, actor in enumerate(checked.actors)}
        fields["environment.endpoint"] = checked.environment.endpoint
        if checked.datalog.endpoint:  # an empty one means that there is no data log
            fields["datalog.endpoint"] = checked.datalog.endpoint
        for name, endpoint in fields.items():
            parsed = parse_endpoint(endpoint, field_name=name)
            if isinstance(parsed, ClientEndpoint) and not name.startswith("actors"):
                return f"trial_params.{name}: cogment://client is for actors only"
            if isinstance(parsed, DiscoverEndpoint) and not discovery and name not in found_here:
                return f"trial_params.{name}: {parsed}: discovery needs a directory (--directory_endpoint)"
    except CogmentError as error:
        return f"trial_params.{error}"
    return None


def _check_hooks(endpoints: Iterable[str], *, discovery: bool) -> None:
    """Refuse now what could only fail at every start of a trial: nothing is registered in this process.

    Raises:
        Failure: naming the hook.
    """
    for number, text in enumerate(endpoints):
        name = f"pre_trial_hooks[{number}]"
        try:
            endpoint = parse_endpoint(text, field_name=name)
        except CogmentError as error:
            raise Failure(str(error)) from error
        if isinstance(endpoint, ClientEndpoint):
            raise Failure(f"{name}: {text!r}: expected grpc://host:port or cogment://discover")
        if isinstance(endpoint, DiscoverEndpoint) and not discovery:
            raise Failure(f"{name}: {endpoint}: discovery needs a directory (--directory_endpoint)")
