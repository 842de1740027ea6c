"""A trial's parameters from JSON and back, through the SDK's own classes.

The JSON has the attributes of `cogment.TrialParameters` and `cogment.ActorParameters`, messages as their fields.
"""

from typing import Any

import cog_settings
import cogment
import data_pb2
from google.protobuf.json_format import MessageToDict, ParseDict

TRIAL = (
    "properties",
    "max_steps",
    "max_inactivity",
    "nb_buffered_ticks",
    "datalog_endpoint",
    "datalog_exclude_fields",
    "environment_name",
    "environment_endpoint",
    "environment_implementation",
)
ACTOR = (
    "name",
    "actor_class",
    "endpoint",
    "implementation",
    "initial_connection_timeout",
    "response_timeout",
    "optional",
)


def fill(parameters: Any, wanted: dict[str, Any]) -> Any:
    """Set what is wanted and leave the rest."""
    for name, value in wanted.items():
        if name == "config":
            parameters.config = ParseDict(value, data_pb2.TrialConfig())
        elif name == "environment_config":
            parameters.environment_config = ParseDict(value, data_pb2.FieldConfig())
        elif name == "actors":
            parameters.actors = [_actor(actor) for actor in value]
        else:
            setattr(parameters, name, value)
    return parameters


def build(wanted: dict[str, Any]) -> Any:
    return fill(cogment.TrialParameters(cog_settings), wanted)


def describe(parameters: Any) -> dict[str, Any]:
    """Return all that the parameters say."""
    return {
        **{name: _plain(getattr(parameters, name)) for name in TRIAL},
        "config": _fields(parameters.config),
        "environment_config": _fields(parameters.environment_config),
        "actors": [
            {
                **{name: getattr(actor, name) for name in ACTOR},
                "config": _fields(actor.config),
                "default_action": _fields(actor.default_action),
            }
            for actor in parameters.actors
        ],
    }


def _actor(wanted: dict[str, Any]) -> Any:
    wanted = dict(wanted)
    actor_class = getattr(cog_settings.actor_classes, wanted.pop("actor_class"))
    if "config" in wanted:
        wanted["config"] = ParseDict(wanted["config"], actor_class.config_type())
    if "default_action" in wanted:
        wanted["default_action"] = ParseDict(wanted["default_action"], actor_class.action_space())
    return cogment.ActorParameters(cog_settings, class_name=actor_class.name, **wanted)


def _fields(message: Any) -> Any:
    return None if message is None else MessageToDict(message, preserving_proto_field_name=True)


def _plain(value: Any) -> Any:
    if isinstance(value, (str, int)):
        return value
    return dict(value) if hasattr(value, "items") else list(value)
