"""The digest of the sources: what it covers, what changes it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import tilewright
from tilewright.compiler.backends.fingerprint import ROOMS, SOURCES_DIGEST, sources_digest

PACKAGE = Path(tilewright.__file__).parent


def test_every_module_on_the_way_to_machine_code_is_covered() -> None:
    program = (
        "import sys\n"
        "import tilewright.compiler.backends.kernel_cache\n"
        "import tilewright.compiler.backends.cpu.worker\n"
        "import tilewright.compiler.backends.cpu.stages\n"
        "import tilewright.compiler.schedule.rules.run\n"
        "import tilewright.compiler.schedule.by_user\n"
        "from tilewright.base.target import BACKENDS\n"
        "from tilewright.compiler.backends.registry import find_backend\n"
        "for name in BACKENDS: find_backend(name)\n"
        "for name, module in sorted(sys.modules.items()):\n"
        "    if name.startswith('tilewright.'): print(module.__file__)\n"
    )
    listed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    files = [Path(line).relative_to(PACKAGE).as_posix() for line in listed.stdout.split()]
    assert len(files) > 80
    rooms = tuple(f"{room}/" for room in ROOMS)
    # A package's docstring decides nothing.
    assert {f for f in files if not f.startswith(rooms)} <= {"compiler/__init__.py"}
    (_only,) = ast.parse((PACKAGE / "compiler/__init__.py").read_text()).body


def test_the_digest_is_that_of_the_files_on_disk() -> None:
    assert sources_digest(PACKAGE) == SOURCES_DIGEST


def test_a_constant_a_name_and_a_new_file_each_change_the_digest(tmp_path: Path) -> None:
    room = tmp_path / "room" / "inner"
    room.mkdir(parents=True)
    source = room / "tiles.py"
    source.write_text("TILE = 8\n")
    (tmp_path / "elsewhere.py").write_text("")
    seen = [sources_digest(tmp_path, ["room"])]
    source.write_text("TILE = 9\n")
    seen.append(sources_digest(tmp_path, ["room"]))
    source.rename(room / "tile.py")
    seen.append(sources_digest(tmp_path, ["room"]))
    (room / "more.py").write_text("")
    seen.append(sources_digest(tmp_path, ["room"]))
    assert len(set(seen)) == len(seen)
    (tmp_path / "elsewhere.py").write_text("x = 1\n")
    (room / "notes.txt").write_text("x")
    assert sources_digest(tmp_path, ["room"]) == seen[-1]
