"""Configurations: what is refused and how, defaults, the canonical form and the digest."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.configs import a_config, a_document
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.trainer._trainer import RANDOM_BYTES, new_ulid
from trio_cogment.trainer.config_check import parse_config
from trio_cogment.trainer.run_config import check_run_id

RESOURCES: dict[str, Any] = {"cpus": 1, "memory_mb": 256, "gpus": {"requested": 0}}
TRIALS: dict[str, Any] = {"count": 2, "params": {}}


def findings(text: str) -> list[str]:
    with pytest.raises(InvalidArgumentError) as caught:
        parse_config(text)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("config_json: ")
    return [lines[0].removeprefix("config_json: "), *lines[1:]]


def test_defaults() -> None:
    config = parse_config(a_config())
    assert (config.run_name, config.entry_point, config.arguments) == ("cartpole", "python", ("-m", "train"))
    assert config.environment == {"SEED": "1"}
    assert (config.resources.cpus, config.resources.memory_mb) == (1, 256)
    assert (config.resources.gpus, config.resources.gpus_mandatory) == (0, False)
    assert (config.artifacts.persist_logs, config.artifacts.keep_checkpoints) == (True, True)
    assert (config.schedule.max_steps, config.schedule.max_duration_seconds) == (None, None)
    assert (config.schedule.run_class, config.schedule.queue) == ("batch", False)
    assert (config.trials, config.run_id, config.external) == (None, "", False)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"run_name": ""}, 'run_name: expected a text of 1 to 120 characters, got ""'),
        ({"run_name": "x" * 121}, "run_name: expected a text of 1 to 120 characters, got"),
        ({"run_name": 5}, "run_name: expected a text of 1 to 120 characters, got 5"),
        ({"entry_point": ""}, "entry_point: expected a text that is not empty"),
        ({"arguments": "-m"}, 'arguments: expected a list of texts, got "-m"'),
        ({"arguments": ["-m", 3]}, "arguments[1]: expected a text, got 3"),
        ({"environment": []}, "environment: expected an object, got []"),
        ({"environment": {"A": 1}}, "environment.A: expected a text, got 1"),
        ({"environment": {"A=B": ""}}, "environment: expected names without '='"),
        ({"environment": {"": ""}}, "environment: expected names without '='"),
        ({"environment": {"A": "\0"}}, "environment.A: expected a text without the character 0"),
        ({"environment": {"SEED": "1", "B": 2}}, "environment.B: expected a text, got 2"),
        ({"resources": RESOURCES | {"cpus": 0}}, "resources.cpus: expected an integer, 1 or more"),
        ({"resources": RESOURCES | {"cpus": True}}, "resources.cpus: expected an integer, 1 or more"),
        ({"resources": RESOURCES | {"cpus": 2**60}}, "resources.cpus: expected an integer from 1 to 9007199254740991"),
        ({"resources": RESOURCES | {"cpus": 1.5}}, "resources.cpus: expected an integer, 1 or more"),
        ({"resources": RESOURCES | {"memory_mb": 255}}, "resources.memory_mb: expected an integer, 256 or more"),
        ({"resources": RESOURCES | {"gpus": {}}}, "resources.gpus.requested: expected a value, got none"),
        ({"resources": RESOURCES | {"gpus": {"requested": 9}}}, "resources.gpus.requested: expected an integer from 0"),
        (
            {"resources": RESOURCES | {"gpus": {"requested": 1, "mandatory": 1}}},
            "resources.gpus.mandatory: expected",
        ),
        ({"resources": RESOURCES | {"disk": 1}}, "resources.disk: expected one of cpus, memory_mb, gpus"),
        ({"artifacts": {}}, "artifacts.output_prefix: expected a value, got none"),
        ({"artifacts": {"output_prefix": ""}}, "artifacts.output_prefix: expected a text that is not empty"),
        ({"artifacts": {"output_prefix": "x", "persist_logs": None}}, "artifacts.persist_logs: expected true or false"),
        ({"artifacts": {"output_prefix": "x", "keep_checkpoints": 1}}, "artifacts.keep_checkpoints: expected true or"),
        ({"schedule": {"max_steps": 0}}, "schedule.max_steps: expected an integer, 1 or more"),
        ({"schedule": {"max_duration_seconds": 0}}, "schedule.max_duration_seconds: expected an integer, 1 or more"),
        ({"schedule": {"class": "fast"}}, "schedule.class: expected one of interactive, batch"),
        ({"schedule": {"when_full": 1}}, "schedule.when_full: expected one of refuse, queue"),
        ({"metadata": []}, "metadata: expected an object, got []"),
        ({"metadata": {"worker": 7}}, "metadata.worker: expected an object, got 7"),
        ({"metadata": {"worker": {}}}, "metadata.worker: expected a `module` or"),
        (
            {"metadata": {"worker": {"module": "m", "script": "s"}}},
            "metadata.worker: expected a `module` or",
        ),
        ({"metadata": {"worker": {"module": 5}}}, "metadata.worker.module: expected a text"),
        ({"metadata": {"worker": {"script": ""}}}, "metadata.worker.script: expected a text that is not empty"),
        ({"metadata": {"worker": {"module": "m", "worker_id": 1}}}, "metadata.worker.worker_id: expected a text"),
        ({"metadata": {"worker": {"module": "m", "use_grpc": 0}}}, "metadata.worker.use_grpc: expected true or false"),
        ({"metadata": {"worker": {"module": "m", "config": 0}}}, "metadata.worker.config: expected an object, got 0"),
        (
            {"metadata": {"worker": {"module": "m", "config": {"run_id": "/"}}}},
            "metadata.worker.config.run_id: exp",
        ),
        ({"surprise": 1}, "surprise: expected one of run_name, entry_point"),
        ({"trials": TRIALS}, "trials: expected none: the entry point is not 'builtin:trials'"),
        ({"entry_point": "builtin:trials"}, "trials: expected an object, got null"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], expected: str) -> None:
    (found,) = findings(a_config(**changes))
    assert found.startswith(expected)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"count": 0}, "trials.count: expected an integer, 1 or more"),
        ({"parallel": 0}, "trials.parallel: expected an integer from 1 to 4096, got 0"),
        ({"params": []}, "trials.params: expected an object, got []"),
        ({"params_file": "p.yaml"}, "trials: expected either `params` or `params_file`"),
        ({"params": None}, "trials: expected either `params` or `params_file`"),
        ({"seeds": 3}, "trials.seeds: expected a list of integers, got 3"),
        ({"seeds": [1, -1]}, "trials.seeds[1]: expected an integer, 0 or more"),
        ({"actors": 1}, "trials.actors: expected an object, got 1"),
        ({"actors": {"a": 1}}, "trials.actors.a: expected an object, got 1"),
        ({"stop_after_failures": 0}, "trials.stop_after_failures: expected an integer, 1 or more"),
        ({"telemetry": "sample:0"}, "trials.telemetry: expected 'all', 'episodes' or 'sample:N'"),
        ({"telemetry": 1}, "trials.telemetry: expected 'all', 'episodes' or 'sample:N'"),
        ({"often": 1}, "trials.often: expected one of count"),
    ],
)
def test_what_is_refused_of_trials(changes: dict[str, Any], expected: str) -> None:
    (found,) = findings(a_config(entry_point="builtin:trials", trials=TRIALS | changes))
    assert found.startswith(expected)


def test_trials() -> None:
    config = parse_config(
        a_config(
            entry_point="builtin:trials",
            trials=TRIALS | {"seeds": [1, 2], "actors": {"a": {"config": {}}}, "telemetry": "sample:10", "parallel": 8},
        )
    )
    assert config.trials is not None
    assert (config.trials.count, config.trials.parallel, config.trials.seeds) == (2, 8, (1, 2))
    assert (config.trials.params, config.trials.actors) == ({}, {"a": {"config": {}}})
    assert config.trials.telemetry == "sample:10"


def test_what_is_left_out_of_trials() -> None:
    config = parse_config(a_config(entry_point="builtin:trials", trials={"count": 3, "params_file": "p.yaml"}))
    trials = config.trials
    assert trials is not None
    assert (trials.count, trials.parallel, trials.params, trials.params_file) == (3, 1, None, "p.yaml")
    assert (trials.seeds, trials.actors, trials.stop_after_failures, trials.telemetry) == ((), {}, None, "all")


def test_a_key_that_is_there_twice_is_named() -> None:
    text = a_config().replace('"run_name": "cartpole"', '"run_name": "x", "run_name": "cartpole"')
    (found,) = findings(text)
    assert "the key" in found
    assert "run_name" in found
    assert "is there twice" in found


def test_a_name_may_be_as_long_as_is_said() -> None:
    assert parse_config(a_config(run_name="x" * 120)).run_name == "x" * 120


def test_all_that_is_wrong_is_told_at_once() -> None:
    assert findings(a_config(run_name=None, arguments=[1, 2], resources={"cpus": "1"}, extra=1)) == [
        "extra: expected one of run_name, entry_point, arguments, environment, resources, artifacts, metadata, "
        "schedule, trials; there is no such key",
        "run_name: expected a value, got none",
        "arguments[0]: expected a text, got 1",
        "arguments[1]: expected a text, got 2",
        "resources.memory_mb: expected a value, got none",
        "resources.gpus: expected a value, got none",
        'resources.cpus: expected an integer, 1 or more, got "1"',
    ]
    assert len(findings("{}")) == 6
    assert findings(a_config(arguments=list(range(60))))[-1] == "and 10 more"


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "nothing", "[]", "3", '"x"', "null", '{"a": NaN}', '{"a": 1e999}', '{"a": 1, "a": 2}'),
        *('{"a": "\\ud800"}', "[" * 100_000),
    ],
)
def test_what_is_no_configuration(text: str) -> None:
    assert findings(text)


def test_one_that_is_too_long() -> None:
    with pytest.raises(InvalidArgumentError, match="expected at most 10 characters, got"):
        parse_config(a_config(), max_characters=10)


def test_the_digest_is_that_of_the_canonical_form() -> None:
    document = a_document()
    turned = dict(reversed(document.items())) | {"schedule": {}, "metadata": {}}
    one, other = parse_config(json.dumps(document)), parse_config(json.dumps(turned, indent=4))
    assert one.canonical == other.canonical
    assert one.digest == other.digest != parse_config(a_config(run_name="other")).digest
    assert len(one.digest) == 64
    assert parse_config(one.canonical).canonical == one.canonical
    assert '"cpus":1' in one.canonical
    assert '"max_steps":null' in one.canonical


def test_the_id_is_where_workers_look_for_it() -> None:
    config = parse_config(a_config(metadata={"worker": {"script": "train.py", "config": {"run_id": "mine"}}}))
    assert config.run_id == "mine"
    assert json.loads(config.with_run_id("r-1"))["metadata"]["worker"] == {
        "script": "train.py",
        "arguments": [],
        "config": {"run_id": "r-1"},
        "grpc_target": "127.0.0.1:50055",
        "use_grpc": True,
    }
    assert config.run_id == "mine"
    without = parse_config(a_config())
    assert without.with_run_id("r-1") == without.canonical


@pytest.mark.parametrize("run_id", ["01J9ZKXW5T3Y8Q4M2N6P7R8S9V", "a", "run-1.b_2", "x" * 64])
def test_ids(run_id: str) -> None:
    assert check_run_id("run_id", run_id) == run_id


@pytest.mark.parametrize("run_id", ["", "x" * 65, "../x", ".x", "-x", "a b", "ä", "a\n"])
def test_what_is_no_id(run_id: str) -> None:
    with pytest.raises(InvalidArgumentError, match="run_id: expected 1 to 64 letters"):
        check_run_id("run_id", run_id)


def test_new_ids_sort_by_time() -> None:
    first, second = (new_ulid(ns, bytes(range(RANDOM_BYTES))) for ns in (10**18, 10**18 + 10**6))
    assert first < second
    assert len(first) == 26
    assert check_run_id("run_id", first)
    # The example of the specification: 2016-07-30, 23:54:10.259.
    assert new_ulid(1_469_922_850_259 * 10**6, bytes(10)).startswith("01ARZ3NDEK")
    with pytest.raises(ValueError, match="expected 10 bytes, got 1"):
        new_ulid(0, b"x")


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
_KEYS = ["run_name", "entry_point", "arguments", "environment", "resources", "artifacts", "metadata", "schedule"]


@given(st.dictionaries(st.sampled_from([*_KEYS, "trials"]), _json))
def test_whatever_comes_is_taken_or_refused(changes: dict[str, Any]) -> None:
    try:
        config = parse_config(json.dumps(a_document() | changes))
    except InvalidArgumentError:
        return
    assert parse_config(config.canonical).digest == config.digest
