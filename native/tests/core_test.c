// Exercises the core without Python, so that the thread and address sanitizers see nothing else.
//
// Run by tests/unit/runtime/native/test_sanitizers.py; exits with 0 when every check held.

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "tw_image.h"
#include "tw_command_list.h"
#include "tw_pool.h"

// ---- kernels ----------------------------------------------------------------------------------------

// Adds one to the cell of its workgroup, without atomics: a workgroup that runs twice is a race.
static int mark_kernel(const tw_environment_t* environment, const tw_dispatch_state_t* dispatch,
                       const tw_workgroup_state_t* group) {
  (void)environment;
  uint32_t* cells = dispatch->binding_pointers[0];
  const size_t row = (size_t)group->workgroup_id_z * dispatch->workgroup_count_y + group->workgroup_id_y;
  cells[row * dispatch->workgroup_count_x + group->workgroup_id_x] += 1 + dispatch->constants[0];
  return 0;
}

// Writes its local memory from end to end; two workgroups that share it at once are a race.
static int local_kernel(const tw_environment_t* environment, const tw_dispatch_state_t* dispatch,
                        const tw_workgroup_state_t* group) {
  (void)environment;
  if (((uintptr_t)group->local_memory & 63) != 0) return 2;
  memset(group->local_memory, (int)(group->workgroup_id_x & 0xFF), group->local_memory_size);
  uint32_t* cells = dispatch->binding_pointers[0];
  cells[group->workgroup_id_x] = ((uint8_t*)group->local_memory)[group->local_memory_size - 1];
  return 0;
}

static int failing_kernel(const tw_environment_t* environment, const tw_dispatch_state_t* dispatch,
                          const tw_workgroup_state_t* group) {
  (void)environment;
  (void)dispatch;
  return group->workgroup_id_x == 3 ? 42 : 0;
}

// ---- command lists ----------------------------------------------------------------------------------

static tw_command_t dispatch_of(tw_kernel_t kernel, uint32_t x, uint32_t y, uint32_t z) {
  return (tw_command_t){
      .kind = TW_COMMAND_DISPATCH,
      .flags = TW_COMMAND_BARRIER,
      .binding_count = 1,
      .constant_count = 1,
      .workgroup_count = {x, y, z},
      .workgroup_size = {1, 1, 1},
      .function = (uint64_t)(uintptr_t)kernel,
  };
}

typedef struct fixture_t {
  tw_command_list_t* list;
  tw_frame_t* frame;
  uint32_t* cells;
  uint32_t cell_count;
} fixture_t;

static const uint32_t constants[] = {2};

static fixture_t fixture_create(const tw_command_t* commands, uint32_t command_count, uint32_t cell_count) {
  const tw_slot_t slots[] = {{.size_bytes = 4ull * cell_count, .flags = TW_SLOT_WRITABLE}};
  const tw_binding_t bindings[] = {{.flags = TW_BINDING_WRITABLE, .length = 4ull * cell_count}};
  const tw_command_list_layout_t layout = {
      .slots = slots,
      .bindings = bindings,
      .commands = commands,
      .constants = constants,
      .slot_count = 1,
      .binding_count = 1,
      .command_count = command_count,
      .constant_count = 1,
      .host_call_count = 1,
  };
  fixture_t fixture = {.cell_count = cell_count, .cells = calloc(cell_count, sizeof(uint32_t))};
  CHECK(fixture.cells != NULL);
  tw_message_t message;
  CHECK(tw_command_list_create(&layout, &message, &fixture.list) == TW_STATUS_OK);
  CHECK(tw_frame_create(fixture.list, &fixture.frame) == TW_STATUS_OK);
  tw_frame_bind(fixture.frame, 0, fixture.cells);
  return fixture;
}

static void fixture_destroy(fixture_t* fixture) {
  tw_frame_destroy(fixture->frame);
  tw_command_list_destroy(fixture->list);
  free(fixture->cells);
}

static tw_pool_t* pool_of(uint32_t thread_count, uint32_t spin_us) {
  tw_pool_t* pool = NULL;
  const tw_pool_options_t options = {.thread_count = thread_count, .spin_us = spin_us};
  CHECK(tw_pool_create(&options, &pool) == TW_STATUS_OK);
  return pool;
}

static void run_marks(fixture_t* fixture, tw_pool_t* pool, uint32_t rounds) {
  const tw_run_options_t options = {.pool = pool};
  tw_failure_t failure;
  for (uint32_t round = 0; round < rounds; ++round) {
    CHECK(tw_frame_run(fixture->frame, &options, &failure) == TW_STATUS_OK);
  }
}

// ---- tests ------------------------------------------------------------------------------------------

static int count_host_calls(void* context, uint32_t command) {
  (void)command;
  ++*(uint32_t*)context;
  return 0;
}

static void test_findings_call_the_host_only_where_there_is_one(void) {
  enum { RECORDS = 3, WORDS = TW_FINDING_BYTES / sizeof(int64_t) };
  int64_t records[RECORDS * WORDS] = {0};
  const tw_slot_t slot = {.size_bytes = sizeof(records)};
  tw_binding_t binding = {.length = sizeof(records)};
  const tw_command_t command = {
      .kind = TW_COMMAND_HOST_CALL, .flags = TW_COMMAND_BARRIER | TW_COMMAND_ON_FINDING, .binding_count = 1};
  const tw_command_list_layout_t layout = {.slots = &slot,
                                   .bindings = &binding,
                                   .commands = &command,
                                   .slot_count = 1,
                                   .binding_count = 1,
                                   .command_count = 1,
                                   .host_call_count = 1};
  tw_message_t message;
  tw_command_list_t* list = NULL;
  tw_frame_t* frame = NULL;
  CHECK(tw_command_list_create(&layout, &message, &list) == TW_STATUS_OK);
  CHECK(tw_frame_create(list, &frame) == TW_STATUS_OK);
  tw_frame_bind(frame, 0, records);
  uint32_t calls = 0;
  const tw_run_options_t options = {.host_call = count_host_calls, .context = &calls};
  tw_failure_t failure;
  for (int found = -1; found < RECORDS; ++found) {
    for (int record = 0; record < RECORDS; ++record) records[record * WORDS] = TW_NO_FINDING;
    if (found >= 0) records[found * WORDS] = found;
    calls = 0;
    CHECK(tw_frame_run(frame, &options, &failure) == TW_STATUS_OK);
    CHECK(calls == (found >= 0));
  }
  tw_frame_destroy(frame);
  tw_command_list_destroy(list);
  binding.length = TW_FINDING_BYTES - 8;
  CHECK(tw_command_list_create(&layout, &message, &list) == TW_STATUS_INVALID);
}

static void test_every_workgroup_runs_once(void) {
  const uint32_t grids[][3] = {{1, 1, 1}, {7, 1, 1}, {3, 5, 2}, {1, 1, 9}, {257, 3, 1}, {0, 4, 1}};
  for (uint32_t threads = 1; threads <= 8; ++threads) {
    tw_pool_t* pool = pool_of(threads, threads % 2 == 0 ? 0 : 50);
    for (size_t i = 0; i < sizeof(grids) / sizeof(grids[0]); ++i) {
      const uint32_t count = grids[i][0] * grids[i][1] * grids[i][2];
      const tw_command_t command = dispatch_of(mark_kernel, grids[i][0], grids[i][1], grids[i][2]);
      fixture_t fixture = fixture_create(&command, 1, count + 1);
      run_marks(&fixture, pool, 20);
      for (uint32_t cell = 0; cell < count; ++cell) CHECK(fixture.cells[cell] == 20 * (1 + constants[0]));
      CHECK(fixture.cells[count] == 0);
      fixture_destroy(&fixture);
    }
    tw_pool_destroy(pool);
  }
}

// Many barriers over the same cells: a command that starts early is a race the sanitizer sees.
static void test_barriers_order_commands(void) {
  tw_command_t commands[50];
  for (int i = 0; i < 50; ++i) commands[i] = dispatch_of(mark_kernel, 13, 3, 1);
  fixture_t fixture = fixture_create(commands, 50, 39);
  tw_pool_t* pool = pool_of(4, 20);
  run_marks(&fixture, pool, 20);
  for (uint32_t cell = 0; cell < 39; ++cell) CHECK(fixture.cells[cell] == 1000 * (1 + constants[0]));
  tw_pool_destroy(pool);
  fixture_destroy(&fixture);
}

static void test_local_memory_belongs_to_one_thread(void) {
  tw_command_t command = dispatch_of(local_kernel, 100, 1, 1);
  command.local_memory_bytes = 5000;
  fixture_t fixture = fixture_create(&command, 1, 100);
  tw_pool_t* pool = pool_of(4, 50);
  run_marks(&fixture, pool, 10);
  for (uint32_t cell = 0; cell < 100; ++cell) CHECK(fixture.cells[cell] == cell);
  tw_pool_destroy(pool);
  fixture_destroy(&fixture);
}

typedef struct submitter_t {
  tw_pool_t* pool;
  fixture_t fixture;
} submitter_t;

static void* submit(void* argument) {
  submitter_t* submitter = argument;
  run_marks(&submitter->fixture, submitter->pool, 200);
  return NULL;
}

// More submitters than the pool has seats.
static void test_threads_share_a_pool(void) {
  enum { SUBMITTERS = 10 };
  tw_pool_t* pool = pool_of(3, 20);
  submitter_t submitters[SUBMITTERS];
  pthread_t threads[SUBMITTERS];
  const tw_command_t command = dispatch_of(mark_kernel, 17, 1, 1);
  for (int i = 0; i < SUBMITTERS; ++i) {
    submitters[i] = (submitter_t){.pool = pool, .fixture = fixture_create(&command, 1, 17)};
    CHECK(pthread_create(&threads[i], NULL, submit, &submitters[i]) == 0);
  }
  for (int i = 0; i < SUBMITTERS; ++i) {
    CHECK(pthread_join(threads[i], NULL) == 0);
    for (int cell = 0; cell < 17; ++cell) CHECK(submitters[i].fixture.cells[cell] == 200 * (1 + constants[0]));
    fixture_destroy(&submitters[i].fixture);
  }
  tw_pool_destroy(pool);
}

static void sum_range(void* context, uint32_t worker_index, uint64_t begin, uint64_t end) {
  (void)worker_index;
  _Atomic uint64_t* sums = context;
  CHECK(begin < end);
  atomic_fetch_add(&sums[0], end - begin);
  uint64_t last = atomic_load(&sums[1]);
  while (last < end && !atomic_compare_exchange_weak(&sums[1], &last, end)) {
  }
}

// More units than a lane's 32 bits can count.
static void test_ranges_beyond_32_bits_are_covered(void) {
  const uint64_t counts[] = {UINT32_MAX, (1ull << 31) + 1, (1ull << 40) + 12345, (1ull << 33) - 1};
  tw_pool_t* pool = pool_of(3, 20);
  tw_seat_t* seat = tw_pool_enter(pool);
  for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); ++i) {
    _Atomic uint64_t sums[2] = {0};
    tw_pool_run(seat, counts[i], sum_range, sums);
    CHECK(sums[0] == counts[i] && sums[1] == counts[i]);
  }
  tw_pool_leave(seat);
  tw_pool_destroy(pool);
}

static void test_closing_leaves_the_caller_to_finish(void) {
  const tw_command_t command = dispatch_of(mark_kernel, 1000, 1, 1);
  submitter_t submitter = {.pool = pool_of(4, 20), .fixture = fixture_create(&command, 1, 1000)};
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, submit, &submitter) == 0);
  usleep(1000);
  tw_pool_close(submitter.pool);
  CHECK(pthread_join(thread, NULL) == 0);
  for (int cell = 0; cell < 1000; ++cell) CHECK(submitter.fixture.cells[cell] == 200 * (1 + constants[0]));
  tw_pool_destroy(submitter.pool);
  fixture_destroy(&submitter.fixture);
}

static void test_the_first_failure_is_reported(void) {
  tw_command_t commands[3];
  commands[0] = dispatch_of(mark_kernel, 20, 1, 1);
  commands[1] = dispatch_of(failing_kernel, 20, 1, 1);
  commands[2] = dispatch_of(mark_kernel, 20, 1, 1);
  for (uint32_t threads = 1; threads <= 4; ++threads) {
    fixture_t fixture = fixture_create(commands, 3, 20);
    tw_pool_t* pool = pool_of(threads, 20);
    const tw_run_options_t options = {.pool = pool};
    tw_failure_t failure = {0};
    for (int round = 0; round < 2; ++round) {
      CHECK(tw_frame_run(fixture.frame, &options, &failure) == TW_STATUS_KERNEL_FAILED);
      CHECK(failure.command == 1 && failure.code == 42);
    }
    for (int cell = 0; cell < 20; ++cell) CHECK(fixture.cells[cell] == 2 * (1 + constants[0]));
    tw_pool_destroy(pool);
    fixture_destroy(&fixture);
  }
}

// The child has no workers and must start its own; the parent's go on.
static void test_a_forked_child_has_its_own_workers(void) {
  const tw_command_t command = dispatch_of(mark_kernel, 100, 1, 1);
  fixture_t fixture = fixture_create(&command, 1, 100);
  tw_pool_t* pool = pool_of(3, 20);
  run_marks(&fixture, pool, 5);
  const pid_t child = fork();
  CHECK(child >= 0);
  run_marks(&fixture, pool, 5);
  for (int cell = 0; cell < 100; ++cell) CHECK(fixture.cells[cell] == 10 * (1 + constants[0]));
  tw_pool_destroy(pool);
  fixture_destroy(&fixture);
  if (child == 0) _exit(0);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void test_copies_and_fills_split_into_units(void) {
  const uint64_t size = 600001;
  const tw_slot_t slots[] = {{.size_bytes = size + 7, .flags = TW_SLOT_WRITABLE},
                                  {.size_bytes = size, .flags = TW_SLOT_WRITABLE}};
  const tw_binding_t bindings[] = {
      {.slot = 0, .flags = TW_BINDING_WRITABLE, .offset = 3, .length = 600000},
      {.slot = 1, .flags = TW_BINDING_WRITABLE, .offset = 1, .length = 600000},
      {.slot = 0, .flags = 0, .offset = 3, .length = 600000},
  };
  const tw_command_t commands[] = {
      {.kind = TW_COMMAND_FILL, .binding_count = 1, .constant_count = 4, .function = 0x04030201},
      {.kind = TW_COMMAND_COPY, .flags = TW_COMMAND_BARRIER, .binding_first = 1, .binding_count = 2},
  };
  const tw_command_list_layout_t layout = {
      .slots = slots, .bindings = bindings, .commands = commands, .slot_count = 2, .binding_count = 3, .command_count = 2};
  tw_command_list_t* list = NULL;
  tw_frame_t* frame = NULL;
  CHECK(tw_command_list_create(&layout, NULL, &list) == TW_STATUS_OK);
  CHECK(tw_frame_create(list, &frame) == TW_STATUS_OK);
  uint8_t* a = calloc(1, (size_t)size + 7);
  uint8_t* b = calloc(1, (size_t)size);
  tw_frame_bind(frame, 0, a);
  tw_frame_bind(frame, 1, b);
  tw_pool_t* pool = pool_of(3, 20);
  const tw_run_options_t options = {.pool = pool};
  tw_failure_t failure;
  CHECK(tw_frame_run(frame, &options, &failure) == TW_STATUS_OK);
  for (size_t i = 0; i < 600000; ++i) CHECK(a[i + 3] == i % 4 + 1 && b[i + 1] == i % 4 + 1);
  CHECK(a[2] == 0 && a[600003] == 0 && b[0] == 0);
  tw_pool_destroy(pool);
  tw_frame_destroy(frame);
  tw_command_list_destroy(list);
  free(a);
  free(b);
}

static void test_images_refuse_what_is_outside(void) {
  tw_image_t* image = NULL;
  CHECK(tw_image_create(10000, &image) == TW_STATUS_OK);
  CHECK(tw_image_write(image, 9999, "ab", 2) == TW_STATUS_INVALID);
  CHECK(tw_image_write(image, UINT64_MAX, "ab", 2) == TW_STATUS_INVALID);
  CHECK(tw_image_relocate(image, 9993, 1, 1) == TW_STATUS_INVALID);
  CHECK(tw_image_relocate(image, 9992, 16, 1) == TW_STATUS_OK);
  CHECK(tw_image_protect(image, 0, 10001, TW_PROTECT_READ) == TW_STATUS_INVALID);
  CHECK(tw_image_protect(image, 0, 1, TW_PROTECT_WRITE | TW_PROTECT_EXECUTE) == TW_STATUS_INVALID);
  CHECK(tw_image_protect(image, 8192, 1808, TW_PROTECT_READ) == TW_STATUS_OK);
  CHECK(tw_image_seal(image) == TW_STATUS_OK);
  CHECK(tw_image_allows(image, 8192, 1808, TW_PROTECT_READ) && !tw_image_allows(image, 8191, 2, TW_PROTECT_READ));
  uint64_t word = 0;
  memcpy(&word, tw_image_base(image) + 9992, sizeof(word));
  CHECK(word == (uint64_t)(uintptr_t)tw_image_base(image) + 16);
  tw_image_destroy(image);
}

#if defined(TW_WRAPPED)

static void test_a_kernel_without_working_memory_is_named(void) {
  tw_command_t commands[] = {dispatch_of(mark_kernel, 100, 1, 1), dispatch_of(local_kernel, 100, 1, 1)};
  commands[1].local_memory_bytes = 5000;
  fixture_t fixture = fixture_create(commands, 2, 100);
  const tw_run_options_t options = {0};
  tw_failure_t failure;
  fail_allocations(0, INT_MAX);
  CHECK(tw_frame_run(fixture.frame, &options, &failure) == TW_STATUS_NO_SCRATCH);
  fail_allocations(0, 0);
  CHECK(failure.command == 1 && failure.scratch_bytes == 5000 && failure.refusal.capacity_bytes == 0);
  fixture_destroy(&fixture);
}

#endif

int main(int argument_count, char** arguments) {
  const int may_fork = argument_count < 2 || strcmp(arguments[1], "--no-fork") != 0;
  test_memory(may_fork);
  test_images_refuse_what_is_outside();
  test_every_workgroup_runs_once();
  test_findings_call_the_host_only_where_there_is_one();
  test_barriers_order_commands();
  test_local_memory_belongs_to_one_thread();
  test_copies_and_fills_split_into_units();
  test_threads_share_a_pool();
  test_ranges_beyond_32_bits_are_covered();
  test_closing_leaves_the_caller_to_finish();
  test_the_first_failure_is_reported();
#if defined(TW_WRAPPED)
  test_a_kernel_without_working_memory_is_named();
#endif
  if (may_fork) test_a_forked_child_has_its_own_workers();
  test_library_calls(may_fork);
  puts("all checks held");
  return 0;
}
