// Kernels for the tests of the native core; compiled by conftest.py.

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "tw_executable.h"

#define KERNEL(name)                                                                         \
  int name(const tw_environment_t* environment, const tw_dispatch_state_t* dispatch,         \
           const tw_workgroup_state_t* group);                                               \
  int name(const tw_environment_t* environment, const tw_dispatch_state_t* dispatch,         \
           const tw_workgroup_state_t* group)

enum { BLOCK = 64 };

// c[i] = a[i] + b[i] for i < constant 0; one block per workgroup along x.
KERNEL(add) {
  (void)environment;
  const float* a = dispatch->binding_pointers[0];
  const float* b = dispatch->binding_pointers[1];
  float* c = dispatch->binding_pointers[2];
  const size_t count = dispatch->constants[0];
  const size_t begin = (size_t)group->workgroup_id_x * BLOCK;
  for (size_t i = begin; i < count && i < begin + BLOCK; ++i) c[i] = a[i] + b[i];
  return 0;
}

// Adds 1 to the cell of the workgroup, not atomically.
KERNEL(mark) {
  (void)environment;
  uint32_t* cells = dispatch->binding_pointers[0];
  const size_t row = (size_t)group->workgroup_id_z * dispatch->workgroup_count_y + group->workgroup_id_y;
  cells[row * dispatch->workgroup_count_x + group->workgroup_id_x] += 1;
  return 0;
}

// Writes down everything a workgroup is told, as u64.
KERNEL(report) {
  uint64_t* out = dispatch->binding_pointers[0];
  out[0] = dispatch->workgroup_size_x;
  out[1] = dispatch->workgroup_size_y;
  out[2] = dispatch->workgroup_size_z;
  out[3] = dispatch->constant_count;
  out[4] = dispatch->workgroup_count_x;
  out[5] = dispatch->workgroup_count_y;
  out[6] = dispatch->workgroup_count_z;
  out[7] = dispatch->max_concurrency;
  out[8] = dispatch->binding_count;
  out[9] = dispatch->constants[1];
  out[10] = dispatch->binding_lengths[0];
  out[11] = dispatch->binding_lengths[1];
  out[12] = environment->constants == NULL ? 0 : environment->constants[0];
  out[13] = environment->processor_data[0];
  out[14] = group->local_memory_size;
  out[15] = (uint64_t)(uintptr_t)group->local_memory % 64;
  if (group->local_memory_size != 0) memset(group->local_memory, 0xA5, group->local_memory_size);
  return 0;
}

// Fails in the workgroup whose x equals constant 0, with the code of constant 1.
KERNEL(fail) {
  (void)environment;
  return group->workgroup_id_x == dispatch->constants[0] ? (int)dispatch->constants[1] : 0;
}

// Takes constant 0 milliseconds.
KERNEL(linger) {
  (void)environment;
  (void)group;
  const struct timespec duration = {.tv_nsec = (long)dispatch->constants[0] * 1000000};
  nanosleep(&duration, NULL);
  return 0;
}

// Waits until constant 0 workgroups are inside at once, which the first binding counts; fails with 1 if that
// takes more than constant 1 milliseconds.
KERNEL(meet) {
  (void)environment;
  (void)group;
  const struct timespec pause = {.tv_nsec = 1000000};
  atomic_uint* inside = dispatch->binding_pointers[0];
  atomic_fetch_add(inside, 1);
  for (uint32_t waited = 0; atomic_load(inside) < dispatch->constants[0]; ++waited) {
    if (waited == dispatch->constants[1]) return 1;
    nanosleep(&pause, NULL);
  }
  return 0;
}

// Dies of the signal of constant 0 on every thread of a pool but the caller's.
KERNEL(crash_on_worker) {
  (void)environment;
  const struct timespec pause = {.tv_nsec = 1000000};
  if (group->processor_id == 0) {
    nanosleep(&pause, NULL);
  } else {
    raise((int)dispatch->constants[0]);
  }
  return 0;
}

#if defined(__linux__)
// Takes constant 0 milliseconds on every thread but the one with the id of constant 1, which waits until
// another thread has taken a workgroup: else it would run them all before a busy machine starts the other.
KERNEL(linger_elsewhere) {
  static atomic_int is_taken_elsewhere;
  const struct timespec pause = {.tv_nsec = 1000000};
  if ((uint32_t)syscall(SYS_gettid) == dispatch->constants[1]) {
    while (!atomic_load(&is_taken_elsewhere)) nanosleep(&pause, NULL);
    return 0;
  }
  atomic_store(&is_taken_elsewhere, 1);
  return linger(environment, dispatch, group);
}
#endif
