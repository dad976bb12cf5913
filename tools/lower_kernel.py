"""Take kernels as text through lowering steps, one by one or all.

What it is: a bench for a single step.  It reads what `tilewright inspect --output=kernel` prints (or what somebody wrote
by hand, or changed), applies the steps asked for in their order, and prints the kernels again.
What it is not: a compiler; the order of all steps is that of the back end.
Who calls it: a developer, by hand, and the tests of steps (`tests/text/lowering`)::

    tilewright inspect net.vmfb --output=kernel --kernel=matmul_0 > k.txt
    python tools/lower_kernel.py k.txt --steps flatten,vectorize
    python tools/lower_kernel.py k.txt --steps all --target=x86_64-v4
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tilewright.base.errors import UserError
from tilewright.base.target import Target
from tilewright.compiler.backends.registry import backend_of
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.kernel.verifier import verify
from tilewright.compiler.lowering.promote_scratch import promote_scratch
from tilewright.compiler.readers.kernel_text import parse_kernels

ALL: Final = "all"


def steps_of(target: Target) -> Mapping[str, Callable[[Kernel], Kernel]]:
    """The lowering stages of the target's back end by name, and what comes before them."""
    stages = backend_of(target).stages(target)[:-1]
    return {"promote-scratch": promote_scratch, **{s.name: s.run for s in stages}}


def lower_text(text: str, steps: Sequence[str], target: Target) -> str:
    """The kernels of a text after the steps, as text.

    Raises: UserError for a text without kernels, or with anything else, and for a step that nobody knows.
    """
    kernels = parse_kernels(text)
    if not kernels:
        raise UserError("there is no kernel in it")
    return "".join(kernel_text(_after(kernel, steps, target)) for kernel in kernels)


def _after(kernel: Kernel, steps: Sequence[str], target: Target) -> Kernel:
    known = steps_of(target)
    for name in known if steps == [ALL] else steps:
        if name not in known:
            raise UserError(
                f"unknown step '{name}'", hint=f"steps: {' '.join(known)} {ALL}"
            )
        kernel = known[name](kernel)
        verify(kernel)
    return kernel


def main() -> int:
    """Read, lower, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", help="kernel text, - for standard input")
    parser.add_argument(
        "--steps", default="", help=f"stages of the back end with commas between, or {ALL}"
    )
    parser.add_argument("--target", default="x86_64-v3")
    options = parser.parse_args()
    text = (
        sys.stdin.read() if options.file == "-" else Path(options.file).read_text("utf-8")
    )
    steps = [step for step in options.steps.split(",") if step]
    try:
        sys.stdout.write(lower_text(text, steps, Target.parse(options.target)))
    except UserError as error:
        sys.exit(f"{options.file}: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
