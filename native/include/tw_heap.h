// The heap of a device: all memory that its calls take, with a cap, shared by all that run on it.
//
// Blocks are leased for a use and kept for the next lease when they come back. What is in use and kept together
// never exceeds by more than an eighth what was once in use at the same time: running many sizes takes no more
// memory than the largest of them. Ownership: whoever leases returns. Thread-safety: any thread may do anything
// but destroy; one lock, held for a few instructions, never across a system call.
#ifndef TW_HEAP_H_
#define TW_HEAP_H_

#include <stddef.h>
#include <stdint.h>

#include "tw_status.h"

typedef struct tw_heap_t tw_heap_t;
typedef struct tw_block_t tw_block_t;

// MIRROR MEMORY USES. What a lease is for.
typedef enum tw_memory_use_t {
  TW_MEMORY_ARENA = 0,      // intermediate tensors of one call
  TW_MEMORY_TRANSIENT = 1,  // buffers, staged inputs, outputs
  TW_MEMORY_SCRATCH = 2,    // workgroup memory of the threads of one call
  TW_MEMORY_USE_COUNT = 3,
} tw_memory_use_t;

// A lease, in memory of whoever holds it; it must stay where it is until it is returned.
typedef struct tw_lease_t {
  void* base;           // NULL for no bytes
  size_t size_bytes;    // of the block: at least what was asked for
  size_t beside_bytes;  // memory of others that is counted as transient as long as the lease lasts
  tw_memory_use_t use;
  uintptr_t thread;     // not 0: part of a call of this thread, which a forked child does not go on with
  tw_block_t* block;
  struct tw_lease_t* next;
  struct tw_lease_t** link;
} tw_lease_t;

typedef struct tw_lease_request_t {
  size_t size_bytes;
  size_t beside_bytes;
  tw_memory_use_t use;
  int ends_with_call;  // it is returned by the same thread, at the end of its call
} tw_lease_request_t;

// Why there was none. `capacity_bytes` is 0 where the system refused.
typedef struct tw_refusal_t {
  size_t size_bytes;
  size_t in_use_bytes;
  size_t capacity_bytes;
} tw_refusal_t;

typedef struct tw_heap_report_t {
  size_t in_use_bytes[TW_MEMORY_USE_COUNT];
  size_t kept_bytes;
  size_t peak_bytes;  // most in use at the same time
  size_t capacity_bytes;
  uint64_t lease_count;
  uint64_t reuse_count;
  uint64_t leased_bytes;  // of all leases so far
  size_t live_count;
} tw_heap_report_t;

// SIZE_MAX: no bound. `kept_bytes` bounds what is kept for reuse.
tw_status_t tw_heap_create(size_t capacity_bytes, size_t kept_bytes, tw_heap_t** out_heap);

// Gives back what is kept. Nobody may hold a lease.
void tw_heap_destroy(tw_heap_t* heap);

// The one for runs without a device: no bound.
tw_heap_t* tw_heap_default(void);

// TW_STATUS_NO_MEMORY fills the refusal. Contents of a block are undefined.
tw_status_t tw_heap_lease(tw_heap_t* heap, const tw_lease_request_t* request, tw_lease_t* out_lease,
                          tw_refusal_t* out_refusal);
void tw_heap_return(tw_heap_t* heap, tw_lease_t* lease);

// Gives what is kept back to the system, and forgets how much was in use once. Leases stay as they are.
void tw_heap_trim(tw_heap_t* heap);

// Keeps nothing from here on: what comes back goes back to the system at once.
void tw_heap_close(tw_heap_t* heap);

size_t tw_heap_capacity(const tw_heap_t* heap);

void tw_heap_report(tw_heap_t* heap, tw_heap_report_t* out_report);

// The sizes of up to `limit` blocks in use; returns how many were written.
size_t tw_heap_sizes(tw_heap_t* heap, size_t limit, size_t* out_sizes);

// The size of the block that `size_bytes` come in.
size_t tw_heap_block_bytes(size_t size_bytes);

#endif  // TW_HEAP_H_
