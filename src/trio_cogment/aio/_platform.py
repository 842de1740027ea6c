"""`open_platform` for asyncio programs, and what it gives."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ParamSpec, TypeVar

from trio_cogment import platform as trio_platform
from trio_cogment import sdk
from trio_cogment.aio._awaited import awaited, iterated, watched
from trio_cogment.aio._guest import Guest
from trio_cogment.aio._sessions import (
    ActorCoroutine,
    ActorSession,
    DatalogCoroutine,
    DatalogSession,
    EnvironmentCoroutine,
    EnvironmentSession,
    PreTrialCoroutine,
)
from trio_cogment.sdk.session_views import View

P = ParamSpec("P")
T = TypeVar("T")

_Guest = Guest[trio_platform.Platform]


class Controller(View[sdk.Controller, _Guest]):
    """Starts, watches, describes and terminates trials; see `trio_cogment.Controller`."""

    start_trial = awaited(sdk.Controller.start_trial)
    start_branch = awaited(sdk.Controller.start_branch)
    wait_trial = awaited(sdk.Controller.wait_trial)
    terminate_trial = awaited(sdk.Controller.terminate_trial)
    wait_trial_state = awaited(sdk.Controller.wait_trial_state)
    trial_infos = awaited(sdk.Controller.trial_infos)
    actors = awaited(sdk.Controller.actors)
    find_trial = awaited(sdk.Controller.find_trial)
    versions = awaited(sdk.Controller.versions)
    #: `async with controller.watch_trials() as entries: async for entry in entries: ...`
    watch_trials = watched(sdk.Controller.watch_trials)


class DatastoreClient(View[sdk.DatastoreClient, _Guest]):
    """Reads stored trials; see `trio_cogment.DatastoreClient`."""

    trials = awaited(sdk.DatastoreClient.trials)
    trial = awaited(sdk.DatastoreClient.trial)
    all_trials = iterated(sdk.DatastoreClient.all_trials)
    delete_trials = awaited(sdk.DatastoreClient.delete_trials)
    #: `async with datastore.samples(trial_id) as samples: async for sample in samples: ...`
    samples = iterated(sdk.DatastoreClient.samples)
    samples_with_past = iterated(sdk.DatastoreClient.samples_with_past)


class ModelRegistryClient(View[sdk.ModelRegistryClient, _Guest]):
    """Stores and retrieves versions of models; see `trio_cogment.sdk.ModelRegistryClient`."""

    create_model = awaited(sdk.ModelRegistryClient.create_model)
    delete_model = awaited(sdk.ModelRegistryClient.delete_model)
    model_info = awaited(sdk.ModelRegistryClient.model_info)
    version_info = awaited(sdk.ModelRegistryClient.version_info)
    publish = awaited(sdk.ModelRegistryClient.publish)
    store = awaited(sdk.ModelRegistryClient.store)
    retrieve = awaited(sdk.ModelRegistryClient.retrieve)
    retrieve_to = awaited(sdk.ModelRegistryClient.retrieve_to)
    list_models = iterated(sdk.ModelRegistryClient.list_models)
    list_versions = iterated(sdk.ModelRegistryClient.list_versions)
    stream = iterated(sdk.ModelRegistryClient.stream)
    version_updates = watched(sdk.ModelRegistryClient.version_updates)


class Participants(View[sdk.Participants, _Guest]):
    """Registers implementations that are coroutines of asyncio.

    What is written for Trio is registered with `Platform.platform.participants`.
    """

    def register_environment(
        self, implementation: EnvironmentCoroutine, name: str = "default", *, properties: Mapping[str, str] = {}
    ) -> None:
        """Register `async def implementation(session: aio.EnvironmentSession)`; see `trio_cogment.Participants`."""
        guest = self._caller

        async def run(session: sdk.EnvironmentSession[Any, Any, Any]) -> None:
            await guest.from_trio(implementation, EnvironmentSession(session, guest))

        self._target.register_environment(run, name, properties=properties)

    def register_actor(
        self,
        implementation: ActorCoroutine,
        name: str,
        actor_classes: Iterable[str] = (),
        *,
        properties: Mapping[str, str] = {},
    ) -> None:
        """Register `async def implementation(session: aio.ActorSession)`; see `trio_cogment.Participants`."""
        guest = self._caller

        async def run(session: sdk.ActorSession[Any, Any, Any]) -> None:
            await guest.from_trio(implementation, ActorSession(session, guest))

        self._target.register_actor(run, name, actor_classes, properties=properties)

    def register_pre_trial_hook(self, hook: PreTrialCoroutine, name: str = "default") -> None:
        """Register `async def hook(session: PreTrialSession)`; see `trio_cogment.Participants`."""
        guest = self._caller

        async def run(session: sdk.PreTrialSession) -> None:
            await guest.from_trio(hook, session)

        self._target.register_pre_trial_hook(run, name)

    def register_datalog(self, implementation: DatalogCoroutine, name: str = "default") -> None:
        """Register `async def implementation(session: aio.DatalogSession)`; see `trio_cogment.Participants`."""
        guest = self._caller

        async def run(session: sdk.DatalogSession) -> None:
            await guest.from_trio(implementation, DatalogSession(session, guest))

        self._target.register_datalog(run, name)


class Platform:
    """A platform in the thread of an asyncio loop; only tasks of that loop may use it.

    A call that is cancelled has ended, in Trio too, when it raises `CancelledError`. When the platform is closed, calls
    raise `FailedPreconditionError`.

    Attributes:
        participants: register coroutines of asyncio here.
        controller: start, watch, describe and terminate trials.
        platform: the platform itself, for `call`, and to register participants that are written for Trio.
    """

    def __init__(self, guest: _Guest, platform: trio_platform.Platform) -> None:
        self._guest = guest
        self.platform = platform
        self.participants = Participants(platform.participants, guest)
        self.controller = Controller(platform.controller, guest)

    @property
    def datastore(self) -> DatastoreClient:
        """A client of the platform's datastore.

        Raises:
            FailedPreconditionError: it has none.
        """
        return DatastoreClient(self.platform.datastore_client(), self._guest)

    @property
    def model_registry(self) -> ModelRegistryClient:
        """A client of the platform's model registry.

        Raises:
            FailedPreconditionError: it has none.
        """
        return ModelRegistryClient(self.platform.model_registry_client(), self._guest)

    async def join_trial(
        self, trial_id: str, implementation: ActorCoroutine, *, actor_name: str = "", actor_class: str = ""
    ) -> None:
        """Take part in a trial as a client actor until it is over; see `trio_cogment.join_trial`."""
        guest = self._guest

        async def run(session: sdk.ActorSession[Any, Any, Any]) -> None:
            await guest.from_trio(implementation, ActorSession(session, guest))

        await guest.call(self.platform.join_trial, trial_id, run, actor_name=actor_name, actor_class=actor_class)

    async def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run any function written for Trio in the platform's Trio program, and return its result."""
        return await self._guest.call(function, *args, **kwargs)

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return self._guest.closed


def _opening(
    open_it: Callable[P, AbstractAsyncContextManager[trio_platform.Platform]],
) -> Callable[P, AbstractAsyncContextManager[Platform]]:
    @asynccontextmanager
    async def open_platform(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[Platform]:
        """Run a platform in the thread of the running asyncio loop, for an `async with` block of asyncio.

        The arguments are those of `trio_cogment.open_platform`. A loop can have one platform at a time. Leaving the
        block, also by a cancellation, ends the trials and waits until the platform has closed; a loop must not be
        stopped before.

        Raises whatever `trio_cogment.open_platform` raises, and RuntimeError if Trio runs in this thread already.
        """
        guest = Guest(open_it(*args, **kwargs))
        async with guest as platform:
            yield Platform(guest, platform)

    return open_platform


open_platform = _opening(trio_platform.open_platform)
