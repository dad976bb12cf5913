"""What the C core says went wrong: a text of any length that may quote the one before, and one without memory, too."""

from __future__ import annotations

from pathlib import Path

from fakes.exported_library import compile_and_run

NATIVE = Path(__file__).resolve().parents[5] / "native"
PROGRAM = """
#include <stdio.h>
#include <string.h>
#include "error.h"
static int is_out_of_memory;
void* __real_calloc(size_t count, size_t size);
void* __wrap_calloc(size_t count, size_t size) { return is_out_of_memory ? NULL : __real_calloc(count, size); }
static char name[3000];
int main(void) {
  memset(name, 'n', sizeof(name) - 1);
  is_out_of_memory = 1;
  tw_error_set(1, "lost");
  printf("%s\\n", tw_error_text());
  is_out_of_memory = 0;
  tw_error_set(1, "why");
  tw_error_set(1, "call: %s", tw_error_text());
  printf("%s\\n", tw_error_text());
  tw_error_set(1, "%s: %s", name, tw_error_text());
  tw_error_set(1, "main: %s", tw_error_text());
  printf("%s\\n", tw_error_text());
  tw_error_set(1, "why");
  is_out_of_memory = 1;
  tw_error_set(1, "call: %s", tw_error_text());
  printf("%s\\n", tw_error_text());
  tw_error_set(1, "%s", name);
  printf("%s\\n", tw_error_text());
  return 0;
}
"""


def test_a_text_may_quote_the_one_before(tmp_path: Path) -> None:
    """One of few bytes was printed over the text that it quotes."""
    out = compile_and_run(
        PROGRAM,
        tmp_path,
        *(f"-I{NATIVE / part}" for part in ("include", "src/program")),
        str(NATIVE / "src" / "program" / "error.c"),
        *("-D_GNU_SOURCE", "-pthread", "-Wl,--wrap=calloc"),
        *("-fsanitize=undefined", "-fno-sanitize-recover=all"),
    )
    name = "n" * 2999
    assert out.splitlines() == [
        "no error, or no memory for its text",
        "call: why",
        f"main: {name}: call: why",
        "call: why",
        name[:1023],
    ]
