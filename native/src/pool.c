// How a fork and join works.
//
// A submitting thread owns a seat. It writes the job into the seat, then stores the number of units into
// `left`: that publishes the job. Every thread takes part of `left` by compare-and-swap until nothing
// remains, the caller included. Units are counted in `done` when they ran; the caller returns when `done`
// reaches the job's size. A worker reads the job only after a successful swap, and the job cannot end
// before that worker has counted its units, so the fields are stable while anyone reads them, and a
// worker that looks at a stale `left` merely fails its swap or takes a valid part of the next job.
#include "tw_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "wait.h"

enum { SEAT_COUNT = 8, CACHE_LINE = 64, SPIN_LIMIT_US = 200, UNUSED_OWNER = 0 };

struct tw_seat_t {
  // The job, on one line, so that a worker gets all of it with the ticket.
  _Alignas(CACHE_LINE) _Atomic uint64_t left;
  uint64_t total;
  tw_work_t work;
  void* context;
  // The join.
  _Alignas(CACHE_LINE) _Atomic uint64_t done;
  tw_word_t finish_count;  // changes when a job ends that its caller may sleep on
  atomic_int caller_sleeps;
  // Who sits here: the thread's handle, or UNUSED_OWNER.
  _Alignas(CACHE_LINE) atomic_uintptr_t owner;
  tw_pool_t* pool;
};

typedef struct worker_t {
  tw_pool_t* pool;
  uint32_t index;
  pthread_t thread;
  tw_scratch_t scratch;
} worker_t;

struct tw_pool_t {
  tw_seat_t seats[SEAT_COUNT];
  _Alignas(CACHE_LINE) atomic_uint sleeper_count;
  tw_word_t wake_count;  // what sleeping workers wait on
  _Alignas(CACHE_LINE) atomic_uint seat_limit;  // seats from here on were never used
  atomic_bool started;
  atomic_bool closing;
  uint32_t thread_count;
  uint32_t spin_us;
  uint32_t worker_count;  // workers running; guarded by start_lock
  worker_t* workers;      // thread_count - 1 entries
  uint32_t* cpu_ids;
  pthread_mutex_t start_lock;
  tw_pool_t* next;  // in the list of live pools, guarded by pools_lock
};

static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static tw_pool_t* pools = NULL;

// ---- taking work ------------------------------------------------------------------------------------

// Takes about a half of an even share, so that slow threads and uneven units level out at the end.
static int seat_take(tw_seat_t* seat, uint64_t divisor, uint64_t* out_begin, uint64_t* out_end) {
  uint64_t left = atomic_load_explicit(&seat->left, memory_order_acquire);
  while (left != 0) {
    const uint64_t taken = left > divisor ? left / divisor : 1;
    if (atomic_compare_exchange_weak_explicit(&seat->left, &left, left - taken, memory_order_acq_rel,
                                              memory_order_acquire)) {
      *out_begin = seat->total - left;
      *out_end = *out_begin + taken;
      return 1;
    }
  }
  return 0;
}

// Runs parts of the seat's job until none is left; returns how many units that were.
static uint64_t seat_work(tw_seat_t* seat, uint32_t worker_index, tw_scratch_t* scratch) {
  const uint64_t divisor = 2 * (uint64_t)seat->pool->thread_count;
  uint64_t units = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
  while (seat_take(seat, divisor, &begin, &end)) {
    seat->work(seat->context, worker_index, scratch, begin, end);
    units += end - begin;
  }
  return units;
}

// A worker's visit: work, count, and wake the caller if it went to sleep over the last unit.
static int seat_help(tw_seat_t* seat, worker_t* worker) {
  if (atomic_load_explicit(&seat->left, memory_order_relaxed) == 0) return 0;
  uint64_t begin = 0;
  uint64_t end = 0;
  if (!seat_take(seat, 2 * (uint64_t)seat->pool->thread_count, &begin, &end)) return 0;
  const uint64_t total = seat->total;  // stable: our own units are not counted yet
  seat->work(seat->context, worker->index, &worker->scratch, begin, end);
  const uint64_t units = end - begin + seat_work(seat, worker->index, &worker->scratch);
  if (atomic_fetch_add(&seat->done, units) + units == total && atomic_load(&seat->caller_sleeps)) {
    atomic_fetch_add(&seat->finish_count, 1);
    tw_word_wake(&seat->finish_count, 1);
  }
  return 1;
}

static int pool_help(tw_pool_t* pool, worker_t* worker) {
  int helped = 0;
  const unsigned limit = atomic_load_explicit(&pool->seat_limit, memory_order_acquire);
  for (unsigned i = 0; i < limit; ++i) {
    // Start at different seats, so that simultaneous jobs share the workers.
    helped |= seat_help(&pool->seats[(i + worker->index) % limit], worker);
  }
  return helped;
}

static int pool_has_work(tw_pool_t* pool) {
  const unsigned limit = atomic_load(&pool->seat_limit);
  for (unsigned i = 0; i < limit; ++i) {
    if (atomic_load(&pool->seats[i].left) != 0) return 1;
  }
  return 0;
}

// ---- workers ----------------------------------------------------------------------------------------

static int worker_spin(worker_t* worker) {
  tw_pool_t* pool = worker->pool;
  tw_spin_t spin = tw_spin_begin(pool->spin_us);
  while (!atomic_load_explicit(&pool->closing, memory_order_relaxed)) {
    if (pool_help(pool, worker)) return 1;
    if (!tw_spin_continue(&spin)) return 0;
  }
  return 0;
}

// Announces the sleep before the last look, as the submitter publishes before it looks for sleepers:
// one of the two sees the other.
static void worker_sleep(worker_t* worker) {
  tw_pool_t* pool = worker->pool;
  const uint32_t seen = atomic_load(&pool->wake_count);
  atomic_fetch_add(&pool->sleeper_count, 1);
  if (!pool_has_work(pool) && !atomic_load(&pool->closing)) tw_word_wait(&pool->wake_count, seen);
  atomic_fetch_sub(&pool->sleeper_count, 1);
}

static void worker_pin(const worker_t* worker) {
#if defined(__linux__)
  if (worker->pool->cpu_ids == NULL) return;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(worker->pool->cpu_ids[worker->index], &cpus);
  pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
#else
  (void)worker;
#endif
}

static void* worker_main(void* argument) {
  worker_t* worker = argument;
  worker_pin(worker);
  while (!atomic_load(&worker->pool->closing)) {
    if (!worker_spin(worker)) worker_sleep(worker);
  }
  return NULL;
}

// Starts what the system lets us start; the callers run the rest. Workers take no signals.
static void pool_start(tw_pool_t* pool) {
  pthread_mutex_lock(&pool->start_lock);
  if (!atomic_load(&pool->started) && !atomic_load(&pool->closing)) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool->worker_count + 1 < pool->thread_count) {
      worker_t* worker = &pool->workers[pool->worker_count];
      worker->pool = pool;
      worker->index = pool->worker_count + 1;
      if (pthread_create(&worker->thread, NULL, worker_main, worker) != 0) break;
      ++pool->worker_count;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    atomic_store(&pool->started, 1);
  }
  pthread_mutex_unlock(&pool->start_lock);
}

// ---- fork -------------------------------------------------------------------------------------------

static void fork_prepare(void) {
  pthread_mutex_lock(&pools_lock);
  for (tw_pool_t* pool = pools; pool != NULL; pool = pool->next) pthread_mutex_lock(&pool->start_lock);
  tw_wait_fork_prepare();
}

static void fork_parent(void) {
  tw_wait_fork_done();
  for (tw_pool_t* pool = pools; pool != NULL; pool = pool->next) pthread_mutex_unlock(&pool->start_lock);
  pthread_mutex_unlock(&pools_lock);
}

// Only the forking thread lives on: forget the workers and the seats of all other threads.
static void fork_child(void) {
  const uintptr_t self = (uintptr_t)pthread_self();
  for (tw_pool_t* pool = pools; pool != NULL; pool = pool->next) {
    pool->worker_count = 0;
    atomic_store(&pool->started, 0);
    atomic_store(&pool->sleeper_count, 0);
    for (int i = 0; i < SEAT_COUNT; ++i) {
      tw_seat_t* seat = &pool->seats[i];
      if (atomic_load(&seat->owner) == self) continue;
      atomic_store(&seat->left, 0);
      atomic_store(&seat->owner, UNUSED_OWNER);
    }
  }
  fork_parent();
}

static void register_fork_handlers(void) { pthread_atfork(fork_prepare, fork_parent, fork_child); }

// ---- pools ------------------------------------------------------------------------------------------

static tw_status_t pool_fill(tw_pool_t* pool, const tw_pool_options_t* options) {
  const size_t thread_count = options->thread_count;
  pool->workers = calloc(thread_count, sizeof(worker_t));
  if (pool->workers == NULL) return TW_STATUS_NO_MEMORY;
  if (options->cpu_ids == NULL) return TW_STATUS_OK;
  pool->cpu_ids = malloc(thread_count * sizeof(uint32_t));
  if (pool->cpu_ids == NULL) return TW_STATUS_NO_MEMORY;
  for (size_t i = 0; i < thread_count; ++i) {
#if defined(__linux__)
    if (options->cpu_ids[i] >= CPU_SETSIZE) return TW_STATUS_INVALID;
#endif
    pool->cpu_ids[i] = options->cpu_ids[i];
  }
  return TW_STATUS_OK;
}

static void pool_free(tw_pool_t* pool) {
  for (uint32_t i = 0; pool->workers != NULL && i + 1 < pool->thread_count; ++i) {
    tw_scratch_release(&pool->workers[i].scratch);
  }
  free(pool->workers);
  free(pool->cpu_ids);
  pthread_mutex_destroy(&pool->start_lock);
  free(pool);
}

tw_status_t tw_pool_create(const tw_pool_options_t* options, tw_pool_t** out_pool) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (options->thread_count == 0) return TW_STATUS_INVALID;
  pthread_once(&once, register_fork_handlers);
  tw_pool_t* pool = NULL;
  if (posix_memalign((void**)&pool, CACHE_LINE, sizeof(*pool)) != 0) return TW_STATUS_NO_MEMORY;
  memset(pool, 0, sizeof(*pool));
  pthread_mutex_init(&pool->start_lock, NULL);
  pool->thread_count = options->thread_count;
  pool->spin_us = options->spin_us > SPIN_LIMIT_US ? SPIN_LIMIT_US : options->spin_us;
  for (int i = 0; i < SEAT_COUNT; ++i) pool->seats[i].pool = pool;
  const tw_status_t status = pool_fill(pool, options);
  if (status != TW_STATUS_OK) {
    pool_free(pool);
    return status;
  }
  pthread_mutex_lock(&pools_lock);
  pool->next = pools;
  pools = pool;
  pthread_mutex_unlock(&pools_lock);
  *out_pool = pool;
  return TW_STATUS_OK;
}

void tw_pool_close(tw_pool_t* pool) {
  pthread_mutex_lock(&pool->start_lock);
  atomic_store(&pool->closing, 1);
  atomic_fetch_add(&pool->wake_count, 1);
  tw_word_wake(&pool->wake_count, UINT32_MAX);
  while (pool->worker_count != 0) {
    pthread_join(pool->workers[pool->worker_count - 1].thread, NULL);
    --pool->worker_count;
  }
  pthread_mutex_unlock(&pool->start_lock);
}

void tw_pool_destroy(tw_pool_t* pool) {
  if (pool == NULL) return;
  tw_pool_close(pool);
  pthread_mutex_lock(&pools_lock);
  for (tw_pool_t** link = &pools; *link != NULL; link = &(*link)->next) {
    if (*link != pool) continue;
    *link = pool->next;
    break;
  }
  pthread_mutex_unlock(&pools_lock);
  pool_free(pool);
}

uint32_t tw_pool_thread_count(const tw_pool_t* pool) { return pool->thread_count; }

tw_seat_t* tw_pool_enter(tw_pool_t* pool) {
  if (pool->thread_count == 1 || atomic_load(&pool->closing)) return NULL;
  if (!atomic_load_explicit(&pool->started, memory_order_acquire)) pool_start(pool);
  const uintptr_t self = (uintptr_t)pthread_self();
  for (unsigned i = 0; i < SEAT_COUNT; ++i) {
    tw_seat_t* seat = &pool->seats[i];
    uintptr_t owner = UNUSED_OWNER;
    if (!atomic_compare_exchange_strong(&seat->owner, &owner, self)) continue;
    unsigned limit = atomic_load(&pool->seat_limit);
    while (limit <= i && !atomic_compare_exchange_weak(&pool->seat_limit, &limit, i + 1)) {
    }
    return seat;
  }
  return NULL;
}

void tw_pool_leave(tw_seat_t* seat) {
  if (seat != NULL) atomic_store_explicit(&seat->owner, UNUSED_OWNER, memory_order_release);
}

// Waits for units that other threads have taken: briefly awake, then asleep.
static void seat_join(tw_seat_t* seat, uint64_t total) {
  tw_spin_t spin = tw_spin_begin(seat->pool->spin_us);
  while (atomic_load_explicit(&seat->done, memory_order_acquire) != total) {
    if (tw_spin_continue(&spin)) continue;
    const uint32_t seen = atomic_load(&seat->finish_count);
    atomic_store(&seat->caller_sleeps, 1);
    if (atomic_load(&seat->done) != total) tw_word_wait(&seat->finish_count, seen);
    atomic_store(&seat->caller_sleeps, 0);
  }
}

void tw_pool_run(tw_seat_t* seat, uint64_t unit_count, tw_work_t work, void* context, tw_scratch_t* scratch) {
  if (seat == NULL || unit_count <= 1) {
    if (unit_count != 0) work(context, 0, scratch, 0, unit_count);
    return;
  }
  tw_pool_t* pool = seat->pool;
  seat->work = work;
  seat->context = context;
  seat->total = unit_count;
  atomic_store_explicit(&seat->done, 0, memory_order_relaxed);
  atomic_store(&seat->left, unit_count);
  const unsigned sleepers = atomic_load(&pool->sleeper_count);
  if (sleepers != 0) {
    const uint64_t wanted = unit_count - 1 < sleepers ? unit_count - 1 : sleepers;
    atomic_fetch_add(&pool->wake_count, 1);
    tw_word_wake(&pool->wake_count, (uint32_t)wanted);
  }
  const uint64_t units = seat_work(seat, 0, scratch);
  if (atomic_fetch_add(&seat->done, units) + units != unit_count) seat_join(seat, unit_count);
}
