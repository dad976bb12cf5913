"""What is signed with a trusted key loads; what is not, or was changed, is refused before it is used."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import tilewright as tw
from fakes.small_models import mlp, save
from tilewright.api.signing import read_password
from tilewright.base.errors import ArchiveError, TilewrightError, UserError
from tilewright.formats.signature import (
    KEY_BYTES,
    RECORD_LIMIT,
    SIGNATURE_BYTES,
    SignatureRecord,
    content_digest,
    detached_path,
    split_signatures,
)
from tilewright.runtime.loaders import trusted_keys
from tilewright.runtime.loaders.trusted_keys import (
    TrustedKeys,
    public_key_pem,
    read_public_keys,
    signers,
)
from tilewright.runtime.session import Session

pytest.importorskip("cryptography", reason="the extra 'sign' is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("signing")
    for name in ("maker", "other"):
        tw.generate_key(made / f"{name}.key")
    tw.compile(str(save(mlp(), made / "mlp.onnx"))).save(made / "plain.vmfb")
    return made


@pytest.fixture
def model(folder: Path, tmp_path: Path) -> Path:
    path = tmp_path / "model.vmfb"
    path.write_bytes((folder / "plain.vmfb").read_bytes())
    return path


@pytest.fixture
def public(folder: Path) -> Path:
    return folder / "maker.key.pub"


def results(session: Session) -> np.ndarray:
    x = np.ones(cast("tuple[int, ...]", session.inputs[0].shape), np.float32)
    return session(x)  # pyright: ignore[reportReturnType]


def changed(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_a_signed_artifact_loads_and_computes_the_same(
    folder: Path, model: Path, public: Path
) -> None:
    plain = results(tw.load(model))
    before = model.read_bytes()
    name = tw.sign(model, folder / "maker.key")
    assert model.read_bytes()[: len(before)] == before
    assert model.stat().st_size == len(before) + SIGNATURE_BYTES
    assert signers(model) == (name,)
    ways: tuple[dict[str, Any], ...] = (
        {},
        {"copy": True},
        {"verify": True},
        {"engine": "vm"},
    )
    for options in ways:
        session = tw.load(model, trusted_keys=[public], **options)
        np.testing.assert_array_equal(results(session), plain)
    np.testing.assert_array_equal(results(tw.load(model)), plain)
    data = model.read_bytes()
    assert results(Session.from_bytes(data, trusted_keys=[public])).shape == plain.shape


def test_what_nobody_signed_is_refused(model: Path, public: Path) -> None:
    for call in (
        lambda: tw.load(model, trusted_keys=[public]),
        lambda: Session.from_bytes(model.read_bytes(), trusted_keys=[public]),
    ):
        with pytest.raises(ArchiveError, match="is not signed") as caught:
            call()
        assert "tilewright sign" in str(caught.value)


def test_what_others_signed_is_refused_with_both_names(
    folder: Path, model: Path, public: Path
) -> None:
    other = tw.sign(model, folder / "other.key")
    (mine,) = TrustedKeys([public]).fingerprints
    with pytest.raises(ArchiveError) as caught:
        tw.load(model, trusted_keys=[public])
    assert f"is signed by {other}, trusted are only {mine}" in str(caught.value)
    tw.load(model, trusted_keys=[public, folder / "other.key.pub"])


def test_every_changed_byte_is_noticed(folder: Path, model: Path, public: Path) -> None:
    tw.sign(model, folder / "maker.key")
    data = model.read_bytes()
    content = len(data) - SIGNATURE_BYTES
    generator = np.random.default_rng(3)
    places = [0, content - 1, *generator.integers(0, content, 13).tolist()]
    for place in places:
        model.write_bytes(data)
        changed(model, place)
        with pytest.raises(ArchiveError, match="was changed after SHA256:"):
            tw.load(model, trusted_keys=[public])
    for place in range(content + 12, len(data), 11):  # behind magic and version
        model.write_bytes(data)
        changed(model, place)
        with pytest.raises(
            ArchiveError, match=r"did not make|was changed|is signed by|version"
        ):
            tw.load(model, trusted_keys=[public])


def test_a_longer_or_shorter_file_is_noticed(
    folder: Path, model: Path, public: Path
) -> None:
    tw.sign(model, folder / "maker.key")
    data = model.read_bytes()
    for other in (
        data[:-1],
        data + b"x",
        b"x" + data,
        data[: -SIGNATURE_BYTES - 1] + data[-SIGNATURE_BYTES:],
        data[:-SIGNATURE_BYTES] + b"x" + data[-SIGNATURE_BYTES:],
    ):
        model.write_bytes(other)
        with pytest.raises(ArchiveError, match=r"is not signed|was changed"):
            tw.load(model, trusted_keys=[public])


def test_the_signature_of_another_file_does_not_fit(
    folder: Path, model: Path, public: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.vmfb"
    other.write_bytes(model.read_bytes() + b"x")
    tw.sign(other, folder / "maker.key")
    tail = other.read_bytes()[-SIGNATURE_BYTES:]
    model.write_bytes(model.read_bytes() + tail)
    with pytest.raises(ArchiveError, match="was changed after"):
        tw.load(model, trusted_keys=[public])


def test_several_people_sign_and_one_of_them_again(folder: Path, model: Path) -> None:
    size = model.stat().st_size
    first = tw.sign(model, folder / "maker.key")
    second = tw.sign(model, folder / "other.key")
    assert signers(model) == (first, second)
    assert tw.sign(model, folder / "maker.key") == first
    assert sorted(signers(model)) == sorted((first, second))
    assert model.stat().st_size == size + 2 * SIGNATURE_BYTES
    for name in ("maker", "other"):
        tw.load(model, trusted_keys=[folder / f"{name}.key.pub"])


def test_nothing_is_read_before_the_check(
    folder: Path, model: Path, public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> None:
        raise AssertionError

    tw.sign(model, folder / "maker.key")
    changed(model, 200)
    monkeypatch.setattr("tilewright.runtime.loaders.module_file.read_archive", read)
    with pytest.raises(ArchiveError, match="was changed"):
        tw.load(model, trusted_keys=[public])


def test_signatures_beside_a_file(folder: Path, model: Path, public: Path) -> None:
    before = model.read_bytes()
    tw.sign(model, folder / "maker.key", detached=True)
    assert model.read_bytes() == before
    tw.load(model, trusted_keys=[public])
    tw.sign(model, folder / "other.key", detached=True)
    assert len(signers(model)) == 2
    tw.load(model, trusted_keys=[folder / "other.key.pub"])
    changed(model, 300)
    with pytest.raises(ArchiveError, match="was changed"):
        tw.load(model, trusted_keys=[public])
    detached_path(model).write_bytes(b"no signature")
    with pytest.raises(ArchiveError, match="no file of signatures"):
        tw.load(model, trusted_keys=[public])


def test_signatures_inside_and_beside_count_alike(folder: Path, model: Path) -> None:
    names = [tw.sign(model, folder / "maker.key")]
    names += [tw.sign(model, folder / "other.key", detached=True)]
    assert list(signers(model)) == names
    for name in ("maker", "other"):
        tw.load(model, trusted_keys=[folder / f"{name}.key.pub"])
    stranger = read_public_keys(folder / "maker.key.pub")[0][::-1]
    with pytest.raises(ArchiveError) as caught:
        tw.load(model, trusted_keys=[stranger])
    assert all(name in str(caught.value) for name in names)
    changed(model, 300)
    for name in ("maker", "other"):
        with pytest.raises(ArchiveError, match="was changed"):
            tw.load(model, trusted_keys=[folder / f"{name}.key.pub"])


def test_libraries_and_weights_are_signed_too(
    folder: Path, model: Path, public: Path, tmp_path: Path
) -> None:
    tw.sign(model, folder / "maker.key")
    library = tmp_path / "library.vmfb"
    archives = Path(__file__).resolve().parents[2] / "golden" / "archives"
    library.write_bytes((archives / "iree-3.13.0-library_vmvx.vmfb").read_bytes())
    with pytest.raises(ArchiveError, match=r"library\.vmfb: is not signed"):
        tw.load(model, libraries=[library], trusted_keys=[public])
    tw.sign(library, folder / "maker.key")
    tw.load(model, libraries=[library], trusted_keys=[public])
    program = tmp_path / "parameters.vmfb"
    program.write_bytes((archives / "iree-3.13.0-parameters_cpu.vmfb").read_bytes())
    tw.sign(program, folder / "maker.key")
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(b"\2\0\0\0\0\0\0\0{}")
    with pytest.raises(ArchiveError, match=r"weights\.safetensors: is not signed"):
        tw.load(program, parameters=[f"model={weights}"], trusted_keys=[public])
    tw.sign(weights, folder / "maker.key")
    assert weights.read_bytes() == b"\2\0\0\0\0\0\0\0{}"
    assert detached_path(weights).stat().st_size == SIGNATURE_BYTES
    with pytest.raises(TilewrightError, match="model") as caught:  # it has no weights
        tw.load(program, parameters=[f"model={weights}"], trusted_keys=[public])
    assert "sign" not in str(caught.value)


def test_public_keys_come_from_files_texts_and_bytes(public: Path, folder: Path) -> None:
    (raw,) = read_public_keys(public)
    assert read_public_keys(raw) == (raw,)
    assert read_public_keys(public.read_bytes()) == (raw,)
    assert public_key_pem(raw) == public.read_bytes()
    both = public.read_bytes() + (folder / "other.key.pub").read_bytes()
    assert len(read_public_keys(both)) == 2
    assert TrustedKeys(str(public)).fingerprints == TrustedKeys([raw, raw]).fingerprints


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (b"short", "0 public keys"),
        (
            b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----",
            "another algorithm",
        ),
        (b"-----BEGIN PUBLIC KEY-----\nAAA\n-----END PUBLIC KEY-----", "damaged"),
        ("nowhere.pub", "cannot read the key"),
    ],
)
def test_what_is_no_public_key_is_refused(key: str | bytes, text: str) -> None:
    with pytest.raises(UserError, match=text):
        TrustedKeys([key])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs")
def test_a_pipe_instead_of_a_key_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path(os.devnull)):
        with pytest.raises(UserError, match="cannot read the key: is a device or a pipe"):
            TrustedKeys([path])
        with pytest.raises(
            ArchiveError, match="cannot read the file: is a device or a pipe"
        ):
            TrustedKeys([bytes(32)]).check_file(path)


def test_private_keys_are_not_taken_for_public_ones(folder: Path) -> None:
    with pytest.raises(UserError, match="is a 'PRIVATE KEY', expected a 'PUBLIC KEY'"):
        TrustedKeys([folder / "maker.key"])
    with pytest.raises(UserError, match="no trusted keys"):
        TrustedKeys([])


def test_private_keys_are_for_their_owner_and_never_written_over(tmp_path: Path) -> None:
    tw.generate_key(tmp_path / "key")
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    before = (tmp_path / "key").read_bytes()
    with pytest.raises(UserError, match="there already"):
        tw.generate_key(tmp_path / "key")
    assert (tmp_path / "key").read_bytes() == before


def test_a_signature_beside_is_found_through_a_link(
    folder: Path, model: Path, public: Path, tmp_path: Path
) -> None:
    tw.sign(model, folder / "maker.key", detached=True)
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "model.vmfb"
    link.symlink_to(model)
    session = tw.load(link, trusted_keys=[public])
    np.testing.assert_array_equal(results(session), results(tw.load(model)))
    detached_path(link).write_bytes(b"")  # what lies beside the link comes first
    with pytest.raises(ArchiveError, match="is no file of signatures"):
        tw.load(link, trusted_keys=[public])


def test_a_key_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "key.pub").write_bytes(b"of somebody else")
    with pytest.raises(UserError, match=r"key\.pub: is there already"):
        tw.generate_key(tmp_path / "key")
    assert not (tmp_path / "key").exists()
    assert (tmp_path / "key.pub").read_bytes() == b"of somebody else"


def test_an_empty_password_is_no_password(tmp_path: Path) -> None:
    for text in ("", "\n", "\nsecret\n"):
        (tmp_path / "password").write_text(text)
        with pytest.raises(UserError, match=r"password: .*is empty"):
            read_password(tmp_path / "password")
    with pytest.raises(UserError, match="the password is empty"):
        tw.generate_key(tmp_path / "key", password="")
    assert not (tmp_path / "key").exists()


@pytest.mark.parametrize("detached", [False, True])
def test_more_signatures_than_a_file_can_have_are_refused(
    folder: Path, model: Path, detached: bool
) -> None:
    content = model.read_bytes()
    records = [
        SignatureRecord(
            size_bytes=len(content),
            digest=content_digest(content),
            public_key=bytes([index]) * KEY_BYTES,
        ).to_bytes()
        for index in range(RECORD_LIMIT)
    ]
    place = detached_path(model) if detached else model
    place.write_bytes(b"".join([b"" if detached else content, *records]))
    before = place.read_bytes()
    with pytest.raises(UserError, match="has 64 signatures, more are not read"):
        tw.sign(model, folder / "maker.key", detached=detached)
    assert place.read_bytes() == before


def test_encrypted_keys_need_their_password(model: Path, tmp_path: Path) -> None:
    tw.generate_key(tmp_path / "key", password="secret")
    with pytest.raises(UserError, match="no password was given"):
        tw.sign(model, tmp_path / "key")
    with pytest.raises(UserError, match="the password is wrong"):
        tw.sign(model, tmp_path / "key", password="other")
    tw.sign(model, tmp_path / "key", password="secret")
    tw.load(model, trusted_keys=[tmp_path / "key.pub"])


def test_what_cannot_be_signed_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read the file"):
        tw.sign(tmp_path / "nowhere.vmfb", folder / "maker.key")
    with pytest.raises(UserError, match="cannot read the key"):
        tw.sign(folder / "plain.vmfb", tmp_path / "nowhere.key")
    with pytest.raises(UserError, match="no private key"):
        tw.sign(folder / "plain.vmfb", folder / "maker.key.pub")
    # What never ends is not read to its end.
    with pytest.raises(UserError, match="no private key"):
        tw.sign(folder / "plain.vmfb", "/dev/zero")
    assert len(read_password("/dev/zero") or "") < 1 << 20


def test_openssl_keys_fit(tmp_path: Path, model: Path) -> None:
    key = tmp_path / "key"
    command = ["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(key)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no openssl that knows Ed25519")
    public = ["openssl", "pkey", "-in", str(key), "-pubout", "-out", f"{key}.pub"]
    subprocess.run(public, check=True, capture_output=True)
    tw.sign(model, key)
    tw.load(model, trusted_keys=[f"{key}.pub"])


def test_without_the_package_the_remedy_is_said(
    folder: Path, model: Path, public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tw.sign(model, folder / "maker.key")
    for name in [n for n in sys.modules if n.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    for call in (
        lambda: tw.load(model, trusted_keys=[public]),
        lambda: tw.sign(model, folder / "maker.key"),
    ):
        with pytest.raises(UserError, match="need the package 'cryptography'") as caught:
            call()
        assert trusted_keys.INSTALL in str(caught.value)


def test_signatures_do_not_hide_damage_from_the_checksum(folder: Path, model: Path) -> None:
    tw.sign(model, folder / "maker.key")
    content, _ = split_signatures(model.read_bytes())
    changed(model, len(content) - 200)
    with pytest.raises(ArchiveError):
        tw.load(model, verify=True)
