// Packing of lifetimes into one arena. Private to the core.
#ifndef TW_PROGRAM_ARENA_H_
#define TW_PROGRAM_ARENA_H_

#include <stddef.h>
#include <stdint.h>

#include "tw_names.h"
#include "tw_status.h"

enum { TW_ARENA_ALIGNMENT = 64 };

// `size_bytes` needed from step `first` through step `last`, both inclusive.
typedef struct tw_arena_block_t {
  int64_t size_bytes;
  uint32_t first;
  uint32_t last;
} tw_arena_block_t;

// Places every block at an aligned offset, as `base/arena.py` does: equal blocks, equal offsets.
// TW_STATUS_INVALID: the arena would have more than 2^62 bytes.
tw_status_t tw_arena_pack(const tw_arena_block_t* blocks, uint32_t count, int64_t* out_offsets, int64_t* out_bytes);

#endif  // TW_PROGRAM_ARENA_H_
