"""The flags of a web proxy. That it plays trials is in tests/gateways/rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.process import run_main
from tests.cli.test_configuration import settings_of
from trio_cogment.cli.services.web_proxy import WebProxySettings, web_proxy

SECRET = "nobody-can-guess-this"


@pytest.fixture(autouse=True)
def _a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COGMENT_WEB_PROXY_SECRET", SECRET)


def settings(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> WebProxySettings:
    found = settings_of(monkeypatch, "run_web_proxy", web_proxy, *arguments)
    assert isinstance(found, WebProxySettings)
    return found


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    found = settings(monkeypatch)
    assert (found.web_port, found.port, found.implementation) == (8080, 0, "web")
    assert (found.spec_file, found.orchestrator) == ("cogment.yaml", "grpc://localhost:9000")
    assert found.web is not None
    assert (found.web.enabled, found.web.origins) == (True, [])
    assert SECRET not in repr(found)
    assert settings(monkeypatch, "--directory_endpoint=grpc://d:1").orchestrator == "cogment://discover"


def test_variables_of_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "COGMENT_WEB_PROXY_WEB_PORT": "1",
        "COGMENT_WEB_PROXY_PORT": "2",
        "COGMENT_ORCHESTRATOR_ENDPOINT": "grpc://o:3",
        "COGMENT_SPEC_FILE": "a.yaml",
        "COGMENT_WEB_PROXY_IMPLEMENTATION": "mine",
    }.items():
        monkeypatch.setenv(name, value)
    found = settings(monkeypatch)
    assert (found.web_port, found.port, found.orchestrator) == (1, 2, "grpc://o:3")
    assert (found.spec_file, found.implementation, found.secret) == ("a.yaml", "mine", SECRET)


def test_limits_from_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("web_port: 7\nweb_proxy: {token_seconds: 5}\nweb_allow_origin: ['https://a.example']\n")
    found = settings(monkeypatch, f"--config={file}")
    assert (found.web_port, found.configuration.web_proxy.token_seconds) == (7, 5)
    assert found.web is not None
    assert found.web.origins == ["https://a.example"]


@pytest.mark.parametrize(
    ("arguments", "secret", "expected"),
    [
        ((), "", "--secret: expected one (COGMENT_WEB_PROXY_SECRET): 16 characters"),
        ((), "web", "--secret: expected 16 characters or more"),
        (("--orchestrator_endpoint=cogment://discover",), SECRET, "--orchestrator_endpoint: cogment://discover: disc"),
        (("--orchestrator_endpoint=cogment://client",), SECRET, "--orchestrator_endpoint: 'cogment://client'"),
        (("--spec_file=nowhere.yaml",), SECRET, "--spec_file: nowhere.yaml: No such file or directory"),
        (("--implementation=",), SECRET, "--implementation: expected a name"),
        (("--web_port=x",), SECRET, "--web_port: expected a port"),
        (("--web_allow_origin=a",), SECRET, "--web_host, --web_allow_origin: origin 'a'"),
    ],
)
def test_values_that_cannot_be(arguments: tuple[str, ...], secret: str, expected: str) -> None:
    variables = {"COGMENT_WEB_PROXY_SECRET": secret}
    output = run_main("services", "web_proxy", "--host=127.0.0.1", "--web_port=0", *arguments, variables=variables)
    assert (output.code, output.out) == (1, "")
    assert expected in output.err
    assert len(output.err.splitlines()) == 1
    assert SECRET not in output.err


def test_the_alias() -> None:
    assert "web proxy" in run_main("services", "proxy", "--help").out
