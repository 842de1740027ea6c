"""`gs://` and `az://`: addresses and variables go through the library, and a name is given once, as each says it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.base.other_clouds import Azure, Cloud, Google, cloud
from trio_cogment.base import object_store
from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError
from trio_cogment.base.object_store import ObjectStore


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "_RETRY_SECONDS", 1)
    for name in ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_APPLICATION_CREDENTIALS", "AZURE_STORAGE_ACCOUNT_NAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=["gs", "az"])
def server(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    with cloud({"gs": Google, "az": Azure}[request.param]) as one:
        if request.param == "gs":
            account = tmp_path / "account.json"
            told = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
            account.write_text(json.dumps(told))
            monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(account))
            monkeypatch.setenv("GOOGLE_BASE_URL", one.endpoint)
        else:
            monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
            monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
            monkeypatch.setenv("AZURE_ENDPOINT", one.endpoint)
        yield one


def address(server: Cloud) -> str:
    return f"{'gs' if server.RequestHandlerClass is Google else 'az'}://bucket/some/prefix"


def test_all_that_is_needed(server: Cloud) -> None:
    store = ObjectStore(address(server))
    assert store.check().token
    assert server.objects == {}
    store.create("walker/1", b"weights")
    with pytest.raises(FileExistsError):
        store.create("walker/1", b"others")
    assert list(server.objects) == ["some/prefix/walker/1"]
    assert store.get("walker/1").data == b"weights"
    assert [entry.key for entry in store.list("walker")[1]] == ["walker/1"]
    store.delete(["walker/1"])
    with pytest.raises(FileNotFoundError):
        store.get("walker/1")


def test_a_server_that_overwrites_is_refused(server: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    for handler in (Google, Azure):
        monkeypatch.setattr(handler, "only_creates", lambda _handler: False)
    with pytest.raises(FailedPreconditionError, match="some/prefix: the server overwrites objects that are only to be"):
        ObjectStore(address(server)).check()


def test_a_server_that_refuses(server: Cloud) -> None:
    server.refuses = 403
    with pytest.raises(PermissionError, match=r"writing walker/1: 403 AccessDenied: not you") as caught:
        ObjectStore(address(server)).create("walker/1", b"")
    assert caught.value.filename == address(server)


@pytest.mark.parametrize(
    ("url", "variables", "said"),
    [
        ("gs://", {}, "gs://: Generic URL error"),
        (
            "gs://bucket",
            {"GOOGLE_SERVICE_ACCOUNT": "/nowhere.json"},
            "gs://bucket: .*Unable to open service account",
        ),
        ("az:///prefix", {}, "az:///prefix: Generic URL error"),
        ("az://container", {}, "az://container: .*Account must be specified"),
        (
            "az://container",
            {"AZURE_STORAGE_ACCOUNT_NAME": "account", "AZURE_STORAGE_ACCOUNT_KEY": "!!"},
            "az://container: .*Invalid Access Key",
        ),
    ],
)
def test_what_is_wrong_with_an_address_is_said_at_once(
    url: str, variables: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InvalidArgumentError, match=said):
        ObjectStore(url)


def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of Azure's emulator, which the library knows by a variable of its own."""
    monkeypatch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
    monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", "http://127.0.0.1:1")
    with pytest.raises(ConnectionRefusedError, match="listing the prefix"):
        ObjectStore("az://container/prefix").list()
