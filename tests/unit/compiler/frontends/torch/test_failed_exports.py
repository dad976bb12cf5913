"""Where a failed export was raised: in the module, not in torch or here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.compiler.frontends.torch import failed_exports

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.needs_torch


@pytest.mark.parametrize(
    ("folder", "place"),
    [("torch", ""), ("torchvision", "model.py:1"), ("mine", "model.py:1")],
)
def test_packages_whose_names_begin_like_torch_are_the_modules_own(
    folder: str, place: str
) -> None:
    file = Path(torch.__file__).parents[1] / folder / "model.py"
    with pytest.raises(ZeroDivisionError) as caught:
        exec(compile("1 / 0", str(file), "exec"), {})
    # This test's own line is the module's, too.
    found = failed_exports.place_of(caught.value)
    assert found == place or (not place and found.startswith(Path(__file__).name))
