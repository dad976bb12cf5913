// The worker pool: fork/join of one range of work units over threads.
//
// The caller always takes part, so a pool of one thread has no worker, and a worker that the system
// does not schedule delays nobody: units it has not taken are run by the others. Workers start at the
// first use, spin for a short while after work, then sleep; a forked child starts its own.
// Thread-safety: any thread may enter; several at once share the workers. Create and destroy are the
// owner's business.
#ifndef TW_POOL_H_
#define TW_POOL_H_

#include <stdint.h>

#include "tw_status.h"

typedef struct tw_pool_t tw_pool_t;

// The place of one submitting thread in the pool, from enter to leave.
typedef struct tw_seat_t tw_seat_t;

typedef struct tw_pool_options_t {
  uint32_t thread_count;    // including the caller; at least 1
  uint32_t spin_us;         // how long an idle worker spins before it sleeps; capped at 200
  const uint32_t* cpu_ids;  // NULL, or thread_count processors; worker i is pinned to entry i, best effort
} tw_pool_options_t;

// Runs the units begin <= i < end. `worker_index` is 0 for callers and below the thread count for all.
typedef void (*tw_work_t)(void* context, uint32_t worker_index, uint64_t begin, uint64_t end);

tw_status_t tw_pool_create(const tw_pool_options_t* options, tw_pool_t** out_pool);

// Stops and joins the workers. Runs in flight finish on their callers' threads alone.
void tw_pool_close(tw_pool_t* pool);

// Closes and frees. No thread may have a seat.
void tw_pool_destroy(tw_pool_t* pool);

uint32_t tw_pool_thread_count(const tw_pool_t* pool);

// NULL if the pool has one thread, is closed or is full: the caller then works alone.
tw_seat_t* tw_pool_enter(tw_pool_t* pool);
void tw_pool_leave(tw_seat_t* seat);

// Has `watch` called on the caller's thread, every 50 ms or so, while it waits for units that others took.
void tw_seat_watch(tw_seat_t* seat, void (*watch)(void* context), void* context);

// Runs all units and returns when every one of them is done.
// TW_STATUS_FORKED: `work` or the watch forked, and this is the child: the workers' units are lost.
tw_status_t tw_pool_run(tw_seat_t* seat, uint64_t unit_count, tw_work_t work, void* context);

#endif  // TW_POOL_H_
