// Sleeping on a 32-bit word until another thread changes it, and polite spinning.
//
// Private to the core. Linux: futex. Elsewhere: one mutex and condition for all words, which is slower
// to wake but just as correct.
#ifndef TW_WAIT_H_
#define TW_WAIT_H_

#include <stdatomic.h>
#include <stdint.h>

#include "tw_names.h"

typedef _Atomic uint32_t tw_word_t;

// Returns when the word differs from `expected`, or for no reason at all.
void tw_word_wait(tw_word_t* word, uint32_t expected);

// The same, for at most about `limit_ns`, which is less than a second.
void tw_word_wait_for(tw_word_t* word, uint32_t expected, uint32_t limit_ns);

// Wakes up to `count` waiters. The word must have been changed before.
void tw_word_wake(tw_word_t* word, uint32_t count);

uint64_t tw_clock_ns(void);

// A clock read that costs a few nanoseconds and advances every few milliseconds.
uint64_t tw_clock_coarse_ns(void);

// One bounded stretch of busy waiting: `while (!done && tw_spin_continue(&spin)) {}`.
typedef struct tw_spin_t {
  uint64_t deadline_ns;
  uint32_t round;
  uint32_t spin_us;
} tw_spin_t;

tw_spin_t tw_spin_begin(uint32_t spin_us);

// Pauses a little; after the first microseconds also offers the core to whoever else can use it.
// Returns 0 when the time is up.
int tw_spin_continue(tw_spin_t* spin);

// Whoever registers handlers of forks that hold a lock over a wake-up calls this before: the word wait of systems
// without futexes has a lock to carry over, which is then taken after theirs.
void tw_wait_survive_fork(void);

#endif  // TW_WAIT_H_
