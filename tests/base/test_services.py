"""The table of services: right about the API, and the only place where its names stand."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import trio_cogment.api
from trio_cogment.api.directory_pb2 import ServiceType
from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2
from trio_cogment.api.legacy import orchestrator_pb2 as legacy_pb2
from trio_cogment.api.trainer import trainer_pb2
from trio_cogment.base import services
from trio_cogment.base.endpoints import GrpcEndpoint, parse_endpoint
from trio_cogment.base.services import (
    ATTEMPTS,
    LOG_EXPORTER,
    PROTOCOLS,
    REGISTERED_BY_SERVERS,
    SERVICES,
    ServiceKind,
    default_address,
    kind_of_type,
    registered_kinds,
)

SOURCE = Path(services.__file__).parents[1]
#: What the API's documentation says of each kind, written down a second time.
API = {
    ServiceKind.ACTOR: ("cogmentAPI.ServiceActorSP", ServiceType.ACTOR_SERVICE),
    ServiceKind.ENVIRONMENT: ("cogmentAPI.EnvironmentSP", ServiceType.ENVIRONMENT_SERVICE),
    ServiceKind.DATALOG: ("cogmentAPI.DatalogSP", ServiceType.DATALOG_SERVICE),
    ServiceKind.PRE_TRIAL_HOOK: ("cogmentAPI.TrialHooksSP", ServiceType.PRE_HOOK_SERVICE),
    ServiceKind.LIFECYCLE: ("cogmentAPI.TrialLifecycleSP", ServiceType.TRIAL_LIFE_CYCLE_SERVICE),
    ServiceKind.CLIENT_ACTOR: ("cogmentAPI.ClientActorSP", ServiceType.CLIENT_ACTOR_CONNECTION_SERVICE),
    ServiceKind.DATASTORE: ("cogmentAPI.TrialDatastoreSP", ServiceType.DATASTORE_SERVICE),
    ServiceKind.MODEL_REGISTRY: ("cogmentAPI.ModelRegistrySP", ServiceType.MODEL_REGISTRY_SERVICE),
    ServiceKind.DIRECTORY: ("cogmentAPI.DirectorySP", ServiceType.DIRECTORY_SERVICE),
    ServiceKind.OTHER: ("", ServiceType.OTHER_SERVICE),
}


def test_the_table_is_right_about_the_api() -> None:
    assert {kind: (info.full_name, info.directory_type) for kind, info in SERVICES.items()} == API
    assert list(SERVICES) == list(ServiceKind)


def test_every_service_of_the_api_has_its_row() -> None:
    folder = Path(trio_cogment.api.__path__[0])
    modules = [importlib.import_module(f"trio_cogment.api.{path.stem}") for path in folder.glob("*_pb2.py")]
    names = {name for module in modules for name in module.DESCRIPTOR.services_by_name}
    assert names == {info.name for info in SERVICES.values() if info.name} | {LOG_EXPORTER, ATTEMPTS}


@pytest.mark.parametrize("kind", [kind for kind in ServiceKind if kind is not ServiceKind.OTHER])
def test_descriptors(kind: ServiceKind) -> None:
    descriptor = SERVICES[kind].descriptor()
    assert descriptor.full_name == SERVICES[kind].full_name
    assert {"Status", "Version"} <= set(descriptor.methods_by_name)


def test_a_foreign_service_has_no_descriptor() -> None:
    with pytest.raises(LookupError):
        SERVICES[ServiceKind.OTHER].descriptor()


def test_kinds_by_the_number_of_the_directory() -> None:
    assert [kind_of_type(info.directory_type) for info in SERVICES.values()] == list(ServiceKind)
    assert kind_of_type(ServiceType.UNKNOWN_SERVICE) is None
    assert kind_of_type(12) is None


def test_what_a_server_registers() -> None:
    assert registered_kinds(info.full_name for info in SERVICES.values()) == list(REGISTERED_BY_SERVERS)
    names = [
        "grpc.health.v1.Health",
        "cogmentAPI.DirectorySP",
        "cogmentAPI.TrialLifecycleSP",
        "cogmentAPI.ClientActorSP",
    ]
    assert registered_kinds(names) == [ServiceKind.CLIENT_ACTOR, ServiceKind.LIFECYCLE]


def test_services_of_other_protocols_have_no_kind() -> None:
    assert set(PROTOCOLS) == {
        dm_env_rpc_pb2.DESCRIPTOR.services_by_name["Environment"].full_name,
        legacy_pb2.DESCRIPTOR.services_by_name["Trial"].full_name,
        trainer_pb2.DESCRIPTOR.services_by_name["TrainerService"].full_name,
    }
    assert registered_kinds(PROTOCOLS) == []


def test_default_addresses_are_endpoints() -> None:
    assert parse_endpoint(default_address(ServiceKind.DIRECTORY)) == GrpcEndpoint("localhost", 9005)


def test_the_table_imports_nothing_else() -> None:
    none = "'google.protobuf' in sys.modules or 'trio' in sys.modules"
    code = f"import sys; import trio_cogment.base.services; sys.exit({none})"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_names_stand_nowhere_else() -> None:
    """Texts in the code, that is; documentation may name anything."""
    facts = {info.name for info in SERVICES.values() if info.name}
    facts |= {info.full_name for info in SERVICES.values() if info.name}
    facts |= {services.TRIAL_ID, services.USER_ID, services.AUTHENTICATION_TOKEN, LOG_EXPORTER}
    facts |= {services.ACTOR_CLASS, services.IMPLEMENTATION, services.VERSION, services.REGISTRATION_SOURCE}
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {text!r}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path != Path(services.__file__) and "_pb2" not in path.name
        for line, text in literals(path)
        if text in facts
    ]
    assert not found


def literals(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
