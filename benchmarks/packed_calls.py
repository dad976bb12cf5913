"""A call of an exported library through tvm-ffi, beside an empty packed function with the same arguments.

Both are called with numpy arrays, in turns; what a call of the model takes from C is printed, too (bar: 1.2 times
the empty function, and the call from C)::

    TILEWRIGHT_THREADS=1 python benchmarks/packed_calls.py
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import timeit
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import tvm_ffi

import tilewright as tw

ROUNDS = 200
CALLS = 2_000  # a round is about a millisecond: whatever else runs on the machine spoils some rounds, not all
EMPTY = """
#include <stdint.h>
__attribute__((visibility("default"))) int __tvm_ffi_main(void* self, const void* args, int32_t count, void* result) {
  (void)self; (void)args; (void)count; (void)result;
  return 0;
}
"""
LOOP = """
#include <stdio.h>
#include <time.h>
#include "net.h"
int main(void) {
  net_options options = {.threads = 1};
  net* model = NULL;
  _Alignas(64) static float x[8], y[8];
  const void* inputs[] = {x};
  void* outputs[] = {y};
  double least = 1e9;
  if (net_create(&options, &model) != NET_OK) return 1;
  for (int round = 0; round < 200; ++round) {
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int i = 0; i < 20000; ++i) net_run(model, inputs, outputs);
    clock_gettime(CLOCK_MONOTONIC, &b);
    const double ns = ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / 20000;
    if (ns < least) least = ns;
  }
  printf("%.1f", least);
  return 0;
}
"""
MODEL = '<ir_version: 10, opset_import: ["" : 21]> net (float[8] x) => (float[8] y) { y = Add (x, x) }'


def build(folder: Path) -> None:
    """The model, the empty function and the loop in C."""
    model = tw.compile(onnx.parser.parse_model(MODEL), threads=1)
    model.build().export_library(folder / "libnet.so", name="net", header=folder / "net.h")
    (folder / "empty.c").write_text(EMPTY)
    (folder / "loop.c").write_text(LOOP)
    link = ["-L.", "-lnet", "-Wl,-rpath,$ORIGIN"]
    for words in (
        ["-shared", "-fPIC", "empty.c", "-o", "empty.so"],
        ["-std=gnu11", "loop.c", *link, "-o", "loop"],
    ):
        subprocess.run(["cc", "-O2", *words], cwd=folder, check=True)


def least_us(functions: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The least time of a call of each, in microseconds; they take turns."""
    least = dict.fromkeys(functions, float("inf"))
    for _ in range(ROUNDS):
        for name, function in functions.items():
            time = timeit.timeit(function, number=CALLS) / CALLS * 1e6
            least[name] = min(least[name], time)
    return least


def main() -> int:
    """Measure and print."""
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    x, y = np.ones(8, np.float32), np.empty(8, np.float32)
    with tempfile.TemporaryDirectory(prefix="packed-") as name:
        folder = Path(name)
        build(folder)
        empty = tvm_ffi.load_module(str(folder / "empty.so")).main
        net = tvm_ffi.load_module(str(folder / "libnet.so")).main
        functions: dict[str, Callable[[], object]] = {
            "empty(x, y)": lambda: empty(x, y),
            "main(x, y)": lambda: net(x, y),
            "empty(x)": lambda: empty(x),
            "main(x) -> y": lambda: net(x),
        }
        times = least_us(functions)
        in_c = float(subprocess.check_output([str(folder / "loop")], text=True)) / 1e3
    for name, time in times.items():
        print(f"{name:14} {time:.3f} us")
    print(f"from C         {in_c:.3f} us")
    bar = 1.2 * times["empty(x, y)"] + in_c
    print(f"main(x, y) / (1.2 empty + C): {times['main(x, y)'] / bar:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
