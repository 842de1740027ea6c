"""Implementations that are ordinary functions: each session runs in a worker thread of its own."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

import trio

from trio_cogment import sdk
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.host.blocking import ThreadRunner
from trio_cogment.sdk.bridges.thread import TrioThread
from trio_cogment.sdk.session_views import View
from trio_cogment.sync._sessions import (
    ActorSession,
    DatalogSession,
    EnvironmentSession,
    actor_session,
    datalog_session,
    environment_session,
)

ActorFunction: TypeAlias = Callable[[ActorSession[Any, Any, Any]], None]
EnvironmentFunction: TypeAlias = Callable[[EnvironmentSession[Any, Any, Any]], None]
PreTrialFunction: TypeAlias = Callable[[sdk.PreTrialSession], None]
DatalogFunction: TypeAlias = Callable[[DatalogSession], None]

_SessionT = TypeVar("_SessionT")
_ResultT = TypeVar("_ResultT")

#: Of each run of Trio. There is no limit: participants of a trial wait for one another, and each needs its thread.
_threads: trio.lowlevel.RunVar[ThreadRunner] = trio.lowlevel.RunVar("trio_cogment.sync threads")


def actor(function: ActorFunction) -> sdk.ActorImplementation:
    """Return an actor that runs a function in a worker thread: `def player(session: sync.ActorSession)`."""
    return _in_thread(function, actor_session)


def environment(function: EnvironmentFunction) -> sdk.EnvironmentImplementation:
    """Return an environment that runs a function in a worker thread: `def world(session: sync.EnvironmentSession)`."""
    return _in_thread(function, environment_session)


def pre_trial_hook(function: PreTrialFunction) -> sdk.PreTrialHook:
    """Return a pre-trial hook that runs a function in a worker thread: `def hook(session: PreTrialSession)`."""
    return _in_thread(function, lambda session: session)


def datalog(function: DatalogFunction) -> sdk.DatalogImplementation:
    """Return a data log that runs a function in a worker thread: `def log(session: sync.DatalogSession)`."""
    return _in_thread(function, datalog_session)


class Participants(View[sdk.Participants, TrioThread[Any]]):
    """Registers implementations, which are asynchronous functions or ordinary ones; see `trio_cogment.Participants`.

    An asynchronous function (`async def`) runs in Trio and gets the session of the SDK. Any other function runs in a
    worker thread, one for each trial, and gets the session of this package.
    """

    def register_environment(
        self,
        implementation: EnvironmentFunction | sdk.EnvironmentImplementation,
        name: str = "default",
        *,
        properties: Mapping[str, str] = {},
    ) -> None:
        """See `trio_cogment.Participants.register_environment`."""
        adapted = _adapted(implementation, environment)
        self._caller.call(_at_once, self._target.register_environment, adapted, name, properties=properties)

    def register_actor(
        self,
        implementation: ActorFunction | sdk.ActorImplementation,
        name: str,
        actor_classes: Iterable[str] = (),
        *,
        properties: Mapping[str, str] = {},
    ) -> None:
        """See `trio_cogment.Participants.register_actor`."""
        adapted = _adapted(implementation, actor)
        self._caller.call(_at_once, self._target.register_actor, adapted, name, actor_classes, properties=properties)

    def register_pre_trial_hook(self, hook: PreTrialFunction | sdk.PreTrialHook, name: str = "default") -> None:
        """See `trio_cogment.Participants.register_pre_trial_hook`."""
        self._caller.call(_at_once, self._target.register_pre_trial_hook, _adapted(hook, pre_trial_hook), name)

    def register_datalog(
        self, implementation: DatalogFunction | sdk.DatalogImplementation, name: str = "default"
    ) -> None:
        """See `trio_cogment.Participants.register_datalog`."""
        self._caller.call(_at_once, self._target.register_datalog, _adapted(implementation, datalog), name)


async def _at_once(function: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    # In Trio's thread, where nobody looks through the registrations meanwhile.
    function(*args, **kwargs)


def _adapted(implementation: Any, adapt: Callable[[Any], Any]) -> Any:
    if not callable(implementation):
        raise InvalidArgumentError(f"implementation: expected a function, got {type(implementation).__name__}")
    return implementation if _is_asynchronous(implementation) else adapt(implementation)


def adapted_actor(implementation: ActorFunction | sdk.ActorImplementation) -> sdk.ActorImplementation:
    """Return an implementation that runs in Trio."""
    adapted: sdk.ActorImplementation = _adapted(implementation, actor)
    return adapted


def _is_asynchronous(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


async def _wait_for_the_end(function: Callable[..., _ResultT], *args: object) -> _ResultT:
    # A session cannot begin without a thread; the platform is closed next.
    await trio.sleep_forever()


def _in_thread(
    function: Callable[[Any], object], adapt: Callable[[_SessionT], Any]
) -> Callable[[_SessionT], Awaitable[None]]:
    async def run(session: _SessionT) -> None:
        try:
            threads = _threads.get()
        except LookupError:
            threads = ThreadRunner(math.inf, without_threads=_wait_for_the_end)
            _threads.set(threads)
        await threads(function, adapt(session))

    return run
