"""`trio-cogment conformance`: plays the cases of the conformance kit with a server, and shows what came of each."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from trio_cogment.base.endpoints import GrpcEndpoint
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.services import ServiceKind
from trio_cogment.cli.client.common import ClientSettings, client_options, client_settings, run_client, show
from trio_cogment.cli.client.reaching import ENDPOINT_VARIABLE, default_places, reached
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import as_endpoint
from trio_cogment.cli.text import columns, printable

if TYPE_CHECKING:
    from trio_cogment.conformance import Case, Result
    from trio_cogment.rpc import CallOpener

#: The services that have cases.
_SERVICES = ("orchestrator", "trial_datastore", "model_registry", "directory")
#: What has to come within a case comes at once, or not at all.
_MOST_PATIENCE_SECONDS = 10.0
[_DEFAULT] = default_places(ServiceKind.LIFECYCLE)


def _names(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    for name in names:
        if name not in _SERVICES:
            raise click.BadParameter(f"expected some of {', '.join(_SERVICES)}, got {name!r}")
    return names


@click.command()
@click.option(
    "--endpoint",
    default=str(_DEFAULT),
    callback=as_endpoint,
    metavar="ENDPOINT",
    envvar=ENDPOINT_VARIABLE,
    show_default=True,
    show_envvar=True,
    help="Server to test: grpc://host:port.",
)
@click.option(
    "--services",
    default="",
    callback=_names,
    metavar="NAMES",
    help=f"Which of {', '.join(_SERVICES)}, with commas; the default is those that the server has.",
)
@click.option("--case", "chosen", multiple=True, metavar="NAME", help="Play this case; can be given several times.")
@click.option("--list", "lists", is_flag=True, help="Show the cases, with what is expected, and play none.")
@click.option("--careful", is_flag=True, help="Leave out the cases for which Cogment 2.22 ends or hangs.")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="HOST", help="Where the kit's actors listen.")
@click.option("--reached_at", default="", metavar="HOST", help="Host at which the server reaches them, if another.")
@client_options
@click.pass_context
def conformance(
    ctx: click.Context,
    /,
    endpoint: GrpcEndpoint,
    services: tuple[str, ...],
    chosen: tuple[str, ...],
    lists: bool,
    careful: bool,
    host: str,
    reached_at: str,
    **_options: Any,
) -> int:
    """Test a server against the API's documents and Cogment 2.22.

    Plays trials of its own at an orchestrator, and adds trials, models and registrations of its own to the other
    services: test a server that nobody else uses. The exit code is 1 if something is different from the documents, from
    Cogment 2.22, and from what docs/wire.md says of this project.
    """
    from trio_cogment.conformance import cases_of

    settings = client_settings(ctx)
    cases = [case for case in cases_of() if not (careful and case.may_end)]
    if unknown := set(chosen) - {case.name for case in cases}:
        raise Failure(f"--case: there is no case {sorted(unknown)[0]!r}; --list shows them")
    cases = [case for case in cases if not chosen or case.name in chosen]
    if lists:
        listed = [case for case in cases if not services or case.service in services]
        show(settings, "\n\n".join(map(_described, listed)), [_case_as_json(case) for case in listed])
        return 0
    results = run_client(_tested, settings, endpoint, services, cases, host, reached_at)
    counts = Counter(result.verdict.value for result in results)
    text = "\n".join([_table(results), "", ", ".join(f"{count} {name}" for name, count in counts.items())])
    show(settings, text, {"endpoint": str(endpoint), "counts": counts, "cases": [*map(_result_as_json, results)]})
    return int(bool(counts["different"]))


async def _tested(
    settings: ClientSettings,
    endpoint: GrpcEndpoint,
    services: tuple[str, ...],
    cases: list[Case],
    host: str,
    reached_at: str,
) -> list[Result]:
    from trio_cogment.conformance import open_server, play_cases

    patience = min(settings.timeout_seconds, _MOST_PATIENCE_SECONDS)
    async with reached(settings, None, [endpoint]) as channel:
        there = services or await _served(channel)
        if not there:
            raise Failure(f"{endpoint}: none of {', '.join(_SERVICES)} is there")
        async with open_server(channel, host=host, reached_at=reached_at, patience_seconds=patience) as server:
            return await play_cases(server, [case for case in cases if case.service in there])


async def _served(channel: CallOpener) -> tuple[str, ...]:
    from trio_cogment.api.common_pb2 import VersionRequest
    from trio_cogment.base.services import SERVICES as INFOS
    from trio_cogment.conformance import SERVICES
    from trio_cogment.rpc import methods_of

    found = []
    for name, kind in SERVICES.items():
        try:
            await channel.unary(methods_of(INFOS[kind].descriptor())["Version"], VersionRequest())
        except RpcError as error:
            if error.code is StatusCode.UNIMPLEMENTED:
                continue
            raise
        found.append(name)
    return tuple(found)


def _table(results: list[Result]) -> str:
    """Return a line for each case, with its source, and what a case looks at where it came out differently."""
    rows = columns([_row(result) for result in results]).split("\n")
    lines = []
    for row, result in zip(rows, results, strict=True):
        lines.append(row)
        if result.verdict.value == "different":
            lines += [f"    {line}" for line in _described(result.case).split("\n")[1:]]
    return "\n".join(lines)


def _row(result: Result) -> tuple[str, str, str, str]:
    return result.verdict.value, result.case.key, result.case.source, result.outcome


def _described(case: Case) -> str:
    expected = {"documents": case.documented, "Cogment 2.22": " | ".join(case.reference), "trio-cogment": case.ours}
    rows = [("rule", case.rule), ("source", case.source), *((name, text) for name, text in expected.items() if text)]
    if case.may_end:
        rows.append(("careful", "Cogment 2.22 ends or hangs"))
    return f"{case.key}\n{_lines(rows)}"


def _lines(rows: list[tuple[str, str]]) -> str:
    """Return names and texts as indented lines."""
    return "\n".join(f"  {name + ':':14} {printable(text)}" for name, text in rows)


def _case_as_json(case: Case) -> dict[str, Any]:
    return {
        "service": case.service,
        "case": case.name,
        "rule": case.rule,
        "source": case.source,
        "documented": case.documented,
        "reference": list(case.reference),
        "trio_cogment": case.ours,
        "careful": case.may_end,
    }


def _result_as_json(result: Result) -> dict[str, Any]:
    return {**_case_as_json(result.case), "outcome": result.outcome, "verdict": result.verdict.value}
