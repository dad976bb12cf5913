from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from unittest import mock

import pytest

from fakes.command_line import tilewright as run
from fakes.language_models import speaking_form
from tilewright.base.errors import UserError
from tilewright.cli import generate


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model") / "tiny.gguf"
    place.write_bytes(speaking_form().data())
    return place


@pytest.mark.slow
def test_a_text_comes_with_what_it_took(path: Path, tmp_path: Path) -> None:
    kept = tmp_path / "prompt.safetensors"
    words = (
        "generate",
        path,
        "the end",
        "--tokens",
        4,
        "--temperature",
        0,
        "--prompt-cache",
        kept,
    )
    first = run(*words)
    assert first.code == 0, first.err
    assert first.out.startswith("the end")
    assert "tokens read" in first.err
    again = run(*words)
    assert again.out == first.out
    assert "were read before" in again.err
    kept.write_text("a file of another kind, named by mistake")
    refused = run(*words)
    assert refused.code == 1
    assert "hint: give another name, or remove the file" in refused.err
    assert kept.read_text().startswith("a file of another kind")
    asked = run("generate", path, "--chat", "hi", "--seed", 1, "--tokens", 3)
    assert asked.code == 0, asked.err
    # Nothing is said twice where that costs more than any score.
    words = ("generate", path, "the end", "--tokens", 40, "--temperature", 0)
    plain = run(*words)
    for name in ("presence", "frequency", "repetition"):
        other = run(*words, f"--{name}-penalty", 1000)
        assert other.code == 0, other.err
        assert other.out != plain.out, name


def test_what_makes_no_sense_is_an_error_before_anything_is_compiled(path: Path) -> None:
    for words, message in {
        ("generate", path): "no prompt given",
        ("generate", path, "a", "--system", "b"): "--system is for --chat",
        ("generate", path, "a", "--top-p", 2): "top-p",
        ("generate", path, "a", "--repetition-penalty", 0): "repetition_penalty is 0.0",
        ("generate", "none.gguf", "a"): "no such file",
        ("generate", path, "a", "--json", "--json-schema", "{}"): "two forms of one text",
        ("generate", path, "a", "--json-schema", "none.json"): "none.json: no such file",
        ("generate", path, "a", "--json-schema", "{"): "is no JSON: ",
        ("generate", path, "a", "--json-schema", '{"type": "a"}'): "'type' at # is 'a'",
        ("generate", path, "a", "--prompt-cache", "no/such/place"): "no such folder",
        ("generate", path, "a", "--prompt-cache", path): "is an input, which writing there",
        (
            "generate",
            "Once upon a time",
        ): "Once upon a time: no such file\nhint: tilewright generate model.gguf",
    }.items():
        found = run(*words)
        assert found.code, words
        assert message in found.err, found.err


@pytest.mark.slow
def test_what_is_made_is_json_where_that_is_asked_for(path: Path, tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"]}
    kept = tmp_path / "schema.json"
    kept.write_text(json.dumps(schema))
    for given in (kept, json.dumps(schema)):
        found = run("generate", path, "--chat", "hi", "--json-schema", given, "--seed", 1)
        assert found.code == 0, found.err
        assert json.loads(found.out)["x"] in (1, 2)
    found = run("generate", path, "the end", "--json", "--tokens", 2)
    assert found.code == 0, found.err
    assert found.out.removeprefix("the end").lstrip().startswith("{")


@pytest.mark.slow
@pytest.mark.parametrize("words", [["-"], ["--chat"]])
def test_a_prompt_that_never_ends_is_not_read_to_its_end(
    path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    class Endless(io.TextIOBase):
        def read(self, size: int | None = -1, /) -> str:
            assert size is not None
            assert 0 < size < 1 << 20
            return "a" * size

        readline = read  # pyright: ignore[reportAssignmentType]

    monkeypatch.setattr(sys, "stdin", Endless())
    found = run("generate", path, *words)
    assert found.code == 1
    assert "there is room for 63" in found.err


@pytest.mark.slow
@pytest.mark.parametrize("words", [["-", "--chat"], ["--chat"]])
def test_a_text_that_is_too_long_is_refused_and_not_cut(
    path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """Spaces around what is asked take no room, so that no model would refuse its beginning."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(" " * 100_000 + "hi\n"))
    found = run("generate", path, *words, "--tokens", 1)
    assert found.code == 1
    assert "characters" in found.err
    assert "there is room for 63 tokens" in found.err


def test_bytes_that_are_no_text_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = mock.Mock(context=4, tokenizer=mock.Mock(longest_bytes=2))
    given = io.TextIOWrapper(io.BytesIO(b"caf\xe9 a"), encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", given)
    with pytest.raises(UserError, match="standard input: is no text in utf-8: invalid"):
        list(generate._lines(model))


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_bytes_that_a_stream_lets_pass_are_refused(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As standard input does with LC_ALL=C; the model would read bytes that are in no text."""
    model = mock.Mock(context=9, tokenizer=mock.Mock(longest_bytes=2))
    given = io.TextIOWrapper(io.BytesIO(b"caf\xe9 a"), encoding, "surrogateescape")
    monkeypatch.setattr(sys, "stdin", given)
    with pytest.raises(UserError, match="standard input: the byte 0xe9 behind 3 char") as e:
        list(generate._lines(model))
    assert "iconv" in str(e.value.hint)


def test_lines_are_whole_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = mock.Mock(context=4, tokenizer=mock.Mock(longest_bytes=2))
    for last, lines in {"12345678": ["12345678"], "1234567\n": ["1234567"]}.items():
        text = "\n  \n a b\n" + last
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        assert list(generate._lines(model)) == ["a b", *lines]
    for last in ("123456789", "12345678\n", " 1234567 b\n", "12345678  b\n"):
        monkeypatch.setattr(sys, "stdin", io.StringIO("a b\n" + last))
        found = generate._lines(model)
        assert next(found) == "a b"
        with pytest.raises(UserError, match="9 characters or more, there is room for 3"):
            next(found)
