"""The SDK: participants as async functions over a session, control of trials, and clients of the stores.

A participant is written as one async function that gets a session and lives as long as its part in the trial: it reads
events in a loop and sends when it likes. That reads like the trial itself, keeps state in local variables, and is
cancelled like any Trio code. The session hides what the protocol wants beside that: heartbeats, the acknowledgement of
the last message, the order of rewards and observations.

Where a task for each participant would cost more than what it does, the same session calls a plain function for each
event, in the task that brings it (`session.handle`, `_inline`); `direct_actor` goes further and has no task even to
begin and to end.

Clients are thin: they translate between objects with names and messages with indexes, and know nothing that a server
does not tell. All of them stand on a `CallOpener`, which is a channel or the platform of this process, so they do not
know either where they run.

The names below are resolved when they are first used: most programs need few of them.
"""

from typing import TYPE_CHECKING

from trio_cogment.base.lazy_names import lazy_names as _lazy_names

if TYPE_CHECKING:
    from trio_cogment.sdk._actor import ActorImplementation as ActorImplementation
    from trio_cogment.sdk._actor import ActorSession as ActorSession
    from trio_cogment.sdk._connect import Client as Client
    from trio_cogment.sdk._connect import connect as connect
    from trio_cogment.sdk._controller import Controller as Controller
    from trio_cogment.sdk._controller import join_trial as join_trial
    from trio_cogment.sdk._datalog import DatalogImplementation as DatalogImplementation
    from trio_cogment.sdk._datalog import DatalogSession as DatalogSession
    from trio_cogment.sdk._datastore import DatastoreClient as DatastoreClient
    from trio_cogment.sdk._datastore import SampleIterator as SampleIterator
    from trio_cogment.sdk._environment import ActorInfo as ActorInfo
    from trio_cogment.sdk._environment import EnvironmentImplementation as EnvironmentImplementation
    from trio_cogment.sdk._environment import EnvironmentSession as EnvironmentSession
    from trio_cogment.sdk._events import ActorStatus as ActorStatus
    from trio_cogment.sdk._events import Event as Event
    from trio_cogment.sdk._events import EventStream as EventStream
    from trio_cogment.sdk._events import EventType as EventType
    from trio_cogment.sdk._events import RecvAction as RecvAction
    from trio_cogment.sdk._events import RecvMessage as RecvMessage
    from trio_cogment.sdk._events import RecvObservation as RecvObservation
    from trio_cogment.sdk._events import RecvReward as RecvReward
    from trio_cogment.sdk._export_import import Transferred as Transferred
    from trio_cogment.sdk._export_import import export_trials as export_trials
    from trio_cogment.sdk._export_import import import_samples as import_samples
    from trio_cogment.sdk._finding import FoundTrial as FoundTrial
    from trio_cogment.sdk._hook import PreTrialHook as PreTrialHook
    from trio_cogment.sdk._hook import PreTrialSession as PreTrialSession
    from trio_cogment.sdk._log_level import apply_log_level as apply_log_level
    from trio_cogment.sdk._log_sample import LogSample as LogSample
    from trio_cogment.sdk._model_registry import ModelRegistryClient as ModelRegistryClient
    from trio_cogment.sdk._outgoing import Reward as Reward
    from trio_cogment.sdk._params import actor_config as actor_config
    from trio_cogment.sdk._params import actor_params as actor_params
    from trio_cogment.sdk._params import default_action as default_action
    from trio_cogment.sdk._params import environment_config as environment_config
    from trio_cogment.sdk._params import serialized as serialized
    from trio_cogment.sdk._params import trial_config as trial_config
    from trio_cogment.sdk._params import trial_params as trial_params
    from trio_cogment.sdk._participant_server import serve_participants as serve_participants
    from trio_cogment.sdk._participants import LocalParticipants as LocalParticipants
    from trio_cogment.sdk._participants import Participants as Participants
    from trio_cogment.sdk._participants_program import run_participants as run_participants
    from trio_cogment.sdk._session import Session as Session
    from trio_cogment.sdk._stored import ActorSample as ActorSample
    from trio_cogment.sdk._stored import StoredMessage as StoredMessage
    from trio_cogment.sdk._stored import StoredReward as StoredReward
    from trio_cogment.sdk._stored import StoredSample as StoredSample
    from trio_cogment.sdk._stored import StoredTrial as StoredTrial
    from trio_cogment.sdk._tracking import LatestVersion as LatestVersion

_HOMES = {
    "ActorImplementation": "_actor",
    "ActorInfo": "_environment",
    "ActorSample": "_stored",
    "ActorSession": "_actor",
    "ActorStatus": "_events",
    "Client": "_connect",
    "Controller": "_controller",
    "DatalogImplementation": "_datalog",
    "DatalogSession": "_datalog",
    "DatastoreClient": "_datastore",
    "EnvironmentImplementation": "_environment",
    "EnvironmentSession": "_environment",
    "Event": "_events",
    "EventStream": "_events",
    "EventType": "_events",
    "LatestVersion": "_tracking",
    "LocalParticipants": "_participants",
    "LogSample": "_log_sample",
    "ModelRegistryClient": "_model_registry",
    "Participants": "_participants",
    "PreTrialHook": "_hook",
    "PreTrialSession": "_hook",
    "RecvAction": "_events",
    "RecvMessage": "_events",
    "RecvObservation": "_events",
    "RecvReward": "_events",
    "Reward": "_outgoing",
    "SampleIterator": "_datastore",
    "Session": "_session",
    "StoredMessage": "_stored",
    "StoredReward": "_stored",
    "StoredSample": "_stored",
    "FoundTrial": "_finding",
    "StoredTrial": "_stored",
    "Transferred": "_export_import",
    "actor_config": "_params",
    "actor_params": "_params",
    "apply_log_level": "_log_level",
    "connect": "_connect",
    "default_action": "_params",
    "environment_config": "_params",
    "export_trials": "_export_import",
    "import_samples": "_export_import",
    "join_trial": "_controller",
    "run_participants": "_participants_program",
    "serialized": "_params",
    "serve_participants": "_participant_server",
    "trial_config": "_params",
    "trial_params": "_params",
}

__getattr__, __dir__ = _lazy_names(__name__, globals(), _HOMES)
__all__ = sorted(_HOMES)  # noqa: PLE0605  the names are texts
