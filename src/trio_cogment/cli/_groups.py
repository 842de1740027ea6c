"""Groups of commands, some of which have a second name."""

from __future__ import annotations

import click


class Group(click.Group):
    """A group that shows its help when it is called alone; second names of its commands are not in it."""

    def __init__(self, *args: object, **settings: object) -> None:
        super().__init__(*args, **{"invoke_without_command": True, **settings})  # type: ignore[arg-type]  # click's own
        self._aliases: dict[str, str] = {}

    def invoke(self, ctx: click.Context) -> object:
        """Run the command that was asked for."""
        result: object = super().invoke(ctx)
        if ctx.invoked_subcommand is None:
            click.echo(ctx.get_help())
        return result

    def add_command(self, cmd: click.Command, name: str | None = None, *, aliases: tuple[str, ...] = ()) -> None:
        """Add a command, and names that mean the same."""
        super().add_command(cmd, name)
        self._aliases.update(dict.fromkeys(aliases, name or cmd.name or ""))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by one of its names."""
        return super().get_command(ctx, self._aliases.get(cmd_name, cmd_name))
