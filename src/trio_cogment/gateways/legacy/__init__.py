"""The legacy Cogment API, generation 0.3: old agents and environments in trials of today."""

from trio_cogment.gateways.legacy.agent import LegacyAgent as LegacyAgent
from trio_cogment.gateways.legacy.environment import LegacyEnvironment as LegacyEnvironment
from trio_cogment.gateways.legacy.gateway import LegacyGateway as LegacyGateway
from trio_cogment.gateways.legacy.profile import LegacyProfile as LegacyProfile
from trio_cogment.gateways.legacy.profile_file import load_profile as load_profile
