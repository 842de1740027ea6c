"""Commands that are started for runs."""

from __future__ import annotations

import json
from typing import Any

from tests.trainer.configs import a_config
from trio_cogment.trainer.config_check import parse_config
from trio_cogment.trainer.dispatch.command import Command, Surroundings, command_of

HERE = Surroundings(target="127.0.0.1:1234", variables={"COGMENT_ORCHESTRATOR": "grpc://127.0.0.1:9000"})


def command(surroundings: Surroundings = HERE, gpus: tuple[int, ...] = (), **changes: Any) -> Command:
    config = parse_config(a_config(**changes))
    return command_of("r", config, folder="/runs/r", gpus=gpus, python="/py", surroundings=surroundings)


def worker(surroundings: Surroundings = HERE, **changes: Any) -> Command:
    return command(surroundings, metadata={"worker": changes})


def test_a_program() -> None:
    found = command(entry_point="train.sh", arguments=["-v"])
    assert list(found.arguments) == ["train.sh", "-v"]
    assert (found.worker_config, found.worker_id, found.registers) == (None, "", False)


def test_python_is_that_of_the_server() -> None:
    assert list(command(entry_point="python", arguments=["-m", "train"]).arguments) == ["/py", "-m", "train"]


def test_a_module_gets_the_arguments_of_the_published_trainer() -> None:
    found = worker(module="cleanrl_worker", arguments=["--fast"], worker_id="w1", agent_id="a1", config={"algo": "ppo"})
    assert list(found.arguments) == [
        *("/py", "-m", "cleanrl_worker", "--fast", "--grpc"),
        *("--config", "/runs/r/worker-config.json"),
        *("--grpc-target", "127.0.0.1:1234"),
        *("--worker-id", "w1"),
    ]
    assert json.loads(found.worker_config or "") == {"algo": "ppo", "run_id": "r"}
    assert (found.worker_id, found.agent_id, found.registers) == ("w1", "a1", True)


def test_a_script_is_a_program_that_is_run_itself_and_may_stay_silent() -> None:
    found = worker(script="/bin/bash", arguments=["curriculum.sh"], worker_id="w1")
    assert list(found.arguments) == [
        *("/bin/bash", "curriculum.sh", "--grpc"),
        *("--config", "/runs/r/worker-config.json"),
        *("--grpc-target", "127.0.0.1:1234"),
        *("--worker-id", "w1"),
    ]
    assert not found.registers


def test_a_script_without_grpc() -> None:
    found = worker(script="./train", use_grpc=False)
    assert list(found.arguments) == ["./train", "--config", "/runs/r/worker-config.json"]
    assert not found.registers


def test_a_script_may_be_the_python_of_the_server() -> None:
    found = worker(script="python", arguments=["train.py"], use_grpc=False)
    assert list(found.arguments) == ["/py", "train.py", "--config", "/runs/r/worker-config.json"]


def test_arguments_that_are_there_are_not_added() -> None:
    given = ["--config=mine.json", "--grpc", "--grpc-target", "there:1", "--worker-id", "w"]
    assert list(worker(module="m", arguments=given, worker_id="w1").arguments) == ["/py", "-m", "m", *given]


def test_the_address_that_a_configuration_names_comes_first() -> None:
    found = worker(module="m", grpc_target="10.0.0.1:5")
    assert found.arguments[-1] == found.variables["TRAINER_TARGET"] == "10.0.0.1:5"


def test_a_trainer_without_an_address() -> None:
    found = worker(Surroundings(), module="m")
    assert list(found.arguments) == ["/py", "-m", "m", "--config", "/runs/r/worker-config.json"]
    assert "TRAINER_TARGET" not in found.variables


def test_the_environment() -> None:
    found = worker(module="m", config={"worker_id": "w2"})
    assert found.variables == {
        "COGMENT_ORCHESTRATOR": "grpc://127.0.0.1:9000",
        "CUDA_VISIBLE_DEVICES": "",
        "RUN_ID": "r",
        "WORKER_ID": "w2",
        "MOSAIC_RUN_DIR": "/runs/r",
        "TRAINER_TARGET": "127.0.0.1:1234",
        "TRAINER_WORKER_CONFIG_PATH": "/runs/r/worker-config.json",
        "SEED": "1",
    }
    assert command(gpus=(0, 2)).variables["CUDA_VISIBLE_DEVICES"] == "0,2"
    assert command(environment={"RUN_ID": "mine"}).variables["RUN_ID"] == "mine"


def test_a_worker_has_a_token_unless_its_configuration_has_one() -> None:
    for environment, expected in (
        ({}, "tc1.x"),
        ({"COGMENT_TOKEN": "mine"}, "mine"),
        ({"COGMENT_TOKEN_FILE": "/there"}, None),
    ):
        config = parse_config(a_config(environment=environment))
        found = command_of("r", config, folder="/r", gpus=(), python="/py", surroundings=HERE, access_token="tc1.x")
        assert found.variables.get("COGMENT_TOKEN") == expected
    assert "COGMENT_TOKEN" not in command().variables
