"""IREE's releases for the tests of interop: their tools, and the small modules that are checked in.

What it is: `fetch` unpacks the wheels of releases into build/envs/iree-<release> (no environment of
theirs is needed: the programs in them run alone); `fixtures` compiles the programs of
tests/conformance/interop/release_programs with the releases before 2.9 and packs them, with what each
release's own runtime gives, into tests/golden/archives/iree-2024.tar.xz.
What it is not: a test; those of `test_release_matrix.py` run what is here.
Who calls it: a developer::

    export PYTHONPATH=src:tests
    python tests/conformance/interop/record_releases.py fetch                 # all: about 7 GB
    python tests/conformance/interop/record_releases.py fetch 20240410.859
    python tests/conformance/interop/record_releases.py fixtures
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from conformance.interop.release_cases import (
    CASES,
    RELEASES,
    RUNTIMES,
    answer,
    compile_program,
    environment,
    is_here,
)
from conformance.interop.toolchain import ROOT

ARCHIVE: Final = ROOT / "tests" / "golden" / "archives" / "iree-2024.tar.xz"
PACKED_RELEASES: Final = ("20240410.859", "20240724.964", "20241104.1068")
PACKED_COLUMNS: Final = ("llvm-cpu", "llvm-cpu async", "vmvx", "vmvx microkernels")
EXECUTABLE: Final = 0o755


def fetch(release: str) -> None:
    """Unpack the wheels of one release, unless they are here."""
    if is_here(release):
        return
    prefix = "iree-" if release[:2] == "20" else "iree-base-"
    runtime = RUNTIMES.get(release, release)
    wanted = [f"{prefix}compiler=={release}", f"{prefix}runtime=={runtime}"]
    folder = environment(release)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary", ":all:", "--dest", scratch, *wanted]
        subprocess.run(command, check=True)
        draft = folder / "draft"
        for wheel in Path(scratch).glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(draft)
    for program in draft.rglob("iree-*"):
        if program.is_file():
            program.chmod(EXECUTABLE)
    draft.rename(folder / "site")


def fixtures(target: Path = ARCHIVE) -> None:
    """Pack modules of the oldest releases and the answers of their runtimes."""
    members: dict[str, bytes] = {}
    for release in PACKED_RELEASES:
        for column in PACKED_COLUMNS:
            for name in CASES:
                built = compile_program(release, name, column)
                if built.error:
                    continue
                stem = f"{release}/{column}/{name}"
                with tempfile.TemporaryDirectory() as folder:
                    given = answer(release, name, built.path, Path(folder))
                if given.error:
                    continue
                members[f"{stem}.vmfb"] = built.path.read_bytes()
                members[f"{stem}.npz"] = _pack(given.results)
    with tarfile.open(target, "w:xz", preset=9) as archive:
        for path, data in members.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    sys.stdout.write(f"{len(members) // 2} modules, {target.stat().st_size} bytes\n")


def _pack(results: Sequence[object]) -> bytes:
    file = io.BytesIO()
    np.savez(file, **{f"result{i}": np.asarray(value) for i, value in enumerate(results)})
    return file.getvalue()


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what is asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("fetch", "fixtures"))
    parser.add_argument("releases", nargs="*", help="default: all")
    options = parser.parse_args(arguments)
    if options.subject == "fixtures":
        fixtures()
        return 0
    for release in options.releases or RELEASES:
        fetch(release)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
