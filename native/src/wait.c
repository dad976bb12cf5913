#include "wait.h"

#include <limits.h>
#include <sched.h>
#include <time.h>

#if defined(__linux__)

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

void tw_word_wait(tw_word_t* word, uint32_t expected) {
  syscall(SYS_futex, (uint32_t*)word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

void tw_word_wait_for(tw_word_t* word, uint32_t expected, uint32_t limit_ns) {
  const struct timespec limit = {.tv_nsec = (long)limit_ns};
  syscall(SYS_futex, (uint32_t*)word, FUTEX_WAIT_PRIVATE, expected, &limit, NULL, 0);
}

void tw_word_wake(tw_word_t* word, uint32_t count) {
  const uint32_t limit = count > INT_MAX ? INT_MAX : count;
  syscall(SYS_futex, (uint32_t*)word, FUTEX_WAKE_PRIVATE, limit, NULL, NULL, 0);
}

void tw_wait_survive_fork(void) {}

#else

#include <pthread.h>

#include "system.h"

static pthread_mutex_t wait_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wait_changed = PTHREAD_COND_INITIALIZER;

void tw_word_wait(tw_word_t* word, uint32_t expected) {
  pthread_mutex_lock(&wait_lock);
  if (atomic_load(word) == expected) pthread_cond_wait(&wait_changed, &wait_lock);
  pthread_mutex_unlock(&wait_lock);
}

void tw_word_wait_for(tw_word_t* word, uint32_t expected, uint32_t limit_ns) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += (long)limit_ns;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  pthread_mutex_lock(&wait_lock);
  if (atomic_load(word) == expected) pthread_cond_timedwait(&wait_changed, &wait_lock, &until);
  pthread_mutex_unlock(&wait_lock);
}

void tw_word_wake(tw_word_t* word, uint32_t count) {
  (void)word;
  (void)count;
  pthread_mutex_lock(&wait_lock);
  pthread_cond_broadcast(&wait_changed);
  pthread_mutex_unlock(&wait_lock);
}

static void fork_prepare(void) { pthread_mutex_lock(&wait_lock); }

static void fork_done(void) { pthread_mutex_unlock(&wait_lock); }

static void register_fork_handlers(void) { tw_system_on_fork(fork_prepare, fork_done, fork_done); }

void tw_wait_survive_fork(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, register_fork_handlers);
}

#endif

static uint64_t read_clock(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t tw_clock_ns(void) { return read_clock(CLOCK_MONOTONIC); }

uint64_t tw_clock_coarse_ns(void) {
#ifdef CLOCK_MONOTONIC_COARSE
  return read_clock(CLOCK_MONOTONIC_COARSE);
#else
  return read_clock(CLOCK_MONOTONIC);
#endif
}

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Rounds of plain pausing between two looks at the clock, and before the core is offered to others.
enum { ROUNDS_PER_CLOCK = 32, ROUNDS_BEFORE_YIELD = 128 };

tw_spin_t tw_spin_begin(uint32_t spin_us) { return (tw_spin_t){.spin_us = spin_us}; }

int tw_spin_continue(tw_spin_t* spin) {
  relax();
  if (++spin->round % ROUNDS_PER_CLOCK != 0) return 1;
  const uint64_t now = tw_clock_ns();
  if (spin->deadline_ns == 0) spin->deadline_ns = now + (uint64_t)spin->spin_us * 1000u;
  if (now >= spin->deadline_ns) return 0;
  if (spin->round >= ROUNDS_BEFORE_YIELD) sched_yield();
  return 1;
}
