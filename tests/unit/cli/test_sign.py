"""`keygen`, `sign` and `--trusted-key`."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.command_line import tilewright

pytest.importorskip("cryptography", reason="the extra 'sign' is not installed")


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "maker.key"
    made = tilewright("keygen", path)
    assert made.code == 0, made.err
    assert "SHA256:" in made.out
    return path


@pytest.fixture
def model(mlp_vmfb: Path, tmp_path: Path) -> Path:
    path = tmp_path / "model.vmfb"
    path.write_bytes(mlp_vmfb.read_bytes())
    return path


def test_a_signed_model_runs_and_another_does_not(model: Path, key: Path) -> None:
    wanted = ["run", model, "--random", f"--trusted-key={key}.pub"]
    refused = tilewright(*wanted)
    assert refused.code == 1
    assert "is not signed" in refused.err
    signed = tilewright("sign", model, f"--key={key}")
    assert signed.code == 0, signed.err
    assert "signed by SHA256:" in signed.out
    assert tilewright(*wanted).code == 0, tilewright(*wanted).err


def test_inspect_says_who_signed_and_checks_it(
    model: Path, key: Path, tmp_path: Path
) -> None:
    assert tilewright("inspect", model).row("signed by") == "nobody"
    name = tilewright("sign", model, f"--key={key}").out.split()[-1]
    assert tilewright("inspect", model).row("signed by") == name
    assert tilewright("inspect", model, f"--trusted-key={key}.pub").code == 0
    tilewright("keygen", tmp_path / "other.key")
    other = tilewright("inspect", model, f"--trusted-key={tmp_path / 'other.key.pub'}")
    assert other.code == 1
    assert "trusted are only" in other.err


def test_several_files_are_signed_at_once_and_beside(
    model: Path, key: Path, tmp_path: Path
) -> None:
    weights = tmp_path / "weights.irpa"
    weights.write_bytes(b"weights")
    assert tilewright("sign", model, weights, f"--key={key}", "--detached").code == 0
    assert Path(f"{model}.sig").exists()
    assert Path(f"{weights}.sig").exists()


def test_passwords_come_from_a_file(model: Path, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n", encoding="utf-8")
    with_password = f"--password-file={tmp_path / 'password'}"
    assert tilewright("keygen", tmp_path / "key", with_password).code == 0
    refused = tilewright("sign", model, f"--key={tmp_path / 'key'}")
    assert refused.code == 1
    assert "no password was given" in refused.err
    assert tilewright("sign", model, f"--key={tmp_path / 'key'}", with_password).code == 0


def test_models_and_plugins_are_checked_or_refused(
    mlp_onnx: Path, model: Path, key: Path, tmp_path: Path
) -> None:
    trusted = f"--trusted-key={key}.pub"
    refused = tilewright("run", mlp_onnx, "--random", trusted)
    assert refused.code == 1
    assert "only artifacts are checked" in refused.err
    plugin = tmp_path / "plugin.so"
    plugin.write_bytes(b"\x7fELF")
    tilewright("sign", model, f"--key={key}")
    refused = tilewright("run", model, "--random", trusted, f"--executable-plugin={plugin}")
    assert refused.code == 1
    assert "plugin.so: is not signed" in refused.err
