"""`tilewright cache`: where compiled kernels and programs of language models are kept, how much that is, and how to be rid of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from tilewright.base import knobs
from tilewright.base.compilation_cache import CacheUsage, CompilationCache
from tilewright.base.errors import UserError
from tilewright.base.text import format_bytes, plural
from tilewright.cli.display import example, out, table
from tilewright.cli.option_groups import Verb, option
from tilewright.cli.options import json_option

if TYPE_CHECKING:
    from tilewright.api.language.program_store import ProgramStore


@click.command(
    "cache",
    cls=Verb,
    short_help="Show or clear what earlier compilations left.",
    epilog=example("tilewright cache", "tilewright cache --clear"),
)
@option("--clear", is_flag=True, help="Delete what is kept.")
@json_option()
def command(clear: bool, as_json: bool) -> None:
    """Say where kernels of earlier compilations and programs of language models are kept, and how much that is.

    Programs of the four language models that were used last are kept. A folder is that of the user who asks; one that others may write to is left alone.
    """
    from tilewright.api.language.program_store import ProgramStore

    cache, programs = CompilationCache.of_user(), ProgramStore.of_user()
    usage, kept = (each.clear() if clear else each.usage() for each in (cache, programs))
    is_used = knobs.CACHE.get()
    if as_json:
        known = {
            "folder": str(cache.folder),
            "used": is_used,
            "limit_bytes": cache.limit_bytes,
        }
        models = {"folder": str(programs.folder), **_counts(kept, clear)}
        click.echo(json.dumps({**known, **_counts(usage, clear), "models": models}))
        _check_cleared(cache, programs, clear)
        return
    rows = table("cache", [("", "left"), ("", "left")])
    rows.show_header = False
    rows.add_row("folder", str(cache.folder))
    rows.add_row("used", "yes" if is_used else f"no ({knobs.CACHE.variable})")
    done = "deleted" if clear else "holds"
    size = format_bytes(usage.size_bytes)
    rows.add_row(done, f"{size} in {usage.entry_count} entries")
    rows.add_row(
        "limit", f"{format_bytes(cache.limit_bytes)} ({knobs.CACHE_LIMIT.variable})"
    )
    rows.add_row("language models", str(programs.folder))
    rows.add_row(
        "programs deleted" if clear else "programs",
        f"{format_bytes(kept.size_bytes)} of {plural(kept.entry_count, 'model')}",
    )
    out.print(rows)
    _check_cleared(cache, programs, clear)


def _check_cleared(cache: CompilationCache, programs: ProgramStore, clear: bool) -> None:
    """Raise UserError for what should have gone and is still there."""
    for kept in (cache, programs) if clear else ():
        left = kept.usage().entry_count
        if left:
            raise UserError(
                f"{left} of what it holds could not be deleted",
                location=kept.folder,
                hint="the folder is read-only or another user's, or a compilation writes to it now",
            )


def _counts(usage: CacheUsage, cleared: bool) -> dict[str, object]:
    counts = {"entries": usage.entry_count, "bytes": usage.size_bytes}
    return {"deleted": counts} if cleared else {**counts}
