"""`tilewright sign`: say with a key who made a file, so that others can ask for that."""

from __future__ import annotations

from pathlib import Path

import click

from tilewright.cli.display import example, out
from tilewright.cli.option_groups import FILE, Verb, option


@click.command(
    "sign",
    cls=Verb,
    short_help="Sign an artifact, or any file, with a private key.",
    epilog=example(
        "tilewright sign model.vmfb --key maker.key",
        "tilewright run model.vmfb --trusted-key maker.key.pub",
    ),
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@option(
    "--key",
    required=True,
    type=FILE,
    metavar="FILE",
    help="A private Ed25519 key (PEM), as keygen makes it.",
)
@option("--detached", is_flag=True, help="Write FILE.sig for a .vmfb, too.")
@option(
    "--password-file", type=FILE, metavar="FILE", help="The password of an encrypted key."
)
def command(
    files: tuple[Path, ...], key: str, detached: bool, password_file: str | None
) -> None:
    """Sign FILES.  A .vmfb gets its signature at its end, any other file one beside it (FILE.sig).

    Whoever has the public key loads only what is signed and unchanged: --trusted-key, or
    tilewright.load(path, trusted_keys=[...]).
    """
    from tilewright.api.signing import read_password, sign

    password = read_password(password_file)
    for path in files:
        name = sign(path, key, detached=detached, password=password)
        out.print(f"{path}: signed by {name}", markup=False)
