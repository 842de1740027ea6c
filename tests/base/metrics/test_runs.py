"""The metrics of a trainer, as Prometheus sees them."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.trainer.bench import INLINE, Client, serving, steps
from trio_cogment.base.metrics import TrainerMetrics
from trio_cogment.base.metrics.runs import MOST_RUNS, PrometheusTrainerMetrics
from trio_cogment.platform import open_platform
from trio_cogment.trainer import PlatformTrainer


def scraped(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    """Return every value by its name and its label."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


async def test_credits_of_a_run(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    metrics: TrainerMetrics = PrometheusTrainerMetrics(registry)
    assert scraped(registry) == {}
    trainer = PlatformTrainer(tmp_path, full=False, host=INLINE, metrics=metrics)
    async with open_platform(extensions=[trainer]) as platform:
        client = Client(platform.channel)
        await client.submit("a")
        token = await client.register("a")
        async with client.control(token) as call:
            event = await call.receive()
            assert event is not None
            await client.publish(steps("a", 7), token=token)
            await client.command("a", pause=True)
            found = scraped(registry)
        assert found.pop(("trainer_ingest_rate_hz", "a")) >= 0
        assert {name: value for (name, *label), value in found.items() if label == ["a"]} == {
            "trainer_credits_granted_total": 500,
            "trainer_credits_consumed_total": 7,
            "trainer_grants_sent_total": 1,
            "trainer_pauses_total": 1,
            "trainer_resumes_total": 0,
            "trainer_drops_due_to_credit_total": 0,
            "trainer_current_outstanding": 493,
        }
        assert (found["trainer_runs", "PAUSE"], found["trainer_runs", "TERM"]) == (1, 0)
        await client.cancel("a")
        found = scraped(registry)
        assert found["trainer_runs", "TERM"] == 1
        assert ("trainer_pauses_total", "a") not in found


async def test_there_are_not_too_many_labels() -> None:
    registry = CollectorRegistry()
    metrics = PrometheusTrainerMetrics(registry)
    async with serving() as (client, trainer):
        metrics.attach(trainer.gauges)
        for number in range(MOST_RUNS + 1):
            await client.submit(f"r{number}", run_name=str(number))
        found = scraped(registry)
    assert found["trainer_runs", "INIT"] == MOST_RUNS + 1
    assert sum(name == "trainer_pauses_total" for name, *_ in found) == MOST_RUNS
    assert ("trainer_pauses_total", "r0") in found
