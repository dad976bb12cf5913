"""A Python package as an installer leaves it: a module, and metadata that offers entry points."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def install(
    site: Path,
    name: str,
    source: str,
    entry_points: Mapping[str, Mapping[str, str]],
    *,
    version: str = "1.0",
) -> Path:
    """Write the module `name` into a folder, with its metadata.

    Args:
        site: the folder; the caller puts it on `sys.path`.
        name: of module and package.
        source: the module.
        entry_points: values by name, by group.
        version: of the package.

    Returns: the folder.
    """
    site.mkdir(parents=True, exist_ok=True)
    (site / f"{name}.py").write_text(source)
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    )
    lines = [
        line
        for group, rows in entry_points.items()
        for line in (f"[{group}]", *(f"{key} = {value}" for key, value in rows.items()))
    ]
    (folder / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return site
