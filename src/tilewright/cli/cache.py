"""`tilewright cache`: where compiled kernels are kept, how much that is, and how to be rid of it."""

from __future__ import annotations

import json

import click

from tilewright.base import knobs
from tilewright.base.compilation_cache import CompilationCache
from tilewright.base.text import format_bytes
from tilewright.cli.display import example, out, table
from tilewright.cli.option_groups import Verb, option
from tilewright.cli.options import json_option


@click.command(
    "cache",
    cls=Verb,
    short_help="Show or clear the kernels kept from earlier compilations.",
    epilog=example("tilewright cache", "tilewright cache --clear"),
)
@option("--clear", is_flag=True, help="Delete what is kept.")
@json_option()
def command(clear: bool, as_json: bool) -> None:
    """Say where kernels of earlier compilations are kept and how much that is.

    The folder is that of the user who asks; one that others may write to is left alone.
    """
    cache = CompilationCache.of_user()
    usage = cache.clear() if clear else cache.usage()
    counts = {"entries": usage.entry_count, "bytes": usage.size_bytes}
    if as_json:
        known = {"folder": str(cache.folder), "used": knobs.CACHE.get()}
        report = {"deleted": counts} if clear else counts
        click.echo(json.dumps({**known, "limit_bytes": cache.limit_bytes, **report}))
        return
    rows = table("cache", [("", "left"), ("", "left")])
    rows.show_header = False
    rows.add_row("folder", str(cache.folder))
    rows.add_row("used", "yes" if knobs.CACHE.get() else f"no ({knobs.CACHE.variable})")
    size = format_bytes(usage.size_bytes)
    rows.add_row("deleted" if clear else "holds", f"{size} in {usage.entry_count} entries")
    rows.add_row(
        "limit", f"{format_bytes(cache.limit_bytes)} ({knobs.CACHE_LIMIT.variable})"
    )
    out.print(rows)
