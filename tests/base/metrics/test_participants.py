"""Metrics of participants and of the model registry's client."""

from __future__ import annotations

from pathlib import Path

from google.protobuf.wrappers_pb2 import StringValue
from prometheus_client import CollectorRegistry

from trio_cogment import ActorSession, EnvironmentSession, Participants, actor_params, open_platform, trial_params
from trio_cogment.base.metrics.participants import PrometheusParticipantMetrics
from trio_cogment.sdk import ModelRegistryClient


async def environment(session: EnvironmentSession) -> None:
    await session.start([("*", b"")])
    async for event in session.all_events():
        if event.actions is not None:
            await session.send_message(StringValue(value="well done"), ["a", "b"])
            await session.add_reward(-2.5 if event.tick_id else 1.0, 1.0, "*")
            if event.tick_id == 2:
                await session.end([("*", b"")])
            else:
                await session.produce_observations([("*", b"")])


async def actor(session: ActorSession) -> None:
    async for event in session.all_events():
        if event.observation is not None:
            if event.tick_id == 0:
                await session.send_message(StringValue(value="hello"), session.environment_name)
            await session.do_action(b"")


def samples(registry: CollectorRegistry) -> dict[str, float]:
    """Every value except times, as `name{labels}`."""
    return {
        f"{sample.name}{sorted(sample.labels.values())}": sample.value
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
        and not sample.name.endswith("seconds_sum")
        and not sample.name.endswith("second_sum")
    }


async def test_sessions_are_measured() -> None:
    metrics = PrometheusParticipantMetrics()
    participants = Participants(metrics=metrics)
    participants.register_environment(environment, "world")
    participants.register_actor(actor, "player")
    async with open_platform(participants) as platform:
        params = trial_params([actor_params("a", "c"), actor_params("b", "c")])
        trial_id = await platform.controller.start_trial(params)
        await platform.controller.wait_trial(trial_id)
    assert samples(metrics.registry) == {
        **{f"actor_decide_processing_seconds_count['{name}', 'player']": 1 for name in "ab"},
        "actor_started_total['player']": 2,
        "actor_ended_total['player']": 2,
        **{f"actor_received_messages_total['{name}', 'player']": 3 for name in "ab"},
        **{f"actor_reward_summation['{name}', 'player']": -4 for name in "ab"},
        **{f"actor_rewards_count_total['{name}', 'player']": 3 for name in "ab"},
        "environment_update_count_per_trial_count['world']": 1,
        "environment_update_count_per_trial_sum['world']": 2,
        "environment_trial_duration_in_second_count['world']": 1,
        "environment_trials_started_total['world']": 1,
        "environment_trials_ended_total['world']": 1,
        "environment_received_messages_total['world']": 2,
        "environment_sent_messages_total['world']": 6,
    }


async def test_models_are_measured(tmp_path: Path) -> None:
    metrics = PrometheusParticipantMetrics()
    async with open_platform(model_registry=tmp_path) as platform:
        client = ModelRegistryClient(platform.channel, metrics=metrics)
        await client.publish("m", b"1")
        await client.store("m", b"2")
        await client.retrieve("m")
    assert samples(metrics.registry) == {
        "model_registry_publish_version_seconds_count['m']": 2,
        "model_registry_retrieve_version_seconds_count['False', 'm']": 1,
    }


def test_two_of_them_do_not_clash() -> None:
    shared = CollectorRegistry()
    assert PrometheusParticipantMetrics(shared).registry is shared
    assert PrometheusParticipantMetrics().registry is not PrometheusParticipantMetrics().registry
