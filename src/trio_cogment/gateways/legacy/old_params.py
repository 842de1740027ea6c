"""Parameters of trials, as the legacy API has them and as today's."""

from __future__ import annotations

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.legacy import common_pb2 as legacy
from trio_cogment.gateways.legacy.old_endpoints import old_endpoint


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
