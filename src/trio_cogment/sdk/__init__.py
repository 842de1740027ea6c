"""What users write trials with: participants as async functions over a session, and control over trials."""

from trio_cogment.sdk._session import EventStream as EventStream
from trio_cogment.sdk._session import Session as Session
from trio_cogment.sdk._tracking import LatestVersion as LatestVersion
from trio_cogment.sdk.actor import ActorSession as ActorSession
from trio_cogment.sdk.controller import Controller as Controller
from trio_cogment.sdk.controller import join_trial as join_trial
from trio_cogment.sdk.datalog import DatalogSession as DatalogSession
from trio_cogment.sdk.environment import ActorInfo as ActorInfo
from trio_cogment.sdk.environment import EnvironmentSession as EnvironmentSession
from trio_cogment.sdk.events import Event as Event
from trio_cogment.sdk.events import EventType as EventType
from trio_cogment.sdk.events import RecvAction as RecvAction
from trio_cogment.sdk.events import RecvMessage as RecvMessage
from trio_cogment.sdk.events import RecvObservation as RecvObservation
from trio_cogment.sdk.events import RecvReward as RecvReward
from trio_cogment.sdk.hook import PreTrialSession as PreTrialSession
from trio_cogment.sdk.model_registry import ModelRegistryClient as ModelRegistryClient
from trio_cogment.sdk.params import actor_params as actor_params
from trio_cogment.sdk.params import trial_params as trial_params
from trio_cogment.sdk.participants import LocalParticipants as LocalParticipants
from trio_cogment.sdk.participants import Participants as Participants
from trio_cogment.sdk.serving import serve_participants as serve_participants
