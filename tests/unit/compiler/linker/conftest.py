"""Code made by LLVM."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fakes.llvm_objects import compile_ir


@pytest.fixture(name="compile_ir")
def compile_ir_fixture() -> Callable[..., bytes]:
    return compile_ir
