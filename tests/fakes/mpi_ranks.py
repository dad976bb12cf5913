"""Starts processes that reach each other by MPI, one command per rank."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.defpath}")

needs_mpi = pytest.mark.skipif(
    MPIEXEC is None or importlib.util.find_spec("mpi4py") is None,
    reason="no mpiexec or no mpi4py: make .venv/stamps/mpi",
)


def run_ranks(commands: Sequence[Sequence[str]], **variables: str) -> tuple[str, int]:
    """What all ranks print, and the exit status.

    Args:
        commands: one per rank.
        variables: of their environment.
    """
    assert MPIEXEC is not None
    line = [MPIEXEC]
    for command in commands:
        line += [*([":"] if len(line) > 1 else []), "-n", "1", *command]
    environment = {
        **os.environ,
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        **variables,
    }
    done = subprocess.run(
        line, capture_output=True, text=True, env=environment, timeout=240, check=False
    )
    return done.stdout + done.stderr, done.returncode
