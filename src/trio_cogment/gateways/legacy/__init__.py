"""The legacy Cogment API, generation 0.3: old agents, environments and clients in trials of today.

In that generation the orchestrator called everybody: an environment had a method `Update`, an agent a method `Decide`,
and only a human's client called the orchestrator. Today every participant has one stream in which both sides speak. So
an old server becomes a participant whose every event is a call (`participants`, with its two tables in
`participant_states`), and an old client becomes a seat in which each call brings an action and takes the next
observation (`client_seat`).

What the old API has and today's lacks is worked out here and nowhere else: numbers in place of names (`actor_ids`),
observations as differences to the one before (`deltas`, `snapshots`), rewards as feedback for a tick (`rewards`). What
only a project can know, such as which fields a delta has, stands in its profile.
"""

from trio_cogment.gateways.legacy.gateway import LegacyGateway
from trio_cogment.gateways.legacy.participants import LegacyAgent, LegacyEnvironment
from trio_cogment.gateways.legacy.profile import LegacyProfile
from trio_cogment.gateways.legacy.profile_file import load_profile

__all__ = [
    "LegacyAgent",
    "LegacyEnvironment",
    "LegacyGateway",
    "LegacyProfile",
    "load_profile",
]
