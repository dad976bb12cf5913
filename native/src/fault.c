#include "tw_fault.h"

#if defined(_WIN32)

// Files that are mapped cannot be cut there.
void tw_fault_guard(void* base, size_t size_bytes, const char* name) {
  (void)base;
  (void)size_bytes;
  (void)name;
}

void tw_fault_release(void* base) { (void)base; }

int tw_fault_any(void) { return 0; }

int tw_fault_find(const void* data, size_t size_bytes, tw_message_t* out_name) {
  (void)data;
  (void)size_bytes;
  (void)out_name;
  return 0;
}

#else

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GUARD_LIMIT = 4096 };

// The handler reads a guard without a lock: `base` is written last and cleared first.
typedef struct guard_t {
  atomic_uintptr_t base;  // 0: free
  atomic_size_t size_bytes;
  atomic_int lost;
  char* name;  // guarded by guards_lock
} guard_t;

static guard_t guards[GUARD_LIMIT];
static atomic_uint guard_end;  // guards from here on were never used
static atomic_int any_lost;
static pthread_mutex_t guards_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction previous;
static uintptr_t page_bytes;
// Threads within another handler that this one called; 0: free. Not thread-local: a handler must not allocate what
// is made at the first use, and what is not made so is scarce in libraries that are loaded late.
enum { PASSING_LIMIT = 64 };
static atomic_uintptr_t passing[PASSING_LIMIT];

// The guard of a mapping that overlaps begin <= address < end, from `first` on; GUARD_LIMIT if there is none.
static unsigned find_guard(unsigned first, uintptr_t begin, uintptr_t end) {
  const unsigned limit = atomic_load(&guard_end);
  for (unsigned i = first; i < limit; ++i) {
    const uintptr_t base = atomic_load(&guards[i].base);
    if (base != 0 && base < end && begin < base + atomic_load(&guards[i].size_bytes)) return i;
  }
  return GUARD_LIMIT;
}

// Ends the process: a fault by happening again, a signal that was sent by being sent again.
static void end_process(int number, const siginfo_t* info) {
  signal(number, SIG_DFL);
  if (info->si_code <= 0) raise(number);
}

static int is_passing_on(uintptr_t self) {
  for (unsigned i = 0; i < PASSING_LIMIT; ++i) {
    if (atomic_load(&passing[i]) == self) return 1;
  }
  return 0;
}

// The place to clear afterwards; PASSING_LIMIT: there is none.
static unsigned enter_passing(uintptr_t self) {
  for (unsigned i = 0; i < PASSING_LIMIT; ++i) {
    uintptr_t none = 0;
    if (atomic_compare_exchange_strong(&passing[i], &none, self)) return i;
  }
  return PASSING_LIMIT;
}

// As if this handler were not there. A handler that raises the signal once more (faulthandler's) is done with it.
static void pass_on(int number, siginfo_t* info, void* context) {
  const int is_default = !(previous.sa_flags & SA_SIGINFO) && previous.sa_handler == SIG_DFL;
  const int is_ignored = !(previous.sa_flags & SA_SIGINFO) && previous.sa_handler == SIG_IGN;
  if (is_ignored && info->si_code <= 0) return;
  const uintptr_t self = (uintptr_t)pthread_self();
  const unsigned place = is_default || is_ignored || is_passing_on(self) ? PASSING_LIMIT : enter_passing(self);
  if (place == PASSING_LIMIT) {
    end_process(number, info);
    return;
  }
  if (previous.sa_flags & SA_SIGINFO) {
    previous.sa_sigaction(number, info, context);
  } else {
    previous.sa_handler(number);
  }
  atomic_store(&passing[place], 0);
}

static void on_bus_error(int number, siginfo_t* info, void* context) {
  const uintptr_t address = (uintptr_t)info->si_addr;
  // Not for signals that were sent, nor for addresses that an instruction cannot take: zeros mend neither.
  const unsigned found = info->si_code > BUS_ADRALN ? find_guard(0, address, address + 1) : GUARD_LIMIT;
  if (found == GUARD_LIMIT) {
    pass_on(number, info, context);
    return;
  }
  guard_t* guard = &guards[found];
  const uintptr_t page = address & ~(page_bytes - 1);
  const size_t rest = atomic_load(&guard->base) + atomic_load(&guard->size_bytes) - page;
  atomic_store(&guard->lost, 1);
  atomic_store(&any_lost, 1);
  // A system call like any other on all our systems, though POSIX does not list it for handlers.
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
  if (mmap((void*)page, rest, PROT_READ, flags, -1, 0) == MAP_FAILED) pass_on(number, info, context);
}

// Also when somebody else took the signal since: whoever comes last is asked first.
static void install_handler(void) {
  struct sigaction now;
  if (sigaction(SIGBUS, NULL, &now) != 0) return;
  if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_bus_error) return;
  previous = now;
  page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
  struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, NULL);
}

// A child does not inherit the lock from a thread that it does not have.
static void fork_prepare(void) { pthread_mutex_lock(&guards_lock); }

static void fork_done(void) { pthread_mutex_unlock(&guards_lock); }

static void register_fork_handlers(void) { pthread_atfork(fork_prepare, fork_done, fork_done); }

void tw_fault_guard(void* base, size_t size_bytes, const char* name) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, register_fork_handlers);
  pthread_mutex_lock(&guards_lock);
  install_handler();
  unsigned slot = 0;
  while (slot < GUARD_LIMIT && atomic_load(&guards[slot].base) != 0) ++slot;
  if (slot < GUARD_LIMIT) {
    const uintptr_t pages = (size_bytes + page_bytes - 1) / page_bytes;
    atomic_store(&guards[slot].size_bytes, pages * page_bytes);
    atomic_store(&guards[slot].lost, 0);
    guards[slot].name = strdup(name);
    atomic_store(&guards[slot].base, (uintptr_t)base);
    if (slot >= atomic_load(&guard_end)) atomic_store(&guard_end, slot + 1);
  }
  pthread_mutex_unlock(&guards_lock);
}

void tw_fault_release(void* base) {
  pthread_mutex_lock(&guards_lock);
  for (unsigned i = 0; i < atomic_load(&guard_end); ++i) {
    if (atomic_load(&guards[i].base) != (uintptr_t)base) continue;
    atomic_store(&guards[i].base, 0);
    free(guards[i].name);
    guards[i].name = NULL;
    break;
  }
  pthread_mutex_unlock(&guards_lock);
}

int tw_fault_any(void) { return atomic_load_explicit(&any_lost, memory_order_relaxed); }

int tw_fault_find(const void* data, size_t size_bytes, tw_message_t* out_name) {
  const uintptr_t begin = (uintptr_t)data;
  pthread_mutex_lock(&guards_lock);
  unsigned i = find_guard(0, begin, begin + size_bytes);
  while (i != GUARD_LIMIT && !atomic_load(&guards[i].lost)) i = find_guard(i + 1, begin, begin + size_bytes);
  if (i != GUARD_LIMIT) {
    const char* name = guards[i].name == NULL ? "" : guards[i].name;
    tw_message_write(out_name, TW_STATUS_OK, "%s", name);
  }
  pthread_mutex_unlock(&guards_lock);
  return i != GUARD_LIMIT;
}

#endif
