"""Texts that are followed side by side, beside onnxruntime's CPU kernel."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import tilewright as tw
from fakes.decoders import (
    WORDS,
    decoder,
    encoder_and_decoder,
    generating,
    with_first_token,
)
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate

RESULTS = ("sequences", "sequences_scores")


def whole(*numbers: object) -> np.ndarray:
    return np.array(numbers, np.int32)


def operands(
    beams: int,
    texts: int,
    *,
    penalty: float = 1.0,
    prompt: object = ((3, 4, 5), (7, 2, 9)),
    most: int = 9,
    repetition: float = 1.0,
) -> list[np.ndarray | None]:
    return [
        np.array(prompt, np.int32), whole(most), whole(0), whole(beams), whole(texts),
        np.array([penalty], np.float32), np.array([repetition], np.float32),
    ]  # fmt: skip


def with_inputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """All operands are inputs, as the exporter of onnxruntime writes them."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    held = list(other.graph.initializer)
    del other.graph.initializer[:]
    info = onnx.helper.make_tensor_value_info
    other.graph.input.extend(info(t.name, t.data_type, t.dims) for t in held)
    return other


def theirs(model: onnx.ModelProto, prompt: np.ndarray) -> list[np.ndarray]:
    runtime = pytest.importorskip("onnxruntime")
    # It takes its operands for those of the caller, not for parts of the model.
    given = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    data = with_inputs(model).SerializeToString()
    session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x0": prompt, **given})


def agree(
    given: list[np.ndarray | None], seed: int, ending: float, **options: object
) -> list[np.ndarray]:
    """What both find, which is the same."""
    options = {
        "decoder": decoder(seed, ending),
        "eos_token_id": 1,
        "pad_token_id": 0,
        **options,
    }
    model = generating("BeamSearch", given, results=RESULTS, **options)
    prompt = given[0]
    assert prompt is not None
    found, expected = evaluate(load(model), [prompt]), theirs(model, prompt)
    assert found[0].tolist() == expected[0].tolist()
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-4, atol=1e-5)
    return found


@pytest.mark.thinned(7)
@pytest.mark.parametrize(("beams", "texts"), [(1, 1), (2, 1), (3, 2), (4, 4)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_best_texts_of_all_beams_are_found(seed: int, beams: int, texts: int) -> None:
    penalty = (1.0, 2.0, 0.5)[seed]
    for ending, early in ((0.0, 0), (2.0, 1)):
        given = operands(beams, texts, penalty=penalty)
        agree(given, seed, ending, early_stopping=early)


@pytest.mark.slow
def test_what_scores_are_changed_by_is_that_of_other_searches() -> None:
    allowed = np.ones(WORDS, np.int32)
    allowed[[4, 9]] = 0
    first = np.ones((2, WORDS), np.int32)
    first[0, :5] = 0
    found, _ = agree([*operands(3, 3), allowed, first], 0, 1.0, no_repeat_ngram_size=2)
    assert not np.isin(found[..., 3:], [4, 9]).any()
    agree(operands(3, 2, repetition=1.5), 1, 1.0)


def test_padding_in_front_is_not_read() -> None:
    agree(operands(3, 2, prompt=[[0, 0, 4], [7, 2, 9]]), 3, 0.5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*runs one element after the other")
def test_a_compiled_search_takes_prompts_of_any_size() -> None:
    options = {"decoder": decoder(2, 1.0), "eos_token_id": 1, "pad_token_id": 0}
    model = generating(
        "BeamSearch", operands(3, 2), sizes=("b", "s"), results=RESULTS, **options
    )
    compiled = tw.compile(model)
    for prompt in (whole([3]), whole([3, 4, 5, 6], [7, 2, 9, 9], [2, 2, 3, 5])):
        found = [*compiled.run({"x0": prompt}).values()]
        expected = theirs(model, prompt)
        assert found[0].tolist() == expected[0].tolist()
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_columns_behind_the_vocabulary_are_never_chosen() -> None:
    """As where the decoder had no such columns."""
    options = {"eos_token_id": 1, "pad_token_id": 0}
    given = operands(3, 2, prompt=[[3, 4, 5], [6, 2, 4]])
    prompt = given[0]
    assert prompt is not None
    model = generating(
        "BeamSearch",
        given,
        results=RESULTS,
        vocab_size=7,
        decoder=decoder(0, 1.0),
        **options,
    )
    found = evaluate(load(model), [prompt])
    expected = agree(given, 0, 1.0, decoder=decoder(0, 1.0, words=7))
    assert found[0].tolist() == expected[0].tolist()
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-5)


def test_beams_that_are_inputs_are_fixed_by_numbers() -> None:
    options = {"decoder": decoder(0, 1.0), "eos_token_id": 1, "pad_token_id": 0}
    given = operands(3, 2)
    model = generating("BeamSearch", given, results=RESULTS, **options)
    exported = with_inputs(model)
    # Operands 4 and 5: num_beams and num_return_sequences.
    with pytest.raises(ModelError, match="num_beams depends on data"):
        load(exported)
    with pytest.raises(ModelError, match="num_return_sequences depends on data"):
        load(exported, input_values={"x3": np.array(3)})
    for three, two in ((np.array(3), np.array(2)), (whole(3), whole(2))):
        graph = load(exported, input_values={"x3": three, "x4": two})
        left = [
            array for i, array in enumerate(given) if array is not None and i not in (3, 4)
        ]
        found = evaluate(graph, left)
        assert found[0].tolist() == theirs(model, left[0])[0].tolist()


def test_more_texts_than_beams_are_an_error() -> None:
    options = {"decoder": decoder(), "eos_token_id": 1, "pad_token_id": 0}
    with pytest.raises(ModelError, match="3 texts of 2 beams"):
        load(generating("BeamSearch", operands(2, 3), results=RESULTS, **options))


def of_t5(
    form: str, given: list[np.ndarray | None], seed: int, ending: float, **options: object
) -> onnx.ModelProto:
    """A search with an encoder and a decoder, in one of the forms that onnxruntime's exporter has written."""
    encoder, reader = encoder_and_decoder(seed, ending)
    if form != "read alone":
        encoder, reader = with_first_token(
            encoder, reader, asks=form == "found is asked for"
        )
    named = {
        "eos_token_id": 1,
        "pad_token_id": 0,
        "decoder_start_token_id": 2,
        "model_type": 1,
    }
    return generating(
        "BeamSearch", given, results=RESULTS, encoder=encoder, decoder=reader, **named, **options
    )  # fmt: skip


FORMS = ("read alone", "first token beside", "found is asked for")


@pytest.mark.sampled(4)
@pytest.mark.thinned(11)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("ending", "run"), [(0.0, 0), (2.0, 2)])
@pytest.mark.parametrize(
    ("beams", "texts", "seed"), [(1, 1, 0), (3, 2, 1), (4, 3, 2), (2, 2, 3)]
)
def test_a_text_is_written_beside_one_that_was_read(
    beams: int, texts: int, seed: int, ending: float, run: int, form: str
) -> None:
    """Padding in front is not read, what stands behind is; each text as if it were alone (`beam_search` says why)."""
    prompt = np.array([[0, 4, 5, 0], [7, 2, 9, 3]], np.int32)
    given = operands(beams, texts, penalty=(1.0, 2.0, 0.5, 1.0)[seed], prompt=prompt)
    model = of_t5(form, given, seed, ending, no_repeat_ngram_size=run)
    found = evaluate(load(model), [prompt])
    assert (found[0][..., 0] == 2).all()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    for row in (0, 1):
        expected = theirs(model, prompt[row : row + 1])
        assert found[0][row].tolist() == expected[0][0].tolist()
        np.testing.assert_allclose(found[1][row], expected[1][0], rtol=1e-4, atol=1e-5)


def test_the_caller_says_which_tokens_of_a_text_are_read() -> None:
    mask = whole([1, 1, 0], [1, 0, 1])
    given = [*operands(2, 1, most=6), None, None, mask]
    model = of_t5("read alone", given, 0, 1.0)
    found, expected = evaluate(load(model), given[:1]), theirs(model, given[0])
    assert found[0].tolist() == expected[0].tolist()
    unmasked = evaluate(load(of_t5("read alone", given[:7], 0, 1.0)), given[:1])
    assert abs(found[1] - unmasked[1]).max() > 1e-3


@pytest.mark.parametrize("part", ["encoder", "decoder", "length"])
def test_subgraphs_that_are_not_those_of_t5_are_refused(part: str) -> None:
    encoder, reader = encoder_and_decoder()
    graph = encoder if part == "encoder" else reader
    if part == "length":
        graph.input[0].type.tensor_type.shape.dim[1].dim_param = "s"
    else:
        graph.input[1].name = "mask"
    options = {"eos_token_id": 1, "pad_token_id": 0, "decoder_start_token_id": 2}
    model = generating(
        "BeamSearch", operands(2, 1), results=RESULTS, model_type=1,
        encoder=encoder, decoder=reader, **options,
    )  # fmt: skip
    message = "reads all of its text" if part == "length" else "other operands or results"
    with pytest.raises(ModelError, match=message):
        load(model)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*runs one element after the other")
def test_a_compiled_search_reads_texts_of_any_size() -> None:
    options = {"eos_token_id": 1, "pad_token_id": 0, "decoder_start_token_id": 2}
    encoder, reader = encoder_and_decoder(2, 1.0)
    model = generating(
        "BeamSearch", operands(3, 2), sizes=("b", "s"), results=RESULTS, model_type=1,
        encoder=encoder, decoder=reader, **options,
    )  # fmt: skip
    compiled = tw.compile(model)
    for prompt in (whole([3]), whole([3, 4, 5, 6], [7, 2, 9, 9], [2, 2, 3, 5])):
        found = [*compiled.run({"x0": prompt}).values()]
        expected = theirs(model, prompt)
        assert found[0].tolist() == expected[0].tolist()
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-4, atol=1e-5)
