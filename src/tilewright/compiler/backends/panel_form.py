"""The form that a graph takes for processors with caches and vectors: channels last, weights in panels.

Shared by the back ends of CPUs.  Equal machines want equal forms, so their targets share one graph and its weights.
Targets of one artifact have the same panels of f32, whatever their vectors, and the same algorithm of each convolution, and so
the same weights: the panels cost nobody 3 % of the time, and an algorithm is what no level loses much by.  Panels of words with several numbers cost the widest vectors more, and a copy of those is small, so
there they have their own; so have targets that multiply pairs, or bytes themselves, where others cannot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, final

from tilewright.base.dtypes import DType, bf16, i8, i32
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.base.target import Target
from tilewright.compiler.backends.backend import GraphForm
from tilewright.compiler.ops.contraction import BYTE_PRODUCTS, INTEGER_PRODUCTS
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import algorithms, tiles, tilings
from tilewright.compiler.transforms import (
    ALL_WIDE,
    ChooseBand,
    ChooseGap,
    ChoosePanel,
    ChooseParts,
    ChooseTile,
    ContractIntegers,
    ConvertLayout,
    DecomposeNorms,
    FuseKernels,
    LegalizeConvolution,
    LegalizePooling,
    LegalizeResampling,
    PackMatmul,
    ShortWeights,
    SinkReshapes,
    SplitReductions,
    UpdateInPlace,
    WinogradConvolution,
)

_PACKED_VECTOR_BITS: Final = 256


@final
@record
class PanelsOf:
    """The columns per panel that the kernels of a machine want, and those of others read well.

    `of_words`, if there is one, decides instead where right operands are words of several numbers.
    """

    machine: MachineModel
    others: tuple[MachineModel, ...] = ()
    of_words: PanelsOf | None = None

    def __call__(
        self,
        m: Sequence[Dim],
        n: Dim,
        k: Dim,
        dtype: DType,
        products: int = 1,
        row: int = 0,
    ) -> int:
        """Columns of a product of `m` rows, `n` columns and `k` steps of `products`; 0 for no panels.

        `row`: from a row of the left operand to the next, where that is not all steps.
        """
        if self.of_words is not None and (products > 1 or dtype is i32):
            return self.of_words(m, n, k, dtype, products)
        return tilings.contraction_panel(
            self.machine, m, n, k, dtype, products, row=row, others=self.others
        )


@final
@record
class GapsOf:
    """Gaps between the places of an image where the caches of one of the machines would not hold them beside each other."""

    machines: tuple[MachineModel, ...]

    def __call__(self, rows: Sequence[Dim], channels: Dim, step: int, dtype: DType) -> int:
        """Elements between places of `channels`, of which every `step`-th is read; 0 for none."""
        if not isinstance(channels, int) or not dtype.is_float:
            return 0
        count = math.prod(tilings.likely_rows(rows))
        row_bytes = channels * dtype.itemsize
        gaps = (tiles.row_gap(each, count, row_bytes, step) for each in self.machines)
        return max(gaps) // dtype.itemsize


@final
@record
class TilesOf:
    """Winograd's tile where a machine gains by it, and others that share the filters lose little."""

    machine: MachineModel
    others: tuple[MachineModel, ...] = ()

    def __call__(
        self,
        places: Sequence[Dim],
        channels: int,
        filters: int,
        taps: int,
        groups: int,
        dtype: DType,
        steps: Sequence[int],
    ) -> int:
        """The tile of a convolution, or 0."""
        sizes = (channels, filters, taps, groups, dtype, tuple(steps))
        layer = algorithms.Layer(tuple(places), *sizes)
        return algorithms.winograd_tile(self.machine, layer, others=self.others)


@final
@record
class PartsOf:
    """Parts of long sums where a machine's cores would wait for one of them."""

    machine: MachineModel

    def __call__(self, rows: int, columns: int, steps: int, *, products: bool) -> int:
        """Parts of `rows` x `columns` sums of so many steps; below 2 for none."""
        return algorithms.reduction_parts(
            self.machine, rows, columns, steps, products=products
        )


@final
@record
class BandsOf:
    """Bands of a tensor between two sums where a machine's caches do not hold it."""

    machine: MachineModel

    def __call__(self, rows: int, row_bytes: int, right_bytes: int) -> int:
        """Rows of a band of `rows`, of `row_bytes` each; 0 for none."""
        return algorithms.joined_band(self.machine, rows, row_bytes, right_bytes)


def form_of(machine: MachineModel) -> GraphForm:
    """The form that a machine's kernels want."""
    return _form_for(PanelsOf(machine), machine.word_products, _short_weights([machine]))


def _short_weights(machines: Sequence[MachineModel]) -> ShortWeights:
    """What all the machines widen: weights that one of them would rather have wide are wide for all, who share them."""
    first, *others = machines
    return ShortWeights(
        tuple(d for d in first.widened if all(d in each.widened for each in others)),
        all(each.has_tall_tiles for each in machines),
    )


def _form_for(panels: PanelsOf, products: frozenset[str], short: ShortWeights) -> GraphForm:
    """The form of graphs with these panels, numbers for these products of words, and weights that may be short."""
    # What one machine's caches hold either way, another's may hold in one: all can read it so.
    machines = (panels.machine, *panels.others)
    return panel_form(
        panels,
        TilesOf(panels.machine, panels.others),
        PartsOf(panels.machine),
        BandsOf(panels.machine),
        products,
        short,
        choose_gap=GapsOf(machines),
    )


def shared_form(
    target: Target,
    targets: Sequence[Target],
    dtypes: frozenset[DType],
    machine_model: Callable[[Target], MachineModel],
) -> GraphForm:
    """The form for one of `targets` and a graph with tensors of `dtypes`, equal to that of the others where it can be."""
    packing, own = machine_model(packing_target(targets)), machine_model(target)
    models = [machine_model(each) for each in targets]
    others = tuple(other for other in models if other != packing)
    has_words = any(dtype.bits <= i8.bits and not dtype.is_bool for dtype in dtypes)
    is_wide = own.vector_bits > _PACKED_VECTOR_BITS
    of_words = PanelsOf(own) if others and has_words and is_wide else None
    used = own.word_products
    if bf16 not in dtypes:
        used -= {"pairs"}
    if others and not has_words:
        used -= {*INTEGER_PRODUCTS, "moved_bytes"}
    panels = PanelsOf(packing, others, of_words)
    return _form_for(panels, used, _short_weights(models))


def panel_form(
    choose_panel: ChoosePanel,
    choose_tile: ChooseTile,
    choose_parts: ChooseParts,
    choose_band: ChooseBand,
    products: frozenset[str] = frozenset(),
    short: ShortWeights = ALL_WIDE,
    *,
    choose_gap: ChooseGap | None = None,
) -> GraphForm:
    """The passes of the form.

    Args:
        choose_panel: (rows, columns, depth, dtype) of a contraction to columns per packed panel, or 0.
        choose_tile: (places, channels, filters, taps, groups, dtype of the sums, steps) of a convolution to Winograd's tile, or 0.
        choose_parts: (rows, columns, steps) of sums to the parts that workgroups add, or 0.
        choose_band: (rows, bytes of a row, bytes of the right operand) of a tensor between two sums to rows of a band, or 0.
        products: rows of `WORD_PRODUCTS` that the machine multiplies sooner than floats.
        short: what it reads in 16 bits.
        choose_gap: (rows, channels, step, dtype) of an image to the elements that shall lie between its places, or 0; without it none do.
    """
    return GraphForm(
        layout=(
            # From here products of integers that floats hold exactly are products of floats, or stay bytes.
            ContractIntegers(keep_bytes=not products.isdisjoint(BYTE_PRODUCTS)),
            # From here images are channels last.
            ConvertLayout(),
            # From here every normalization goes over whole rows, or over columns of channels.
            DecomposeNorms(),
            # From here convolutions that have fewer products in other numbers are products of those.
            WinogradConvolution(choose_tile=choose_tile, products=products),
            # From here every contraction has a form that kernels are written for.
            LegalizeConvolution(
                choose_panel=choose_panel, choose_gap=choose_gap, products=products
            ),
            LegalizePooling(),
            LegalizeResampling(),
            # From here no core waits for a long sum of another.
            SplitReductions(choose_parts=choose_parts),
            # From here right operands lie as kernels read them.
            PackMatmul(
                choose_panel=choose_panel,
                choose_gap=choose_gap,
                products=products,
                short=short,
            ),
            SinkReshapes(),
        ),
        # Appends to caches write what is appended and nothing else.
        fusion=(FuseKernels(choose_band=choose_band), UpdateInPlace()),
    )


def packing_target(targets: Sequence[Target]) -> Target:
    """The target whose kernels decide the form that all share, where there is no one answer.

    The widest vectors up to 256 bits, where there are such: they are in the middle.
    """
    narrow = [t for t in targets if t.vector_bits <= _PACKED_VECTOR_BITS]
    return max(narrow or targets, key=lambda target: target.vector_bits)
