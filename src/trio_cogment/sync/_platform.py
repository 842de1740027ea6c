"""`open_platform` for scripts and notebooks, and what it returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import ParamSpec, TypeVar

from trio_cogment import platform as async_platform
from trio_cogment import sdk
from trio_cogment.sdk.bridges.thread import TrioThread
from trio_cogment.sdk.session_views import View
from trio_cogment.sync._blocking import blocking, iterating, watching
from trio_cogment.sync._participants import ActorFunction, Participants, adapted_actor

P = ParamSpec("P")
T = TypeVar("T")

_Thread = TrioThread[async_platform.Platform]


class Controller(View[sdk.Controller, _Thread]):
    """Starts, watches, describes and terminates trials; see `trio_cogment.Controller`."""

    start_trial = blocking(sdk.Controller.start_trial)
    start_branch = blocking(sdk.Controller.start_branch)
    wait_trial = blocking(sdk.Controller.wait_trial)
    terminate_trial = blocking(sdk.Controller.terminate_trial)
    wait_trial_state = blocking(sdk.Controller.wait_trial_state)
    trial_infos = blocking(sdk.Controller.trial_infos)
    actors = blocking(sdk.Controller.actors)
    find_trial = blocking(sdk.Controller.find_trial)
    versions = blocking(sdk.Controller.versions)
    #: `with controller.watch_trials() as entries: for entry in entries: ...`
    watch_trials = watching(sdk.Controller.watch_trials)


class DatastoreClient(View[sdk.DatastoreClient, _Thread]):
    """Reads stored trials; see `trio_cogment.DatastoreClient`."""

    trials = blocking(sdk.DatastoreClient.trials)
    trial = blocking(sdk.DatastoreClient.trial)
    all_trials = iterating(sdk.DatastoreClient.all_trials)
    samples = iterating(sdk.DatastoreClient.samples)
    samples_with_past = iterating(sdk.DatastoreClient.samples_with_past)
    delete_trials = blocking(sdk.DatastoreClient.delete_trials)


class ModelRegistryClient(View[sdk.ModelRegistryClient, _Thread]):
    """Stores and retrieves versions of models; see `trio_cogment.sdk.ModelRegistryClient`."""

    create_model = blocking(sdk.ModelRegistryClient.create_model)
    delete_model = blocking(sdk.ModelRegistryClient.delete_model)
    model_info = blocking(sdk.ModelRegistryClient.model_info)
    list_models = iterating(sdk.ModelRegistryClient.list_models)
    list_versions = iterating(sdk.ModelRegistryClient.list_versions)
    version_info = blocking(sdk.ModelRegistryClient.version_info)
    publish = blocking(sdk.ModelRegistryClient.publish)
    store = blocking(sdk.ModelRegistryClient.store)
    retrieve = blocking(sdk.ModelRegistryClient.retrieve)
    retrieve_to = blocking(sdk.ModelRegistryClient.retrieve_to)
    stream = iterating(sdk.ModelRegistryClient.stream)
    #: `with model_registry.version_updates("name") as versions: for version in versions: ...`
    version_updates = watching(sdk.ModelRegistryClient.version_updates)


class Platform:
    """A platform in a thread of its own; a context manager that closes it.

    Any thread may use it, but the platform's own: there, and in participants that are asynchronous functions, a call
    would wait for itself, and is refused. A KeyboardInterrupt in a waiting call cancels that call only. When the
    platform is closed, calls raise `FailedPreconditionError`.

    Attributes:
        participants: register environments, actors, hooks and data logs here.
        controller: start, watch, describe and terminate trials.
        platform: the platform itself, for `call`.
    """

    def __init__(self, thread: _Thread) -> None:
        self._thread = thread
        self.platform = thread.value
        self.participants = Participants(self.platform.participants, thread)
        self.controller = Controller(self.platform.controller, thread)

    @property
    def datastore(self) -> DatastoreClient:
        """A client of the platform's datastore.

        Raises:
            FailedPreconditionError: it has none.
        """
        return DatastoreClient(self.platform.datastore_client(), self._thread)

    @property
    def model_registry(self) -> ModelRegistryClient:
        """A client of the platform's model registry.

        Raises:
            FailedPreconditionError: it has none.
        """
        return ModelRegistryClient(self.platform.model_registry_client(), self._thread)

    def join_trial(
        self,
        trial_id: str,
        implementation: ActorFunction | sdk.ActorImplementation,
        *,
        actor_name: str = "",
        actor_class: str = "",
    ) -> None:
        """Take part in a trial as a client actor until it is over; see `trio_cogment.join_trial`."""
        join, adapted = self.platform.join_trial, adapted_actor(implementation)
        self._thread.call(join, trial_id, adapted, actor_name=actor_name, actor_class=actor_class)

    def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run any asynchronous function in the platform's Trio program, and return its result."""
        return self._thread.call(function, *args, **kwargs)

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return self._thread.closed

    def close(self) -> None:
        """End the trials that still run, and the thread; closing again is harmless, and waits if it is not closed yet.

        Calls of other threads raise `FailedPreconditionError`. A participant that is an ordinary function and computes
        is waited for, until it uses its session again; so a participant must not close its platform. A
        KeyboardInterrupt ends the wait only.
        """
        self._thread.close()

    def __enter__(self) -> Platform:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def _opening(open_it: Callable[P, AbstractAsyncContextManager[async_platform.Platform]]) -> Callable[P, Platform]:
    def open_platform(*args: P.args, **kwargs: P.kwargs) -> Platform:
        """Open a platform in a thread of its own; close it by a `with` block, or with `Platform.close`.

        The arguments are those of `trio_cogment.open_platform`. A platform that nobody closes is closed when the
        interpreter ends.

        Raises whatever `trio_cogment.open_platform` raises.
        """
        return Platform(TrioThread(open_it(*args, **kwargs), "trio-cogment platform"))

    return open_platform


open_platform = _opening(async_platform.open_platform)
