// Greedy by size, best fit in the gaps; several orders are tried until one reaches the lower bound. See
// `base/arena.py`, which this follows line by line (MIRROR ARENA).
#include "arena.h"

#include <stdlib.h>
#include <string.h>

enum {
  ORDER_COUNT = 4,
  LOOKING_FOR_ONE = 64,  // finding one block in the tree takes about as long as looking at so many
};
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
  sort_key_t* keys;  // twice `count`
  placed_t* placed;  // by start
  uint32_t placed_count;
  placed_t* found;  // those that live together with a block, by start

  // When blocks begin and end to live, each sorted; and a tree over the blocks in the order in which they begin: each
  // node has the last step of the placed blocks below it, or -1, and its leaves have the places.
  uint32_t* firsts;
  uint32_t* lasts;
  uint32_t* leaf_of;
  uint32_t leaf_count;
  int64_t* last_below;
  placed_t* leaves;
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

static int compare_steps(const void* left, const void* right) {
  const uint32_t a = *(const uint32_t*)left;
  const uint32_t b = *(const uint32_t*)right;
  return (a > b) - (a < b);
}

// How many of the sorted `steps` come before `step`.
static uint32_t count_before(const uint32_t* steps, uint32_t count, int64_t step) {
  uint32_t low = 0;
  while (low < count) {
    const uint32_t middle = low + (count - low) / 2;
    if (steps[middle] < step) {
      low = middle + 1;
    } else {
      count = middle;
    }
  }
  return low;
}

// What of the tree is the same for every order.
static void grow_tree(packer_t* packer) {
  for (uint32_t i = 0; i < packer->count; ++i) {
    packer->keys[i] = (sort_key_t){.major = packer->blocks[i].first, .index = i};
    packer->lasts[i] = packer->blocks[i].last;
  }
  qsort(packer->keys, packer->count, sizeof(sort_key_t), compare_keys);
  qsort(packer->lasts, packer->count, sizeof(uint32_t), compare_steps);
  for (uint32_t i = 0; i < packer->count; ++i) {
    packer->firsts[i] = packer->blocks[packer->keys[i].index].first;
    packer->leaf_of[packer->keys[i].index] = i;
  }
}

static int compare_places(const void* left, const void* right) {
  const int64_t a = ((const placed_t*)left)->start;
  const int64_t b = ((const placed_t*)right)->start;
  return (a > b) - (a < b);
}

// Adds to `found` those of the first `begun` blocks below a node that live in step `first` or later.
static uint32_t search(const packer_t* packer, uint32_t node, uint32_t low, uint32_t high, uint32_t begun,
                       uint32_t first, uint32_t count) {
  if (low >= begun || packer->last_below[node] < (int64_t)first) return count;
  if (node >= packer->leaf_count) {
    packer->found[count] = packer->leaves[low];
    return count + 1;
  }
  const uint32_t middle = low + (high - low) / 2;
  count = search(packer, 2 * node, low, middle, begun, first, count);
  return search(packer, 2 * node + 1, middle, high, begun, first, count);
}

// Finds those that live together with a block; returns how many.
static uint32_t find_neighbours(const packer_t* packer, const tw_arena_block_t* block) {
  const uint32_t begun = count_before(packer->firsts, packer->count, (int64_t)block->last + 1);
  const uint32_t alive = begun - count_before(packer->lasts, packer->count, block->first);
  uint32_t count = 0;
  if ((uint64_t)alive * LOOKING_FOR_ONE <= packer->placed_count) {
    count = search(packer, 1, 0, packer->leaf_count, begun, block->first, 0);
    qsort(packer->found, count, sizeof(placed_t), compare_places);
    return count;
  }
  for (uint32_t i = 0; i < packer->placed_count; ++i) {
    const placed_t* other = &packer->placed[i];
    if (other->first <= block->last && block->first <= other->last) packer->found[count++] = *other;
  }
  return count;
}

// Start of the tightest gap between the blocks that live together with this one.
static int64_t best_gap(const packer_t* packer, int64_t size, const tw_arena_block_t* block) {
  int64_t best = -1;
  int64_t best_start = 0;
  int64_t cursor = 0;
  const uint32_t count = find_neighbours(packer, block);
  for (uint32_t i = 0; i < count; ++i) {
    const placed_t* other = &packer->found[i];
    const int64_t gap = other->start - cursor;
    if (gap >= size && (best < 0 || gap < best)) {
      best = gap;
      best_start = cursor;
    }
    if (other->end > cursor) cursor = other->end;
  }
  return best < 0 ? cursor : best_start;
}

static void insert(packer_t* packer, uint32_t index, int64_t start, int64_t size) {
  const tw_arena_block_t* block = &packer->blocks[index];
  const placed_t place = {.start = start, .end = start + size, .first = block->first, .last = block->last};
  uint32_t at = packer->placed_count;
  while (at > 0 && packer->placed[at - 1].start > start) --at;
  memmove(&packer->placed[at + 1], &packer->placed[at], (packer->placed_count - at) * sizeof(placed_t));
  packer->placed[at] = place;
  ++packer->placed_count;
  const uint32_t leaf = packer->leaf_of[index];
  packer->leaves[leaf] = place;
  for (uint32_t node = packer->leaf_count + leaf; node != 0 && packer->last_below[node] < place.last; node /= 2) {
    packer->last_below[node] = place.last;
  }
}

static int64_t pack_in_order(packer_t* packer, int order, int64_t* out_offsets) {
  for (uint32_t i = 0; i < packer->count; ++i) packer->keys[i] = key_of(&packer->blocks[i], i, order);
  qsort(packer->keys, packer->count, sizeof(sort_key_t), compare_keys);
  packer->placed_count = 0;
  for (uint32_t i = 0; i < 2 * packer->leaf_count; ++i) packer->last_below[i] = -1;
  int64_t arena_bytes = 0;
  for (uint32_t i = 0; i < packer->count; ++i) {
    const uint32_t index = packer->keys[i].index;
    const tw_arena_block_t* block = &packer->blocks[index];
    const int64_t size = align(block->size_bytes);
    out_offsets[index] = 0;
    if (size == 0) continue;
    const int64_t start = best_gap(packer, size, block);
    out_offsets[index] = start;
    insert(packer, index, start, size);
    if (start + size > arena_bytes) arena_bytes = start + size;
  }
  return arena_bytes;
}

// The lower bound of any packing: most bytes alive in one step. What ends before a step goes before what begins there.
static int64_t peak_bytes(const packer_t* packer) {
  sort_key_t* changes = packer->keys;
  for (uint32_t i = 0; i < packer->count; ++i) {
    const tw_arena_block_t* block = &packer->blocks[i];
    const int64_t size = align(block->size_bytes);
    changes[2 * i] = (sort_key_t){.major = block->first, .minor = size};
    changes[2 * i + 1] = (sort_key_t){.major = (int64_t)block->last + 1, .minor = -size};
  }
  qsort(changes, 2 * (size_t)packer->count, sizeof(sort_key_t), compare_keys);
  int64_t alive = 0;
  int64_t best = 0;
  for (uint32_t i = 0; i < 2 * packer->count; ++i) {
    alive += changes[i].minor;
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

static void pack(packer_t* packer, int64_t bound, int64_t* spare, int64_t* out_offsets, int64_t* out_bytes) {
  for (int order = 0; order < ORDER_COUNT; ++order) {
    const int64_t bytes = pack_in_order(packer, order, spare);
    if (order == 0 || bytes < *out_bytes) {
      memcpy(out_offsets, spare, packer->count * sizeof(*spare));
      *out_bytes = bytes;
    }
    if (*out_bytes == bound) return;
  }
}

static void* rows(size_t count, size_t size_bytes) { return calloc(count + 1, size_bytes); }

tw_status_t tw_arena_pack(const tw_arena_block_t* blocks, uint32_t count, int64_t* out_offsets, int64_t* out_bytes) {
  packer_t packer = {.blocks = blocks, .count = count, .leaf_count = 1};
  *out_bytes = 0;
  if (count > UINT32_MAX / 4 || !is_small(&packer)) return TW_STATUS_INVALID;
  while (packer.leaf_count < count) packer.leaf_count *= 2;
  packer.keys = rows(2 * (size_t)count, sizeof(*packer.keys));
  packer.placed = rows(count, sizeof(*packer.placed));
  packer.found = rows(count, sizeof(*packer.found));
  packer.firsts = rows(count, sizeof(*packer.firsts));
  packer.lasts = rows(count, sizeof(*packer.lasts));
  packer.leaf_of = rows(count, sizeof(*packer.leaf_of));
  packer.leaves = rows(count, sizeof(*packer.leaves));
  packer.last_below = rows(2 * (size_t)packer.leaf_count, sizeof(*packer.last_below));
  int64_t* spare = rows(count, sizeof(*spare));
  const int fits = packer.keys != NULL && packer.placed != NULL && packer.found != NULL && packer.firsts != NULL &&
                   packer.lasts != NULL && packer.leaf_of != NULL && packer.leaves != NULL &&
                   packer.last_below != NULL && spare != NULL;
  if (fits) {
    const int64_t bound = peak_bytes(&packer);
    grow_tree(&packer);
    pack(&packer, bound, spare, out_offsets, out_bytes);
  }
  free(packer.keys);
  free(packer.placed);
  free(packer.found);
  free(packer.firsts);
  free(packer.lasts);
  free(packer.leaf_of);
  free(packer.leaves);
  free(packer.last_below);
  free(spare);
  return fits ? TW_STATUS_OK : TW_STATUS_NO_MEMORY;
}
