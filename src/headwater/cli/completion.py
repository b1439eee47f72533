"""`headwater completion`: the script that makes a shell complete commands, topics and groups."""

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    bash: eval "$(headwater completion bash)" in ~/.bashrc; zsh likewise in ~/.zshrc; fish:
    headwater completion fish > ~/.config/fish/completions/headwater.fish
    """
    root = ctx.find_root().command
    kind = get_completion_class(shell)
    assert kind is not None, shell
    click.echo(kind(root, {}, "headwater", "_HEADWATER_COMPLETE").source())
