"""The Cogment platform on Trio: trials in which humans, software agents and an environment meet.

What most programs need is in this module. The rest is in its subpackages, which are:

- `sdk`, `sync` and `aio`: participants and clients, for Trio programs, for scripts and for asyncio programs;
  `sdk.spec`: actor classes and payload types.
- `platform`: all services of the platform in a program of one's own; `servers`: each of them; `trainer`: training runs.
- `rl`, `spaces`, `environments`, `seats` and `gateways`: reinforcement learning, its values, its environments, who acts
  in them, and its other protocols; `ray`: runs over the machines of a cluster.
- `play`, `experiment`, `dashboard` and `web`: people in trials and in experiments, the operators' pages, and a port's
  browser side.
- `rpc`: gRPC on Trio; `api`: its messages; `access`: rights; `base`: errors, settings, and what comes from outside.
- `trial`: a trial as a state machine, and its replay.
- `testing`: simulated runs, fakes, checkers; `conformance`: cases for any server that speaks the API.

Names and subpackages are imported when they are first used, so that importing a pure part (`trio_cogment.trial`)
imports neither Trio nor anything that does I/O.
"""

from __future__ import annotations

from trio_cogment._old_places import MOVED as _MOVED
from trio_cogment._old_places import install as _install_old_places
from trio_cogment._version import __version__ as __version__
from trio_cogment.base.lazy_names import lazy_names as _lazy_names

TYPE_CHECKING = False  # as type checkers know it; importing `typing` takes longer than everything else here
if TYPE_CHECKING:
    from trio_cogment import access as access
    from trio_cogment import aio as aio
    from trio_cogment import api as api
    from trio_cogment import base as base
    from trio_cogment import conformance as conformance
    from trio_cogment import dashboard as dashboard
    from trio_cogment import environments as environments
    from trio_cogment import experiment as experiment
    from trio_cogment import gateways as gateways
    from trio_cogment import platform as platform
    from trio_cogment import play as play
    from trio_cogment import ray as ray
    from trio_cogment import rl as rl
    from trio_cogment import rpc as rpc
    from trio_cogment import sdk as sdk
    from trio_cogment import seats as seats
    from trio_cogment import servers as servers
    from trio_cogment import spaces as spaces
    from trio_cogment import sync as sync
    from trio_cogment import testing as testing
    from trio_cogment import trainer as trainer
    from trio_cogment import trial as trial
    from trio_cogment import web as web
    from trio_cogment.base.config import OrchestratorConfig as OrchestratorConfig
    from trio_cogment.base.config import PlatformConfig as PlatformConfig
    from trio_cogment.base.config import RpcConfig as RpcConfig
    from trio_cogment.base.errors import CogmentError as CogmentError
    from trio_cogment.base.errors import RpcError as RpcError
    from trio_cogment.base.errors import TrialFailedError as TrialFailedError
    from trio_cogment.base.host import Host as Host
    from trio_cogment.base.outcome import EndCause as EndCause
    from trio_cogment.base.outcome import TrialOutcome as TrialOutcome
    from trio_cogment.platform import Platform as Platform
    from trio_cogment.platform import open_platform as open_platform
    from trio_cogment.sdk import ActorSession as ActorSession
    from trio_cogment.sdk import Client as Client
    from trio_cogment.sdk import Controller as Controller
    from trio_cogment.sdk import DatalogSession as DatalogSession
    from trio_cogment.sdk import DatastoreClient as DatastoreClient
    from trio_cogment.sdk import EnvironmentSession as EnvironmentSession
    from trio_cogment.sdk import Event as Event
    from trio_cogment.sdk import EventType as EventType
    from trio_cogment.sdk import Participants as Participants
    from trio_cogment.sdk import PreTrialSession as PreTrialSession
    from trio_cogment.sdk import Reward as Reward
    from trio_cogment.sdk import actor_params as actor_params
    from trio_cogment.sdk import connect as connect
    from trio_cogment.sdk import join_trial as join_trial
    from trio_cogment.sdk import run_participants as run_participants
    from trio_cogment.sdk import serve_participants as serve_participants
    from trio_cogment.sdk import trial_params as trial_params
    from trio_cogment.sdk.spec import ActorClass as ActorClass
    from trio_cogment.sdk.spec import Spec as Spec
    from trio_cogment.sdk.spec import load_spec as load_spec
    from trio_cogment.servers.orchestrator import Orchestrator as Orchestrator
    from trio_cogment.servers.orchestrator import SampleSink as SampleSink
    from trio_cogment.servers.orchestrator import SampleStream as SampleStream

_HOMES = {
    "ActorClass": "sdk.spec",
    "ActorSession": "sdk",
    "Client": "sdk",
    "CogmentError": "base.errors",
    "Controller": "sdk",
    "DatalogSession": "sdk",
    "DatastoreClient": "sdk",
    "EndCause": "base.outcome",
    "EnvironmentSession": "sdk",
    "Event": "sdk",
    "EventType": "sdk",
    "Host": "base.host",
    "Orchestrator": "servers.orchestrator",
    "OrchestratorConfig": "base.config",
    "Participants": "sdk",
    "Platform": "platform",
    "PlatformConfig": "base.config",
    "PreTrialSession": "sdk",
    "Reward": "sdk",
    "RpcConfig": "base.config",
    "RpcError": "base.errors",
    "SampleSink": "servers.orchestrator",
    "SampleStream": "servers.orchestrator",
    "Spec": "sdk.spec",
    "TrialFailedError": "base.errors",
    "TrialOutcome": "base.outcome",
    "actor_params": "sdk",
    "connect": "sdk",
    "join_trial": "sdk",
    "load_spec": "sdk.spec",
    "open_platform": "platform",
    "run_participants": "sdk",
    "serve_participants": "sdk",
    "trial_params": "sdk",
}

_SUBPACKAGES = frozenset(
    (
        *(
            "access",
            "aio",
            "api",
            "base",
            "conformance",
            "dashboard",
            "environments",
            "experiment",
            "gateways",
            "platform",
            "play",
            "ray",
            "rl",
            "rpc",
            "sdk",
        ),
        *("seats", "servers", "spaces", "sync", "testing", "trainer", "trial", "web"),
    )
)
_OLD_PLACES = frozenset(name for name in _MOVED if "." not in name)
_install_old_places()

__getattr__, __dir__ = _lazy_names(
    __name__, globals(), {**_HOMES, **dict.fromkeys(_SUBPACKAGES | _OLD_PLACES, "")}, hidden=_OLD_PLACES
)
__all__ = ["__version__", *sorted(_HOMES)]  # noqa: PLE0604 RUF100  the names are texts
