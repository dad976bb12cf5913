"""Packed sequences of torch through its exporter, against eager mode: recurrent layers, open sizes, lengths that are wrong."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw
from fakes.torch_programs import same

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),  # torch's own about its internals
]
nn = torch.nn
KINDS: list[tuple[str, dict[str, Any], int | None]] = [
    ("LSTM", {"num_layers": 2, "bidirectional": True, "batch_first": True}, None),
    ("LSTM", {"proj_size": 3}, 6),
    ("GRU", {"bidirectional": True, "batch_first": True}, 9),
    ("RNN", {"nonlinearity": "relu", "bias": False}, None),
]


class Packed(nn.Module):
    """A recurrent layer over sequences of several lengths, with work on the rows between packing and padding."""

    def __init__(
        self, kind: str, options: dict[str, Any], is_sorted: bool, total: int | None
    ) -> None:
        super().__init__()
        self.layer = getattr(nn, kind)(7, 5, **options)
        self.is_sorted, self.total = is_sorted, total
        self.first = options.get("batch_first", False)

    def forward(self, x: Any, lengths: Any) -> Any:
        rnn = nn.utils.rnn
        options = {"batch_first": self.first, "enforce_sorted": self.is_sorted}
        rows, states = self.layer(rnn.pack_padded_sequence(x, lengths, **options))
        order = rows.sorted_indices, rows.unsorted_indices
        doubled = rnn.PackedSequence(rows.data * 2, rows.batch_sizes, *order)
        padded, counted = rnn.pad_packed_sequence(
            doubled, self.first, padding_value=-1.0, total_length=self.total
        )
        return padded, counted, states, rows.data


def calls_of(module: Packed, *lengths: list[int], steps: int = 6) -> list[tuple[Any, Any]]:
    shapes = [(len(n), steps) if module.first else (steps, len(n)) for n in lengths]
    return [
        (torch.randn(*shape, 7), torch.tensor(n))
        for shape, n in zip(shapes, lengths, strict=True)
    ]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("kind", "options", "total"), KINDS)
def test_layers_run_over_sequences_of_several_lengths(
    kind: str, options: dict[str, Any], total: int | None
) -> None:
    torch.manual_seed(0)
    module = Packed(kind, options, False, total).eval()
    same(module, calls_of(module, [6, 2, 4], [1, 5, 5], [2, 1, 2]))


def test_sequences_that_are_sorted_already_stay_in_their_order() -> None:
    torch.manual_seed(0)
    module = Packed("GRU", {}, True, None).eval()
    same(module, calls_of(module, [6, 4, 2], [5, 5, 1], [1, 1, 1]))


@pytest.mark.slow
def test_lengths_that_torch_refuses_fail_the_call() -> None:
    torch.manual_seed(0)
    module = Packed("GRU", {}, True, None).eval()
    given, *wrong = calls_of(module, [6, 4, 2], [2, 4, 1], [7, 2, 1], [3, 2, 0])
    model = tw.compile(module, args=given)
    for call in wrong:
        with pytest.raises(RuntimeError):
            module(*call)
        with pytest.raises(tw.InputError):
            model(*call)


class Stateful(nn.Module):
    """A layer whose first states are inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(3, 2, batch_first=True)

    def forward(self, x: Any, lengths: Any, h: Any, c: Any) -> Any:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        rows, states = self.layer(packed, (h, c))
        return rows.data, states


@pytest.mark.parametrize(
    ("of_h", "of_c"),
    [
        ((1, 1, 2), (1, 1, 2)),
        ((1, 3, 2), (1, 3, 2)),
        ((2, 2, 2), (2, 2, 2)),
        ((1, 2, 2), (1, 2, 1)),
        ((1, 2, 1), (1, 2, 2)),
    ],
)
def test_states_of_another_shape_are_refused(
    of_h: tuple[int, ...], of_c: tuple[int, ...]
) -> None:
    args = torch.randn(2, 3, 3), torch.tensor([3, 2]), torch.randn(of_h), torch.randn(of_c)
    module = Stateful().eval()
    with pytest.raises(RuntimeError):
        module(*args)
    with pytest.raises(tw.TilewrightError):
        tw.compile(module, args=args)(*args)


def test_calls_that_give_too_few_states_fail() -> None:
    torch.manual_seed(0)
    batch = torch.export.Dim("batch", min=2, max=9)
    given = [
        (torch.randn(n, 4, 3), torch.tensor([4, 3, 1][:n]), torch.randn(1, n, 2), torch.randn(1, n, 2))
        for n in (3, 2)
    ]  # fmt: skip
    sizes = {0: batch}, {0: batch}, {1: torch.export.Dim.AUTO}, {1: torch.export.Dim.AUTO}
    module = Stateful().eval()
    same(module, given, sizes)
    model = tw.compile(module, args=given[0], dynamic_shapes=sizes)
    wrong = (*given[0][:2], *given[1][2:])
    with pytest.raises(RuntimeError):
        module(*wrong)
    with pytest.raises(tw.InputError):
        model(*wrong)


def test_states_fit_sequences_that_were_packed_elsewhere() -> None:
    """How many sequences there are is read from the sizes of batches."""
    torch.manual_seed(0)
    layer = nn.GRU(3, 2).eval()

    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, rows: Any, sizes: Any, h: Any) -> Any:
            found, state = self.layer(nn.utils.rnn.PackedSequence(rows, sizes), h)
            return found.data, state

    args = torch.randn(5, 3), torch.tensor([3, 2]), torch.randn(1, 3, 2)
    same(Rows().eval(), [args])
    wrong = args[0], torch.tensor([4, 1]), args[2]
    model = tw.compile(Rows().eval(), args=args)
    with pytest.raises(RuntimeError):
        Rows().eval()(*wrong)
    with pytest.raises(tw.InputError):
        model(*wrong)


class Classifier(nn.Module):
    """As taggers of texts do it: padded again to the length of the texts."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(7, 5, bidirectional=True, batch_first=True)
        self.head = nn.Linear(10, 2)

    def forward(self, x: Any, lengths: Any) -> Any:
        rnn = nn.utils.rnn
        packed = rnn.pack_padded_sequence(x, lengths, True, enforce_sorted=False)
        rows, (h, _) = self.layer(packed)
        steps = x.shape[1]
        padded, _ = rnn.pad_packed_sequence(rows, True, total_length=steps)
        return self.head(padded), torch.cat([h[0], h[1]], 1)


def test_calls_decide_how_many_sequences_there_are_and_how_long() -> None:
    torch.manual_seed(0)
    batch = torch.export.Dim("batch", min=2, max=9)
    steps = torch.export.Dim("steps", min=2, max=50)
    calls = [
        (torch.randn(len(n), size, 7), torch.tensor(n))
        for size, n in ((6, [6, 2, 4]), (9, [6, 2, 4, 9, 1]), (40, [1, 3]))
    ]
    same(Classifier().eval(), calls, ({0: batch, 1: steps}, {0: batch}))


def test_a_list_of_sequences_is_packed_and_taken_apart() -> None:
    def several(a: Any, b: Any, c: Any) -> Any:
        packed = nn.utils.rnn.pack_sequence([a, b, c], enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(packed)[0] * 2, packed.data

    same(several, [(torch.randn(2, 3), torch.randn(4, 3), torch.randn(1, 3))])
