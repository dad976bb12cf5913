from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes.language_models import Form
from tilewright.base.errors import ArchiveError, ModelError, UserError
from tilewright.compiler.frontends import gguf
from tilewright.compiler.frontends.door import front_end_of
from tilewright.formats.gguf import read_gguf


def test_the_door_knows_files_by_suffix_and_by_how_they_begin(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(Form(layers=1).data())
    assert front_end_of(path).name == front_end_of("x.gguf").name == "GGUF"
    assert front_end_of(path.read_bytes()).name == "GGUF"


def test_a_graph_says_which_files_it_was_read_from(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(Form(layers=1).data())
    found = gguf.load(path)
    assert found.files == (path,)
    assert [value.name for value in found.graph.inputs] == [
        "tokens",
        "position",
        "span",
        "key_0",
        "value_0",
    ]
    assert found.graph.output_names == ["logits", "new_key_0", "new_value_0"]


def test_coverage_has_a_row_per_part_of_a_layer() -> None:
    report = tw.coverage(Form(kinds={"weight": "Q4_1"}).data(), quick=True)
    assert report.supported
    rows = {row.op_type: row.count for row in report.rows}
    assert rows["Linear(Q4_1)"] == 9
    assert rows["Attention"] == 2


@pytest.mark.slow
def test_every_part_of_a_model_runs_in_lanes() -> None:
    report = tw.coverage(Form(kinds={"weight": "Q4_1"}).data())
    assert report.supported
    assert not [row for row in report.rows if row.status.value in ("fallback", "slow")]


def test_coverage_of_what_is_not_supported_says_what() -> None:
    report = tw.coverage(Form(metadata={"general.architecture": "rwkv7"}).data())
    assert [p.reason for p in report.problems] == ["architecture 'rwkv7' is not supported"]


def test_files_that_are_none_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such file"):
        gguf.load(tmp_path / "none.gguf")
    empty = tmp_path / "empty.gguf"
    empty.touch()
    with pytest.raises(ArchiveError, match="is empty"):
        gguf.load(empty)
    with pytest.raises(ModelError, match="is a folder"):
        gguf.load(tmp_path)


def test_shapes_of_inputs_that_there_are_not_are_errors() -> None:
    data = Form(layers=1).data()
    with pytest.raises(UserError, match="names 'token'"):
        gguf.load(data, {"token": (1, 1)})
    with pytest.raises(UserError, match="'tokens' as 0"):
        gguf.load(data, {"tokens": (1, 0)})
    with pytest.raises(UserError, match="input_values is for ONNX models"):
        tw.compile(data, input_values={"tokens": [[1]]})


def test_truncated_files_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "half.gguf"
    data = Form(layers=1).data()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(ArchiveError, match="needs"):
        gguf.load(path)


def test_layers_for_tokens_after_the_next_one_are_not_read() -> None:
    form = Form(
        layers=2, metadata={"llama.nextn_predict_layers": 1, "llama.block_count": 3},
        more={"blk.2.nextn.eh_proj.weight": np.zeros((64, 128)), "blk.2.attn_q.weight": np.zeros((64, 64))},
    )  # fmt: skip
    found = gguf.load(form.data()).graph
    assert [value.name for value in found.inputs[3:]] == [
        "key_0",
        "value_0",
        "key_1",
        "value_1",
    ]


def test_errors_of_any_part_name_the_file() -> None:
    form = Form(experts=4, metadata={"llama.expert_count": 0})
    with pytest.raises(ModelError, match="metadata no experts") as raised:
        gguf.load(form.data())
    assert raised.value.location == "<bytes>"


@pytest.mark.parametrize(
    "name", ["blk.0.attn_gate.weight", "blk.1.attn_norm.bias", "blk.2.attn_q.weight"]
)
def test_a_tensor_without_a_part_is_an_error(name: str) -> None:
    data = Form(more={name: np.zeros(64, np.float32)}).data()
    with pytest.raises(
        ModelError, match=f"tensor '{name}' has no part in the architecture"
    ):
        gguf.load(data)


@pytest.mark.parametrize(
    "names",
    [
        ("rotary_pos_emb.inv_freq",),
        ("rope_freqs.bias",),
        ("rope_freqs.weight", "rope_factors_long.weight"),
    ],
)
def test_divisors_of_frequencies_that_are_not_read_are_an_error(
    names: tuple[str, ...],
) -> None:
    data = Form(more={name: np.ones(8, np.float32) for name in names}).data()
    with pytest.raises(ModelError, match=f"tensor '{names[-1]}' has no part"):
        gguf.load(data)


@pytest.mark.parametrize("kind", ["short", "long"])
def test_divisors_of_one_room_alone_are_an_error(kind: str) -> None:
    data = Form(more={f"rope_factors_{kind}.weight": np.ones(8, np.float32)}).data()
    with pytest.raises(ModelError, match=r"'rope_factors_\w+.weight' is missing"):
        gguf.load(data)


def test_longrope_without_divisors_is_an_error() -> None:
    data = Form(metadata={"llama.rope.scaling.type": "longrope"}).data()
    with pytest.raises(ModelError, match=r"'rope_factors_short\.weight' is missing"):
        gguf.load(data)


@pytest.mark.parametrize("kind", ["Q4_1", "Q5_1", "Q8_0", "F16"])
def test_weights_that_are_no_numbers_are_read_in_silence(kind: str) -> None:
    data = bytearray(Form(kinds={"weight": kind}).data())
    for tensor in read_gguf(bytes(data)).tensors.values():
        data[tensor.offset : tensor.offset + tensor.size_bytes] = (
            b"\xff" * tensor.size_bytes
        )
    assert gguf.load(bytes(data)).graph.nodes
