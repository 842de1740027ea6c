"""The same thing has the same flag in every command; names of the reference stay beside it."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from tests.cli.test_completion import leaves
from trio_cogment.cli.root import cli

#: What several commands take, by the name of the flag: other names that it has, and the parameters that are the thing.
SAME = {
    "--spec": {"spec", "spec_file", "web_spec"},
    "--orchestrator": {"orchestrator", "orchestrator_endpoint"},
}
#: They call nobody: their flags are about tokens themselves.
_TOKENS = "token"


def commands() -> Iterator[tuple[str, click.Command]]:
    for path, command in leaves(cli):
        if path and not isinstance(command, click.Group) and path[0] != _TOKENS:
            yield " ".join(path), command


def flags(command: click.Command, names: set[str]) -> set[str]:
    options = [option for option in command.params if isinstance(option, click.Option) and option.name in names]
    return {flag for option in options for flag in option.opts}


@pytest.mark.parametrize("flag", SAME)
def test_what_several_commands_take_has_one_name(flag: str) -> None:
    found = {name: flags(command, SAME[flag]) for name, command in commands()}
    takers = {name for name, opts in found.items() if opts}
    assert len(takers) >= 3
    assert {name for name in takers if flag not in found[name]} == set()


def test_clients_and_servers_take_tokens_and_certificates_by_the_same_flags() -> None:
    """What a command calls may ask for a token, and show a certificate of one's own authority."""
    same = {"--token", "--token_file", "--private_key", "--trust_chain", "--root_cert"}
    found = {name: {flag for option in command.params for flag in option.opts} for name, command in commands()}
    assert {name: same - flags for name, flags in found.items() if flags & same and not same <= flags} == {}
    assert same <= found["rl export"]


def test_servers_take_the_same_flags_for_their_logs() -> None:
    logs = {"--log_level", "--log_file", "--log_format"}
    for name, command in commands():
        options = {flag for option in command.params for flag in option.opts}
        if name.startswith("services ") or name in ("serve", "participants", "play", "rl serve", "rl openenv"):
            assert logs <= options, name
