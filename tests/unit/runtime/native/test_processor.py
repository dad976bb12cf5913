"""What the C core says of the processor is what Python observes."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.base.host import describe

NATIVE = Path(__file__).resolve().parents[4] / "native"


@pytest.mark.skipif(sys.platform != "linux", reason="Python knows all features only there")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the lists differ elsewhere")
def test_the_core_has_the_features_that_python_observes(
    compiler: list[str], tmp_path: Path
) -> None:
    library = tmp_path / "processor.so"
    source = NATIVE / "src" / "processor.c"
    words = ["-shared", "-fPIC", "-pthread", f"-I{NATIVE / 'include'}", str(source)]
    subprocess.run([*compiler, *words, "-o", str(library)], check=True, timeout=120)
    function = ctypes.CDLL(str(library)).tw_processor_has
    observed = sorted(describe().features)
    assert observed
    missing = ctypes.c_char_p()
    for name in observed:
        names = (ctypes.c_char_p * 2)(name.encode(), None)
        assert function(names, ctypes.byref(missing)) == 1, name
    names = (ctypes.c_char_p * 3)(observed[0].encode(), b"flux-capacitor", None)
    assert function(names, ctypes.byref(missing)) == 0
    assert missing.value == b"flux-capacitor"
