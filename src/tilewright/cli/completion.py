"""`tilewright completion`: lets a shell complete verbs, options, their values and files."""

from __future__ import annotations

import click

from tilewright.cli.display import example
from tilewright.cli.option_groups import Verb

# What the shell asks by, as click names it for a command called `tilewright`.
VARIABLE = "_TILEWRIGHT_COMPLETE"


@click.command(
    "completion",
    cls=Verb,
    short_help="Print what lets a shell complete verbs, options and files.",
    epilog=example(
        'eval "$(tilewright completion bash)"    # now; in ~/.bashrc: always',
        'eval "$(tilewright completion zsh)"     # the same, ~/.zshrc',
        "tilewright completion fish > ~/.config/fish/completions/tilewright.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the lines that let SHELL (bash, zsh or fish) complete verbs, options, their values and files."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, f"click knows {shell}"
    root = context.find_root()
    click.echo(kind(root.command, {}, "tilewright", VARIABLE).source())
