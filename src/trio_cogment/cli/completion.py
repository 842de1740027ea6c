"""`trio-cogment completion`: what lets a shell complete commands, flags and paths.

The script asks the program itself, each time, so that it has no list of its own: click answers, by the declarations of
the commands.
"""

from __future__ import annotations

import click

from trio_cogment.cli.commands import COMPLETION, PROGRAM

_SHELLS = ("bash", "zsh", "fish")


#: Lines behind \b are left as they are.
_HELP = """Print what lets a shell complete commands and flags.

\b
bash, in ~/.bashrc:
  eval "$(trio-cogment completion bash)"
zsh, in ~/.zshrc, behind compinit:
  eval "$(trio-cogment completion zsh)"
fish, in ~/.config/fish/config.fish:
  trio-cogment completion fish | source
"""


@click.command(help=_HELP)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, PROGRAM, COMPLETION)
    # Not `source`, which for bash runs whichever bash is on PATH to look at its version.
    text = script.source_template % script.source_vars()
    # click's own for fish drops what follows a comma in a description.
    click.echo(text.replace('string split ","', 'string split --max 1 ","'))
