"""The SDK: participants as async functions over a session, control of trials, and clients of the stores."""

from trio_cogment.sdk._actor import ActorImplementation, ActorSession
from trio_cogment.sdk._connect import Client, connect
from trio_cogment.sdk._controller import Controller, join_trial
from trio_cogment.sdk._datalog import DatalogImplementation, DatalogSession
from trio_cogment.sdk._datastore import DatastoreClient, SampleIterator
from trio_cogment.sdk._environment import ActorInfo, EnvironmentImplementation, EnvironmentSession
from trio_cogment.sdk._events import (
    ActorStatus,
    Event,
    EventStream,
    EventType,
    RecvAction,
    RecvMessage,
    RecvObservation,
    RecvReward,
)
from trio_cogment.sdk._export_import import Transferred, export_trials, import_samples
from trio_cogment.sdk._hook import PreTrialHook, PreTrialSession
from trio_cogment.sdk._log_level import apply_log_level
from trio_cogment.sdk._log_sample import LogSample
from trio_cogment.sdk._model_registry import ModelRegistryClient
from trio_cogment.sdk._outgoing import Reward
from trio_cogment.sdk._params import (
    actor_config,
    actor_params,
    default_action,
    environment_config,
    serialized,
    trial_config,
    trial_params,
)
from trio_cogment.sdk._participant_server import serve_participants
from trio_cogment.sdk._participants import LocalParticipants, Participants
from trio_cogment.sdk._participants_program import run_participants
from trio_cogment.sdk._session import Session
from trio_cogment.sdk._stored import ActorSample, StoredMessage, StoredReward, StoredSample, StoredTrial
from trio_cogment.sdk._tracking import LatestVersion

__all__ = [
    "ActorImplementation",
    "ActorInfo",
    "ActorSample",
    "ActorSession",
    "ActorStatus",
    "Client",
    "Controller",
    "DatalogImplementation",
    "DatalogSession",
    "DatastoreClient",
    "EnvironmentImplementation",
    "EnvironmentSession",
    "Event",
    "EventStream",
    "EventType",
    "LatestVersion",
    "LocalParticipants",
    "LogSample",
    "ModelRegistryClient",
    "Participants",
    "PreTrialHook",
    "PreTrialSession",
    "RecvAction",
    "RecvMessage",
    "RecvObservation",
    "RecvReward",
    "Reward",
    "SampleIterator",
    "Session",
    "StoredMessage",
    "StoredReward",
    "StoredSample",
    "StoredTrial",
    "Transferred",
    "actor_config",
    "actor_params",
    "apply_log_level",
    "connect",
    "default_action",
    "environment_config",
    "export_trials",
    "import_samples",
    "join_trial",
    "run_participants",
    "serialized",
    "serve_participants",
    "trial_config",
    "trial_params",
]
