"""The C side of an exported library under the sanitizers: threads, sizes that vary, memory that there is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import parser

import tilewright as tw
from fakes import small_models
from fakes.exported_library import c_compiler, compile_and_run
from tilewright.formats.byte_view import view_bytes

NATIVE_TESTS = Path(__file__).parents[2] / "native" / "tests"
# Programs that use `check.h`, and those whose allocations fail as they say.
CHECKED = (f"-I{NATIVE_TESTS}", str(NATIVE_TESTS / "allocations.c"))
HOOKS = ("malloc", "calloc", "realloc", "posix_memalign")
WRAPPED = ("-DTW_WRAPPED", *(f"-Wl,--wrap={hook}" for hook in HOOKS), *CHECKED)
# Behind a function `work`, which returns NULL when it went well.
FOUR_THREADS = """
static int work_fails(void) {
  pthread_t threads[4];
  int seeds[4] = {0, 1, 2, 3}, failed = 0;
  for (int i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, work, &seeds[i]);
  for (int i = 0; i < 4; ++i) { void* result; pthread_join(threads[i], &result); failed |= result != NULL; }
  return failed;
}
"""


# Behind a function `use`, which returns a status: once for every allocation that may fail, alone or with those after it.
EACH_ALLOCATION_FAILS = """
int main(void) {
  int refused = 0;
  for (int count = 1; count < 2000; count += 1000) {
    for (int first = 0;; ++first) {
      fail_allocations(first, count);
      refused += use() != NET_OK;
      if (fail_allocations(0, 0) == 0) break;
    }
  }
  CHECK(refused > 50);
  puts("fine");
  return 0;
}
"""


THREADS = (
    """
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "net.h"
static net* model;
static void* work(void* seed) {
  for (int turn = 0; turn < 200; ++turn) {
    const int64_t dims[] = {1 + (turn + *(int*)seed) % 5};
    float x[15], scale[3] = {1, 2, 3}, y[15], z[15];
    for (int i = 0; i < 15; ++i) x[i] = (float)(i + *(int*)seed);
    const void* inputs[] = {x, scale};
    void* outputs[] = {y, z};
    if (net_run_dims(model, dims, inputs, outputs) != NET_OK) { puts(net_error()); return seed; }
    if (y[1] != x[1] * 2 + 1 || z[0] != x[0]) return seed;
    const int64_t bad[] = {-1};
    if (net_run_dims(model, bad, inputs, outputs) == NET_OK) return seed;
    if (strstr(net_error(), "expected at least") == NULL && strstr(net_error(), "size") == NULL) return seed;
  }
  return NULL;
}
"""
    + FOUR_THREADS
    + """
int main(void) {
  net_options options = {.threads = 2, .concurrency = CONCURRENCY};
  if (net_create(&options, &model) != NET_OK) return 1;
  for (int64_t n = 1; n <= 5; ++n) if (net_prepare(model, &n) != NET_OK) return 2;
  const int failed = work_fails();
  net_destroy(model);
  puts(failed ? "failed" : "fine");
  return failed;
}
"""
)


FAILING_ALLOCATIONS = (
    """
#include <stdio.h>
#include <string.h>
#include "check.h"
#include "net.h"
static int use(void) {
  net* model = NULL;
  net_options options = {.threads = 2, .concurrency = CONCURRENCY};
  int status = net_create(&options, &model);
  for (int64_t n = 3; status == NET_OK && n < 200; n += 41) {
    float x[600], scale[3] = {1, 2, 3}, y[600], z[600];
    for (int i = 0; i < 600; ++i) x[i] = (float)i;
    const void* inputs[] = {x, scale};
    void* outputs[] = {y, z};
    status = net_prepare(model, &n);
    if (status == NET_OK) status = net_run_dims(model, &n, inputs, outputs);
    CHECK(status != NET_OK || (y[1] == x[1] * 2 + 1 && z[0] == x[0]));
  }
  CHECK(status == NET_OK || (status == NET_NO_MEMORY && strstr(net_error(), "memory") != NULL));
  net_destroy(model);
  return status;
}
"""
    + EACH_ALLOCATION_FAILS
)


GROWING = """
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "check.h"
#include "net.h"
static net* model;
typedef struct result { int64_t count; float* data; } result;
static void* allocate(void* context, uint32_t output, const int64_t* shape, int32_t rank, size_t size_bytes) {
  result* made = context;
  if (output != 0 || rank != 1 || (size_t)shape[0] * sizeof(float) != size_bytes) return NULL;
  made->count = shape[0];
  made->data = malloc(size_bytes + 1);
  return made->data;
}
/* What is greater than 0, and that often the sum of what is. */
static int call(int64_t trips, int64_t count) {
  float x[20];
  for (int i = 0; i < 20; ++i) x[i] = (float)(i % 3);
  const int64_t shape[] = {count};
  const net_tensor inputs[] = {{&trips, NULL, 0, 0, 64, 0}, {x, shape, 1, 2, 32, 0}};
  result made = {-1, NULL};
  const int status = net_run_allocating(model, inputs, allocate, &made);
  int64_t wanted = trips < 0 ? 0 : trips;
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) { wanted += x[i] > 0; sum += x[i]; }
  if (status == NET_OK) {
    CHECK(made.count == wanted);
    for (int64_t i = trips < 0 ? wanted : wanted - trips; i < made.count; ++i) {
      CHECK(made.data[i] == sum);
      sum += sum;
    }
  }
  free(made.data);
  return status;
}
"""


GROWING_THREADS = (
    GROWING
    + """
static void* work(void* seed) {
  for (int turn = 0; turn < 100; ++turn) {
    const int kind = turn + *(int*)seed;
    if (call(kind % 7, 1 + kind % 19) != NET_OK) { puts(net_error()); return seed; }
    if (call(-1, 3) != NET_OK) return seed;
  }
  return NULL;
}
"""
    + FOUR_THREADS
    + """
int main(void) {
  const net_options options = {.threads = 2};
  if (net_create(&options, &model) != NET_OK) return 1;
  int failed = work_fails();
  for (int trips = 0; trips < 3000; trips += 700) failed |= call(trips < 90 ? trips : trips % 90, 19) != NET_OK;
  net_destroy(model);
  puts(failed ? "failed" : "fine");
  return failed;
}
"""
)


GROWING_FAILURES = (
    GROWING
    + """
static int use(void) {
  const net_options options = {.threads = 2};
  model = NULL;
  int status = net_create(&options, &model);
  for (int64_t n = 1; status == NET_OK && n < 20; n += 6) status = call(n % 5, n);
  CHECK(status == NET_OK || (status == NET_NO_MEMORY && strstr(net_error(), "memory") != NULL));
  net_destroy(model);
  return status;
}
"""
    + EACH_ALLOCATION_FAILS
)


def growing() -> onnx.ModelProto:
    """What is greater than 0, with the sum of all so far appended in each trip."""
    return parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        agraph (int64 n, float[N] x) => (float[K] y) {
          cond = Constant<value: tensor = bool {1}>()
          zero = Constant<value: tensor = float {0}>()
          c = Greater(x, zero)
          first = Compress(x, c)
          y = Loop (n, cond, first) <body = b (int64 i, bool go, float[S] s) => (bool on, float[T] t) {
            on = Identity(go)
            sum = ReduceSum<keepdims=1>(s)
            t = Concat<axis=0>(s, sum)
          }>
        }"""
    )


def run_sanitized(
    source: str,
    folder: Path,
    sanitizer: str,
    *words: str,
    model: onnx.ModelProto | None = None,
) -> str:
    """What a C program prints that is compiled with the host side of a library, all of it watched."""
    from tilewright.api.factory import link_files
    from tilewright.runtime.library.link_files import LinkOptions

    files = link_files(
        tw.compile(model or small_models.scale_and_shift(), threads=1).compiled,
        LinkOptions(name="net"),
    )
    for name, data in {**files.files, **files.objects}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(view_bytes(data))
    strict = ("-Wall", "-Wextra", "-Wconversion", "-Werror")
    watched = (f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-g", *strict)
    probe = [*c_compiler(), "-xc", "-", f"-fsanitize={sanitizer}", "-o", "probe"]
    if subprocess.run(
        probe, cwd=folder, input=b"int main(void) { return 0; }", check=False
    ).returncode:
        pytest.skip("the compiler has no such sanitizer")
    units = (*files.units, *files.entry_units, *files.objects, *files.link_flags)
    return compile_and_run(source, folder, *words, *watched, *files.flags[2:], *units)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("concurrency", [0, 2])
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_the_host_side_is_clean_under_sanitizers(
    tmp_path: Path, sanitizer: str, concurrency: int
) -> None:
    out = run_sanitized(THREADS, tmp_path, sanitizer, f"-DCONCURRENCY={concurrency}")
    assert out == "fine\n"


@pytest.mark.parametrize(
    "sanitizer",
    [
        pytest.param("address,undefined", marks=pytest.mark.nightly),
        pytest.param("thread", marks=pytest.mark.slow),
    ],
)
def test_calls_whose_sizes_data_decides_are_clean_under_sanitizers(
    tmp_path: Path, sanitizer: str
) -> None:
    out = run_sanitized(GROWING_THREADS, tmp_path, sanitizer, *CHECKED, model=growing())
    assert out == "fine\n"


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="hooks of GNU's linker")
def test_every_allocation_of_a_call_whose_sizes_data_decides_may_fail(
    tmp_path: Path,
) -> None:
    out = run_sanitized(
        GROWING_FAILURES, tmp_path, "address,undefined", *WRAPPED, model=growing()
    )
    assert out == "fine\n"


@pytest.mark.sampled(2)
@pytest.mark.skipif(sys.platform != "linux", reason="hooks of GNU's linker")
@pytest.mark.parametrize("concurrency", [2, 0])
def test_every_allocation_of_a_library_may_fail(tmp_path: Path, concurrency: int) -> None:
    words = (f"-DCONCURRENCY={concurrency}", *WRAPPED)
    out = run_sanitized(FAILING_ALLOCATIONS, tmp_path, "address,undefined", *words)
    assert out == "fine\n"
