// Greedy by size, best fit in the gaps; several orders are tried until one reaches the lower bound. See
// `base/arena.py`, which this follows line by line (MIRROR ARENA).
#include "arena.h"

#include <stdlib.h>
#include <string.h>

enum { ORDER_COUNT = 4 };
static const int64_t ARENA_LIMIT_BYTES = INT64_C(1) << 62;

// What a block is sorted by; smaller comes first, equal ones in the order given.
typedef struct sort_key_t {
  int64_t major;
  int64_t minor;
  uint32_t index;
} sort_key_t;

typedef struct placed_t {
  int64_t start;
  int64_t end;
  uint32_t first;
  uint32_t last;
} placed_t;

typedef struct packer_t {
  const tw_arena_block_t* blocks;
  uint32_t count;
  sort_key_t* keys;
  placed_t* placed;  // by start
  uint32_t placed_count;
} packer_t;

static int64_t align(int64_t size_bytes) {
  return (size_bytes + TW_ARENA_ALIGNMENT - 1) / TW_ARENA_ALIGNMENT * TW_ARENA_ALIGNMENT;
}

static int compare_keys(const void* left, const void* right) {
  const sort_key_t* a = left;
  const sort_key_t* b = right;
  if (a->major != b->major) return a->major < b->major ? -1 : 1;
  if (a->minor != b->minor) return a->minor < b->minor ? -1 : 1;
  return a->index < b->index ? -1 : a->index > b->index;
}

// The orders of the packing: by size, by size and length of life, by their product, by length of life.
static sort_key_t key_of(const tw_arena_block_t* block, uint32_t index, int order) {
  const int64_t size = block->size_bytes;
  const int64_t length = (int64_t)block->last - block->first;
  sort_key_t key = {.index = index};
  switch (order) {
    case 0:
      key.major = -size;
      key.minor = block->first;
      break;
    case 1:
      key.major = -size;
      key.minor = -length;
      break;
    case 2:
      key.major = -(size * (length + 1));
      key.minor = block->first;
      break;
    default:
      key.major = -length;
      key.minor = -size;
      break;
  }
  return key;
}

// Start of the tightest gap between the blocks that live together with this one.
static int64_t best_gap(const packer_t* packer, int64_t size, const tw_arena_block_t* block) {
  int64_t best = -1;
  int64_t best_start = 0;
  int64_t cursor = 0;
  for (uint32_t i = 0; i < packer->placed_count; ++i) {
    const placed_t* other = &packer->placed[i];
    if (other->last < block->first || block->last < other->first) continue;
    const int64_t gap = other->start - cursor;
    if (gap >= size && (best < 0 || gap < best)) {
      best = gap;
      best_start = cursor;
    }
    if (other->end > cursor) cursor = other->end;
  }
  return best < 0 ? cursor : best_start;
}

// Behind those that begin at the same place.
static void insert(packer_t* packer, int64_t start, int64_t size, const tw_arena_block_t* block) {
  uint32_t at = packer->placed_count;
  while (at > 0 && packer->placed[at - 1].start > start) --at;
  memmove(&packer->placed[at + 1], &packer->placed[at], (packer->placed_count - at) * sizeof(placed_t));
  packer->placed[at] = (placed_t){.start = start, .end = start + size, .first = block->first, .last = block->last};
  ++packer->placed_count;
}

static int64_t pack_in_order(packer_t* packer, int order, int64_t* out_offsets) {
  for (uint32_t i = 0; i < packer->count; ++i) packer->keys[i] = key_of(&packer->blocks[i], i, order);
  qsort(packer->keys, packer->count, sizeof(sort_key_t), compare_keys);
  packer->placed_count = 0;
  int64_t arena_bytes = 0;
  for (uint32_t i = 0; i < packer->count; ++i) {
    const uint32_t index = packer->keys[i].index;
    const tw_arena_block_t* block = &packer->blocks[index];
    const int64_t size = align(block->size_bytes);
    out_offsets[index] = 0;
    if (size == 0) continue;
    const int64_t start = best_gap(packer, size, block);
    out_offsets[index] = start;
    insert(packer, start, size, block);
    if (start + size > arena_bytes) arena_bytes = start + size;
  }
  return arena_bytes;
}

// The lower bound of any packing: most bytes alive in one step. It is reached where a block begins.
static int64_t peak_bytes(const packer_t* packer) {
  int64_t best = 0;
  for (uint32_t i = 0; i < packer->count; ++i) {
    const uint32_t step = packer->blocks[i].first;
    int64_t alive = 0;
    for (uint32_t j = 0; j < packer->count; ++j) {
      const tw_arena_block_t* block = &packer->blocks[j];
      if (block->first <= step && step <= block->last) alive += align(block->size_bytes);
    }
    if (alive > best) best = alive;
  }
  return best;
}

// Whether no sum or product of the packing can leave 63 bits.
static int is_small(const packer_t* packer) {
  int64_t total = 0;
  for (uint32_t i = 0; i < packer->count; ++i) {
    const tw_arena_block_t* block = &packer->blocks[i];
    const int64_t length = (int64_t)block->last - block->first + 1;
    if (block->size_bytes < 0 || block->size_bytes > ARENA_LIMIT_BYTES / length - TW_ARENA_ALIGNMENT) return 0;
    total += align(block->size_bytes);
    if (total > ARENA_LIMIT_BYTES) return 0;
  }
  return 1;
}

static void pack(packer_t* packer, int64_t* spare, int64_t* out_offsets, int64_t* out_bytes) {
  const int64_t bound = peak_bytes(packer);
  for (int order = 0; order < ORDER_COUNT; ++order) {
    const int64_t bytes = pack_in_order(packer, order, spare);
    if (order == 0 || bytes < *out_bytes) {
      memcpy(out_offsets, spare, packer->count * sizeof(*spare));
      *out_bytes = bytes;
    }
    if (*out_bytes == bound) return;
  }
}

tw_status_t tw_arena_pack(const tw_arena_block_t* blocks, uint32_t count, int64_t* out_offsets, int64_t* out_bytes) {
  packer_t packer = {.blocks = blocks, .count = count};
  *out_bytes = 0;
  if (!is_small(&packer)) return TW_STATUS_INVALID;
  packer.keys = calloc((size_t)count + 1, sizeof(*packer.keys));
  packer.placed = calloc((size_t)count + 1, sizeof(*packer.placed));
  int64_t* spare = calloc((size_t)count + 1, sizeof(*spare));
  const int fits = packer.keys != NULL && packer.placed != NULL && spare != NULL;
  if (fits) pack(&packer, spare, out_offsets, out_bytes);
  free(packer.keys);
  free(packer.placed);
  free(spare);
  return fits ? TW_STATUS_OK : TW_STATUS_NO_MEMORY;
}
