"""Fusion: which nodes share a kernel.

A kernel has at most one anchor (contraction, rows, pooling, reduction), or two sums in a row that share a band
(`fusion_bands`).  What follows the anchor
elementwise goes into its store (epilogue); what precedes elementwise or moves elements goes into
its loads (prologue), for contractions only moves that stay linear and only on the left operand.
Nothing expensive is computed twice, and no kernel depends on itself through others.  Reshapes at
the border of a kernel stay outside as views.  How a kernel loops is the schedule's business.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar, Final, final

from tilewright.base import symbolic
from tilewright.base.options import count_option
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.editor import Editor
from tilewright.compiler.graph.ir import Graph, Node, Value
from tilewright.compiler.graph.schema import Role, Trait
from tilewright.compiler.ops.contract import lies_in_panels, shares_no_element
from tilewright.compiler.passes import GraphPass, PassContext, PassResult
from tilewright.compiler.transforms.fusion_bands import ChooseBand, join_bands
from tilewright.compiler.transforms.fusion_build import build_kernels
from tilewright.compiler.transforms.fusion_classes import (
    ANCHORS,
    is_border,
    is_cheap,
    is_left_operand,
    keeps_last_axis,
    moves_last_axis,
    operations,
    permutation,
    reads_linearly,
)
from tilewright.compiler.transforms.fusion_groups import Group, Groups
from tilewright.compiler.transforms.matching import dim_groups, reached, read_outside
from tilewright.compiler.transforms.split_concat import MOST_OPERANDS

# These read each element of an operand once, whatever the size of their result.
_READ_ONCE: Final = (Role.ROWS, Role.REDUCTION, Role.PLACE, Role.PACKING)
_DONE_BY_READERS: Final = (Role.POINTWISE, Role.MAP, Role.VIEW, Role.SAMPLING)
_FROM_MEMORY: Final = (Role.POOLING, Role.ALONE, Role.SAMPLING)
"""These read elements of an operand several times."""
_WIDENING_READERS: Final = (Role.POINTWISE, Role.ROWS, Role.REDUCTION)
_WIDEST_VECTOR: Final = 16  # elements
_IN_ORDER: Final = (Role.POINTWISE, Role.MAP, Role.PLACE)
"""Their loops go over the elements of a result, whatever they are made of."""
_MOST_STEPS: Final = 24  # epilogue nodes looked at before they must meet in one value
_SMALL_EFFORT: Final = 4  # operations that are as well done again for each element
_KEPT: Final = 4  # operations that take as long as bringing an element to memory and back
_SEVERAL: Final = 2
"""Elements that are asked for, to each that there is, from which on it may pay to keep them."""
_LIKELY_SIZE: Final = 16
"""What an open size is taken for, each by itself: what grows with several sizes is large beside what grows with one."""


@final
@record(kw_only=True)
class FuseKernels(GraphPass):
    """Put every node into a kernel: a `fused` node with a region, or alone.

    Requires: folded, live (no unused nodes).  Ensures: each top-level node is a constant, a view
    (`reshape`), a `fused` node or a single op with a kernel, or an op for the host.

    Args:
        most_operands: kernels do not grow beyond that many operands.
        most_nodes: kernels do not grow beyond that many nodes.
        most_repeated: operations that are as well done again as in a kernel of their own, once for each element.
        choose_band: (rows, bytes of a row, bytes of the right operand) of what lies between a depthwise convolution
            and a product of matrices to the rows of a band, or 0 for two kernels; without it they are two.
    """

    ensures: ClassVar[frozenset[str]] = frozenset({"fused"})
    level: ClassVar[int] = 2
    most_operands: int = 24
    most_nodes: int = 64
    most_repeated: int = 30_000
    choose_band: ChooseBand | None = None

    def __post_init__(self) -> None:
        """Raises: UserError for more operands than a kernel can bind."""
        count_option("fuse-kernels.most_operands", self.most_operands, most=MOST_OPERANDS)

    def run(self, graph: Graph, _: PassContext) -> PassResult:
        """Epilogues of anchors, then prologues and the rest, then pairs that join, then the regions."""
        with Editor(graph) as edit:
            groups = Groups(graph, edit)
            for kind in ANCHORS:
                for node in graph.nodes:
                    if groups.role(node) is kind:
                        group = groups.start(node, kind)
                        self._grow_epilogue(group, groups)
                        _leave_widening(group, groups)
            for node in reversed(graph.nodes):
                self._place(node, groups)
            if self.choose_band is not None:
                join_bands(groups, self.choose_band, self.most_operands)
            count = build_kernels(groups)
            return PassResult(edit.modified, {"kernels": count} if count else {})

    # --- epilogue ------------------------------------------------------------------------

    def _grow_epilogue(self, group: Group, groups: Groups) -> None:
        while len(group.nodes) < self.most_nodes:
            if groups.is_output(group.output):
                return
            if group.kind is not Role.ATTENTION and self._take_elementwise(group, groups):
                continue
            if not self._take_move(group, groups):
                return

    def _take_elementwise(self, group: Group, groups: Groups) -> bool:
        """Take the smallest set of elementwise users after which one value leaves again."""
        nodes = set(group.nodes)
        shape = group.output.type.shape
        for _ in range(_MOST_STEPS):
            candidate = self._next_user(nodes, shape, groups)
            if candidate is None:
                return False
            nodes.add(candidate)
            nodes.update(_free_operands(candidate, groups))
            leaving = groups.outputs(nodes)
            if len(leaving) == 1 and leaving[0].node is not None:
                if len(read_outside(nodes, nodes)) > self.most_operands:
                    return False
                group.root = leaving[0].node
                groups.take(group, nodes)
                return True
        return False

    def _next_user(
        self, nodes: set[Node], shape: tuple[Dim, ...], groups: Groups
    ) -> Node | None:
        users = {
            user
            for value in groups.outputs(nodes)
            for user in groups.edit.users(value)
            if user not in nodes
        }
        for user in groups.ordered(users):
            if self._fits_epilogue(user, nodes, shape, groups):
                return user
        return None

    def _fits_epilogue(
        self, user: Node, nodes: set[Node], shape: tuple[Dim, ...], groups: Groups
    ) -> bool:
        is_free = groups.role(user) is Role.POINTWISE and user not in groups.of
        if not is_free or user.result.type.shape != shape:
            return False
        return not any(
            (v.node is None or v.node not in nodes) and groups.depends(v, nodes)
            for v in user.present_operands
        )

    def _take_move(self, group: Group, groups: Groups) -> bool:
        """Take a move of the result that the store can do; a border is the last thing."""
        user = groups.edit.sole_user(group.output)
        if user is None or user in groups.of:
            return False
        if group.kind in (Role.CONTRACTION, Role.ATTENTION) and keeps_last_axis(user):
            group.root = user
            groups.take(group, [user])
            return True
        if group.kind is Role.CONTRACTION and self._take_interleaving(group, user, groups):
            return True
        through: list[Node] = []
        border = user
        if groups.role(user) is Role.VIEW:
            through = [user]
            border = groups.edit.sole_user(user.result)
        if border is None or border in groups.of or group.kind is Role.ATTENTION:
            return False
        if not is_border(border) or border.operand().node not in (group.root, *through):
            return False
        group.root = border
        groups.take(group, [*through, border, *_free_operands(border, groups)])
        return False

    def _take_interleaving(self, group: Group, view: Node, groups: Groups) -> bool:
        """Take a reshape, a transpose of its parts and the reshape behind: phases and windows find their places.

        The last part stays last and has whole vectors, so stores are as wide as before.  A bias and what else is
        computed may stand in front of the reshape behind.  Where there is none, rows alone may move, to where
        something is computed: who reads heads reads them through moves of its own.
        """
        if groups.role(view) is not Role.VIEW:
            return False
        move = groups.edit.sole_user(view.result)
        if move is None or move in groups.of or not keeps_last_axis(move):
            return False
        if not _fits_panels(move, group, groups):
            return False
        computed, shape = {move}, move.result.type.shape
        behind = groups.edit.sole_user(move.result)
        while behind and self._fits_epilogue(behind, computed, shape, groups):
            computed.add(behind)
            behind = groups.edit.sole_user(behind.result)
        is_bare = len(computed) == 1
        keeps_columns = view.operand().type.shape[-1] == view.result.type.shape[-1]
        merges = behind and groups.role(behind) is Role.VIEW and behind not in groups.of
        if not merges and (is_bare or not keeps_columns):
            return False
        group.root = behind if behind and is_bare else move
        groups.take(group, [view, move, group.root])
        return True

    # --- prologue and the rest -----------------------------------------------------------

    def _place(self, node: Node, groups: Groups) -> None:
        """Complete the group that `node` is the root of, or start one for a node without."""
        role = groups.role(node)
        group = groups.of.get(node)
        if group is None:
            if role in (Role.HOST, Role.NONE, Role.VIEW) or not groups.is_needed(node):
                return
            group = groups.start(node, role)
        # A region has one result: what has several stays a kernel by itself.
        if group.root is node and len(node.results) == 1:
            _Prologue(self, group, groups).grow()


def _leave_widening(group: Group, groups: Groups) -> None:
    """Let readers widen what leaves the kernel, where that is cheap: memory then holds less.

    Contractions and pooling read their operands from memory as they are.
    """
    if groups.is_output(group.output):
        return
    readers = groups.edit.users(group.output)
    if any(groups.role(user) not in _WIDENING_READERS for user in readers):
        return
    root, cut = group.root, group.root
    behind: list[Node] = []
    while groups.role(cut) is Role.POINTWISE and is_cheap(cut):
        inside = [v.node for v in cut.present_operands if v.node in group.nodes]
        makers = [n for n in inside if groups.role(n) is not Role.FREE]
        if len(makers) != 1 or len(groups.edit.users(makers[0].results[0])) != 1:
            break
        behind.append(cut)
        cut = makers[0]
        narrower = cut.result.type.dtype.itemsize < root.result.type.dtype.itemsize
        if narrower and cut.result.type.shape == root.result.type.shape:
            groups.give_back(group, cut, behind)
            return


def _keeps_lanes(node: Node, contraction: Node) -> bool:
    """Whether what the lanes of a contraction read side by side of its left operand lies side by side behind `node`.

    Where each element meets one column alone, the columns are its last axis; else it is in all lanes.
    """
    return not (shares_no_element(contraction.attributes) and moves_last_axis(node))


def _fits_panels(move: Node, group: Group, groups: Groups) -> bool:
    """Whether the last axis is whole vectors, and panels and it divide each other.

    Else a panel would end within a part, and no schedule sees that its stores meet no others.
    """
    (anchor,) = (n for n in group.nodes if groups.role(n) is Role.CONTRACTION)
    last = move.result.type.shape[-1]
    if not lies_in_panels(anchor.attributes) or not isinstance(last, int):
        return False
    panel, columns = anchor.operand(1).type.shape[-1], anchor.result.type.shape[-1]
    if not isinstance(panel, int) or not isinstance(columns, int) or columns % panel:
        return False
    return last % _WIDEST_VECTOR == 0 and (last % panel == 0 or panel % last == 0)


def _free_operands(node: Node, groups: Groups) -> list[Node]:
    """The makers of operands that cost nothing, and theirs."""

    def free(reader: Node) -> list[Node]:
        makers = (v.node for v in reader.present_operands if v.node is not None)
        return [maker for maker in makers if groups.role(maker) is Role.FREE]

    return list(reached(free(node), free))


class _Prologue:
    """Takes makers of operands into one group, as far as that saves memory traffic."""

    def __init__(self, options: FuseKernels, group: Group, groups: Groups) -> None:
        self.options: FuseKernels = options
        self.group: Group = group
        self.groups: Groups = groups
        # How often each node of the group is evaluated, as a number of elements.
        self.evaluations: dict[Node, Dim] = {node: _size(node) for node in group.nodes}

    def grow(self) -> None:
        """Try every operand, and the operands of what was taken."""
        work = list(reversed(self.groups.ordered(self.group.nodes)))
        while work:
            user = work.pop(0)
            for value in user.present_operands:
                node = value.node
                if node is None or node in self.group.nodes:
                    continue
                if len(self.group.nodes) >= self.options.most_nodes:
                    return
                if self._wanted(node):
                    self.groups.take(self.group, [node])
                    self.evaluations[node] = self._evaluations(node)
                    work.append(node)

    def _wanted(self, node: Node) -> bool:
        role = self.groups.role(node)
        users = [u for value in node.results for u in self.groups.edit.users(value)]
        # All of them: an anchor may read what its own epilogue asked for.
        readers = [u for u in users if u in self.group.nodes]
        if role is Role.FREE:
            # A contraction reads both operands from memory, whatever they hold.
            memory = (Role.CONTRACTION, Role.ATTENTION)
            return not any(self.groups.role(u) in memory for u in readers)
        if role not in _DONE_BY_READERS or node in self.groups.of:
            return False
        shared = self.groups.is_output(node.result) or any(
            u not in self.group.nodes for u in users
        )
        if shared and not self.groups.is_repeatable(node):
            return False
        fits = all(self._fits(node, role, u) for u in readers)
        return fits and self._operands_stay_few(node)

    def _operands_stay_few(self, node: Node) -> bool:
        nodes = {*self.group.nodes, node}
        return len(read_outside(nodes, nodes)) <= self.options.most_operands

    def _fits(self, node: Node, role: Role, user: Node) -> bool:
        """Whether the group's loops can read `user`'s operand through `node`."""
        anchor = self.groups.role(user)
        if anchor is Role.CONTRACTION:
            return self._contraction_reads(node, role, user)
        if anchor in _FROM_MEMORY:
            return False
        if role is Role.SAMPLING:
            return self._samples(node)
        if self.group.kind is Role.ATTENTION:
            # Every tile of rows reads keys, values and bias: they are moved on the way, not computed.
            return role is not Role.POINTWISE and reads_linearly(node)
        if self.group.kind is Role.CONTRACTION:
            return self._contraction_side(node, role, user)
        if anchor in (Role.ROWS, Role.REDUCTION) or self.group.kind is Role.ROWS:
            return self._row_reads(node, role)
        if role is Role.POINTWISE:
            return self._computed_once(node)
        return not (self._scatters_slices(node) or self._interleaves_lanes(node, user))

    def _samples(self, node: Node) -> bool:
        """Whether the group's loops may compute elements from several of `node`'s operand: once, and in the order that they lie in."""
        if self.group.kind not in _IN_ORDER or any(map(moves_last_axis, self.group.nodes)):
            return False
        return self._computed_once(node)

    def _interleaves_lanes(self, node: Node, view: Node) -> bool:
        """Whether lanes along what `view` merges would pick elements one by one behind `node`, which keeps the last axis.

        Phases of an image are put together row by row, which moves whole pieces; then the image is turned.
        """
        if not keeps_last_axis(node) or self.groups.role(view) is not Role.VIEW:
            return False
        return any(
            moves_last_axis(turn) and self._merges_lanes(turn, view)
            for turn in self.group.nodes
        )

    def _merges_lanes(self, turn: Node, view: Node) -> bool:
        """Whether what `turn` makes the last axis is one that `view` merges, which it reads as it is or a part of it."""
        order = permutation(turn)
        if order is None or not self._shows(turn.operand(), view):
            return False
        shape = view.operand().type.shape
        merged = dim_groups(shape, view.result.type.shape) or ()
        return any(
            order[-1] in axes and sum(shape[axis] != 1 for axis in parts) > 1
            for parts, axes in merged
        )

    def _shows(self, value: Value, view: Node) -> bool:
        """Whether the group computes `value` from what `view` gives, axis by axis: nothing between moves one."""
        rank = view.result.type.rank

        def behind(current: Value) -> list[Value]:
            maker = current.node
            if maker is None or maker not in self.group.nodes:
                return []
            if self.groups.role(maker) is Role.VIEW or permutation(maker) is not None:
                return []
            return [v for v in maker.present_operands if v.type.rank == rank]

        return any(v.node is view for v in reached([value], behind))

    def _scatters_slices(self, node: Node) -> bool:
        """Whether slices that data picks would no longer lie in one piece.

        A transpose that more is picked from than it has elements is done once, in front.
        """
        if not moves_last_axis(node) or not self._is_picked_from(node.result):
            return False
        spare = symbolic.bounds(_size(node) - self._evaluations(node))[0]
        return spare is None or spare < 0

    def _is_picked_from(self, value: Value) -> bool:
        """Whether a user in the group, or one behind views, picks slices of `value`."""
        for user in self.groups.edit.users(value):
            if user not in self.group.nodes:
                continue
            if user.has(Trait.PICKS) and user.operand() is value:
                return True
            view = self.groups.role(user) is Role.VIEW
            if view and self._is_picked_from(user.result):
                return True
        return False

    def _contraction_reads(self, node: Node, role: Role, user: Node) -> bool:
        if role is Role.POINTWISE or not reads_linearly(node):
            return False
        if is_left_operand(user, node.result):
            return _keeps_lanes(node, user)
        return user.has(Trait.STRIDED)

    def _contraction_side(self, node: Node, role: Role, user: Node) -> bool:
        """Behind the anchor: small operands of the epilogue; before it: chains of linear moves."""
        if self._feeds_anchor(user):
            (anchor,) = (
                n for n in self.group.nodes if self.groups.role(n) is Role.CONTRACTION
            )
            moves = role is not Role.POINTWISE and reads_linearly(node)
            return moves and _keeps_lanes(node, anchor)
        if role is Role.POINTWISE:
            return is_cheap(node) and self._computed_once(node)
        return reads_linearly(node) and permutation(node) is None

    def _feeds_anchor(self, node: Node) -> bool:
        """Whether the anchor is reached from `node` within the group."""

        def users(current: Node) -> list[Node]:
            found = (u for v in current.results for u in self.groups.edit.users(v))
            return [user for user in found if user in self.group.nodes]

        return any(self.groups.role(n) is Role.CONTRACTION for n in reached([node], users))

    def _row_reads(self, node: Node, role: Role) -> bool:
        if role is Role.POINTWISE:
            return self._computed_once(node)
        return reads_linearly(node) if role is Role.VIEW else not moves_last_axis(node)

    def _evaluations(self, node: Node) -> Dim:
        """The most elements for which a user in the group asks."""
        most: Dim = 0
        for user in self.groups.edit.users(node.result):
            if user not in self.group.nodes:
                continue
            asked = self.evaluations.get(user, 0)
            asked = _size(node) if self.groups.role(user) in _READ_ONCE else asked
            if isinstance(most, int) and (not isinstance(asked, int) or asked > most):
                most = asked
        return most

    def _computed_once(self, node: Node) -> bool:
        if is_cheap(node):
            return not self._repeats_much(node)
        spare = symbolic.bounds(_size(node) - self._evaluations(node))[0]
        return spare is not None and spare >= 0

    def _repeats_much(self, node: Node) -> bool:
        """Whether what leads to `node` would be done again and again, for less than it takes to keep it in memory.

        Such as places and weights along one axis of an image, for every pixel.
        """
        size, asked, picked = _size(node), self._evaluations(node), self._picked(node)
        count = _likely(size)
        # An open number of images is most often small.
        shape = self.group.output.type.shape
        images = symbolic.names_in(shape[:1]) - symbolic.names_in(shape[1:])
        often = _likely(asked, images) >= _SEVERAL * _likely(size, images)
        if not often and picked < _SEVERAL * count:
            return False
        effort = self._effort(node)
        spared = (effort - 1) * max(_likely(asked), picked) - (effort + _KEPT) * count
        return effort > _SMALL_EFFORT and spared > self.options.most_repeated

    def _picked(self, node: Node) -> int:
        """Elements of `node` that users in the group pick: each asks for others than the next."""
        picks = (u for u in self.groups.edit.users(node.result) if u.has(Trait.PICKS))
        asked = [self.evaluations[u] for u in picks if u in self.evaluations]
        return sum(map(_likely, asked))

    def _effort(self, node: Node) -> int:
        """Operations for one element of `node`, with those of the makers that would come along."""
        total, seen, work = 0, {node}, [node]
        while work:
            current = work.pop()
            if self.groups.role(current) in (Role.POINTWISE, Role.MAP):
                total += operations(current)
            for value in current.present_operands:
                maker = value.node
                if maker is None or maker in seen or not self._comes_along(maker):
                    continue
                # What others read, too, is a kernel of its own.
                users = self.groups.edit.users(maker.result)
                if all(u in seen or u in self.group.nodes for u in users):
                    seen.add(maker)
                    work.append(maker)
        return total

    def _comes_along(self, node: Node) -> bool:
        """Whether `node` is computed, or moved, where it is read."""
        role = self.groups.role(node)
        if role is Role.POINTWISE and not is_cheap(node):
            return False
        fits = role in (Role.POINTWISE, Role.MAP, Role.VIEW) and node not in self.groups.of
        return fits and not self.groups.is_output(node.result)


def _likely(size: Dim, ones: Collection[str] = ()) -> int:
    """A number for a size, by which kernels are told apart that do much from those that do little; the sizes `ones` are taken for 1."""
    if isinstance(size, int):
        return size
    known: dict[str, Dim] = {
        s.name: 1
        if s.name in ones
        else _LIKELY_SIZE
        if s.upper is None
        else min(s.upper, _LIKELY_SIZE)
        for s in symbolic.symbols(size)
    }
    value = symbolic.substitute_if_defined(size, known)
    return value if isinstance(value, int) else _LIKELY_SIZE


def _size(node: Node) -> Dim:
    return node.results[0].type.element_count if node.results else 0
