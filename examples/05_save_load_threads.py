"""Save an artifact, load it without the compiler, call it from several threads.

    python examples/05_save_load_threads.py

The file holds code, weights and the plan.  Loading maps it: the weights stay where they are and
processes on one machine share them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import tilewright as tw
from small_models import encoder_layer

IN_ANOTHER_PROCESS = """
import sys, numpy as np, tilewright as tw
session = tw.load(sys.argv[1])
print("  in a new process:", session(np.ones((2, 3, 64), np.float32)).shape)
heavy = [name for name in ("llvmlite", "onnx") if name in sys.modules]
print("  compiler packages loaded:", heavy or "none")
"""


def main() -> None:
    """Compile, save, load, and use the session in four ways."""
    model = tw.compile(encoder_layer())
    x = np.random.default_rng(2).standard_normal((4, 32, 64), np.float32)
    expected = model(x)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "layer.vmfb")
        print(f"saved {model.save(path)} bytes")

        start = time.perf_counter()
        session = tw.load(path)
        print(f"loaded in {1e3 * (time.perf_counter() - start):.1f} ms")
        print(f"  equal to the model: {np.array_equal(session(x), expected)}")

        # How many threads a call may use; the results do not depend on it.
        single = tw.load(path, threads=1)
        print(f"  equal with one thread: {np.array_equal(single(x), expected)}")

        # A session may be called from any thread: calls are independent.
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(session, [x] * 16))
        same = all(np.array_equal(result, expected) for result in results)
        print(f"  16 calls from 4 threads are equal: {same}")

        # The same file through the virtual machine, as IREE's runtime runs it.
        virtual = tw.load(path, engine="vm")
        print(f"  equal on the virtual machine: {np.array_equal(virtual(x), expected)}")

        sys.stdout.flush()
        command = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(path)]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
