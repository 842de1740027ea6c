"""dm_env_rpc: a client of its servers, such a server as the environment of trials, and trials as worlds of a server.

dm_env_rpc is one stream of requests and replies on which a client creates a world, joins it as an agent, and steps.
Values are tensors with numeric ids, declared in a specification. There are three uses of it here, and they share the
tables of what is legal when and the mapping between tensors and values (`trio_cogment.spaces.tensors`):

- `client` is a client, for programs: requests may be sent ahead of their replies, and replies come in order;
- `bridge` drives a foreign server as the environment of trials: one connection for each actor, stepped side by side,
  because the protocol has one agent on a connection;
- `gateway` is a server whose worlds are templates of trials. Creating a world starts nothing. A trial begins when a
  client that has joined asks for its first step, and a reset is another trial.

A trial's payloads have no tensors of their own, so the gateway's `mappings` make them: from the spaces that come with a
payload, or from the descriptor of its protobuf type.

The names below are resolved when they are first used, so that the extra `dm-env` is needed only by what uses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trio_cogment.base.lazy_names import lazy_names as _lazy_names

if TYPE_CHECKING:
    from trio_cogment.gateways.dm_env_rpc.bridge.served_server import DM_ENV_RPC_SPEC as DM_ENV_RPC_SPEC
    from trio_cogment.gateways.dm_env_rpc.bridge.served_server import dm_env_rpc_environment as dm_env_rpc_environment
    from trio_cogment.gateways.dm_env_rpc.bridge.served_server import participants as participants
    from trio_cogment.gateways.dm_env_rpc.client.connection import Connection as Connection
    from trio_cogment.gateways.dm_env_rpc.client.connection import open_connection as open_connection
    from trio_cogment.gateways.dm_env_rpc.client.environment import DmEnvRpcEnvironment as DmEnvRpcEnvironment
    from trio_cogment.gateways.dm_env_rpc.client.errors import DmEnvRpcError as DmEnvRpcError
    from trio_cogment.gateways.dm_env_rpc.client.properties import Property as Property
    from trio_cogment.gateways.dm_env_rpc.client.requests import Reply as Reply
    from trio_cogment.gateways.dm_env_rpc.client.requests import Step as Step
    from trio_cogment.gateways.dm_env_rpc.client.specs import Specs as Specs
    from trio_cogment.gateways.dm_env_rpc.client.states import State as State
    from trio_cogment.gateways.dm_env_rpc.gateway.gateway import DmEnvRpcGateway as DmEnvRpcGateway
    from trio_cogment.gateways.dm_env_rpc.gateway.mappings.annotations import ClassMapping as ClassMapping
    from trio_cogment.gateways.dm_env_rpc.gateway.mappings.annotations import FieldAnnotation as FieldAnnotation
    from trio_cogment.gateways.dm_env_rpc.gateway.profile import Profile as Profile
    from trio_cogment.gateways.dm_env_rpc.gateway.profile_file import load_profile as load_profile
    from trio_cogment.gateways.dm_env_rpc.gateway.templates import WorldTemplate as WorldTemplate

#: The module of each public name, in this package.
_HOMES = {
    "ClassMapping": "gateway.mappings.annotations",
    "Connection": "client.connection",
    "DM_ENV_RPC_SPEC": "bridge.served_server",
    "DmEnvRpcEnvironment": "client.environment",
    "DmEnvRpcError": "client.errors",
    "DmEnvRpcGateway": "gateway.gateway",
    "FieldAnnotation": "gateway.mappings.annotations",
    "Profile": "gateway.profile",
    "Property": "client.properties",
    "Reply": "client.requests",
    "Specs": "client.specs",
    "State": "client.states",
    "Step": "client.requests",
    "WorldTemplate": "gateway.templates",
    "dm_env_rpc_environment": "bridge.served_server",
    "load_profile": "gateway.profile_file",
    "open_connection": "client.connection",
    "participants": "bridge.served_server",
}


def _extra_of(name: str) -> str:
    return "dm-env" if name == "DmEnvRpcEnvironment" else "arrays"


__getattr__, __dir__ = _lazy_names(__name__, globals(), _HOMES, extra_of=_extra_of)
__all__ = sorted(_HOMES)  # noqa: PLE0605  the names are texts
