"""Exported libraries beside sessions: the model set run from C, without Python.

Prints for every model the time of a call in C and in Python and their ratio (bar: 1.03), whether the results
are equal to the bit, and how long the library takes from `dlopen` to the end of its first call (bar for
ResNet-50: 50 ms).  Calls are timed in turns, one thread unless told::

    python benchmarks/exported_library.py [--models resnet50,mlp_b1] [--threads 1] [--seconds 1]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import tilewright as tw

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "build" / "models"
ROUNDS = 5

DRIVER = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "net.h"

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int compare(const void* a, const void* b) {
  const double d = *(const double*)a - *(const double*)b;
  return (d > 0) - (d < 0);
}

// driver LIBRARY THREADS SECONDS OUTPUT DIMS... ; inputs and output sizes come from the files input.N, size.N
int main(int argc, char** argv) {
  const double begin = now_ms();
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) { fprintf(stderr, "%s\n", dlerror()); return 1; }
  const net_interface* (*entry)(void) = (const net_interface* (*)(void))dlsym(library, "tilewright_model");
  const net_interface* api = entry();
  net_options options = {.threads = (uint32_t)atoi(argv[2])};
  net* model = NULL;
  int64_t dims[64];
  for (int i = 5; i < argc; ++i) dims[i - 5] = atoll(argv[i]);
  if (api->create(&options, &model) != NET_OK) { fprintf(stderr, "%s\n", api->error()); return 1; }
  const double loading = now_ms() - begin;
  const void** inputs = calloc(api->input_count + 1, sizeof(*inputs));
  void** outputs = calloc(api->output_count + 1, sizeof(*outputs));
  size_t sizes[1024];
  for (uint32_t i = 0; i < api->input_count + api->output_count; ++i) {
    const int is_input = i < api->input_count;
    const net_tensor_info* info = is_input ? &api->inputs[i] : &api->outputs[i - api->input_count];
    int64_t shape[64];
    const int status = is_input ? api->input_shape(model, dims, i, shape)
                                : api->output_shape(model, dims, i - api->input_count, shape);
    if (status != NET_OK) { fprintf(stderr, "%s\n", api->error()); return 1; }
    size_t bytes = info->item_bytes;
    for (int32_t axis = 0; axis < info->rank; ++axis) bytes *= (size_t)shape[axis];
    void* data = aligned_alloc(64, (bytes + 64) & ~(size_t)63);
    sizes[i] = bytes;
    if (is_input) {
      char name[32];
      snprintf(name, sizeof(name), "input.%u", i);
      FILE* file = fopen(name, "rb");
      if (file == NULL || fread(data, 1, bytes, file) != bytes) return 2;
      fclose(file);
      inputs[i] = data;
    } else {
      memset(data, 0, bytes);
      outputs[i - api->input_count] = data;
    }
  }
  const double called = now_ms();
  if (api->run(model, dims, inputs, outputs) != NET_OK) { fprintf(stderr, "%s\n", api->error()); return 1; }
  const double first = now_ms() - called;
  static double times[200000];
  int count = 0;
  const double end = now_ms() + atof(argv[3]) * 1e3;
  for (double last = now_ms(); count < 3 || (last < end && count < 200000); ++count) {
    if (api->run(model, dims, inputs, outputs) != NET_OK) return 3;
    const double ended = now_ms();
    times[count] = ended - last;
    last = ended;
  }
  qsort(times, (size_t)count, sizeof(double), compare);
  FILE* file = fopen(argv[4], "wb");
  for (uint32_t i = 0; i < api->output_count; ++i) fwrite(outputs[i], 1, sizes[api->input_count + i], file);
  fclose(file);
  printf("%.6f %.3f %.3f\n", times[0], loading, first);
  api->destroy(model);
  return 0;
}
"""


def time_session(model: tw.Model, inputs: list[np.ndarray], seconds: float) -> float:
    """The least time of a call, in milliseconds."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        begin = time.perf_counter()
        model(*inputs)
        times.append(1e3 * (time.perf_counter() - begin))
    return min(times)


def run_driver(
    folder: Path, threads: int, seconds: float, dims: list[int]
) -> tuple[float, float]:
    """The least time of a call, and the time to load and to call first, in milliseconds."""
    words = [str(threads), str(seconds), "output", *map(str, dims)]
    done = subprocess.run(
        [str(folder / "driver"), str(folder / "net.so"), *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    least, loading, first = map(float, done.stdout.split())
    return least, loading + first


def measure(path: Path, threads: int, seconds: float) -> tuple[float, bool]:
    """Print the row of one model; its ratio, and whether results are equal."""
    model = tw.compile(path, threads=threads)
    given = np.load(path.with_suffix(".inputs.npz"))
    inputs = [np.asarray(given[spec.name], order="C") for spec in model.inputs]
    plan = model.compiled.parts[0].plan
    dims = [inputs[dim.input].shape[dim.axis] for dim in plan.dims]
    result = model(*inputs)
    outputs = result if isinstance(result, tuple) else (result,)
    with tempfile.TemporaryDirectory(prefix="exported-") as name:
        folder = Path(name)
        model.build().export_library(folder / "net.so", name="net", header=folder / "net.h")
        (folder / "driver.c").write_text(DRIVER)
        command = ["cc", "-std=gnu11", "-O2", "driver.c", "-ldl", "-o", "driver"]
        subprocess.run(command, cwd=folder, check=True)
        for index, array in enumerate(inputs):
            (folder / f"input.{index}").write_bytes(array.tobytes())
        ours: list[float] = []
        python: list[float] = []
        loading: list[float] = []
        for _ in range(ROUNDS):
            least, load = run_driver(folder, threads, seconds / ROUNDS, dims)
            ours.append(least)
            loading.append(load)
            python.append(time_session(model, inputs, seconds / ROUNDS))
        wanted = b"".join(np.asarray(o, order="C").tobytes() for o in outputs)
        is_equal = (folder / "output").read_bytes() == wanted
        size = (folder / "net.so").stat().st_size
    ratio = min(ours) / min(python)
    print(
        f"{path.stem:24} {min(ours):10.4f} {min(python):10.4f} {ratio:6.3f} "
        f"{statistics.median(loading):8.1f} {size / 1e6:8.1f}  "
        f"{'equal' if is_equal else 'DIFFERENT'}",
        flush=True,
    )
    return ratio, is_equal


def main() -> int:
    """Measure what was asked for; the status says whether all results were equal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--models", default="", help="names, separated by commas; default: all"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="for each side of a model"
    )
    parser.add_argument("--folder", type=Path, default=MODELS)
    options = parser.parse_args()
    names = [name for name in options.models.split(",") if name]
    paths = [
        p for p in sorted(options.folder.glob("*.onnx")) if not names or p.stem in names
    ]
    paths = [p for p in paths if p.with_suffix(".inputs.npz").exists()]
    print(
        f"{'model':24} {'C ms':>10} {'Python ms':>10} {'ratio':>6} {'first ms':>8} {'MB':>8}"
    )
    rows = [measure(path, options.threads, options.seconds) for path in paths]
    ratios = [ratio for ratio, _ in rows]
    print(
        f"{len(rows)} models, C / Python: median {statistics.median(ratios):.3f}, "
        f"worst {max(ratios):.3f}; equal: {all(equal for _, equal in rows)}"
    )
    return 0 if all(equal for _, equal in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
