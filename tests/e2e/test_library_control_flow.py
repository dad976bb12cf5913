"""Exported libraries with branches and loops compute what a session computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from fakes import flow_graphs, flow_models
from fakes.exported_library import CModel, LibraryError, export
from fakes.graphs import parse
from tilewright.base.errors import UserError

MODELS = flow_models.models()


def outputs_of(value: Any) -> list[np.ndarray]:
    return [np.asarray(v) for v in (value if isinstance(value, tuple) else (value,))]


def check(model: tw.Model, library: CModel, *inputs: np.ndarray) -> None:
    wanted = outputs_of(model(*inputs))
    found = [np.full_like(w, 9) for w in wanted]
    library.run_tensors(inputs, found)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "name",
    [
        "layers_whose_weights_are_stacked",
        "loops_that_swap_and_nest",
        "scan_backwards_along_other_axes",
    ],
)
def test_libraries_branch_and_loop(name: str, threads: int, tmp_path: Path) -> None:
    model = tw.compile(MODELS[name].model, threads=threads)
    library = CModel(export(model, tmp_path / "net.so"), threads=threads)
    for inputs in [*MODELS[name].calls, *MODELS[name].calls]:
        check(model, library, *inputs)
    library.close()


def test_an_index_of_any_trip_is_looked_at(tmp_path: Path) -> None:
    model = tw.compile(parse(flow_graphs.INDEXING), threads=1)
    library = CModel(export(model, tmp_path / "net.so"), threads=1)
    x = np.arange(5, dtype=np.float32)
    check(model, library, x, np.array([4, 0, -2]))
    for place in range(3):
        places = np.array([1, 1, 1])
        places[place] = 5
        with pytest.raises(
            LibraryError, match="index 5 is out of range on axis 0 of size 5"
        ):
            library.run_tensors([x, places], [np.empty((), np.float32)])
    check(model, library, x, np.array([0, 0, 0]))
    library.close()


def test_sizes_that_data_decides_are_refused_by_name(tmp_path: Path) -> None:
    model = tw.compile(MODELS["places_that_are_not_zero"].model)
    with pytest.raises(
        UserError, match="sizes that data decides, which a library does not read"
    ) as caught:
        export(model, tmp_path / "net.so")
    assert "\n  node 'y'" in str(caught.value)
    assert "input_values" in (caught.value.hint or "")


def test_sizes_that_are_known_inside_of_a_loop_only_are_refused_by_name(
    tmp_path: Path,
) -> None:
    model = tw.compile(MODELS["what_a_loop_carries_grows"].model)
    with pytest.raises(UserError, match=r"does not read:\n  node 'y'\n"):
        export(model, tmp_path / "net.so")
