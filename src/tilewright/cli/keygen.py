"""`tilewright keygen`: a key to sign with."""

from __future__ import annotations

from pathlib import Path

import click

from tilewright.cli.display import example, out
from tilewright.cli.option_groups import FILE, Verb, option


@click.command(
    "keygen",
    cls=Verb,
    short_help="Make a key to sign with.",
    epilog=example("tilewright keygen maker.key"),
)
@click.argument("path", type=click.Path(path_type=Path))
@option(
    "--password-file",
    type=FILE,
    metavar="FILE",
    help="Encrypt the private half with this password.",
)
def command(path: Path, password_file: str | None) -> None:
    """Write an Ed25519 key: the private half to PATH (for your eyes alone), the public one to PATH.pub.

    Files that are there are never written over.
    """
    from tilewright.api.signing import generate_key, read_password

    name = generate_key(path, password=read_password(password_file))
    out.print(f"{path}: private, keep it to yourself", markup=False)
    out.print(f"{path}.pub: public, {name}", markup=False)
