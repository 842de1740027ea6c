"""Participants as ordinary functions, and what tells whether a program has left something behind."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.sdk import actor_params, trial_params
from trio_cogment.sync import ActorSession, EnvironmentSession


def counter(session: EnvironmentSession) -> None:
    """Count to three, then end the trial."""
    session.start([("*", b"0")])
    for event in session.all_events():
        if event.actions is not None:
            if event.tick_id == 2:
                session.end([("*", b"the end")])
            else:
                session.produce_observations([("*", b"%d" % (event.tick_id + 1))])


def endless(session: EnvironmentSession) -> None:
    session.start([("*", b"on")])
    for event in session.all_events():
        if event.actions is not None:
            session.produce_observations([("*", b"on")])


def echo(session: ActorSession) -> None:
    for event in session.all_events():
        if event.observation is not None:
            session.do_action(event.observation.payload)


def params(
    environment: str = "", actor: str = "", names: Sequence[str] = ("ann",), *, log: bool = False
) -> TrialParams:
    actors = [actor_params(name, "c", implementation=actor) for name in names]
    return trial_params(actors, environment=environment, datalog_endpoint="cogment://discover" if log else "")


def descriptors() -> set[str]:
    """Return the open descriptors, and what each is."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{number} {os.readlink(f'/proc/self/fd/{number}')}")
        except OSError:
            pass  # the one that lists them
    return found


def threads() -> set[threading.Thread]:
    """Return the threads, without the idle ones that Trio keeps some seconds for the next who needs one.

    While one of these works, it has the name of what it does.
    """
    return {thread for thread in threading.enumerate() if not thread.name.startswith("Trio thread")}
