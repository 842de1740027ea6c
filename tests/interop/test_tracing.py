"""One trace of a trial over three processes: our orchestrator, an environment of ours, an actor of the published SDK.

The actor's process has OpenTelemetry of its own, of which we know nothing. What a collector would get comes to a
receiver of this process.
"""

from __future__ import annotations

import re
import sys

import pytest
import trio

from tests.interop import traced_environment
from tests.interop.scenes import Scene
from tests.otlp import Receiver, receiving
from trio_cogment.base.config import TracingConfig
from trio_cogment.base.tracing import open_tracing
from trio_cogment.sdk import actor_params, connect, trial_params

pytestmark = pytest.mark.interop

SERVER, CLIENT = 2, 3
RUN_ACTOR = "cogmentAPI.ServiceActorSP/RunTrial"
RUN_ENVIRONMENT = "cogmentAPI.EnvironmentSP/RunTrial"
START = "cogmentAPI.TrialLifecycleSP/StartTrial"


def test_one_trace_over_three_processes(scene: Scene, foreign_python: str, project: object) -> None:
    with receiving() as receiver:
        play(scene, foreign_python, receiver)
        check(receiver)


def play(scene: Scene, python: str, receiver: Receiver) -> None:
    """Run a trial; the processes send their last spans when they end."""
    port_file = scene.folder / "actor.port"
    traces = f"--endpoint={receiver.endpoint}/v1/traces"
    actor = scene.start("actor", *scene._program("traced_actor")[:2], traces, f"--port-file={port_file}")
    environment = scene.start("environment", sys.executable, traced_environment.__file__, receiver.endpoint)
    orchestrator = scene.orchestrator(
        f"--tracing_endpoint={receiver.endpoint}", "--tracing_tick_ratio=1", "--log_format=json"
    )
    listening = re.compile(r"participants listening on \S+:(\d+)")
    scene.until("the environment listens", lambda: listening.search(environment.output))
    found = listening.search(environment.output)
    assert found is not None
    params = trial_params(
        [actor_params("ann", "player", endpoint=f"grpc://127.0.0.1:{scene.port('actor')}")],
        environment_endpoint=f"grpc://127.0.0.1:{found.group(1)}",
    )

    async def start() -> None:
        config = TracingConfig(endpoint=receiver.endpoint, flush_seconds=10.0)
        async with open_tracing(config, service="experiment") as tracing, connect(orchestrator.lifecycle) as client:
            controller = await client.controller()
            with tracing.span("experiment", {}):
                trial_id = await controller.start_trial(params=params)
            await controller.wait_trial(trial_id)

    trio.run(start)
    for process in (actor, environment):
        process.may_end = True
        assert process.stop() == 0, process.output
        scene.processes.remove(process)
    log = orchestrator.process.output
    scene.end(orchestrator)
    assert f'"trace_id": "{receiver.one("trial").trace_id}"' in log


def check(receiver: Receiver) -> None:
    """From the actor's process up to the experiment, and from the environment's."""
    [trace] = {span.trace_id for span in receiver.spans if span.name in ("trial", "experiment")}
    ours = [span for span in receiver.spans if span.trace_id == trace]
    kinds = {(span.service, span.name, span.kind): span for span in ours}

    def line(service: str, name: str, kind: int) -> list[tuple[str, str]]:
        span = kinds[service, name, kind]
        found = [(span.service, span.name)]
        while span.parent_id:
            span = receiver.parent_of(span)
            found.append((span.service, span.name))
        return found

    up = [
        ("trio-cogment", "trial"),
        ("trio-cogment", START),
        ("experiment", START),
        ("experiment", "experiment"),
    ]
    assert line("our-environment", RUN_ENVIRONMENT, SERVER) == [
        ("our-environment", RUN_ENVIRONMENT),
        ("trio-cogment", RUN_ENVIRONMENT),
        ("trio-cogment", "environment env"),
        *up,
    ]
    [served] = [span for span in ours if span.service == "published-actor"]
    assert served.kind == SERVER
    assert line("published-actor", served.name, SERVER)[1:] == [
        ("trio-cogment", RUN_ACTOR),
        ("trio-cogment", "actor ann"),
        *up,
    ]
    ticks = [span for span in ours if span.name == "tick"]
    assert [span.attributes["trio_cogment.tick.id"] for span in ticks] == list(range(traced_environment.TICKS + 1))
    assert all(receiver.parent_of(span).name == "trial" for span in ticks)
    assert not [span for span in ours if span.status == 2]
