"""The Cogment platform on Trio: trials in which humans, software agents and an environment meet.

What most programs need is in this module. The rest is in its subpackages, which are:

- `sdk`, `sync` and `aio`: participants and clients, for Trio programs, for scripts and for asyncio programs.
- `platform`: all services of the platform in a program of one's own; `orchestrator`, `datastore`, `model_registry`,
  `directory` and `trainer`: each of them; `discovery`: a directory's client.
- `rl`, `spaces` and `gateways`: reinforcement learning, its values, and its other protocols.
- `play`, `dashboard` and `web`: people in trials, the operators' pages, and a port's browser side.
- `rpc`: gRPC on Trio; `api`: its messages; `access`: rights; `config`, `errors`, `outcome`, `endpoints`: for all.
- `spec`: actor classes and payload types; `trial` and `recording`: a trial as a state machine, and its replay.
- `host`, `plugins`, `metrics`: what comes from outside, what others add, and what is measured.
- `testing`: simulated runs, fakes, checkers.

Names and subpackages are imported when they are first used, so that importing a pure part (`trio_cogment.trial`)
imports neither Trio nor anything that does I/O.
"""

from __future__ import annotations

from trio_cogment._lazy_names import lazy_names as _lazy_names
from trio_cogment._version import __version__ as __version__

TYPE_CHECKING = False  # as type checkers know it; importing `typing` takes longer than everything else here
if TYPE_CHECKING:
    from trio_cogment import access as access
    from trio_cogment import aio as aio
    from trio_cogment import api as api
    from trio_cogment import config as config
    from trio_cogment import dashboard as dashboard
    from trio_cogment import datastore as datastore
    from trio_cogment import directory as directory
    from trio_cogment import discovery as discovery
    from trio_cogment import endpoints as endpoints
    from trio_cogment import errors as errors
    from trio_cogment import gateways as gateways
    from trio_cogment import host as host
    from trio_cogment import metrics as metrics
    from trio_cogment import model_registry as model_registry
    from trio_cogment import orchestrator as orchestrator
    from trio_cogment import outcome as outcome
    from trio_cogment import platform as platform
    from trio_cogment import play as play
    from trio_cogment import plugins as plugins
    from trio_cogment import recording as recording
    from trio_cogment import rl as rl
    from trio_cogment import rpc as rpc
    from trio_cogment import sdk as sdk
    from trio_cogment import spaces as spaces
    from trio_cogment import spec as spec
    from trio_cogment import sync as sync
    from trio_cogment import testing as testing
    from trio_cogment import trainer as trainer
    from trio_cogment import trial as trial
    from trio_cogment import web as web
    from trio_cogment.config import OrchestratorConfig as OrchestratorConfig
    from trio_cogment.config import PlatformConfig as PlatformConfig
    from trio_cogment.config import RpcConfig as RpcConfig
    from trio_cogment.errors import CogmentError as CogmentError
    from trio_cogment.errors import RpcError as RpcError
    from trio_cogment.errors import TrialFailedError as TrialFailedError
    from trio_cogment.host import Host as Host
    from trio_cogment.orchestrator import Orchestrator as Orchestrator
    from trio_cogment.orchestrator import SampleSink as SampleSink
    from trio_cogment.orchestrator import SampleStream as SampleStream
    from trio_cogment.outcome import EndCause as EndCause
    from trio_cogment.outcome import TrialOutcome as TrialOutcome
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
    from trio_cogment.spec import ActorClass as ActorClass
    from trio_cogment.spec import Spec as Spec
    from trio_cogment.spec import load_spec as load_spec

_HOMES = {
    "ActorClass": "spec",
    "ActorSession": "sdk",
    "Client": "sdk",
    "CogmentError": "errors",
    "Controller": "sdk",
    "DatalogSession": "sdk",
    "DatastoreClient": "sdk",
    "EndCause": "outcome",
    "EnvironmentSession": "sdk",
    "Event": "sdk",
    "EventType": "sdk",
    "Host": "host",
    "Orchestrator": "orchestrator",
    "OrchestratorConfig": "config",
    "Participants": "sdk",
    "Platform": "platform",
    "PlatformConfig": "config",
    "PreTrialSession": "sdk",
    "Reward": "sdk",
    "RpcConfig": "config",
    "RpcError": "errors",
    "SampleSink": "orchestrator",
    "SampleStream": "orchestrator",
    "Spec": "spec",
    "TrialFailedError": "errors",
    "TrialOutcome": "outcome",
    "actor_params": "sdk",
    "connect": "sdk",
    "join_trial": "sdk",
    "load_spec": "spec",
    "open_platform": "platform",
    "run_participants": "sdk",
    "serve_participants": "sdk",
    "trial_params": "sdk",
}

_SUBPACKAGES = frozenset(
    (
        *("access", "aio", "api", "config", "dashboard", "datastore", "directory", "discovery", "endpoints", "errors"),
        *("gateways", "host", "metrics", "model_registry", "orchestrator", "outcome", "platform", "play", "plugins"),
        *("recording", "rl", "rpc", "sdk", "spaces", "spec", "sync", "testing", "trainer", "trial", "web"),
    )
)

__getattr__, __dir__ = _lazy_names(__name__, globals(), {**_HOMES, **dict.fromkeys(_SUBPACKAGES, "")})
__all__ = ["__version__", *sorted(_HOMES)]  # noqa: PLE0604 RUF100  the names are texts
