// How blocks are kept.
//
// Sizes are rounded to classes, eight to a power of two (below 4096: multiples of 64), so a class has one size and
// a kept block is found by two looks at a bitmap. A lease takes a kept block of its class or the next one. Where
// there is none and a new block would exceed the limit, an arena takes any larger one (a call has one arena, so
// that costs nothing), and everything else has the blocks given back that were not used for longest.
#include "tw_heap.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "system.h"
#include "tw_memory.h"

enum { SMALL_LIMIT = 4096, SMALL_STEP = 64, SMALL_COUNT = SMALL_LIMIT / SMALL_STEP, SMALL_BITS = 12 };
enum { STEPS = 8, STEP_BITS = 3, SIZE_BITS = 46, WORD_BITS = 64 };
enum { CLASS_COUNT = SMALL_COUNT + (SIZE_BITS - SMALL_BITS + 1) * STEPS };
enum { WORD_COUNT = (CLASS_COUNT + WORD_BITS - 1) / WORD_BITS, SLACK_BYTES = 1 << 20 };

struct tw_block_t {
  void* base;
  size_t size_bytes;
  // While it is kept: its neighbours of the same size, and those by age.
  tw_block_t* next_alike;
  tw_block_t* previous_alike;
  tw_block_t* newer;
  tw_block_t* older;
};

struct tw_heap_t {
  pthread_mutex_t lock;
  size_t capacity_bytes;
  size_t kept_limit_bytes;
  size_t block_bytes;                        // of blocks that are leased
  size_t block_peak_bytes;                   // since the last trim
  size_t in_use_bytes[TW_MEMORY_USE_COUNT];  // blocks, and what is counted beside them
  size_t total_bytes;                        // the sum of these
  size_t kept_bytes;
  size_t peak_bytes;
  uint64_t lease_count;
  uint64_t reuse_count;
  uint64_t leased_bytes;
  size_t live_count;
  tw_lease_t* leases;
  tw_block_t* oldest;
  tw_block_t* newest;
  tw_block_t* kept[CLASS_COUNT];
  uint64_t kept_classes[WORD_COUNT];  // bitmap of `kept`
  tw_heap_t* next;                    // in the list of live heaps, guarded by heaps_lock
};

static pthread_mutex_t heaps_lock = PTHREAD_MUTEX_INITIALIZER;
static tw_heap_t* heaps = NULL;

// ---- classes ----------------------------------------------------------------------------------------

static unsigned bit_length(size_t value) { return value == 0 ? 0 : (unsigned)(64 - __builtin_clzll(value)); }

size_t tw_heap_block_bytes(size_t size_bytes) {
  if (size_bytes <= SMALL_STEP) return SMALL_STEP;
  if (size_bytes <= SMALL_LIMIT) return (size_bytes + SMALL_STEP - 1) / SMALL_STEP * SMALL_STEP;
  const size_t step = (size_t)1 << (bit_length(size_bytes - 1) - 1 - STEP_BITS);
  return (size_bytes + step - 1) & ~(step - 1);
}

// Of a size that `tw_heap_block_bytes` made.
static unsigned class_of(size_t block_bytes) {
  if (block_bytes <= SMALL_LIMIT) return (unsigned)(block_bytes / SMALL_STEP) - 1;
  const unsigned bits = bit_length(block_bytes - 1) - 1;  // the power of two below
  const size_t steps = (block_bytes - ((size_t)1 << bits)) >> (bits - STEP_BITS);
  return SMALL_COUNT + (bits - SMALL_BITS) * STEPS + (unsigned)steps - 1;
}

// ---- kept blocks ------------------------------------------------------------------------------------

static void keep(tw_heap_t* heap, tw_block_t* block) {
  const unsigned index = class_of(block->size_bytes);
  tw_block_t* head = heap->kept[index];
  block->previous_alike = NULL;
  block->next_alike = head;
  if (head != NULL) head->previous_alike = block;
  heap->kept[index] = block;
  heap->kept_classes[index / WORD_BITS] |= (uint64_t)1 << (index % WORD_BITS);
  block->newer = NULL;
  block->older = heap->newest;
  *(heap->newest == NULL ? &heap->oldest : &heap->newest->newer) = block;
  heap->newest = block;
  heap->kept_bytes += block->size_bytes;
}

static void unkeep(tw_heap_t* heap, tw_block_t* block) {
  const unsigned index = class_of(block->size_bytes);
  if (block->next_alike != NULL) block->next_alike->previous_alike = block->previous_alike;
  *(block->previous_alike == NULL ? &heap->kept[index] : &block->previous_alike->next_alike) = block->next_alike;
  if (heap->kept[index] == NULL) heap->kept_classes[index / WORD_BITS] &= ~((uint64_t)1 << (index % WORD_BITS));
  *(block->newer == NULL ? &heap->newest : &block->newer->older) = block->older;
  *(block->older == NULL ? &heap->oldest : &block->older->newer) = block->newer;
  heap->kept_bytes -= block->size_bytes;
}

// The smallest kept block of a class from `first` to `last`.
static tw_block_t* find_kept(const tw_heap_t* heap, unsigned first, unsigned last) {
  if (last >= CLASS_COUNT) last = CLASS_COUNT - 1;
  for (unsigned word = first / WORD_BITS; word <= last / WORD_BITS; ++word) {
    uint64_t bits = heap->kept_classes[word];
    if (word == first / WORD_BITS) bits &= ~(uint64_t)0 << (first % WORD_BITS);
    if (bits == 0) continue;
    const unsigned index = word * WORD_BITS + (unsigned)__builtin_ctzll(bits);
    return index <= last ? heap->kept[index] : NULL;
  }
  return NULL;
}

// What leased and kept blocks may take together when `block_bytes` are leased.
static size_t total_limit(const tw_heap_t* heap, size_t block_bytes) {
  const size_t peak = block_bytes > heap->block_peak_bytes ? block_bytes : heap->block_peak_bytes;
  return peak + peak / 8 + SLACK_BYTES;
}

// Takes the oldest kept blocks out until what is left is within the bounds; the caller frees them.
static tw_block_t* evict(tw_heap_t* heap) {
  tw_block_t* evicted = NULL;
  const size_t limit = total_limit(heap, heap->block_bytes);
  const size_t room = heap->capacity_bytes - heap->total_bytes;
  while (heap->oldest != NULL && (heap->block_bytes + heap->kept_bytes > limit || heap->kept_bytes > room ||
                                  heap->kept_bytes > heap->kept_limit_bytes)) {
    tw_block_t* block = heap->oldest;
    unkeep(heap, block);
    block->next_alike = evicted;
    evicted = block;
  }
  return evicted;
}

static tw_block_t* evict_all(tw_heap_t* heap) {
  tw_block_t* evicted = NULL;
  while (heap->oldest != NULL) {
    tw_block_t* block = heap->oldest;
    unkeep(heap, block);
    block->next_alike = evicted;
    evicted = block;
  }
  return evicted;
}

static void free_blocks(tw_block_t* block) {
  while (block != NULL) {
    tw_block_t* next = block->next_alike;
    tw_memory_free(block->base, block->size_bytes);
    free(block);
    block = next;
  }
}

static tw_block_t* allocate_block(size_t size_bytes) {
  tw_block_t* block = malloc(sizeof(*block));
  if (block == NULL) return NULL;
  block->size_bytes = size_bytes;
  if (tw_memory_allocate(size_bytes, &block->base) == TW_STATUS_OK) return block;
  free(block);
  return NULL;
}

// ---- counting ---------------------------------------------------------------------------------------

static void count_in(tw_heap_t* heap, const tw_lease_t* lease) {
  heap->block_bytes += lease->size_bytes;
  heap->total_bytes += lease->size_bytes + lease->beside_bytes;
  heap->in_use_bytes[lease->use] += lease->size_bytes;
  heap->in_use_bytes[TW_MEMORY_TRANSIENT] += lease->beside_bytes;
  ++heap->live_count;
  if (heap->block_bytes > heap->block_peak_bytes) heap->block_peak_bytes = heap->block_bytes;
  if (heap->total_bytes > heap->peak_bytes) heap->peak_bytes = heap->total_bytes;
}

static void count_out(tw_heap_t* heap, const tw_lease_t* lease) {
  heap->block_bytes -= lease->size_bytes;
  heap->total_bytes -= lease->size_bytes + lease->beside_bytes;
  heap->in_use_bytes[lease->use] -= lease->size_bytes;
  heap->in_use_bytes[TW_MEMORY_TRANSIENT] -= lease->beside_bytes;
  --heap->live_count;
}

static void link_lease(tw_heap_t* heap, tw_lease_t* lease) {
  lease->next = heap->leases;
  lease->link = &heap->leases;
  if (lease->next != NULL) lease->next->link = &lease->next;
  heap->leases = lease;
}

static void unlink_lease(tw_lease_t* lease) {
  *lease->link = lease->next;
  if (lease->next != NULL) lease->next->link = lease->link;
}

static void end_lease(tw_heap_t* heap, tw_lease_t* lease) {
  count_out(heap, lease);
  unlink_lease(lease);
  if (lease->block != NULL) keep(heap, lease->block);
}

// ---- leases -----------------------------------------------------------------------------------------

static tw_status_t refuse(const tw_heap_t* heap, size_t size_bytes, size_t capacity_bytes, tw_refusal_t* out_refusal) {
  *out_refusal = (tw_refusal_t){
      .size_bytes = size_bytes, .in_use_bytes = heap->total_bytes, .capacity_bytes = capacity_bytes};
  return TW_STATUS_NO_MEMORY;
}

// A kept block for a lease; only with the lock.
static tw_block_t* take_kept(tw_heap_t* heap, size_t size_bytes, size_t room_bytes, tw_memory_use_t use) {
  const unsigned index = class_of(size_bytes);
  tw_block_t* block = find_kept(heap, index, index + 1);
  if (block == NULL && use == TW_MEMORY_ARENA) {
    const size_t leased = heap->block_bytes + size_bytes;
    if (leased + heap->kept_bytes > total_limit(heap, leased)) block = find_kept(heap, index, CLASS_COUNT - 1);
  }
  if (block == NULL || block->size_bytes > room_bytes) return NULL;
  unkeep(heap, block);
  return block;
}

// Frees what gives way to a lease, and makes its block where none was kept. The lease is counted and linked already:
// nobody takes its room while the lock is open, and a child that is forked meanwhile can end it.
static int settle(tw_heap_t* heap, tw_lease_t* lease, tw_block_t* evicted) {
  pthread_mutex_unlock(&heap->lock);
  free_blocks(evicted);
  tw_block_t* block = lease->block;
  if (block == NULL && lease->size_bytes != 0) block = allocate_block(lease->size_bytes);
  if (block == NULL && lease->size_bytes != 0) {
    tw_heap_trim(heap);
    block = allocate_block(lease->size_bytes);
  }
  pthread_mutex_lock(&heap->lock);
  lease->block = block;
  return block != NULL || lease->size_bytes == 0;
}

static tw_status_t lease_locked(tw_heap_t* heap, const tw_lease_request_t* request, tw_lease_t* lease,
                                tw_refusal_t* out_refusal) {
  if ((request->size_bytes | request->beside_bytes) >> SIZE_BITS != 0) {
    return refuse(heap, request->size_bytes, heap->capacity_bytes == SIZE_MAX ? 0 : heap->capacity_bytes, out_refusal);
  }
  const size_t size = request->size_bytes == 0 ? 0 : tw_heap_block_bytes(request->size_bytes);
  const size_t beside = request->beside_bytes;
  const size_t free_bytes = heap->capacity_bytes - heap->total_bytes;
  if (beside > free_bytes || size > free_bytes - beside) {
    return refuse(heap, size + beside, heap->capacity_bytes, out_refusal);
  }
  *lease = (tw_lease_t){.size_bytes = size, .beside_bytes = beside, .use = request->use};
  if (request->ends_with_call) lease->thread = (uintptr_t)pthread_self();
  if (size != 0) lease->block = take_kept(heap, size, free_bytes - beside, request->use);
  const int is_new = size != 0 && lease->block == NULL;
  if (lease->block != NULL) {
    lease->size_bytes = lease->block->size_bytes;
    ++heap->reuse_count;
  }
  count_in(heap, lease);
  link_lease(heap, lease);
  tw_block_t* evicted = evict(heap);
  if ((is_new || evicted != NULL) && !settle(heap, lease, evicted)) {
    end_lease(heap, lease);
    return refuse(heap, size, 0, out_refusal);
  }
  ++heap->lease_count;
  heap->leased_bytes += lease->size_bytes;
  if (lease->block != NULL) lease->base = lease->block->base;
  return TW_STATUS_OK;
}

tw_status_t tw_heap_lease(tw_heap_t* heap, const tw_lease_request_t* request, tw_lease_t* out_lease,
                          tw_refusal_t* out_refusal) {
  pthread_mutex_lock(&heap->lock);
  const tw_status_t status = lease_locked(heap, request, out_lease, out_refusal);
  pthread_mutex_unlock(&heap->lock);
  return status;
}

void tw_heap_return(tw_heap_t* heap, tw_lease_t* lease) {
  pthread_mutex_lock(&heap->lock);
  end_lease(heap, lease);
  tw_block_t* evicted = evict(heap);
  pthread_mutex_unlock(&heap->lock);
  free_blocks(evicted);
}

void tw_heap_trim(tw_heap_t* heap) {
  pthread_mutex_lock(&heap->lock);
  tw_block_t* evicted = evict_all(heap);
  heap->block_peak_bytes = heap->block_bytes;
  pthread_mutex_unlock(&heap->lock);
  free_blocks(evicted);
}

void tw_heap_close(tw_heap_t* heap) {
  pthread_mutex_lock(&heap->lock);
  heap->kept_limit_bytes = 0;
  pthread_mutex_unlock(&heap->lock);
  tw_heap_trim(heap);
}

size_t tw_heap_capacity(const tw_heap_t* heap) { return heap->capacity_bytes; }

void tw_heap_report(tw_heap_t* heap, tw_heap_report_t* out_report) {
  pthread_mutex_lock(&heap->lock);
  *out_report = (tw_heap_report_t){
      .kept_bytes = heap->kept_bytes,
      .peak_bytes = heap->peak_bytes,
      .capacity_bytes = heap->capacity_bytes,
      .lease_count = heap->lease_count,
      .reuse_count = heap->reuse_count,
      .leased_bytes = heap->leased_bytes,
      .live_count = heap->live_count,
  };
  memcpy(out_report->in_use_bytes, heap->in_use_bytes, sizeof(heap->in_use_bytes));
  pthread_mutex_unlock(&heap->lock);
}

size_t tw_heap_sizes(tw_heap_t* heap, size_t limit, size_t* out_sizes) {
  size_t count = 0;
  pthread_mutex_lock(&heap->lock);
  for (const tw_lease_t* lease = heap->leases; lease != NULL && count < limit; lease = lease->next) {
    out_sizes[count++] = lease->size_bytes + lease->beside_bytes;
  }
  pthread_mutex_unlock(&heap->lock);
  return count;
}

// ---- fork -------------------------------------------------------------------------------------------

static void fork_prepare(void) {
  pthread_mutex_lock(&heaps_lock);
  for (tw_heap_t* heap = heaps; heap != NULL; heap = heap->next) pthread_mutex_lock(&heap->lock);
}

static void fork_parent(void) {
  for (tw_heap_t* heap = heaps; heap != NULL; heap = heap->next) pthread_mutex_unlock(&heap->lock);
  pthread_mutex_unlock(&heaps_lock);
}

// Calls of other threads do not go on here: what they held can be used again.
static void fork_child(void) {
  const uintptr_t self = (uintptr_t)pthread_self();
  for (tw_heap_t* heap = heaps; heap != NULL; heap = heap->next) {
    for (tw_lease_t* lease = heap->leases; lease != NULL;) {
      tw_lease_t* next = lease->next;
      if (lease->thread != 0 && lease->thread != self) end_lease(heap, lease);
      lease = next;
    }
  }
  fork_parent();
}

static void register_fork_handlers(void) { tw_system_on_fork(fork_prepare, fork_parent, fork_child); }

// ---- heaps ------------------------------------------------------------------------------------------

tw_status_t tw_heap_create(size_t capacity_bytes, size_t kept_bytes, tw_heap_t** out_heap) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, register_fork_handlers);
  tw_heap_t* heap = calloc(1, sizeof(*heap));
  if (heap == NULL) return TW_STATUS_NO_MEMORY;
  pthread_mutex_init(&heap->lock, NULL);
  heap->capacity_bytes = capacity_bytes;
  heap->kept_limit_bytes = kept_bytes;
  pthread_mutex_lock(&heaps_lock);
  heap->next = heaps;
  heaps = heap;
  pthread_mutex_unlock(&heaps_lock);
  *out_heap = heap;
  return TW_STATUS_OK;
}

void tw_heap_destroy(tw_heap_t* heap) {
  if (heap == NULL) return;
  pthread_mutex_lock(&heaps_lock);
  for (tw_heap_t** link = &heaps; *link != NULL; link = &(*link)->next) {
    if (*link != heap) continue;
    *link = heap->next;
    break;
  }
  pthread_mutex_unlock(&heaps_lock);
  free_blocks(evict_all(heap));
  pthread_mutex_destroy(&heap->lock);
  free(heap);
}

static tw_heap_t* default_heap = NULL;

static void create_default(void) {
  if (tw_heap_create(SIZE_MAX, SIZE_MAX, &default_heap) != TW_STATUS_OK) default_heap = NULL;
}

tw_heap_t* tw_heap_default(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, create_default);
  return default_heap;
}
