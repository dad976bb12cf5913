"""The arena of a library is packed as Python packs it: equal blocks, equal offsets."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fakes.exported_library import compile_and_run
from tilewright.base.arena import Block, pack

NATIVE = Path(__file__).resolve().parents[5] / "native"


def random_blocks(chance: random.Random) -> list[Block]:
    sizes = [0, 1, 63, 64, 65, 1000, 4096, 1 << 20]
    blocks: list[Block] = []
    for _ in range(chance.randrange(0, 40)):
        first = chance.randrange(0, 20)
        last = first + chance.randrange(0, 12)
        blocks.append(Block(chance.choice(sizes) + chance.randrange(0, 3), first, last))
    return blocks


def short_lives(chance: random.Random, count: int) -> list[Block]:
    """Few of many live together: neighbours are looked up in the tree."""
    sizes = [chance.randrange(1, 5000) for _ in range(count)]
    return [Block(size, i, i + chance.randrange(0, 4)) for i, size in enumerate(sizes)]


@pytest.mark.slow
def test_offsets_and_size_are_those_of_python(tmp_path: Path) -> None:
    chance = random.Random(3)
    cases = [random_blocks(chance) for _ in range(200)]
    cases += [short_lives(chance, count) for count in (500, 512, 600)]
    rows = [f"{{{b.size_bytes}, {b.first}, {b.last}}}" for case in cases for b in case]
    program = f"""
#include <inttypes.h>
#include <stdio.h>
#include "program/arena.h"
static const tw_arena_block_t blocks[] = {{{", ".join(rows)}}};
static const uint32_t counts[] = {{{", ".join(str(len(case)) for case in cases)}}};
int main(void) {{
  const tw_arena_block_t* next = blocks;
  for (unsigned i = 0; i < sizeof(counts) / sizeof(counts[0]); next += counts[i++]) {{
    int64_t offsets[600];
    int64_t size_bytes = 0;
    if (tw_arena_pack(next, counts[i], offsets, &size_bytes) != TW_STATUS_OK) return 1;
    printf("%" PRId64, size_bytes);
    for (unsigned j = 0; j < counts[i]; ++j) printf(" %" PRId64, offsets[j]);
    printf("\\n");
  }}
  return 0;
}}
"""
    out = compile_and_run(
        program,
        tmp_path,
        *(f"-I{NATIVE / 'include'}", f"-I{NATIVE / 'src'}"),
        str(NATIVE / "src" / "program" / "arena.c"),
        *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    )
    packings = [pack(case) for case in cases]
    wanted = [" ".join(map(str, [p.size_bytes, *p.offsets])) for p in packings]
    assert out.splitlines() == wanted


@pytest.mark.slow
def test_sizes_beyond_all_memory_are_refused(tmp_path: Path) -> None:
    program = """
#include "program/arena.h"
int main(void) {
  const tw_arena_block_t blocks[] = {{INT64_C(1) << 61, 0, 9}, {INT64_C(1) << 61, 0, 9}, {-1, 0, 0}};
  int64_t offsets[3];
  int64_t size_bytes = 0;
  if (tw_arena_pack(blocks, 2, offsets, &size_bytes) != TW_STATUS_INVALID) return 1;
  return tw_arena_pack(blocks + 2, 1, offsets, &size_bytes) == TW_STATUS_INVALID ? 0 : 2;
}
"""
    compile_and_run(
        program,
        tmp_path,
        *(f"-I{NATIVE / 'include'}", f"-I{NATIVE / 'src'}"),
        str(NATIVE / "src" / "program" / "arena.c"),
        *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    )
