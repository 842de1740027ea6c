"""Parameter files."""

from __future__ import annotations

from pathlib import Path

import pytest

from trio_cogment.errors import InvalidArgumentError
from trio_cogment.spec import load_params
from trio_cogment.spec.params_file import DEFAULT_MAX_INACTIVITY_SECONDS


def written(folder: Path, text: str) -> Path:
    path = folder / "params.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_whole_project_file_works(tmp_path: Path) -> None:
    params = load_params(
        written(
            tmp_path,
            """
import: {proto: [data.proto]}
trial_params:
  max_steps: 10
  nb_buffered_ticks: 3
  properties: {answer: no, hex: 0x10}
  datalog: {endpoint: grpc://localhost:9003, exclude_fields: [messages]}
  environment:
    endpoint: grpc://localhost:9001
    implementation:
    config: {content: YQ==}
  actors:
    - {name: a, actor_class: p, endpoint: cogment://client, optional: yes, response_timeout: 0.5}
    - {name: b, actorClass: p, initialConnectionTimeout: 2, optional: F}
""",
        )
    )
    assert params.max_steps == 10
    assert params.nb_buffered_ticks == 3
    assert dict(params.properties) == {"answer": "no", "hex": "0x10"}
    assert list(params.datalog.exclude_fields) == ["messages"]
    assert params.environment.config.content == b"a"
    assert params.environment.implementation == ""
    first, second = params.actors
    assert (first.optional, first.response_timeout) == (True, 0.5)
    assert (second.optional, second.initial_connection_timeout) == (False, 2)
    assert params.max_inactivity == DEFAULT_MAX_INACTIVITY_SECONDS


@pytest.mark.parametrize("key", ["max_inactivity", "maxInactivity"])
def test_explicit_inactivity_of_zero_stays(tmp_path: Path, key: str) -> None:
    assert load_params(written(tmp_path, f"trial_params: {{{key}: 0}}")).max_inactivity == 0


@pytest.mark.parametrize("text", ["", "other: 1", "trial_params:", "trial_params: {datalog: , actors: }"])
def test_nothing_said_is_nothing_set(tmp_path: Path, text: str) -> None:
    params = load_params(written(tmp_path, text))
    params.max_inactivity = 0
    assert not params.ListFields()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("trial_params: {bogus: 1}", "bogus"),
        ("trial_params: {max_steps: 1.5}", "max_steps"),
        ("trial_params: {max_steps: 0x10}", "max_steps"),
        ("trial_params: {max_steps: -1}", "max_steps"),
        ("trial_params: {actors: [{name: a, optional: on}]}", "optional"),
        ("trial_params: {actors: {name: a}}", "actors"),
        ("trial_params: [1]", "trial_params"),
        ("- 1", "mapping"),
        ("a: [", "YAML"),
        ("a: b: c", "YAML"),
        ("trial_params: {max_steps: 1, max_steps: 2}", "max_steps"),
        ("trial_params: &x {environment: *x}", "alias of itself"),
        ("trial_params: " + "[" * 5000, "nested too deeply"),
    ],
)
def test_faults_are_named(tmp_path: Path, text: str, named: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InvalidArgumentError) as caught:
        load_params(path)
    assert str(path) in str(caught.value)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_file_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="No such file"):
        load_params(tmp_path / "nowhere.yaml")
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidArgumentError, match="not YAML"):
        load_params(path)
