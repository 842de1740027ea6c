"""The legacy Cogment API, generation 0.3: old agents and environments in trials of today."""

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
