"""The C++ class of an exported model: who owns what, what is moved from, errors, threads."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest

import tilewright as tw
from fakes.small_models import mlp

pytestmark = pytest.mark.slow

PROGRAM = r"""
#include <cstdio>
#include <thread>
#include <type_traits>
#include <vector>

#include "net.hpp"

using tilewright::net::Error;
using tilewright::net::Model;
using tilewright::net::Tensor;
using tilewright::net::View;
using tilewright::net::view;

static_assert(!std::is_copy_constructible<Model>::value && !std::is_copy_constructible<Tensor>::value, "owners");
static_assert(std::is_nothrow_move_constructible<Model>::value && std::is_nothrow_move_assignable<Model>::value, "");
static_assert(std::is_nothrow_move_constructible<Tensor>::value && std::is_nothrow_move_assignable<Tensor>::value, "");

template <typename Call>
static void expect_error(const char* what, Call call) {
  try {
    call();
    std::printf("%s: no error\n", what);
  } catch (const Error& error) {
    std::printf("%s: %d %s\n", what, error.status(), error.what());
  }
}

int main() {
  const std::vector<float> x(100, 1.0f);
  const View input = view(x.data(), {5, 20});
  Model first;
  std::vector<Tensor> outputs = first({input});

  Tensor taken = std::move(outputs[0]);
  std::printf("moved tensor: %d %zu %zu\n", outputs[0].raw() == nullptr, outputs[0].size_bytes(), outputs[0].shape().size());
  outputs[0] = std::move(taken);
  std::printf("moved back: %d %zu\n", taken.raw() == nullptr, outputs[0].size_bytes());
  for (int i = 0; i < 7; ++i) std::printf("%.9g ", static_cast<double>(outputs[0].data<float>()[i]));
  std::printf("\n");

  Model second(std::move(first));
  expect_error("moved model", [&] { first({input}); });
  expect_error("moved model runs", [&] { first.run({input}, {outputs[0].as_view()}); });
  expect_error("moved model level", [&] { first.level(); });
  first = std::move(second);
  expect_error("no inputs", [&] { first({}); });
  expect_error("no outputs", [&] { first.run({input}, {}); });
  expect_error("type", [&] { std::vector<double> wide(100); first({view(wide.data(), {5, 20})}); });
  expect_error("shape", [&] { first({view(x.data(), {20, 5})}); });
  tilewright::net::Options options{};
  options.level = "none";
  expect_error("level", [&] { Model third(options); });

  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::vector<float> mine(100, static_cast<float>(t));
      const auto alone = Model()({view(mine.data(), {5, 20})});
      for (int call = 0; call < 50; ++call) {
        const auto got = first({view(mine.data(), {5, 20})});
        for (int i = 0; i < 35; ++i) wrong[static_cast<std::size_t>(t)] += got[0].data<float>()[i] != alone[0].data<float>()[i];
      }
    });
  }
  for (auto& thread : threads) thread.join();
  std::printf("wrong: %d %d %d %d\n", wrong[0], wrong[1], wrong[2], wrong[3]);
}
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the program prints, by the words before the colon."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no g++")
    folder = tmp_path_factory.mktemp("cpp")
    model = tw.compile(mlp(), threads=1)
    model.build().export_library(
        folder / "libnet.so", name="net", header=folder / "net.hpp"
    )
    (folder / "main.cpp").write_text(PROGRAM)
    warnings = (
        "-Wall",
        "-Wextra",
        "-Wconversion",
        "-Wshadow",
        "-Wold-style-cast",
        "-Werror",
    )
    link = ("-L.", "-lnet", "-Wl,-rpath,$ORIGIN", "-pthread")
    words = [
        compiler,
        "-std=c++17",
        "-pedantic",
        *warnings,
        "main.cpp",
        *link,
        "-o",
        "main",
    ]
    subprocess.run(words, cwd=folder, check=True)
    done = subprocess.run(
        ["./main"], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    (lines["row"],) = (line for line in done.stdout.splitlines() if ": " not in line)
    wanted = np.asarray(model(np.ones((5, 20), np.float32)))[0]
    np.testing.assert_array_equal(np.fromstring(lines["row"], np.float32, sep=" "), wanted)
    return lines


def test_what_was_moved_from_has_nothing(printed: dict[str, str]) -> None:
    assert printed["moved tensor"] == "1 0 0"
    assert printed["moved back"] == "1 140"
    for subject in ("moved model", "moved model runs", "moved model level"):
        assert printed[subject] == "1 the model was moved from"


def test_mistakes_are_exceptions_with_a_status(printed: dict[str, str]) -> None:
    assert printed["no inputs"] == "1 got 0 inputs, expected 1"
    assert printed["no outputs"] == "1 got 0 outputs, expected 1"
    assert printed["type"].startswith("1 input 'x': got f64[5, 20], expected f32[5, 20]")
    assert printed["shape"] == "1 input 'x': got f32[20, 5], expected f32[5, 20]"
    assert printed["level"].startswith("1 no level 'none', expected one of ")


def test_threads_that_share_a_model_do_not_mix(printed: dict[str, str]) -> None:
    assert printed["wrong"] == "0 0 0 0"
