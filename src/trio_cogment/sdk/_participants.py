"""A registry of implementations, and the services that run them, over sockets and in process alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from purerpc import Service

from trio_cogment.api.common_pb2 import ActorRunTrialOutput
from trio_cogment.api.datalog_pb2 import RunTrialDatalogOutput
from trio_cogment.api.environment_pb2 import EnvRunTrialOutput
from trio_cogment.api.hooks_pb2 import PreTrialParams
from trio_cogment.base.about import About
from trio_cogment.base.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    RpcError,
)
from trio_cogment.base.host import Host
from trio_cogment.base.log_context import bind_trial
from trio_cogment.base.metrics import ParticipantMetrics
from trio_cogment.base.plugins import ACTORS, ENVIRONMENTS
from trio_cogment.base.plugins import implementation as plugin_implementation
from trio_cogment.base.services import ACTOR_CLASS, IMPLEMENTATION, SERVICES, TRIAL_ID, USER_ID, ServiceKind
from trio_cogment.base.tracing import annotate
from trio_cogment.rpc import (
    IN_PROCESS,
    CallOpener,
    ServerCall,
    WithMetadata,
    bind,
)
from trio_cogment.sdk._actor import ActorImplementation, run_actor
from trio_cogment.sdk._datalog import DatalogImplementation, DatalogSession
from trio_cogment.sdk._environment import EnvironmentImplementation, run_environment
from trio_cogment.sdk._failures import failure_of
from trio_cogment.sdk._hook import PreTrialHook, PreTrialSession
from trio_cogment.sdk._spec_checks import list_of_classes
from trio_cogment.sdk._stream import receive_init
from trio_cogment.sdk.implementations import check_implementation
from trio_cogment.sdk.spec import Spec
from trio_cogment.servers.discovery import Offer

# Metadata of a call, as a participant reads it.


def only(call: ServerCall, name: str) -> str:
    """Return the first value of metadata that a call must have.

    Raises:
        InvalidArgumentError: there is none.
    """
    values = call.metadata.texts(name)
    if not values:
        raise InvalidArgumentError(f"metadata {name}: expected one value")
    return values[0]


def trial_of(call: ServerCall) -> str:
    """Return the trial id of a call, and bind the log records of its handler to that trial.

    Raises:
        PermissionDeniedError: the caller's token is for other trials.
    """
    trial_id = only(call, TRIAL_ID)
    if not (call.identity.admin or call.identity.grant.names_trial(trial_id)):
        raise PermissionDeniedError(f"trial {trial_id!r}: not for this caller")
    bind_trial(trial_id)
    return trial_id


#: Metadata of calls within this process: the registration that discovery chose.
CHOSEN = "trio-cogment-implementation"

#: Where the implementations of other installed packages are.
_PLUGINS = {ServiceKind.ENVIRONMENT: ENVIRONMENTS, ServiceKind.ACTOR: ACTORS}


@dataclass(frozen=True, slots=True)
class _Registered:
    name: str
    implementation: Any
    actor_classes: frozenset[str]
    properties: Mapping[str, str]


class Participants:
    """Implementations of environments, actors, hooks and data logs, by name.

    An environment or actor that is asked for by a name that is not registered may come from an installed package: see
    `trio_cogment.base.plugins`.

    Args:
        spec: the types of the project; without a spec all payloads are bytes.
        host: gives the wall clock, for timestamps; by default the system.
        metrics: takes measurements, for example a `metrics.participants.PrometheusParticipantMetrics`.
        send_tracebacks: when an implementation raises, send the last lines of the traceback to an orchestrator of
            another process, too. By default it gets the type and the first line of the exception; the log of this
            process has it all.
        has_caller: asked, when an implementation raises, with the trial's id and the exception: whether a caller in
            this process gets the exception itself. Then it is not logged as an error.
    """

    def __init__(
        self,
        spec: Spec | None = None,
        *,
        host: Host | None = None,
        metrics: ParticipantMetrics | None = None,
        send_tracebacks: bool = False,
        has_caller: Callable[[str, Exception], bool] = lambda _trial_id, _error: False,
    ) -> None:
        self._send_tracebacks = send_tracebacks
        self._has_caller = has_caller
        self.spec = spec or Spec()
        self.host = host or Host()
        self.metrics = metrics
        self._registered: dict[ServiceKind, dict[str, _Registered]] = {}

    def register_environment(
        self, implementation: EnvironmentImplementation, name: str = "default", *, properties: Mapping[str, str] = {}
    ) -> None:
        """Register an environment: `async def implementation(session: EnvironmentSession)`.

        Raises:
            AlreadyExistsError: the name is taken.
            InvalidArgumentError: it is not an async function.
        """
        self._register(ServiceKind.ENVIRONMENT, name, implementation, (), properties)

    def unregister_environment(self, name: str) -> None:
        """Forget an environment; trials that have it go on.

        Raises:
            NotFoundError: there is none of that name.
        """
        if self._registered.get(ServiceKind.ENVIRONMENT, {}).pop(name, None) is None:
            raise NotFoundError(f"environment {name!r}: not registered")

    def register_actor(
        self,
        implementation: ActorImplementation,
        name: str,
        actor_classes: Iterable[str] = (),
        *,
        properties: Mapping[str, str] = {},
    ) -> None:
        """Register an actor: `async def implementation(session: ActorSession)`. Without classes it serves all.

        Raises:
            AlreadyExistsError: the name is taken.
            InvalidArgumentError: it is not an async function; or the spec declares other classes only.
        """
        actor_classes = list_of_classes(self.spec, actor_classes, f"actor {name!r}")
        self._register(ServiceKind.ACTOR, name, implementation, actor_classes, properties)

    def register_pre_trial_hook(
        self, hook: PreTrialHook, name: str = "default", *, properties: Mapping[str, str] = {}
    ) -> None:
        """Register a pre-trial hook: `async def hook(session: PreTrialSession)`. All run, in order of registration.

        An endpoint that asks for properties runs, in this process, the first hook that has them. A directory knows all
        hooks as one service, with the properties of all of them.

        Raises:
            AlreadyExistsError: the name is taken.
            InvalidArgumentError: it is not an async function.
        """
        self._register(ServiceKind.PRE_TRIAL_HOOK, name, hook, (), properties)

    def register_datalog(
        self, implementation: DatalogImplementation, name: str = "default", *, properties: Mapping[str, str] = {}
    ) -> None:
        """Register a data log: `async def implementation(session: DatalogSession)`.

        In this process discovery finds the first one, unless the endpoint asks for another:
        `cogment://discover?__implementation=name`. A directory knows the first one only, with its properties.

        Raises:
            AlreadyExistsError: the name is taken.
            InvalidArgumentError: it is not an async function.
        """
        self._register(ServiceKind.DATALOG, name, implementation, (), properties)

    def _register(
        self,
        kind: ServiceKind,
        name: str,
        implementation: Any,
        actor_classes: Iterable[str],
        properties: Mapping[str, str],
    ) -> None:
        check_implementation(f"{kind.value} {name!r}", implementation)
        by_name = self._registered.setdefault(kind, {})
        if name in by_name:
            raise AlreadyExistsError(
                f"{kind.value} {name!r} is registered already in this Participants object; platforms that were opened "
                "with it share it"
            )
        by_name[name] = _Registered(name, implementation, frozenset(actor_classes), properties)

    def choose(self, kind: ServiceKind, properties: Mapping[str, str]) -> str | None:
        """Return the name of the first implementation with all these properties, None if there is none.

        A name that is not registered is looked up among the installed plugins.
        """
        wanted = dict(properties)
        name = wanted.pop(IMPLEMENTATION, "")
        actor_class = wanted.pop(ACTOR_CLASS, "")
        for entry_name, entry in self._registered.get(kind, {}).items():
            if (
                (not name or entry_name == name)
                and (not actor_class or not entry.actor_classes or actor_class in entry.actor_classes)
                and wanted.items() <= entry.properties.items()
            ):
                return entry_name
        is_taken = name in self._registered.get(kind, {})  # by one with other classes or properties
        return name if name and not wanted and not is_taken and self._plugin(kind, name) is not None else None

    def _plugin(self, kind: ServiceKind, name: str) -> Any:
        group = _PLUGINS.get(kind)
        return None if group is None else plugin_implementation(group, name, self.host)

    def find(self, kind: ServiceKind, call: ServerCall, who: str, name: str = "", actor_class: str = "") -> _Registered:
        """Return the registration for a call: the one discovery chose, or one by name, or the first that matches.

        `who` is the participant that is to run, for errors.

        Raises:
            NotFoundError: no implementation matches.
        """
        chosen = call.metadata.texts(CHOSEN)
        found = chosen[0] if chosen else self.choose(kind, {IMPLEMENTATION: name, ACTOR_CLASS: actor_class})
        entry = self._registered.get(kind, {}).get(found or "")
        if entry is None and found and (plugin := self._plugin(kind, found)) is not None:
            return _Registered(found, plugin, frozenset(), {})
        if entry is None:
            raise NotFoundError(f"{who}: {self._missing(kind, chosen[0] if chosen else name, actor_class)}")
        return entry

    def registered(self, kind: ServiceKind) -> str:
        """Return the names of the implementations of a kind, with the classes of actors, for errors."""
        return ", ".join(
            repr(own) + (f" ({', '.join(sorted(entry.actor_classes))})" if entry.actor_classes else "")
            for own, entry in self._registered.get(kind, {}).items()
        )

    def _missing(self, kind: ServiceKind, name: str, actor_class: str) -> str:
        wanted = f"implementation {name!r}" if name else "any implementation"
        of_class = f" for actor class {actor_class!r}" if actor_class else ""
        have = self.registered(kind) or "none"
        return (
            f"expected {wanted}{of_class}; registered in this program: {have}. Register it, or correct the "
            "implementation or the endpoint in the trial's parameters"
        )

    def hooks(self, call: ServerCall) -> list[_Registered]:
        """Return the pre-trial hooks for a call, in the order of their registrations."""
        if call.metadata.texts(CHOSEN):
            who = f"trial {trial_of(call)!r}, pre-trial hook"
            return [self.find(ServiceKind.PRE_TRIAL_HOOK, call, who)]
        return list(self._registered.get(ServiceKind.PRE_TRIAL_HOOK, {}).values())

    def failed(self, call: ServerCall, trial_id: str, who: str, error: Exception) -> RpcError:
        """Log what an implementation raised, and return the status that its call ends with.

        Not a context manager: each trial would keep one for each of its participants, as long as it runs.
        """
        tracebacks, has_caller = self._send_tracebacks or call.peer == IN_PROCESS, self._has_caller(trial_id, error)
        return failure_of(error, trial_id, who, tracebacks=tracebacks, has_caller=has_caller)

    def kinds(self) -> set[ServiceKind]:
        """Return the kinds of the registered implementations."""
        return {kind for kind, entries in self._registered.items() if entries}

    def offers(self, port: int) -> list[Offer]:
        """Return the services on a port to register with a directory, as the published SDK does.

        An actor has one offer for each of its classes; if it serves all classes, one for each class of the spec, and
        without a spec a single one that names no class, which `DirectoryClient.find` takes for any. All hooks together
        are one offer, and the first data log is one, since a directory cannot choose among several.
        """
        offers = []
        for kind, entries in self._registered.items():
            found_by = SERVICES[kind].found_by
            if not found_by:
                # All hooks run; of the data logs the first does.
                several = list(entries.values())[: None if kind is ServiceKind.PRE_TRIAL_HOOK else 1]
                merged = {key: value for entry in several for key, value in entry.properties.items()}
                offers.append(Offer(kind=kind, port=port, properties=merged))
                continue
            for name, entry in entries.items():
                properties = {IMPLEMENTATION: name, **entry.properties}
                if ACTOR_CLASS not in found_by:
                    offers.append(Offer(kind=kind, port=port, properties=properties))
                    continue
                classes = sorted(entry.actor_classes or self.spec.names())
                by_class: list[dict[str, str]] = [{ACTOR_CLASS: actor_class} for actor_class in classes]
                offers.extend(Offer(kind=kind, port=port, properties={**own, **properties}) for own in by_class or [{}])
        return offers

    def services(self) -> list[Service]:
        """Return the services that run the registered implementations, to be served over gRPC or in process.

        Implementations registered later are found too.
        """
        services: dict[ServiceKind, Callable[[Participants], object]] = {
            ServiceKind.ENVIRONMENT: _EnvironmentService,
            ServiceKind.ACTOR: _ServiceActorService,
            ServiceKind.PRE_TRIAL_HOOK: _TrialHooksService,
            ServiceKind.DATALOG: _DatalogService,
        }
        return [bind(SERVICES[kind].descriptor(), make(self)) for kind, make in services.items()]


class LocalParticipants:
    """The registered implementations as services of this process, which `cogment://discover` finds first."""

    def __init__(self, participants: Participants, channel: CallOpener) -> None:
        self._participants = participants
        self._channel = channel
        self._openers: dict[str, CallOpener] = {}

    def find(self, kind: ServiceKind, properties: Mapping[str, str]) -> CallOpener | None:
        """Return the channel to the first registration with these properties, None if there is none."""
        chosen = self._participants.choose(kind, properties)
        if chosen is None:
            return None
        if kind is ServiceKind.PRE_TRIAL_HOOK and not properties:
            return self._channel  # all of them
        opener = self._openers.get(chosen)
        if opener is None:
            opener = self._openers[chosen] = WithMetadata(self._channel, {CHOSEN: chosen})
        return opener

    def registered(self, kind: ServiceKind) -> str:
        """See `Participants.registered`."""
        return self._participants.registered(kind)


class _EnvironmentService(About):
    def __init__(self, participants: Participants) -> None:
        self._participants = participants

    async def RunTrial(self, call: ServerCall) -> None:
        participants = self._participants
        trial_id = trial_of(call)
        init = await receive_init(call, EnvRunTrialOutput)
        if init is not None:
            who = f"trial {trial_id!r}, environment {init.name!r}"
            found = participants.find(ServiceKind.ENVIRONMENT, call, who, init.impl_name)
            metrics = participants.metrics
            try:
                await run_environment(
                    call,
                    trial_id,
                    init,
                    found.implementation,
                    spec=participants.spec,
                    wall_clock=participants.host.wall_clock,
                    metrics=None if metrics is None else metrics.environment_started(found.name),
                )
            except Exception as error:
                raise participants.failed(call, trial_id, f"the environment '{init.name}'", error) from error


class _ServiceActorService(About):
    def __init__(self, participants: Participants) -> None:
        self._participants = participants

    async def RunTrial(self, call: ServerCall) -> None:
        participants = self._participants
        trial_id = trial_of(call)
        init = await receive_init(call, ActorRunTrialOutput)
        if init is not None:
            who = f"trial {trial_id!r}, actor {init.actor_name!r}"
            found = participants.find(ServiceKind.ACTOR, call, who, init.impl_name, init.actor_class)
            annotate(actor_name=init.actor_name, actor_class=init.actor_class, participant_implementation=found.name)
            metrics = participants.metrics
            try:
                await run_actor(
                    call,
                    trial_id,
                    init,
                    found.implementation,
                    spec=participants.spec,
                    wall_clock=participants.host.wall_clock,
                    metrics=None if metrics is None else metrics.actor_started(init.actor_name, found.name),
                )
            except Exception as error:
                raise participants.failed(call, trial_id, f"actor '{init.actor_name}'", error) from error


class _TrialHooksService(About):
    def __init__(self, participants: Participants) -> None:
        self._participants = participants

    async def OnPreTrial(self, request: PreTrialParams, call: ServerCall) -> PreTrialParams:
        participants = self._participants
        trial_id = trial_of(call)
        session = PreTrialSession(trial_id, only(call, USER_ID), request.params, participants.spec)
        for hook in participants.hooks(call):
            try:
                await hook.implementation(session)
            except Exception as error:
                raise participants.failed(call, trial_id, f"pre-trial hook '{hook.name}'", error) from error
        return PreTrialParams(params=session.params)


class _DatalogService(About):
    def __init__(self, participants: Participants) -> None:
        self._participants = participants

    async def RunTrialDatalog(self, call: ServerCall) -> None:
        trial_id, user_id = trial_of(call), only(call, USER_ID)
        found = self._participants.find(ServiceKind.DATALOG, call, f"trial {trial_id!r}, data log")
        first = await call.receive()
        if first is None or not first.HasField("trial_params"):
            raise InvalidArgumentError("msg: expected trial_params in the first message")
        await call.send(RunTrialDatalogOutput())
        session = DatalogSession(call, trial_id, user_id, first.trial_params, self._participants.spec)
        try:
            await found.implementation(session)
        except Exception as error:
            raise self._participants.failed(call, trial_id, f"data log '{found.name}'", error) from error
