"""Orchestrators as sites of a run: a platform of this process, its own or one that is open, and others elsewhere."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError

from trio_cogment.api import rl_pb2
from trio_cogment.api.common_pb2 import ActorParams, DatalogParams, TrialParams
from trio_cogment.base.endpoints import CLIENT, DISCOVER
from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError
from trio_cogment.base.host import Host
from trio_cogment.environments.spec import PLAYER, RL_SPEC
from trio_cogment.platform import Platform, open_platform
from trio_cogment.rl.datasets.sources import open_source
from trio_cogment.rl.runner._trial import Join, OrchestratorSite, check_seeds
from trio_cogment.rl.runner._watching import watched_environment
from trio_cogment.rl.runner.sites import RUN_PROPERTY, Casting, OpenSites, Site, SiteGroup, Sitter
from trio_cogment.sdk import (
    ActorImplementation,
    Client,
    Controller,
    DatastoreClient,
    EnvironmentImplementation,
    ModelRegistryClient,
    Participants,
    actor_params,
    connect,
)
from trio_cogment.sdk import trial_params as make_params
from trio_cogment.sdk.implementations import check_implementation
from trio_cogment.seats.base import Seat, SeatContext
from trio_cogment.seats.remote import HumanSeat
from trio_cogment.spaces import encode_value

#: A platform, clients of `connect`, controllers, or endpoints such as `grpc://host:9000`.
Orchestrator: TypeAlias = Platform | Client | Controller | str
#: Where trials run.
Place: TypeAlias = Orchestrator | SiteGroup
#: How long a trial waits for an actor of the run's process to join it.
_JOIN_SECONDS = 30.0


async def open_sites(
    stack: AsyncExitStack,
    on: Place | Sequence[Place] | Mapping[str, Place] | None,
    casting: Casting,
    host: Host,
) -> OpenSites:
    """Open the sites of a run; by default that is a platform in this process.

    Raises:
        InvalidArgumentError: something that was given makes no sense; the text names it.
        FailedPreconditionError: an environment or an actor of this process cannot take part there.
    """
    named = _named(on)
    groups = {name: place for name, place in named.items() if isinstance(place, SiteGroup)}
    datastore = None
    if groups and casting.store is not None:
        _require_shared(casting.store)
        if casting.name:  # it may have been there
            datastore = await stack.enter_async_context(open_source(casting.store))
    opened = [
        await stack.enter_async_context(group.open(name if len(named) > 1 else "", casting, host))
        for name, group in groups.items()
    ]
    orchestrators = {name: place for name, place in named.items() if not isinstance(place, SiteGroup)}
    if orchestrators or not named:
        opened.append(await _open_orchestrators(stack, orchestrators, casting, host))
    for one in opened:
        if one.actors != opened[0].actors:
            raise InvalidArgumentError(
                f"on: expected trials of the same actors everywhere, got {', '.join(opened[0].actors)} and "
                f"{', '.join(one.actors)}"
            )
    datastore = next((one.datastore for one in opened if one.datastore is not None), datastore)
    return OpenSites(opened[0].actors, [site for one in opened for site in one.sites], datastore)


async def _open_orchestrators(
    stack: AsyncExitStack, named: dict[str, Orchestrator], casting: Casting, host: Host
) -> OpenSites:
    own = not named
    store = casting.store
    if own:
        participants = Participants(RL_SPEC, host=host)
        platform = open_platform(
            participants, store=None if is_endpoint(store) else store, directory=casting.directory, host=host
        )
        opened = await stack.enter_async_context(platform)
        named = {"local": opened}
        people = [seat for seat in casting.seats.values() if isinstance(seat, HumanSeat) and seat.port is not None]
        if people:
            from trio_cogment.play.clients import serve_clients

            await stack.enter_async_context(serve_clients(opened, people))
    elif casting.directory is not None:
        raise InvalidArgumentError(
            "directory: expected None for trials at orchestrators that are there: each asks the directory that it was "
            "started with"
        )
    local = _LocalEnvironment.of(casting.environment, casting.hosting, casting.arguments)
    if local is not None and local.aclose is not None:
        stack.push_async_callback(local.aclose)
    template, seats = _template(casting, local)
    check_seeds(template, casting.seeds)
    recorded, registry = await _services(stack, casting, own, host)
    sites: list[Site] = []
    datastore = recorded
    for name, orchestrator in named.items():
        if isinstance(orchestrator, str):
            orchestrator = await stack.enter_async_context(connect(orchestrator, spec=RL_SPEC, host=host))
        site = await _site(name, orchestrator, template, casting, own=own)
        if own and recorded is not None:
            site.datastore = recorded
        datastore = datastore or site.datastore
        _seat(site, orchestrator, seats, local.name if local is not None else template.environment.endpoint, registry)
        if local is not None:
            _host_environment(stack, site, orchestrator, local, host)
        sites.append(site)
    return OpenSites(tuple(actor.name for actor in template.actors), sites, datastore)


def is_endpoint(address: Any) -> bool:
    """Whether an address is that of a service, and not of a storage."""
    return isinstance(address, str) and address.startswith(("grpc:", "cogment:"))


def _require_shared(store: Any) -> None:
    if not isinstance(store, str) or store.partition(":")[0] in ("memory", "sqlite"):
        raise InvalidArgumentError(
            "store: expected one that many processes can write to, the endpoint of a datastore (grpc://host:port) or a "
            f"storage such as postgresql://..., got {store!r}"
        )


async def _services(
    stack: AsyncExitStack, casting: Casting, own: bool, host: Host
) -> tuple[DatastoreClient | None, ModelRegistryClient | None]:
    """Return clients of the services that the run itself was given endpoints of, as far as it needs them."""
    datastore = registry = None
    if is_endpoint(casting.store) and (own or casting.name):
        client = await stack.enter_async_context(connect(casting.store, spec=RL_SPEC, host=host))
        datastore = await client.datastore()
    if casting.model_registry is not None:
        if not is_endpoint(casting.model_registry):
            raise InvalidArgumentError(
                f"model_registry: expected the endpoint of a registry, grpc://host:port, got {casting.model_registry!r}"
            )
        client = await stack.enter_async_context(connect(casting.model_registry, host=host))
        registry = await client.model_registry()
    return datastore, registry


def _named(on: Any) -> dict[str, Place]:
    if on is None:
        return {}
    if isinstance(on, Place):
        on = [on]
    found = dict(on) if isinstance(on, Mapping) else dict(_names(on))
    for name, orchestrator in found.items():
        if not isinstance(orchestrator, Place):
            raise InvalidArgumentError(
                f"on: {name}: expected a Platform, a Client of connect(), a Controller, an endpoint or workers, got "
                f"{type(orchestrator).__name__}"
            )
    if not found:
        raise InvalidArgumentError("on: expected an orchestrator at least, got none")
    return found


def _names(on: Iterable[Place]) -> Iterable[tuple[str, Place]]:
    for number, orchestrator in enumerate(on):
        yield (f"{number}:{orchestrator}" if isinstance(orchestrator, str) else str(number)), orchestrator


# The environment


@dataclass(frozen=True, slots=True)
class _LocalEnvironment:
    """An environment that runs in this process.

    Attributes:
        implementation: runs its trials.
        name: of the environment.
        agents: its agents; None if only the seats say.
        spec: how Gymnasium makes it, see `env_specs.spec_text`.
        aclose: closes what is left of it.
    """

    implementation: EnvironmentImplementation
    name: str
    agents: Sequence[str] | None
    aclose: Callable[[], Awaitable[None]] | None = None
    spec: str = ""

    @classmethod
    def of(cls, environment: Any, hosting: Any, arguments: Mapping[str, Any]) -> _LocalEnvironment | None:
        """Return what runs an environment here; None if it is elsewhere, or the parameters say where it is."""
        if environment is None or (isinstance(environment, str) and environment.startswith(("grpc:", "cogment:"))):
            return None
        if inspect.iscoroutinefunction(environment):
            return cls(environment, environment.__name__, None)
        from trio_cogment.environments.making import make_environment
        from trio_cogment.environments.serving import environment as served

        first = make_environment(environment, **arguments)
        implementation = served(environment, hosting=hosting, arguments=arguments)
        implementation.name = first.name
        if isinstance(environment, str) or (callable(environment) and first is not environment):
            first.close()  # it was made only to ask for its agents
        spec = getattr(first, "gymnasium_spec", "")
        return cls(implementation, first.name, tuple(first.agents), implementation.aclose, spec)


def _host_environment(
    stack: AsyncExitStack, site: OrchestratorSite, orchestrator: Orchestrator, local: _LocalEnvironment, host: Host
) -> None:
    if not isinstance(orchestrator, Platform):
        raise FailedPreconditionError(
            f"environment {local.name!r}: orchestrator {site.name} runs elsewhere, and cannot reach an environment of "
            "this process; serve it (trio-cogment rl serve) and give its endpoint, such as grpc://host:port"
        )
    name = f"run-{host.new_id()}"
    watched = watched_environment(local.implementation, site.scores.get)
    orchestrator.participants.register_environment(watched, name)
    stack.callback(orchestrator.participants.unregister_environment, name)
    site.counts_seats = False
    site.params.environment.implementation = name
    site.params.environment.endpoint = DISCOVER


# The parameters


def _template(casting: Casting, local: _LocalEnvironment | None) -> tuple[TrialParams, dict[str, Sitter]]:
    """Return the parameters of the trials, as far as they are the same at every orchestrator, and who sits where."""
    params = TrialParams()
    if casting.params is not None:
        if local is not None:
            raise InvalidArgumentError("environment: expected None where there are params, which name it")
        params.CopyFrom(casting.params)
        if casting.environment is not None:
            params.environment.endpoint = casting.environment
    else:
        if casting.environment is None:
            raise InvalidArgumentError("environment: expected an environment, or its endpoint; got None")
        endpoint = DISCOVER if local is not None else casting.environment
        agents = (local.agents if local is not None else None) or list(casting.seats)
        missing = [agent for agent in agents if agent not in casting.seats]
        if missing or not agents:
            whom = ", ".join(map(repr, missing)) or "any actor"
            raise InvalidArgumentError(f"seats: expected one for each actor, none for {whom}")
        params.CopyFrom(make_params([actor_params(agent, PLAYER) for agent in agents], environment_endpoint=endpoint))
    if casting.name:
        params.properties[RUN_PROPERTY] = casting.name
    if casting.max_steps:
        params.max_steps = casting.max_steps
    if casting.tick_hz:
        params.environment.tick_hz = casting.tick_hz
    if casting.options is not None or not params.environment.HasField("config"):
        params.environment.config.content = _config(params, casting, local).SerializeToString()
    names = {actor.name for actor in params.actors}
    strangers = [name for name in casting.seats if name not in names]
    if strangers:
        known = ", ".join(map(repr, sorted(names)))
        raise InvalidArgumentError(f"seats: {strangers[0]!r}: expected one of the actors {known}")
    return params, dict(casting.seats)


def _config(params: TrialParams, casting: Casting, local: _LocalEnvironment | None) -> rl_pb2.EnvironmentConfig:
    try:
        config = rl_pb2.EnvironmentConfig.FromString(params.environment.config.content)
    except DecodeError as error:
        raise InvalidArgumentError(f"options: the environment's config is none of this package: {error}") from None
    if casting.options is not None:
        config.options.CopyFrom(encode_value(dict(casting.options)).dict)
    if local is not None:
        # Exports name data sets by it: each run registers the environment under another name.
        config.id, config.spec = local.name, local.spec
    return config


async def _site(
    name: str, orchestrator: Any, template: TrialParams, casting: Casting, *, own: bool
) -> OrchestratorSite:
    params = TrialParams()
    params.CopyFrom(template)
    store = casting.store
    if own and is_endpoint(store):
        params.datalog.CopyFrom(DatalogParams(endpoint=store))
    if isinstance(orchestrator, Platform):
        if store is not None and not own:
            raise InvalidArgumentError("store: expected None with an open platform, which has its own or none")
        datastore = None if orchestrator.datastore is None else orchestrator.datastore_client()
        return OrchestratorSite(name, orchestrator.controller, params, join=_joining(orchestrator), datastore=datastore)
    if store is not None:
        if not is_endpoint(store):
            raise InvalidArgumentError(
                f"store: expected the endpoint of a datastore, grpc://host:port, which orchestrator {name} can reach"
            )
        params.datalog.CopyFrom(DatalogParams(endpoint=store))
    if isinstance(orchestrator, Controller):
        return OrchestratorSite(name, orchestrator, params)
    recorded = params.datalog.endpoint if params.HasField("datalog") else ""
    datastore = await orchestrator.datastore(recorded) if recorded else None
    return OrchestratorSite(
        name, await orchestrator.controller(), params, join=_joining(orchestrator), datastore=datastore
    )


def _joining(orchestrator: Platform | Client) -> Join:
    async def join(trial_id: str, implementation: ActorImplementation, name: str) -> None:
        await orchestrator.join_trial(trial_id, implementation, actor_name=name)

    return join


# The seats


def _check_function(actor: str, implementation: object) -> None:
    """Refuse anything but a function over a session before a trial begins: a function of an observation, mostly."""
    try:
        check_implementation(f"seats: {actor!r}", implementation, lambdas=False)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{error}; of a function of the observation make a seat, policy(function)") from None


def _seat(
    site: OrchestratorSite,
    orchestrator: Orchestrator,
    seats: Mapping[str, Sitter],
    environment: str,
    registry: ModelRegistryClient | None,
) -> None:
    """Put into a site's parameters where its actors are, and those of this process into its seats."""
    local: dict[str, ActorImplementation] = {}
    for actor in site.params.actors:
        sitter = seats.get(actor.name)
        if sitter is None:
            continue
        if isinstance(sitter, ActorParams):
            actor.CopyFrom(sitter)
            continue
        implementation: Any = sitter
        if isinstance(sitter, Seat):
            # Nobody looks the implementation of a client up: it tells who played.
            actor.CopyFrom(
                sitter.actor_params(actor.name, environment=environment, implementation=sitter.label, endpoint=CLIENT)
            )
            implementation = sitter.actor(_context(orchestrator, environment, actor.name, registry))
        else:
            actor.endpoint = CLIENT
            actor.implementation = getattr(sitter, "__name__", type(sitter).__name__)
        if implementation is None:
            continue
        if not callable(implementation):
            raise InvalidArgumentError(
                f"seats: {actor.name!r}: expected a seat, an asynchronous function over a session, or the parameters "
                f"of an actor; got {type(implementation).__name__}"
            )
        if not isinstance(sitter, Seat):
            _check_function(actor.name, implementation)
        if site.join is None:
            raise FailedPreconditionError(
                f"seats: {actor.name!r}: orchestrator {site.name} is given as a Controller, with which no actor of "
                "this process can join; give a Client of connect(), or its endpoint"
            )
        if not actor.initial_connection_timeout:
            actor.initial_connection_timeout = _JOIN_SECONDS
        local[actor.name] = implementation
    site.seats = local


def _context(
    orchestrator: Orchestrator, environment: str, agent: str, registry: ModelRegistryClient | None
) -> SeatContext:
    if registry is None and isinstance(orchestrator, Platform) and orchestrator.model_registry is not None:
        registry = orchestrator.model_registry_client()
    return SeatContext(environment, agent, registry)
