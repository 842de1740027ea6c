"""`trio-cogment dm_env_rpc probe ADDRESS`: what an agent in a world of a server does and sees."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from trio_cogment.base.endpoints import GrpcEndpoint
from trio_cogment.cli.client.common import client_options, client_settings, run_client, show
from trio_cogment.cli.client.reaching import reached
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import as_endpoint
from trio_cogment.cli.rl.targets import Argument

if TYPE_CHECKING:
    from trio_cogment.gateways.dm_env_rpc import Specs

#: Longer lists of bounds are not shown.
_MOST_BOUNDS = 4


class _Setting(Argument):
    """`NAME=VALUE`, where dots in the name mean nesting."""

    name = "setting"

    def is_name(self, text: str) -> bool:
        """Tell whether a setting can have this name."""
        return bool(text)


def _as_server(ctx: click.Context, param: click.Parameter, value: str) -> GrpcEndpoint | None:
    return as_endpoint(ctx, param, value if "://" in value else f"grpc://{value}")


@click.command()
@click.argument("address", metavar="ADDRESS", callback=_as_server)
@click.option("--world", default=None, metavar="NAME", help="Join this world; by default one is created.")
@click.option(
    "--setting",
    "create_settings",
    type=_Setting(),
    multiple=True,
    metavar="NAME=VALUE",
    help="Of CreateWorld; the value is JSON, or text. Repeatable.",
)
@click.option(
    "--join_setting",
    "join_settings",
    type=_Setting(),
    multiple=True,
    metavar="NAME=VALUE",
    help="Of JoinWorld. Repeatable.",
)
@client_options
@click.pass_context
def probe(
    ctx: click.Context,
    /,
    address: GrpcEndpoint,
    world: str | None,
    create_settings: tuple[tuple[str, Any], ...],
    join_settings: tuple[tuple[str, Any], ...],
    **_options: Any,
) -> None:
    """Show the actions and observations of an agent in a world of a dm_env_rpc server.

    ADDRESS is host:port, or grpc://host:port. Without --world, a world is created for it and destroyed again.
    """
    settings = client_settings(ctx)
    if world is not None and create_settings:
        raise Failure("--setting: expected none with --world, which is created already")

    async def ask() -> Specs:
        from trio_cogment.gateways.dm_env_rpc import open_connection

        async with (
            reached(settings, None, [address]) as channel,
            open_connection(channel, name=str(address)) as connection,
        ):
            name = await connection.create_world(dict(create_settings)) if world is None else world
            try:
                specs = await connection.join_world(name, dict(join_settings))
                await connection.leave_world()
            finally:
                if world is None:
                    await connection.destroy_world(name)
            return specs

    specs = run_client(ask)
    kinds = {"actions": specs.actions, "observations": specs.observations}
    data = {
        kind: [_as_json(tensors.uids[name], spec) for name, spec in tensors.specs.items()]
        for kind, tensors in kinds.items()
    }
    show(settings, "\n".join(_lines(data)), data)


def _as_json(uid: int, spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"uid": uid, "name": spec.name, "dtype": spec.type.name, "shape": list(spec.shape)}
    for end, bound in (("min", spec.minimum), ("max", spec.maximum)):
        if bound is not None:
            found[end] = bound.tolist()
    return found


def _lines(data: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    from trio_cogment.cli.text import columns

    for kind, entries in data.items():
        yield f"{kind}:"
        yield columns([_cells(entry) for entry in entries]) if entries else "  none"


def _cells(entry: Mapping[str, Any]) -> tuple[str, ...]:
    shape = str(entry["shape"]) if entry["shape"] else ""
    bounds = [f"{end} {_shown(entry[end], entry['dtype'])}" for end in ("min", "max") if end in entry]
    return f"  {entry['uid']}", entry["name"], entry["dtype"] + shape, ", ".join(bounds)


def _shown(bound: Any, dtype: str) -> str:
    values = [bound] if not isinstance(bound, list) else bound
    if len(values) > _MOST_BOUNDS or any(isinstance(value, list) for value in values):
        return "for each element"
    if dtype == "float32":
        from trio_cogment.web.json_text import shortest

        values = [shortest(value) for value in values]
    return json.dumps(values if isinstance(bound, list) else values[0])
