"""Every graph pass in order, for panels and tiles that a test chooses."""

from __future__ import annotations

from tilewright.compiler.backends.panel_form import panel_form
from tilewright.compiler.passes import GraphPass
from tilewright.compiler.pipeline import formed_passes, neutral_passes
from tilewright.compiler.transforms import ChooseBand, ChoosePanel, ChooseParts, ChooseTile


def standard_passes(
    *,
    choose_panel: ChoosePanel,
    choose_tile: ChooseTile,
    choose_parts: ChooseParts = lambda *_, **__: 0,
    choose_band: ChooseBand = lambda *_: 0,
    products: frozenset[str] = frozenset(),
) -> tuple[GraphPass, ...]:
    """What `pipeline.optimize` runs for one target."""
    form = panel_form(choose_panel, choose_tile, choose_parts, choose_band, products)
    return (*neutral_passes(), *formed_passes(form))
