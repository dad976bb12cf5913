"""`tilewright devices`: what this machine offers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
from rich.text import Text

from tilewright.base.errors import DeviceError
from tilewright.base.host import usable_cores
from tilewright.base.target import LEVELS, Target
from tilewright.base.text import format_bytes, printable
from tilewright.cli.display import example, out, table
from tilewright.cli.option_groups import Verb, option
from tilewright.cli.options import json_option

if TYPE_CHECKING:
    from tilewright.base.entry_points import EntryPoint


@click.command(
    "devices",
    cls=Verb,
    short_help="List the devices and what they can do.",
    epilog=example("tilewright devices --measure"),
)
@option("--measure", is_flag=True, help="Also measure FMA peak and streaming read.")
@json_option()
def command(measure: bool, as_json: bool) -> None:
    """List every device that artifacts can run on, the CPU behind them, and installed code generators."""
    target = Target.host()
    if as_json:
        click.echo(json.dumps(_as_dict(target, measure=measure)))
        return
    rows = table("this machine", [("", "left"), ("", "left")])
    rows.show_header = False
    rows.add_row("target", str(target))
    levels = [name for name, features in LEVELS.items() if features <= target.features]
    rows.add_row("level", levels[-1] if levels and target.arch == "x86_64" else "–")
    rows.add_row(
        "vectors", f"{target.vector_registers} registers of {target.vector_bits} bits"
    )
    caches = (("L1d", target.l1d_bytes), ("L2", target.l2_bytes), ("L3", target.l3_bytes))
    rows.add_row("caches", ", ".join(f"{n} {format_bytes(b)}" for n, b in caches if b))
    rows.add_row("usable cores", f"{usable_cores()} (affinity mask and cgroup quota)")
    out.print(rows)
    _print_drivers()
    _print_installed()
    if measure:
        _print_limits()


def _as_dict(target: Target, *, measure: bool) -> dict[str, object]:
    from tilewright.runtime.drivers import registry

    devices: list[dict[str, str]] = []
    unavailable: dict[str, str] = {}
    for driver in registry.drivers():
        try:
            found = driver.query_available_devices()
        except DeviceError as error:
            unavailable[driver.name] = str(error)
            continue
        devices += [
            {"uri": d.uri, "name": d.name, "driver": driver.name, "summary": d.summary}
            for d in found
        ]
    return {
        "target": str(target),
        "arch": target.arch,
        "cpu": target.cpu,
        "features": sorted(target.features),
        "vector_bits": target.vector_bits,
        "vector_registers": target.vector_registers,
        "caches": {"l1d": target.l1d_bytes, "l2": target.l2_bytes, "l3": target.l3_bytes},
        "usable_cores": usable_cores(),
        "devices": devices,
        "unavailable": unavailable,
        "installed": [
            {
                "group": row.group.value,
                "name": row.name,
                "package": row.package,
                "object": row.value,
            }
            for row in _installed()
        ],
        "limits": _limits_as_list() if measure else [],
    }


def _limits_as_list() -> list[dict[str, float]]:
    from tilewright.api.profiling.roofline import measure as measure_limits

    found: list[dict[str, float]] = []
    for threads in sorted({1, usable_cores()}):
        limits = measure_limits(threads)
        found.append(
            {
                "threads": threads,
                "flops": limits.flops,
                "read_bytes_per_s": limits.read_bytes,
            }
        )
    return found


def _print_drivers() -> None:
    from tilewright.runtime.drivers import registry

    rows = table("devices", [("uri", "left"), ("name", "left"), ("", "left")])
    for driver in registry.drivers():
        try:
            found = driver.query_available_devices()
        except DeviceError as error:
            rows.add_row(driver.name, "–", Text(printable(str(error))))
            continue
        for device in found:
            rows.add_row(device.uri, device.name, device.summary)
    out.print(rows)


def _installed() -> tuple[EntryPoint, ...]:
    """What packages offer; none of it is imported."""
    from tilewright.base.entry_points import EntryPointGroup, list_entry_points

    return tuple(row for group in EntryPointGroup for row in list_entry_points(group))


def _print_installed() -> None:
    installed = _installed()
    if not installed:
        return
    columns = ("group", "name", "package", "object")
    rows = table("from packages", [(column, "left") for column in columns])
    for row in installed:
        rows.add_row(row.group.value, row.name, row.package, row.value)
    out.print(rows)


def _print_limits() -> None:
    from tilewright.api.profiling.roofline import measure as measure_limits

    columns = ("threads", "FMA peak", "streaming read", "L3", "L2", "L1")
    rows = table("limits", [(column, "right") for column in columns])
    for threads in sorted({1, usable_cores()}):
        limits = measure_limits(threads)
        caches = dict(limits.caches)
        rows.add_row(
            str(threads),
            f"{limits.flops / 1e9:.1f} GFLOP/s",
            f"{limits.read_bytes / 1e9:.1f} GB/s",
            *(_rate(caches.get(level)) for level in columns[3:]),
        )
    out.print(rows)


def _rate(bytes_rate: float | None) -> str:
    return "–" if bytes_rate is None else f"{bytes_rate / 1e9:.1f} GB/s"
