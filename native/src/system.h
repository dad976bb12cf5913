// Where systems differ in what threads need: forks, signals, aligned blocks. Private to the core.
#ifndef TW_SYSTEM_H_
#define TW_SYSTEM_H_

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>

#if defined(_WIN32)

#include <malloc.h>

// Nobody forks.
static inline void tw_system_on_fork(void (*prepare)(void), void (*parent)(void), void (*child)(void)) {
  (void)prepare;
  (void)parent;
  (void)child;
}

// Signals are no matter of threads.
typedef int tw_signals_t;
static inline void tw_signals_block(tw_signals_t* out_before) { *out_before = 0; }
static inline void tw_signals_restore(const tw_signals_t* before) { (void)before; }

static inline void* tw_system_allocate(size_t alignment, size_t size_bytes) {
  return _aligned_malloc(size_bytes, alignment);
}
static inline void tw_system_free(void* block) { _aligned_free(block); }

#else

#include <signal.h>

static inline void tw_system_on_fork(void (*prepare)(void), void (*parent)(void), void (*child)(void)) {
  pthread_atfork(prepare, parent, child);
}

// What a worker starts with so that signals go to others, but for those that its own code raises: a crash in
// a kernel must reach the process's handlers (faulthandler, a debugger's, a crash reporter's).
typedef sigset_t tw_signals_t;
static inline void tw_signals_block(tw_signals_t* out_before) {
  static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
  sigset_t mask;
  sigfillset(&mask);
  for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); ++i) sigdelset(&mask, own[i]);
  pthread_sigmask(SIG_SETMASK, &mask, out_before);
}
static inline void tw_signals_restore(const tw_signals_t* before) { pthread_sigmask(SIG_SETMASK, before, NULL); }

static inline void* tw_system_allocate(size_t alignment, size_t size_bytes) {
  void* block = NULL;
  return posix_memalign(&block, alignment, size_bytes) == 0 ? block : NULL;
}
static inline void tw_system_free(void* block) { free(block); }

#endif
#endif  // TW_SYSTEM_H_
