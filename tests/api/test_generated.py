"""The generated messages: fresh, and laid out as the wire wants them."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from trio_cogment.api import (
    agent_pb2,
    common_pb2,
    datalog_pb2,
    directory_pb2,
    environment_pb2,
    hooks_pb2,
    model_registry_pb2,
    orchestrator_pb2,
    trial_datastore_pb2,
)

ROOT = Path(__file__).resolve().parents[2]
_MADE_BY = re.compile(r"^# Protobuf Python Version: ([\d.]+)$", re.MULTILINE)
FILES = [
    agent_pb2,
    common_pb2,
    datalog_pb2,
    directory_pb2,
    environment_pb2,
    hooks_pb2,
    model_registry_pb2,
    orchestrator_pb2,
    trial_datastore_pb2,
]


def test_checked_in_files_are_fresh() -> None:
    command = [sys.executable, str(ROOT / "tools" / "generate_api.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_stubs_are_within_protobufs_guarantee() -> None:
    """A runtime takes stubs of its own major version and of the one before, and none that are newer than itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [protobuf] = [found for found in map(Requirement, project["dependencies"]) if found.name == "protobuf"]
    bounds = {each.operator: Version(each.version) for each in protobuf.specifier}
    stubs = list((ROOT / "src").rglob("*_pb2.py"))
    made_by = {Version(found[1]) for each in stubs if (found := _MADE_BY.search(each.read_text(encoding="utf-8")))}
    assert made_by
    for version in made_by:
        assert version <= bounds[">="]
        assert version.major >= bounds["<"].major - 2  # the newest major is the one before that bound


def test_descriptors_keep_the_public_file_names() -> None:
    assert all(module.DESCRIPTOR.name.startswith("cogment/api/") for module in FILES)
    assert all(module.DESCRIPTOR.package == "cogmentAPI" for module in FILES)
    assert len(list((ROOT / "protos" / "cogment" / "api").glob("*.proto"))) == len(FILES) == 9


def test_every_service_has_version_and_status() -> None:
    services = [service for module in FILES for service in module.DESCRIPTOR.services_by_name.values()]
    for service in services:
        assert "Version" in service.methods_by_name
        # The documented alias of the datalog predates `Status`, and has it all the same.
        assert "Status" in service.methods_by_name
    assert len(services) == 10


@pytest.mark.parametrize(
    ("message", "numbers"),
    [
        (common_pb2.EnvironmentParams, {"name": 1, "endpoint": 2, "implementation": 3, "config": 4}),
        (common_pb2.TrialParams, {"max_inactivity": 6, "nb_buffered_ticks": 7, "properties": 8}),
        (orchestrator_pb2.TrialInfo, {"state": 2, "env_name": 3, "properties": 8}),
        (orchestrator_pb2.TrialInfoRequest, {"get_latest_observation": 1, "get_actor_list": 2}),
        (orchestrator_pb2.TerminateTrialRequest, {"hard_termination": 1}),
        (orchestrator_pb2.TrialListEntry, {"trial_id": 1, "state": 2, "info": 3}),
        (directory_pb2.RegisterRequest, {"permanent": 3}),
        (directory_pb2.FullServiceData, {"permanent": 4}),
        (trial_datastore_pb2.RetrieveTrialsRequest, {"properties": 5}),
    ],
)
def test_fields_where_public_documents_differ(message: type, numbers: dict[str, int]) -> None:
    fields = message.DESCRIPTOR.fields_by_name  # type: ignore[attr-defined]  # every message class has one
    assert {name: fields[name].number for name in numbers} == numbers


@pytest.mark.parametrize("message", [common_pb2.Action(tick_id=-1), environment_pb2.ObservationSet(tick_id=-1)])
def test_tick_ids_that_may_be_negative_are_zigzag(message: common_pb2.Action) -> None:
    assert message.SerializeToString() == b"\x08\x01"
