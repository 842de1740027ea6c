"""The table of rights: complete, and closed by default."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import pytest
from google.protobuf.descriptor import FileDescriptor

import trio_cogment.api
import trio_cogment.rpc._protos
from trio_cogment.access import RIGHTS, Role, Scope
from trio_cogment.access.rights import OPEN_TO_ANYBODY, PAGE_RIGHTS, PAGES, ROWS, scope_of


def described() -> Iterator[str]:
    """Yield the path of every method of every service that the package has a description of."""
    for package in (trio_cogment.api, trio_cogment.rpc._protos):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            descriptor = getattr(importlib.import_module(module.name), "DESCRIPTOR", None)
            if isinstance(descriptor, FileDescriptor):
                for service in descriptor.services_by_name.values():
                    for method in service.methods:
                        yield f"/{service.full_name}/{method.name}"


def test_every_method_has_a_row_and_every_row_a_method() -> None:
    paths = list(described())
    assert len(paths) > 80
    assert sorted(paths) == sorted(ROWS)


def test_every_cell_is_a_role_and_the_administrator_reaches_everything() -> None:
    for methods in RIGHTS.values():
        for row in methods.values():
            assert row[Role.ADMIN] is Scope.ALL


def test_what_has_no_row_is_the_administrators() -> None:
    assert scope_of(frozenset([Role.ADMIN]), "/mine.Service/Method") is Scope.ALL
    assert scope_of(frozenset(set(Role) - {Role.ADMIN}), "/mine.Service/Method") is None


def test_only_one_thing_is_open_to_anybody() -> None:
    assert {"/grpc.health.v1.Health/Check"} == OPEN_TO_ANYBODY


@pytest.mark.parametrize("path", ROWS)
def test_roles_add_up(path: str) -> None:
    for first in Role:
        for second in Role:
            scopes = {scope_of(frozenset([role]), path) for role in (first, second)}
            together = scope_of(frozenset([first, second]), path)
            assert together is (Scope.ALL if Scope.ALL in scopes else Scope.OWN if Scope.OWN in scopes else None)


def test_observers_change_nothing() -> None:
    """Every row that is open to them is about reading."""
    observed = {path.split("/")[2] for path in ROWS if scope_of(frozenset([Role.OBSERVER]), path)}
    assert observed == {
        *("GetTrialInfo", "WatchTrials", "RetrieveTrials", "RetrieveSamples"),
        *("RetrieveModels", "RetrieveVersionInfos", "RetrieveVersionData", "VersionUpdate"),
        *("ListRuns", "WatchRuns", "StreamRunSteps", "StreamRunEpisodes", "GetHealth"),
        *("Inquire", "Version", "Status", "Check", "Watch", "List", "ServerReflectionInfo"),
    }


def test_a_token_without_roles_may_ask_how_servers_are() -> None:
    allowed = {path.split("/")[2] for path in ROWS if scope_of(frozenset(), path)}
    assert allowed == {"Inquire", "Version", "Status", "Check", "Watch", "List", "ServerReflectionInfo", "GetHealth"}


def test_a_right_of_a_page_is_no_path_of_a_call() -> None:
    assert scope_of(frozenset([Role.OBSERVER]), "/pages/logs") is Scope.ALL
    assert scope_of(frozenset([Role.OBSERVER]), "logs") is None


def test_rights_of_pages() -> None:
    everything, own, nothing = Scope.ALL, Scope.OWN, None
    roles = (Role.OPERATOR, Role.PARTICIPANT, Role.SEAT, Role.OBSERVER, Role.WORKER)
    found = {name: tuple(scope_of(frozenset([role]), PAGES + name) for role in roles) for name in PAGE_RIGHTS}
    assert found == {
        "dashboard": (own, nothing, nothing, everything, nothing),
        "logs": (nothing, nothing, nothing, everything, nothing),
        "play": (own, own, own, nothing, nothing),
        "experiment": (nothing, nothing, nothing, everything, nothing),
        "experiment_control": (nothing, nothing, nothing, nothing, nothing),
        "openenv": (own, own, nothing, nothing, nothing),
    }
