"""Lookup of trials for old participants: facts that today's participants are not told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from trio_cogment.access import lasting
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.errors import NotFoundError
from trio_cogment.gateways.legacy.profile import LegacyProfile
from trio_cogment.platform import Platform
from trio_cogment.sdk import Controller

#: Returns the parameters of a running trial by its id. They have all actors, with names and classes, in order; an
#: orchestrator that is asked over the network tells nothing else of them. It raises NotFoundError for an unknown trial.
TrialSource: TypeAlias = Callable[[str], Awaitable[TrialParams]]


def asking(controller: Controller, profile: LegacyProfile | None = None) -> TrialSource:
    """Return a source that asks an orchestrator, of this project or another: it tells the names and classes only.

    Args:
        controller: of the orchestrator.
        profile: has parameters in which the endpoints of actors of the same names are, and the trial's configuration.
    """
    told = profile.params if profile is not None and profile.params is not None else TrialParams()
    endpoints = {actor.name: actor.endpoint for actor in told.actors}

    async def params_of(trial_id: str) -> TrialParams:
        params = TrialParams()
        infos = await controller.trial_infos([trial_id], actors=True)
        if not infos:
            raise NotFoundError(f"there is no trial {trial_id!r}")
        params.environment.name = infos[0].env_name
        for actor in infos[0].actors_in_trial:
            endpoint = endpoints.get(actor.name, "")
            params.actors.add(name=actor.name, actor_class=actor.actor_class, endpoint=endpoint)
        if told.HasField("trial_config"):
            params.trial_config.CopyFrom(told.trial_config)
        if not params.actors:
            raise NotFoundError(f"trial {trial_id!r}: the orchestrator does not tell its actors")
        return params

    return params_of


def owner_within(platform: Platform) -> Callable[[str], str]:
    """Return what tells whose a trial of the platform of this process is."""

    def owner_of(trial_id: str) -> str:
        trial = platform.orchestrator.trials.get(trial_id)
        return "" if trial is None else lasting(trial.owner)

    return owner_of


def within(platform: Platform) -> TrialSource:
    """Return a source that looks into the platform of this process: it tells everything."""

    async def params_of(trial_id: str) -> TrialParams:
        trial = platform.orchestrator.trials.get(trial_id)
        if trial is None or trial.machine.params is None:
            raise NotFoundError(f"there is no trial {trial_id!r}")
        return trial.machine.params

    return params_of
