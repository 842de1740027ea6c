"""The dashboard and the alerts of `examples/operations`: what they ask is what a running platform says.

Here each metric and each label that a query names has to be exposed. `nox -s operations` has a real Prometheus answer
the queries, and its `promtool` test the alerts in virtual time.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import urllib.parse
import urllib.request
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.cli.process import PATIENCE_SECONDS, Endless, server
from tests.cli.services.test_full_disk import DISK_BYTES, small_disk
from tests.ports import free_port
from trio_cogment.cli.services.figures import folder_bytes
from trio_cogment.rpc import Channel
from trio_cogment.sdk import Controller, actor_params, connect, trial_params

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "operations"
GRAFANA = EXAMPLE / "grafana.json"
#: What Prometheus adds by itself.
OWN_METRICS = {"up", "ALERTS"}
OWN_LABELS = {"instance", "job"}

ALERT = 'ALERTS{{alertname="{}", alertstate="firing"}}'

_METRIC = re.compile(r"\b((?:orchestrator|trio_cogment|grpc_server|process|trainer)_\w+|up|ALERTS)\b(?:\{([^}]*)\})?")
_BY = re.compile(r"\bby \(([^)]*)\)")
_LEGEND = re.compile(r"\{\{ ?(?:\$labels\.)?(\w+) ?\}\}")


def panels() -> Iterator[dict[str, Any]]:
    yield from (panel for panel in json.loads(GRAFANA.read_text())["panels"] if "targets" in panel)


def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load((EXAMPLE / "alerts.yml").read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def queries() -> list[tuple[str, str]]:
    """Every query, with what shows its labels."""
    shown = [(target["expr"], target["legendFormat"]) for panel in panels() for target in panel["targets"]]
    alerts = [(rule["expr"], re.sub(r"\{\{ ?\$value[^}]*\}\}", "", rule["annotations"]["summary"])) for rule in rules()]
    return [*shown, *alerts]


@asynccontextmanager
async def running_platform(folder: Path) -> AsyncIterator[list[int]]:
    """Run a server of everything and one of play, with trials; gives the ports of their metrics."""
    everything, of_play = free_port(), free_port()
    endless = Endless()
    (folder / "params.yaml").write_text(PARAMS)
    (folder / "game.py").write_text(GAME)
    serve = (
        *("serve", "--host=127.0.0.1", "--port=0", f"--prometheus_port={everything}"),
        *("--storage=sqlite:trials.db", "--archive_dir=models", "--persistence_file="),
        *("--file_storage_max_size=100000000", "--tracing_endpoint=http://127.0.0.1:9", "--tracing_tick_ratio=1"),
    )
    play = (
        *("play", "game", "--params=params.yaml", "--port=0"),
        *("--storage=none", f"--prometheus_port={of_play}"),
    )
    with trio.fail_after(2 * PATIENCE_SECONDS):
        async with (
            server(*serve, folder=folder) as ours,
            server(*play, folder=folder),
            endless.served() as participants,
            connect(f"grpc://127.0.0.1:{ours.port}") as client,
        ):
            controller = await client.controller()
            actors = [actor_params("ann", "player", endpoint=participants)]
            trials = [
                await controller.start_trial(params=trial_params(actors, environment_endpoint=participants))
                for _ in range(2)
            ]
            await endless.wait_running(trials)
            await controller.terminate_trial([trials[0]])
            await controller.wait_trial(trials[0])
            models = await client.model_registry()
            await models.publish("policy", b"weights")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(go_on_asking, controller)
                yield [everything, of_play]
                nursery.cancel_scope.cancel()


async def go_on_asking(controller: Controller) -> None:
    """Make unary calls: of none there is no quantile of how long they take."""
    while True:
        await controller.trial_infos()
        await trio.sleep(0.2)


GAME = """\
from trio_cogment import Participants
from trio_cogment.sdk.spec import Spec

participants = Participants(Spec())


async def world(session):
    await session.start([("*", b"hello")])
    async for event in session.all_events():
        pass


participants.register_environment(world)
"""
PARAMS = """\
trial_params:
  actors:
    - {name: ann, actor_class: player, endpoint: "cogment://client"}
  environment: {endpoint: "cogment://discover"}
"""


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as response:
        text: bytes = response.read()
        return text.decode()


async def exposed(ports: list[int]) -> dict[str, set[str]]:
    """Return the labels of each metric."""
    found: dict[str, set[str]] = defaultdict(set)
    for port in ports:
        text = await trio.to_thread.run_sync(fetch, f"http://127.0.0.1:{port}/metrics")
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found[sample.name] |= sample.labels.keys()
    return found


async def test_every_metric_and_label_of_the_queries_is_exposed(tmp_path: Path) -> None:
    async with running_platform(tmp_path) as ports:
        known = await exposed(ports)
    asked = set()
    for query, legend in queries():
        labels = set(OWN_LABELS)
        names = _METRIC.findall(query)
        assert names, query
        for name, selector in names:
            if name in OWN_METRICS:
                continue
            asked.add(name)
            assert name in known, f"{query}: nobody exposes {name}"
            labels |= known[name]
            for label in re.findall(r"(\w+)=", selector):
                assert label in known[name] | OWN_LABELS, f"{query}: {name} has no label {label}"
        for label in (each.strip() for group in _BY.findall(query) for each in group.split(",")):
            assert label in labels, f"{query}: no metric has a label {label}"
        kept = {each.strip() for group in _BY.findall(query) for each in group.split(",")} or labels
        assert set(_LEGEND.findall(legend)) <= kept, f"{query}: {legend}"
    assert len(asked) > 30


def test_each_alert_is_tested() -> None:
    tests = (EXAMPLE / "alerts_test.yml").read_text()
    assert [rule["alert"] for rule in rules() if rule["alert"] not in tests] == []


def test_the_size_of_a_folder_is_that_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "a").write_bytes(b"12345")
    (tmp_path / "deep" / "b").write_bytes(b"123")
    assert folder_bytes(tmp_path) == 8
    assert folder_bytes(tmp_path / "nowhere") == 0


# With a real Prometheus


def program(name: str) -> str:
    found = shutil.which(name, path=os.environ.get("TRIO_COGMENT_PROMETHEUS_PATH", os.environ["PATH"]))
    if found is None:
        pytest.fail(f"{name} is not there; `nox -s operations` installs Debian's package prometheus")
    return found


def promtool(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [program("promtool"), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.prometheus
def test_alerts_are_raised_in_virtual_time() -> None:
    """A filled disk, a lost datastore, a stuck trial and the others; see alerts_test.yml."""
    for command in (["check", "config", "prometheus.yml"], ["test", "rules", "alerts_test.yml"]):
        done = promtool(EXAMPLE, *command)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.prometheus
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("> 600", "> 6000"),
        ("orchestrator_data_logs_away", "orchestrator_datalogs_away"),
        ("< 0.02", "< 0.002"),
        ("trio_cogment_writes_refused_total", "trio_cogment_tokens_refused_total"),
    ],
)
def test_an_alert_that_is_mistaken_is_found(old: str, new: str, tmp_path: Path) -> None:
    """The tests of the alerts can fail: with another limit, or another metric, they do."""
    text = (EXAMPLE / "alerts.yml").read_text()
    assert old in text
    (tmp_path / "alerts.yml").write_text(text.replace(old, new))
    shutil.copy(EXAMPLE / "alerts_test.yml", tmp_path)
    assert promtool(tmp_path, "test", "rules", "alerts_test.yml").returncode != 0


@pytest.mark.prometheus
async def test_every_query_returns_data(tmp_path: Path) -> None:
    async with running_platform(tmp_path) as ports, prometheus(tmp_path, ports) as ask:
        for query, _ in queries():
            query = query.replace("$__rate_interval", "10s").replace('"$instance"', '".*"')
            for part in re.split(r"\b(?:and|or)\b", query):
                # An alert that is not raised returns nothing: what it compares does.
                compared = re.sub(r" (?:<|>|==) [0-9.]+\s*$", "", part.strip())
                with trio.move_on_after(20) as scope:
                    await answered(ask, compared)
                assert not scope.cancelled_caught, compared
        # What Grafana asks for the servers that one can choose from: `label_values(SERIES, LABEL)`.
        [chosen] = [each for each in json.loads(GRAFANA.read_text())["templating"]["list"] if each["type"] == "query"]
        found = re.fullmatch(r"label_values\((.*), (\w+)\)", chosen["query"]["query"])
        assert found is not None
        values = {each["metric"][found[2]] for each in await ask(found[1])}
        assert values == {f"127.0.0.1:{port}" for port in ports}


@pytest.mark.prometheus
async def test_a_real_prometheus_raises_alerts(tmp_path: Path) -> None:
    """A datastore that is killed, a trial that does not go on and a disk that is filled, with short times."""
    text = re.sub(r"for: \d+m", "for: 1s", (EXAMPLE / "alerts.yml").read_text())
    for old, new in (("> 600", "> 2"), ("> 900", "> 2")):
        assert old in text
        text = text.replace(old, new)
    port, of_datastore = free_port(), free_port()
    silent = Silent()
    orchestrator = (
        *("services", "orchestrator", "--host=127.0.0.1", "--lifecycle_port=0", "--actor_port=0"),
        f"--prometheus_port={port}",
    )
    datastore = (
        *("services", "trial_datastore", "--host=127.0.0.1", "--port=0", "--file_storage=small/trials.db"),
        f"--prometheus_port={of_datastore}",
    )
    with trio.fail_after(3 * PATIENCE_SECONDS), small_disk(tmp_path / "small") as disk:
        async with (
            server(*datastore, folder=tmp_path) as store,
            server(*orchestrator, folder=tmp_path) as ours,
            silent.served() as participants,
            prometheus(tmp_path, [port, of_datastore], text) as ask,
            Channel("127.0.0.1", ours.port) as channel,
        ):
            controller = Controller(channel)
            actors = [actor_params("ann", "player", endpoint=participants)]
            params = partial(trial_params, actors, environment_endpoint=participants)
            await controller.start_trial(params=params())
            waiting = [actor_params("bob", "player", endpoint="cogment://client")]
            await controller.start_trial(params=trial_params(waiting, environment_endpoint=participants))
            logged = f"grpc://127.0.0.1:{store.port}"
            trial_id = await controller.start_trial(params=params(datalog_endpoint=logged))
            await silent.wait_running([trial_id])
            for alert in ("TrialStuck", "TrialDoesNotStart"):
                await raised(ask, alert)
            # A tenth is left, which is less than is kept for deletions.
            (disk / "others").write_bytes(bytes(shutil.disk_usage(disk).free - DISK_BYTES // 10))
            assert not await ask(ALERT.format("DiskFull"))
            await controller.start_trial(params=params(datalog_endpoint=logged))
            await raised(ask, "DiskFull")
            store.process.send_signal(signal.SIGKILL)
            for alert in ("DatastoreLost", "ServerDown"):
                await raised(ask, alert)


class Silent(Endless):
    """Participants of which the actor does nothing after some ticks."""

    async def actor(self, session: Any) -> None:
        async for event in session.all_events():
            if event.observation is not None and session.tick_id < 5:
                await session.do_action(b"action")


async def answered(ask: Any, query: str) -> None:
    """Wait until a query returns something, and not only what is no number, as a quantile of nothing."""
    while all(math.isnan(float(found["value"][1])) for found in await ask(query)):  # noqa: ASYNC110  Prometheus has no event
        await trio.sleep(0.2)


async def raised(ask: Any, alert: str) -> None:
    await answered(ask, ALERT.format(alert))


@asynccontextmanager
async def prometheus(folder: Path, ports: list[int], rules: str = "") -> AsyncIterator[Any]:
    """Run Prometheus, which looks at servers every half second; gives what asks it."""
    port = free_port()
    targets = ", ".join(f'"127.0.0.1:{each}"' for each in ports)
    (folder / "alerts.yml").write_text(rules or (EXAMPLE / "alerts.yml").read_text())
    configuration = (EXAMPLE / "prometheus.yml").read_text()
    for old, new in (
        ('"localhost:9100"', targets),
        ("scrape_interval: 15s", "scrape_interval: 500ms\n  evaluation_interval: 500ms"),
    ):
        assert old in configuration
        configuration = configuration.replace(old, new)
    (folder / "prometheus.yml").write_text(configuration)
    command = [
        *(
            program("prometheus"),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
        ),
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = await trio.lowlevel.open_process(command, stdout=log, stderr=log)

    async def ask(query: str) -> list[Any]:
        url = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        try:
            answer = json.loads(await trio.to_thread.run_sync(fetch, url))
        except OSError:
            assert process.returncode is None, (folder / "prometheus.log").read_text()
            return []  # it does not listen yet
        found: list[Any] = answer["data"]["result"]
        return found

    try:
        yield ask
    finally:
        process.terminate()
        with trio.CancelScope(shield=True, deadline=trio.current_time() + PATIENCE_SECONDS):
            await process.wait()
