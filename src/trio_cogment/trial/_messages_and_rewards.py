"""The actions for messages and rewards: what participants say to one another.

Messages are relayed at once, rewards wait for their receiver's next observation, as the published SDKs expect. The name
of the sender is always written here: a participant cannot speak in another's name. Nothing that is wrong with a message
or a reward costs its sender or its receiver more than that message: it is counted, noted once, and ignored.
"""

from __future__ import annotations

from typing import Any, Final

from trio_cogment.api.common_pb2 import Message, Reward
from trio_cogment.base.shared_message import SharedReward
from trio_cogment.trial._events import EmitSample, SendShared
from trio_cogment.trial._memory import TrialMemory
from trio_cogment.trial._participant import Actor, Participant
from trio_cogment.trial._relayed import Given, Said, relay
from trio_cogment.trial._relayed import reward as reward_effect
from trio_cogment.trial._stream_table import StreamState

_TO_COME: Final = (StreamState.IDLE, StreamState.CONNECTING)

#: What a participant writes for "the current tick".
CURRENT_TICK: Final = -1


def relay_message(trial: TrialMemory, sender: Participant, received: Any) -> None:
    """Pass a message on at once, to whoever its receiver stands for."""
    message: Message = received.message
    if not _may_speak(trial, sender, message.ByteSize()):
        return
    if message.tick_id not in (CURRENT_TICK, trial.tick_id):
        trial.ignore(sender, "message_of_wrong_tick", f"a message for tick {message.tick_id}, not {trial.tick_id}")
        return
    message.sender_name = sender.name
    if trial.log is not None:
        trial.log.take_message(message)
    receivers: list[Participant] = [trial.actors[index] for index in trial.addresses.resolve(message.receiver_name)]
    # Patterns never mean the environment; only its exact name does, which no actor has.
    if message.receiver_name == trial.environment.name:
        receivers.append(trial.environment)
    if not receivers:
        trial.ignore(sender, "message_to_nobody", f"a message to '{message.receiver_name}', which nobody is")
    # The one that came went into the sample, as it was written.
    said = Said(message, trial.tick_id)
    for receiver in receivers:
        _deliver(trial, sender, receiver, relay(receiver.index, receiver.name, said))


def _may_speak(trial: TrialMemory, sender: Participant, size: int, entries: int = 1) -> bool:
    # What is said is kept (in samples, in outboxes), so one that says too much would take the memory of all trials.
    tick_id = trial.tick_id
    if sender.said_tick != tick_id:
        sender.said_tick, sender.said = tick_id, 0
    if trial.said_tick != tick_id:
        trial.said_tick, trial.said_bytes = tick_id, 0
    sender.said += entries
    trial.said_bytes += size
    if sender.said > trial.rules.max_said_per_tick:
        trial.ignore(sender, "too_much_said", "more messages and sources of rewards in one tick than are taken")
        return False
    if trial.said_bytes > trial.rules.max_said_bytes_per_tick:
        most = trial.rules.max_said_bytes_per_tick
        trial.ignore(sender, "too_much_said", f"messages and rewards of one tick with more than {most} bytes together")
        return False
    trial.tick_bytes += size
    return True


def _deliver(trial: TrialMemory, sender: Participant, receiver: Participant, message: SendShared) -> None:
    if receiver.present:
        trial.out.append(message)
    elif receiver.state not in _TO_COME:
        trial.ignore(sender, "message_to_the_lost", f"a message to {receiver.describe()}, which is gone", "info")
    elif _can_hold(trial, receiver, message):
        receiver.held.append(message)
    else:
        trial.ignore(sender, "message_not_held", f"more messages to {receiver.describe()} than can be held for it")


def _can_hold(trial: TrialMemory, receiver: Participant, message: SendShared) -> bool:
    # One message is always held, however large, as in a participant's outbox.
    held, rules = receiver.held, trial.rules
    size = sum(each.shared.ByteSize() for each in held) + message.shared.ByteSize()
    return not held or (len(held) < rules.max_held_messages and size <= rules.max_held_bytes)


def send_held(trial: TrialMemory, receiver: Participant) -> None:
    """Send what came for a participant before it did."""
    trial.out += receiver.held
    receiver.held = []


def take_reward(trial: TrialMemory, sender: Participant, received: Any) -> None:
    """Keep a reward for its receivers' next observation, or for the sample of the past tick it names."""
    reward: Reward | SharedReward = received.reward
    tick_id = trial.tick_id
    size = reward.size if isinstance(reward, SharedReward) else reward.ByteSize()
    if not _may_speak(trial, sender, size, max(1, len(reward.sources))):
        return
    if reward.tick_id not in (CURRENT_TICK, tick_id) and not trial.first_tick <= reward.tick_id < tick_id:
        trial.ignore(sender, "reward_of_wrong_tick", f"a reward for tick {reward.tick_id}, not {tick_id}")
        return
    sources = reward.sources[:]
    for source in sources:
        source.sender_name = sender.name
    if reward.tick_id not in (CURRENT_TICK, tick_id):
        # Its receivers have moved on, and are not told. Only the sample of that tick is worth correcting.
        trial.count("reward_of_past_tick")
        if trial.log is not None:
            sample = trial.log.take_past_reward(reward, trial.wall_ns)
            if sample is not None:
                trial.out.append(EmitSample(sample))
        return
    if trial.log is not None:
        trial.log.take_reward(reward)
    if not sources:
        trial.ignore(sender, "reward_without_source", "a reward without sources")
        return
    given = Given(sources, size)
    receivers = trial.addresses.resolve(reward.receiver_name)
    if not receivers:
        trial.ignore(sender, "reward_to_nobody", f"a reward to '{reward.receiver_name}', which no actor is")
    for index in receivers:
        actor = trial.actors[index]
        if not actor.gone:
            actor.rewards.append(given)
            actor.reward_tick = tick_id


def send_rewards(trial: TrialMemory, actor: Actor) -> None:
    """Send an actor what it was rewarded with since its last observation, as one Reward."""
    trial.out.append(take_rewards(actor))


def take_rewards(actor: Actor) -> SendShared:
    """Return what `send_rewards` sends; it counts as sent."""
    given, actor.rewards = actor.rewards, []
    return reward_effect(actor.index, actor.name, actor.reward_tick, given)
