"""The Containerfile and the compose file say what they should, as far as that can be told without an engine.

`compose_spec.json` is the published JSON schema of compose files (Apache License 2.0).
"""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml

from trio_cogment.cli.root import cli

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = json.loads((Path(__file__).parent / "compose_spec.json").read_text())
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
#: Several servers, over engines of others.
SCALE: dict[str, Any] = yaml.safe_load((ROOT / "compose.scale.yaml").read_text())
INSTRUCTIONS = {
    *("ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "RUN", "SHELL"),
    *("STOPSIGNAL", "USER", "VOLUME", "WORKDIR"),
}


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield the instructions of a Containerfile with what they are given, lines that go on joined.

    Raises:
        ValueError: a line begins with no instruction, or goes on to nothing.
    """
    going_on = ""
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        whole = going_on + line
        if whole.endswith("\\"):
            going_on = whole[:-1]
            continue
        going_on = ""
        word, _, rest = whole.strip().partition(" ")
        if word not in INSTRUCTIONS or not rest.strip():
            raise ValueError(f"no instruction: {whole!r}")
        yield word, rest.strip()
    if going_on:
        raise ValueError(f"goes on to nothing: {going_on!r}")


FILE = list(instructions((ROOT / "Containerfile").read_text()))


def given(name: str) -> list[str]:
    return [rest for word, rest in FILE if word == name]


def check_command(arguments: list[str]) -> None:
    """Let click read a command line of ours without running it."""
    context, command = click.Context(cli, info_name="trio-cogment"), cli
    found: click.Command = command
    rest = list(arguments)
    while isinstance(found, click.Group):
        name, found_next, rest = found.resolve_command(context, rest)
        assert found_next is not None, name
        found = found_next
        context = click.Context(found, info_name=name, parent=context)
    found.parse_args(context, rest)


@pytest.mark.parametrize("text", ["RUNN x", "RUN", "RUN a \\", "from x"])
def test_what_is_no_instruction_is_found(text: str) -> None:
    with pytest.raises(ValueError, match=r"no instruction|goes on to nothing"):
        list(instructions(text))


def test_the_stages() -> None:
    stages = given("FROM")
    assert FILE[0][0] == "FROM"
    names = [stage.partition(" AS ")[2] for stage in stages]
    assert names == ["build", ""]
    assert {stage.partition(" ")[0] for stage in stages} == {"docker.io/library/python:3.13-slim"}
    for copied in given("COPY"):
        words = shlex.split(copied)
        if words[0].startswith("--from="):
            assert words[0].removeprefix("--from=") in names
            continue
        for source in words[:-1]:
            assert (ROOT / source).exists(), source


def test_what_the_package_is_built_from_is_copied() -> None:
    copied = {source for one in given("COPY") if not one.startswith("--from") for source in shlex.split(one)[:-1]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [*wheel["packages"], *wheel["force-include"], project["project"]["readme"], "pyproject.toml"]
    assert {path.partition("/")[0] for path in [*needed, *project["project"]["license-files"]]} <= copied


def test_it_serves_as_a_user_of_its_own_in_its_volume() -> None:
    words = [word for word, _ in FILE]
    assert words.index("USER") > words.index("RUN")
    assert given("USER") == ["cogment"]
    assert given("WORKDIR")[-1] == "/data"
    assert given("VOLUME") == ["/data"]
    assert given("EXPOSE") == ["9000"]


def test_its_commands_are_ours() -> None:
    [entry] = map(json.loads, given("ENTRYPOINT"))
    [command] = map(json.loads, given("CMD"))
    [health] = given("HEALTHCHECK")
    asked = json.loads(health.partition(" CMD ")[2])
    assert entry == [asked[0]] == ["trio-cogment"]
    check_command(command)
    check_command(asked[1:])
    with pytest.raises(click.UsageError):
        check_command(["serve", "--hots=0.0.0.0"])


def test_the_compose_file_follows_the_schema() -> None:
    # The draft that it names has another address than jsonschema knows it by.
    validator = jsonschema.Draft201909Validator(SCHEMA)
    validator.check_schema({**SCHEMA, "$schema": jsonschema.Draft201909Validator.META_SCHEMA["$schema"]})
    validator.validate(COMPOSE)
    validator.validate(SCALE)
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({**COMPOSE, "servces": {}})


def test_what_the_compose_file_names_is_there() -> None:
    [platform] = COMPOSE["services"].values()
    assert (ROOT / platform["build"]["dockerfile"]).exists()
    check_command(platform["command"])
    assert [volume.partition(":")[0] for volume in platform["volumes"]] == list(COMPOSE["volumes"])
    assert {volume.partition(":")[2] for volume in platform["volumes"]} == set(given("VOLUME"))
    # Nobody but this machine, unless somebody decides otherwise.
    [published] = platform["ports"]
    host, _, port = published.rpartition(":")
    assert (host, port) == ("127.0.0.1:9000", given("EXPOSE")[0])


def test_the_servers_of_many_machines_are_ours_and_known_by_their_names() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    ours = {name: service for name, service in SCALE["services"].items() if "build" in service}
    assert len(ours) == 6
    for name, service in ours.items():
        check_command(service["command"])
        assert set(service["build"]["args"]["EXTRAS"].split(",")) <= set(extras)
        registered = [flag for flag in service["command"] if flag.startswith("--directory_registration_host=")]
        assert registered == ([] if name == "directory" else [f"--directory_registration_host={name}"])
        assert set(service["depends_on"]) <= set(SCALE["services"])
    published = [port for service in SCALE["services"].values() for port in service.get("ports", ())]
    assert published == ["127.0.0.1:9000:9000"]
    assert 'ARG EXTRAS=""' in (ROOT / "Containerfile").read_text()
