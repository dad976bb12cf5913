// How a fork and join works.
//
// A submitting thread owns a seat. It writes the job into the seat, deals the units out to one lane per
// thread, then advances the seat's `sequence`, which tells the workers. Every thread takes units from the
// front of its own lane and, when that is empty, from the back of the others', by compare-and-swap: equal
// grids meet the same thread, and its cache, from command to command, while a thread that is late or slow
// loses its units to the rest. Units are counted in `done` when they ran; the caller returns when `done`
// reaches the job's size. A thread reads the job only after it has taken units of it, and the job cannot
// end before these are counted, so the fields are stable while anyone reads them. A worker that comes
// late finds empty lanes or takes a valid part of the next job.
#include "tw_pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "system.h"
#include "wait.h"

enum { SEAT_COUNT = 8, CACHE_LINE = 64, SPIN_LIMIT_US = 200, UNUSED_OWNER = 0 };
enum { SPREAD_INTERVAL_NS = 20 * 1000 * 1000, WATCH_INTERVAL_NS = 50 * 1000 * 1000 };

// Units first <= i < last of one thread, as first << 32 | last.
typedef struct lane_t {
  _Alignas(CACHE_LINE) _Atomic uint64_t range;
} lane_t;

struct tw_seat_t {
  // The job, on the line that workers watch, so that they get all of it with the news.
  _Alignas(CACHE_LINE) _Atomic uint64_t sequence;
  tw_work_t work;
  void* context;
  uint64_t unit_count;
  uint64_t units_per_step;  // above 1 only for grids that do not fit a lane's 32 bits
  uint64_t step_count;
  // The join.
  _Alignas(CACHE_LINE) _Atomic uint64_t done;
  tw_word_t finish_count;  // changes when a job ends that its caller may sleep on
  atomic_int caller_sleeps;
  // Who sits here: the thread's handle, or UNUSED_OWNER.
  _Alignas(CACHE_LINE) atomic_uintptr_t owner;
  tw_pool_t* pool;
  lane_t* lanes;  // one per thread of the pool
  // For the caller's thread alone.
  void (*watch)(void* context);
  void* watch_context;
  int running;  // between publishing a job and its end
  int lost;     // forked in between: what the workers took never ends
};

typedef struct worker_t {
  tw_pool_t* pool;
  uint32_t index;
  pthread_t thread;
  uint64_t seen[SEAT_COUNT];  // the last job of each seat that this worker found drained
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
  atomic_int home_cpu;    // the processor the workers keep away from, or -1
  _Atomic uint64_t next_spread_ns;
  worker_t* workers;      // thread_count - 1 entries
  lane_t* lanes;          // of all seats
  uint32_t* cpu_ids;
  pthread_mutex_t start_lock;
  tw_pool_t* next;  // in the list of live pools, guarded by pools_lock
};

static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static tw_pool_t* pools = NULL;

// ---- taking work ------------------------------------------------------------------------------------

// Takes half of what is left: few swaps, and small parts near the end, where threads level out.
static uint32_t lane_take(lane_t* lane, int from_back, uint32_t* out_first) {
  uint64_t range = atomic_load_explicit(&lane->range, memory_order_acquire);
  for (;;) {
    const uint32_t first = (uint32_t)(range >> 32);
    const uint32_t last = (uint32_t)range;
    if (first >= last) return 0;
    const uint32_t taken = last - first > 1 ? (last - first) / 2 : 1;
    const uint64_t rest = from_back ? range - taken : range + ((uint64_t)taken << 32);
    if (atomic_compare_exchange_weak_explicit(&lane->range, &range, rest, memory_order_acq_rel,
                                              memory_order_acquire)) {
      *out_first = from_back ? last - taken : first;
      return taken;
    }
  }
}

// Empties a lane; returns how many steps that were.
static uint64_t lane_work(tw_seat_t* seat, lane_t* lane, int from_back, uint32_t worker_index) {
  uint64_t steps = 0;
  uint32_t first = 0;
  for (uint32_t taken; (taken = lane_take(lane, from_back, &first)) != 0; steps += taken) {
    const uint64_t begin = first * seat->units_per_step;
    const uint64_t end = begin + taken * seat->units_per_step;
    seat->work(seat->context, worker_index, begin, end < seat->unit_count ? end : seat->unit_count);
  }
  return steps;
}

// The own lane first, then the others'. Lanes only shrink during a job, so one round is enough.
static uint64_t seat_work(tw_seat_t* seat, uint32_t worker_index) {
  const uint32_t lane_count = seat->pool->thread_count;
  uint64_t steps = lane_work(seat, &seat->lanes[worker_index], 0, worker_index);
  for (uint32_t i = 1; i < lane_count; ++i) {
    steps += lane_work(seat, &seat->lanes[(worker_index + i) % lane_count], 1, worker_index);
  }
  return steps;
}

// A worker's visit: work, count, and wake the caller if it went to sleep over the last steps.
static int seat_help(tw_seat_t* seat, uint64_t* seen, worker_t* worker) {
  const uint64_t sequence = atomic_load_explicit(&seat->sequence, memory_order_acquire);
  if (sequence == *seen) return 0;
  *seen = sequence;
  const uint64_t steps = seat_work(seat, worker->index);
  if (steps == 0) return 1;
  const uint64_t total = seat->step_count;  // stable: our own steps are not counted yet
  if (atomic_fetch_add(&seat->done, steps) + steps == total && atomic_load(&seat->caller_sleeps)) {
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
    const unsigned seat = (i + worker->index) % limit;
    helped |= seat_help(&pool->seats[seat], &worker->seen[seat], worker);
  }
  return helped;
}

static int worker_has_news(const worker_t* worker) {
  tw_pool_t* pool = worker->pool;
  const unsigned limit = atomic_load(&pool->seat_limit);
  for (unsigned i = 0; i < limit; ++i) {
    if (atomic_load(&pool->seats[i].sequence) != worker->seen[i]) return 1;
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
  if (!worker_has_news(worker) && !atomic_load(&pool->closing)) tw_word_wait(&pool->wake_count, seen);
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

// Keeps the workers off the caller's processor. A worker that wakes up there gets no time while the caller
// computes, and looks too idle for the system to move it. Rarely more than a comparison: callers seldom
// change their processor.
static void pool_spread(tw_pool_t* pool) {
#if defined(__linux__)
  const int cpu = sched_getcpu();
  if (cpu < 0 || cpu == atomic_load_explicit(&pool->home_cpu, memory_order_relaxed)) return;
  const uint64_t now = tw_clock_coarse_ns();
  if (pool->cpu_ids != NULL || now < atomic_load_explicit(&pool->next_spread_ns, memory_order_relaxed)) return;
  if (pthread_mutex_trylock(&pool->start_lock) != 0) return;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (pthread_getaffinity_np(pthread_self(), sizeof(cpus), &cpus) == 0) {
    CPU_CLR((size_t)cpu, &cpus);
    for (uint32_t i = 0; CPU_COUNT(&cpus) != 0 && i < pool->worker_count; ++i) {
      pthread_setaffinity_np(pool->workers[i].thread, sizeof(cpus), &cpus);
    }
  }
  atomic_store_explicit(&pool->home_cpu, cpu, memory_order_relaxed);
  atomic_store_explicit(&pool->next_spread_ns, now + SPREAD_INTERVAL_NS, memory_order_relaxed);
  pthread_mutex_unlock(&pool->start_lock);
#else
  (void)pool;
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

// Starts what the system lets us start; the callers run the rest.
static void pool_start(tw_pool_t* pool) {
  pthread_mutex_lock(&pool->start_lock);
  if (!atomic_load(&pool->started) && !atomic_load(&pool->closing)) {
    tw_signals_t before;
    tw_signals_block(&before);
    while (pool->worker_count + 1 < pool->thread_count) {
      worker_t* worker = &pool->workers[pool->worker_count];
      worker->pool = pool;
      worker->index = pool->worker_count + 1;
      if (pthread_create(&worker->thread, NULL, worker_main, worker) != 0) break;
      ++pool->worker_count;
    }
    tw_signals_restore(&before);
    atomic_store(&pool->started, 1);
  }
  pthread_mutex_unlock(&pool->start_lock);
}

// ---- fork -------------------------------------------------------------------------------------------

static void fork_prepare(void) {
  pthread_mutex_lock(&pools_lock);
  for (tw_pool_t* pool = pools; pool != NULL; pool = pool->next) pthread_mutex_lock(&pool->start_lock);
}

static void fork_parent(void) {
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
    atomic_store(&pool->home_cpu, -1);
    for (int i = 0; i < SEAT_COUNT; ++i) {
      tw_seat_t* seat = &pool->seats[i];
      const int own = atomic_load(&seat->owner) == self;
      if (own && !seat->running) continue;
      for (uint32_t lane = 0; lane < pool->thread_count; ++lane) atomic_store(&seat->lanes[lane].range, 0);
      if (own) {
        seat->lost = 1;
      } else {
        atomic_store(&seat->owner, UNUSED_OWNER);
      }
    }
  }
  fork_parent();
}

static void register_fork_handlers(void) {
  tw_wait_survive_fork();
  tw_system_on_fork(fork_prepare, fork_parent, fork_child);
}

// ---- pools ------------------------------------------------------------------------------------------

static tw_status_t pool_fill(tw_pool_t* pool, const tw_pool_options_t* options) {
  const size_t thread_count = options->thread_count;
  pool->workers = calloc(thread_count, sizeof(worker_t));
  if (pool->workers == NULL) return TW_STATUS_NO_MEMORY;
  const size_t lanes_bytes = SEAT_COUNT * thread_count * sizeof(lane_t);
  pool->lanes = tw_system_allocate(CACHE_LINE, lanes_bytes);
  if (pool->lanes == NULL) return TW_STATUS_NO_MEMORY;
  memset(pool->lanes, 0, lanes_bytes);
  for (size_t i = 0; i < SEAT_COUNT; ++i) {
    pool->seats[i].pool = pool;
    pool->seats[i].lanes = pool->lanes + i * thread_count;
  }
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
  free(pool->workers);
  tw_system_free(pool->lanes);
  free(pool->cpu_ids);
  pthread_mutex_destroy(&pool->start_lock);
  tw_system_free(pool);
}

tw_status_t tw_pool_create(const tw_pool_options_t* options, tw_pool_t** out_pool) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (options->thread_count == 0) return TW_STATUS_INVALID;
  pthread_once(&once, register_fork_handlers);
  tw_pool_t* pool = tw_system_allocate(CACHE_LINE, sizeof(*pool));
  if (pool == NULL) return TW_STATUS_NO_MEMORY;
  memset(pool, 0, sizeof(*pool));
  pthread_mutex_init(&pool->start_lock, NULL);
  pool->thread_count = options->thread_count;
  pool->home_cpu = -1;
  pool->spin_us = options->spin_us > SPIN_LIMIT_US ? SPIN_LIMIT_US : options->spin_us;
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
    if (i == 0) pool_spread(pool);  // later seats are for callers beside the first one
    seat->watch = NULL;
    seat->running = 0;
    seat->lost = 0;
    return seat;
  }
  return NULL;
}

void tw_pool_leave(tw_seat_t* seat) {
  if (seat != NULL) atomic_store_explicit(&seat->owner, UNUSED_OWNER, memory_order_release);
}

void tw_seat_watch(tw_seat_t* seat, void (*watch)(void* context), void* context) {
  if (seat == NULL) return;
  seat->watch = watch;
  seat->watch_context = context;
}

// Waits for steps that other threads have taken: briefly awake, then asleep, with a look around now and then.
static void seat_join(tw_seat_t* seat) {
  tw_spin_t spin = tw_spin_begin(seat->pool->spin_us);
  while (atomic_load_explicit(&seat->done, memory_order_acquire) != seat->step_count && !seat->lost) {
    if (tw_spin_continue(&spin)) continue;
    const uint32_t seen = atomic_load(&seat->finish_count);
    atomic_store(&seat->caller_sleeps, 1);
    if (atomic_load(&seat->done) != seat->step_count) {
      tw_word_wait_for(&seat->finish_count, seen, WATCH_INTERVAL_NS);
    }
    atomic_store(&seat->caller_sleeps, 0);
    if (seat->watch != NULL) seat->watch(seat->watch_context);
  }
}

// Writes the job and deals its steps out evenly; from here on other threads may take them.
static void seat_publish(tw_seat_t* seat, uint64_t unit_count, tw_work_t work, void* context) {
  const uint64_t units_per_step = 1 + (unit_count >> 31);
  const uint64_t step_count = (unit_count + units_per_step - 1) / units_per_step;
  const uint64_t lane_count = step_count < seat->pool->thread_count ? step_count : seat->pool->thread_count;
  seat->work = work;
  seat->context = context;
  seat->unit_count = unit_count;
  seat->units_per_step = units_per_step;
  seat->step_count = step_count;
  atomic_store_explicit(&seat->done, 0, memory_order_relaxed);
  uint64_t first = 0;
  for (uint64_t lane = 0; lane < lane_count; ++lane) {
    const uint64_t last = step_count * (lane + 1) / lane_count;
    atomic_store_explicit(&seat->lanes[lane].range, first << 32 | last, memory_order_release);
    first = last;
  }
  atomic_fetch_add(&seat->sequence, 1);
}

tw_status_t tw_pool_run(tw_seat_t* seat, uint64_t unit_count, tw_work_t work, void* context) {
  if (seat == NULL || unit_count <= 1) {
    if (unit_count != 0) work(context, 0, 0, unit_count);
    return TW_STATUS_OK;
  }
  tw_pool_t* pool = seat->pool;
  seat->running = 1;
  seat_publish(seat, unit_count, work, context);
  const unsigned sleepers = atomic_load(&pool->sleeper_count);
  if (sleepers != 0) {
    const uint64_t wanted = seat->step_count - 1 < sleepers ? seat->step_count - 1 : sleepers;
    atomic_fetch_add(&pool->wake_count, 1);
    tw_word_wake(&pool->wake_count, (uint32_t)wanted);
  }
  const uint64_t steps = seat_work(seat, 0);
  if (atomic_fetch_add(&seat->done, steps) + steps != seat->step_count) seat_join(seat);
  seat->running = 0;
  const int lost = seat->lost;
  seat->lost = 0;
  return lost ? TW_STATUS_FORKED : TW_STATUS_OK;
}
