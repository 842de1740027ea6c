"""Parameters of trials, as the legacy API has them and as today's."""

from __future__ import annotations

from typing import Any

from trio_cogment.api.common_pb2 import ActorParams, TrialParams
from trio_cogment.api.legacy import common_pb2 as legacy
from trio_cogment.gateways.legacy.old_endpoints import old_endpoint, todays_actor, todays_server


def old_params(params: TrialParams) -> legacy.TrialParams:
    """Return parameters without what the legacy API does not have: names, implementations and the data log."""
    found = legacy.TrialParams(max_steps=params.max_steps, max_inactivity=params.max_inactivity)
    if params.HasField("trial_config"):
        found.trial_config.content = params.trial_config.content
    found.environment.endpoint = old_endpoint(params.environment.endpoint)
    if params.environment.HasField("config"):
        found.environment.config.content = params.environment.config.content
    for actor in params.actors:
        old = found.actors.add(actor_class=actor.actor_class, endpoint=old_endpoint(actor.endpoint))
        if actor.HasField("config"):
            old.config.content = actor.config.content
    return found


def params_of_old(old: legacy.TrialParams) -> TrialParams:
    """Return the parameters of a trial that an old orchestrator has run: its actors have no names yet."""
    found = TrialParams(max_steps=old.max_steps, max_inactivity=old.max_inactivity)
    found.environment.name = "env"
    found.environment.endpoint = old.environment.endpoint
    _copy_config(found, "trial_config", old)
    _copy_config(found.environment, "config", old.environment)
    for each in old.actors:
        actor = found.actors.add(actor_class=each.actor_class, endpoint=each.endpoint)
        _copy_config(actor, "config", each)
    return found


def changed_params(before: TrialParams, old: legacy.TrialParams) -> TrialParams:
    """Return parameters as an old hook has left them.

    What the legacy API does not have stays as it was. An actor is the first one of its class that no actor before it
    is; one that there was not gets a name, `<class>_<number>`. An endpoint that the hook has not changed stays, too.

    Args:
        before: the parameters as they were.
        old: what the hook has made of `old_params(before)`.

    Raises:
        EndpointError: an endpoint is none.
    """
    found = TrialParams()
    found.CopyFrom(before)
    found.max_steps, found.max_inactivity = old.max_steps, old.max_inactivity
    _copy_config(found, "trial_config", old)
    environment = found.environment
    if old.environment.endpoint != old_endpoint(environment.endpoint):
        environment.endpoint = todays_server(old.environment.endpoint, "environment.endpoint")
    _copy_config(environment, "config", old.environment)
    del found.actors[:]
    unused = list(before.actors)
    for number, each in enumerate(old.actors):
        same = next((actor for actor in unused if actor.actor_class == each.actor_class), None)
        if same is None:
            same = ActorParams(actor_class=each.actor_class, endpoint=each.endpoint)
            told = ""
        else:
            unused.remove(same)
            told = old_endpoint(same.endpoint)
        actor = found.actors.add()
        actor.CopyFrom(same)
        if each.endpoint != told:
            actor.endpoint = todays_actor(each.endpoint, f"actors[{number}].endpoint")
        _copy_config(actor, "config", each)
    _name_new(found)
    return found


def _copy_config(target: Any, name: str, source: Any) -> None:
    if source.HasField(name):
        getattr(target, name).content = getattr(source, name).content
    else:
        target.ClearField(name)


def _name_new(params: TrialParams) -> None:
    taken = {actor.name for actor in params.actors}
    for actor in params.actors:
        number = 0
        while not actor.name:
            name = f"{actor.actor_class}_{number}"
            if name not in taken:
                actor.name = name
                taken.add(name)
            number += 1
