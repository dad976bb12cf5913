// Allocations that fail when a test wants them to; the linker sends the core's here (--wrap).
#include "check.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

#if defined(TW_WRAPPED)

static atomic_int before;  // allocations that are granted before some fail
static atomic_int failing;
static atomic_int failed;

int fail_allocations(int first, int count) {
  atomic_store(&failing, 0);
  atomic_store(&before, first);
  atomic_store(&failing, count);
  return atomic_exchange(&failed, 0);
}

static int take_one(atomic_int* left) {
  int count = atomic_load(left);
  while (count > 0) {
    if (atomic_compare_exchange_weak(left, &count, count - 1)) return 1;
  }
  return 0;
}

static int fails_now(void) {
  if (atomic_load(&failing) == 0 || take_one(&before) || !take_one(&failing)) return 0;
  atomic_fetch_add(&failed, 1);
  return 1;
}

void* __real_malloc(size_t size_bytes);
void* __real_calloc(size_t count, size_t size_bytes);
void* __real_realloc(void* block, size_t size_bytes);
int __real_posix_memalign(void** out_block, size_t alignment, size_t size_bytes);
void* __wrap_malloc(size_t size_bytes);
void* __wrap_calloc(size_t count, size_t size_bytes);
void* __wrap_realloc(void* block, size_t size_bytes);
int __wrap_posix_memalign(void** out_block, size_t alignment, size_t size_bytes);

void* __wrap_malloc(size_t size_bytes) { return fails_now() ? NULL : __real_malloc(size_bytes); }

void* __wrap_calloc(size_t count, size_t size_bytes) { return fails_now() ? NULL : __real_calloc(count, size_bytes); }

void* __wrap_realloc(void* block, size_t size_bytes) { return fails_now() ? NULL : __real_realloc(block, size_bytes); }

int __wrap_posix_memalign(void** out_block, size_t alignment, size_t size_bytes) {
  return fails_now() ? ENOMEM : __real_posix_memalign(out_block, alignment, size_bytes);
}

#endif
