// Exercises the core without Python, so that the thread and address sanitizers see nothing else.
//
// Run by tests/unit/runtime/native/test_sanitizers.py; exits with 0 when every check held.

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tw_fault.h"
#include "tw_heap.h"
#include "tw_image.h"
#include "tw_memory.h"
#include "tw_plan.h"
#include "tw_pool.h"

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)

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

// ---- plans ------------------------------------------------------------------------------------------

static tw_plan_command_t dispatch_of(tw_kernel_t kernel, uint32_t x, uint32_t y, uint32_t z) {
  return (tw_plan_command_t){
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
  tw_plan_t* plan;
  tw_frame_t* frame;
  uint32_t* cells;
  uint32_t cell_count;
} fixture_t;

static const uint32_t constants[] = {2};

static fixture_t fixture_create(const tw_plan_command_t* commands, uint32_t command_count, uint32_t cell_count) {
  const tw_plan_slot_t slots[] = {{.size_bytes = 4ull * cell_count, .flags = TW_SLOT_WRITABLE}};
  const tw_plan_binding_t bindings[] = {{.flags = TW_BINDING_WRITABLE, .length = 4ull * cell_count}};
  const tw_plan_layout_t layout = {
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
  CHECK(tw_plan_create(&layout, &message, &fixture.plan) == TW_STATUS_OK);
  CHECK(tw_frame_create(fixture.plan, &fixture.frame) == TW_STATUS_OK);
  tw_frame_bind(fixture.frame, 0, fixture.cells);
  return fixture;
}

static void fixture_destroy(fixture_t* fixture) {
  tw_frame_destroy(fixture->frame);
  tw_plan_destroy(fixture->plan);
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
  const tw_plan_slot_t slot = {.size_bytes = sizeof(records)};
  tw_plan_binding_t binding = {.length = sizeof(records)};
  const tw_plan_command_t command = {
      .kind = TW_COMMAND_HOST_CALL, .flags = TW_COMMAND_BARRIER | TW_COMMAND_ON_FINDING, .binding_count = 1};
  const tw_plan_layout_t layout = {.slots = &slot,
                                   .bindings = &binding,
                                   .commands = &command,
                                   .slot_count = 1,
                                   .binding_count = 1,
                                   .command_count = 1,
                                   .host_call_count = 1};
  tw_message_t message;
  tw_plan_t* plan = NULL;
  tw_frame_t* frame = NULL;
  CHECK(tw_plan_create(&layout, &message, &plan) == TW_STATUS_OK);
  CHECK(tw_frame_create(plan, &frame) == TW_STATUS_OK);
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
  tw_plan_destroy(plan);
  binding.length = TW_FINDING_BYTES - 8;
  CHECK(tw_plan_create(&layout, &message, &plan) == TW_STATUS_INVALID);
}

static void test_every_workgroup_runs_once(void) {
  const uint32_t grids[][3] = {{1, 1, 1}, {7, 1, 1}, {3, 5, 2}, {1, 1, 9}, {257, 3, 1}, {0, 4, 1}};
  for (uint32_t threads = 1; threads <= 8; ++threads) {
    tw_pool_t* pool = pool_of(threads, threads % 2 == 0 ? 0 : 50);
    for (size_t i = 0; i < sizeof(grids) / sizeof(grids[0]); ++i) {
      const uint32_t count = grids[i][0] * grids[i][1] * grids[i][2];
      const tw_plan_command_t command = dispatch_of(mark_kernel, grids[i][0], grids[i][1], grids[i][2]);
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
  tw_plan_command_t commands[50];
  for (int i = 0; i < 50; ++i) commands[i] = dispatch_of(mark_kernel, 13, 3, 1);
  fixture_t fixture = fixture_create(commands, 50, 39);
  tw_pool_t* pool = pool_of(4, 20);
  run_marks(&fixture, pool, 20);
  for (uint32_t cell = 0; cell < 39; ++cell) CHECK(fixture.cells[cell] == 1000 * (1 + constants[0]));
  tw_pool_destroy(pool);
  fixture_destroy(&fixture);
}

static void test_local_memory_belongs_to_one_thread(void) {
  tw_plan_command_t command = dispatch_of(local_kernel, 100, 1, 1);
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
  const tw_plan_command_t command = dispatch_of(mark_kernel, 17, 1, 1);
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
  const tw_plan_command_t command = dispatch_of(mark_kernel, 1000, 1, 1);
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
  tw_plan_command_t commands[3];
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
  const tw_plan_command_t command = dispatch_of(mark_kernel, 100, 1, 1);
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
  const tw_plan_slot_t slots[] = {{.size_bytes = size + 7, .flags = TW_SLOT_WRITABLE},
                                  {.size_bytes = size, .flags = TW_SLOT_WRITABLE}};
  const tw_plan_binding_t bindings[] = {
      {.slot = 0, .flags = TW_BINDING_WRITABLE, .offset = 3, .length = 600000},
      {.slot = 1, .flags = TW_BINDING_WRITABLE, .offset = 1, .length = 600000},
      {.slot = 0, .flags = 0, .offset = 3, .length = 600000},
  };
  const tw_plan_command_t commands[] = {
      {.kind = TW_COMMAND_FILL, .binding_count = 1, .constant_count = 4, .function = 0x04030201},
      {.kind = TW_COMMAND_COPY, .flags = TW_COMMAND_BARRIER, .binding_first = 1, .binding_count = 2},
  };
  const tw_plan_layout_t layout = {
      .slots = slots, .bindings = bindings, .commands = commands, .slot_count = 2, .binding_count = 3, .command_count = 2};
  tw_plan_t* plan = NULL;
  tw_frame_t* frame = NULL;
  CHECK(tw_plan_create(&layout, NULL, &plan) == TW_STATUS_OK);
  CHECK(tw_frame_create(plan, &frame) == TW_STATUS_OK);
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
  tw_plan_destroy(plan);
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

static void test_a_mapping_that_is_cut_reads_as_zeros_and_is_lost(void) {
  char path[] = "/tmp/tw_core_test_XXXXXX";
  const int file = mkstemp(path);
  CHECK(file >= 0);
  uint8_t* content = malloc(5 << 20);
  memset(content, 7, 5 << 20);
  CHECK(write(file, content, 5 << 20) == 5 << 20);
  free(content);
  tw_file_mapping_t mapping, other;
  CHECK(tw_file_mapping_create(path, 100, SIZE_MAX, NULL, &mapping) == TW_STATUS_OK);
  CHECK(tw_file_mapping_create(path, 0, 4096, NULL, &other) == TW_STATUS_OK);
  tw_message_t name;
  CHECK(!tw_fault_any() && !tw_fault_find(mapping.data, mapping.size_bytes, &name));
  CHECK(ftruncate(file, 8192) == 0);
  const volatile uint8_t* bytes = mapping.data;
  CHECK(bytes[0] == 7 && bytes[mapping.size_bytes - 1] == 0 && bytes[1 << 20] == 0 && bytes[4000] == 7);
  CHECK(tw_fault_any() && tw_fault_find(mapping.data, 9, &name) && strcmp(name.text, path) == 0);
  CHECK(!tw_fault_find(other.data, other.size_bytes, &name) && !tw_fault_find(&mapping, sizeof(mapping), &name));
  const void* data = mapping.data;
  tw_file_mapping_destroy(&mapping);
  tw_file_mapping_destroy(&other);
  CHECK(!tw_fault_find(data, 1, &name));
  close(file);
  unlink(path);
}

typedef struct mapper_t {
  const char* path;
  atomic_int stop;
} mapper_t;

static void map_once(const char* path) {
  tw_file_mapping_t mapping;
  CHECK(tw_file_mapping_create(path, 0, SIZE_MAX, NULL, &mapping) == TW_STATUS_OK);
  tw_file_mapping_destroy(&mapping);
}

static void* map_until_told(void* argument) {
  mapper_t* mapper = argument;
  while (!atomic_load(&mapper->stop)) map_once(mapper->path);
  return NULL;
}

static void test_a_child_can_map_files_while_another_thread_does(void) {
  char path[] = "/tmp/tw_core_test_XXXXXX";
  const int file = mkstemp(path);
  CHECK(file >= 0 && write(file, path, sizeof(path)) == (ssize_t)sizeof(path));
  mapper_t mapper = {.path = path};
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, map_until_told, &mapper) == 0);
  for (int i = 0; i < 100; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      map_once(path);
      _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  atomic_store(&mapper.stop, 1);
  CHECK(pthread_join(thread, NULL) == 0);
  close(file);
  unlink(path);
}

static void test_blocks_are_aligned_and_zeroed(void) {
  const size_t sizes[] = {0, 1, 63, 4097, (2 << 20) - 1, 2 << 20, (5 << 20) + 1};
  for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
    void* block = NULL;
    CHECK(tw_memory_allocate(sizes[i], &block) == TW_STATUS_OK);
    CHECK((uintptr_t)block % (sizes[i] >= (2 << 20) ? 2 << 20 : 64) == 0);
    for (size_t byte = 0; byte < sizes[i]; byte += 61) CHECK(((uint8_t*)block)[byte] == 0);
    memset(block, 1, sizes[i]);
    tw_memory_free(block, sizes[i]);
  }
}

// ---- heaps ------------------------------------------------------------------------------------------

static void use_once(tw_heap_t* heap, size_t size_bytes, tw_memory_use_t use) {
  const tw_lease_request_t request = {.size_bytes = size_bytes, .use = use};
  tw_lease_t lease;
  tw_refusal_t refusal;
  CHECK(tw_heap_lease(heap, &request, &lease, &refusal) == TW_STATUS_OK);
  CHECK(lease.size_bytes >= size_bytes && (uintptr_t)lease.base % TW_MEMORY_ALIGNMENT == 0);
  memset(lease.base, 1, size_bytes);
  tw_heap_return(heap, &lease);
}

static tw_heap_report_t report_of(tw_heap_t* heap) {
  tw_heap_report_t report;
  tw_heap_report(heap, &report);
  return report;
}

static tw_heap_t* heap_of(size_t capacity_bytes, size_t kept_bytes) {
  tw_heap_t* heap = NULL;
  CHECK(tw_heap_create(capacity_bytes, kept_bytes, &heap) == TW_STATUS_OK);
  return heap;
}

static void test_blocks_come_in_classes_an_eighth_apart(void) {
  for (size_t size = 1; size < (size_t)1 << 45; size += 1 + size / 37) {
    const size_t block = tw_heap_block_bytes(size);
    CHECK(block >= size && block % 64 == 0 && tw_heap_block_bytes(block) == block);
    CHECK(block - size < 64 || block - size <= size / 8);
  }
}

static void test_many_sizes_take_little_more_than_the_largest(void) {
  const tw_memory_use_t uses[] = {TW_MEMORY_ARENA, TW_MEMORY_TRANSIENT};
  for (size_t use = 0; use < 2; ++use) {
    tw_heap_t* heap = heap_of(SIZE_MAX, SIZE_MAX);
    for (size_t i = 1; i <= 64; ++i) {
      use_once(heap, (i * 37 % 65) * (256 << 10) + 1, uses[use]);
      const tw_heap_report_t report = report_of(heap);
      CHECK(report.kept_bytes <= report.peak_bytes + report.peak_bytes / 8 + (1 << 20));
      CHECK(report.live_count == 0 && report.in_use_bytes[uses[use]] == 0);
    }
    CHECK(report_of(heap).peak_bytes == tw_heap_block_bytes(64 * (256 << 10) + 1));
    if (uses[use] == TW_MEMORY_ARENA) CHECK(report_of(heap).reuse_count > 32);  // any larger block will do
    tw_heap_trim(heap);
    CHECK(report_of(heap).kept_bytes == 0);
    tw_heap_destroy(heap);
  }
}

static void test_a_heap_holds_its_capacity(void) {
  tw_heap_t* heap = heap_of(10000, SIZE_MAX);
  tw_lease_t first;
  tw_refusal_t refusal;
  const tw_lease_request_t request = {.size_bytes = 5000, .beside_bytes = 100, .use = TW_MEMORY_SCRATCH};
  CHECK(tw_heap_lease(heap, &request, &first, &refusal) == TW_STATUS_OK);
  CHECK(report_of(heap).in_use_bytes[TW_MEMORY_TRANSIENT] == 100);
  tw_lease_t second;
  CHECK(tw_heap_lease(heap, &request, &second, &refusal) == TW_STATUS_NO_MEMORY);
  CHECK(refusal.size_bytes == 5220 && refusal.in_use_bytes == 5220 && refusal.capacity_bytes == 10000);
  tw_heap_return(heap, &first);
  use_once(heap, 10000 - 784, TW_MEMORY_ARENA);  // what was kept gives way
  const tw_heap_report_t report = report_of(heap);
  CHECK(report.kept_bytes <= 10000 && report.live_count == 0);
  tw_heap_destroy(heap);
}

static void test_what_is_kept_gives_way_to_memory_of_others(void) {
  for (size_t size_bytes = 0; size_bytes <= 4096; size_bytes += 4096) {
    tw_heap_t* heap = heap_of(10000, SIZE_MAX);
    tw_lease_t leases[2];
    tw_refusal_t refusal;
    tw_lease_request_t request = {.size_bytes = 4096, .use = TW_MEMORY_ARENA};
    for (int i = 0; i < 2; ++i) CHECK(tw_heap_lease(heap, &request, &leases[i], &refusal) == TW_STATUS_OK);
    for (int i = 0; i < 2; ++i) tw_heap_return(heap, &leases[i]);
    request = (tw_lease_request_t){.size_bytes = size_bytes, .beside_bytes = 5000, .use = TW_MEMORY_ARENA};
    CHECK(tw_heap_lease(heap, &request, &leases[0], &refusal) == TW_STATUS_OK);
    const tw_heap_report_t report = report_of(heap);
    CHECK(report.in_use_bytes[TW_MEMORY_TRANSIENT] == 5000 && report.in_use_bytes[TW_MEMORY_ARENA] == size_bytes);
    CHECK(report.kept_bytes + 5000 + size_bytes <= 10000);
    tw_heap_return(heap, &leases[0]);
    tw_heap_destroy(heap);
  }
}

typedef struct lender_t {
  tw_heap_t* heap;
  unsigned seed;
} lender_t;

static void* lend(void* argument) {
  const lender_t* lender = argument;
  unsigned seed = lender->seed;
  for (int i = 0; i < 3000; ++i) {
    seed = seed * 1103515245 + 12345;
    use_once(lender->heap, 1 + seed % (300 << 10), (tw_memory_use_t)(i % TW_MEMORY_USE_COUNT));
    if (i % 500 == 0) tw_heap_trim(lender->heap);
  }
  return NULL;
}

static void test_threads_share_a_heap(void) {
  tw_heap_t* heap = heap_of(64 << 20, 8 << 20);
  lender_t lenders[4];
  pthread_t threads[4];
  for (unsigned i = 0; i < 4; ++i) {
    lenders[i] = (lender_t){.heap = heap, .seed = i};
    CHECK(pthread_create(&threads[i], NULL, lend, &lenders[i]) == 0);
  }
  for (int i = 0; i < 4; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
  const tw_heap_report_t report = report_of(heap);
  CHECK(report.live_count == 0 && report.lease_count == 12000 && report.kept_bytes <= 8 << 20);
  tw_heap_destroy(heap);
}

typedef struct holder_t {
  tw_heap_t* heap;
  atomic_int state;
} holder_t;

static void* hold(void* argument) {
  holder_t* holder = argument;
  const tw_lease_request_t request = {.size_bytes = 9000, .use = TW_MEMORY_ARENA, .ends_with_call = 1};
  tw_lease_t lease;
  tw_refusal_t refusal;
  CHECK(tw_heap_lease(holder->heap, &request, &lease, &refusal) == TW_STATUS_OK);
  atomic_store(&holder->state, 1);
  while (atomic_load(&holder->state) == 1) usleep(100);
  tw_heap_return(holder->heap, &lease);
  return NULL;
}

static void test_a_forked_child_gets_what_calls_of_other_threads_held(void) {
  holder_t holder = {.heap = heap_of(SIZE_MAX, SIZE_MAX)};
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, hold, &holder) == 0);
  while (atomic_load(&holder.state) == 0) usleep(100);
  const pid_t child = fork();
  if (child == 0) {
    use_once(holder.heap, 9000, TW_MEMORY_ARENA);
    const tw_heap_report_t report = report_of(holder.heap);
    _exit(report.live_count == 0 && report.reuse_count == 1 ? 0 : 1);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(report_of(holder.heap).live_count == 1);
  atomic_store(&holder.state, 2);
  CHECK(pthread_join(thread, NULL) == 0);
  tw_heap_destroy(holder.heap);
}

#if defined(TW_WRAPPED)

// The linker sends the core's allocations here (--wrap).
static int fails_to_allocate;

int __real_posix_memalign(void** out_block, size_t alignment, size_t size_bytes);
int __wrap_posix_memalign(void** out_block, size_t alignment, size_t size_bytes);

int __wrap_posix_memalign(void** out_block, size_t alignment, size_t size_bytes) {
  return fails_to_allocate ? ENOMEM : __real_posix_memalign(out_block, alignment, size_bytes);
}

static void test_a_kernel_without_working_memory_is_named(void) {
  tw_plan_command_t commands[] = {dispatch_of(mark_kernel, 100, 1, 1), dispatch_of(local_kernel, 100, 1, 1)};
  commands[1].local_memory_bytes = 5000;
  fixture_t fixture = fixture_create(commands, 2, 100);
  const tw_run_options_t options = {0};
  tw_failure_t failure;
  fails_to_allocate = 1;
  CHECK(tw_frame_run(fixture.frame, &options, &failure) == TW_STATUS_NO_SCRATCH);
  fails_to_allocate = 0;
  CHECK(failure.command == 1 && failure.scratch_bytes == 5000 && failure.refusal.capacity_bytes == 0);
  fixture_destroy(&fixture);
}

#endif

int main(int argument_count, char** arguments) {
  const int may_fork = argument_count < 2 || strcmp(arguments[1], "--no-fork") != 0;
  test_blocks_are_aligned_and_zeroed();
  test_a_mapping_that_is_cut_reads_as_zeros_and_is_lost();
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
  test_blocks_come_in_classes_an_eighth_apart();
  test_many_sizes_take_little_more_than_the_largest();
  test_a_heap_holds_its_capacity();
  test_what_is_kept_gives_way_to_memory_of_others();
  test_threads_share_a_heap();
#if defined(TW_WRAPPED)
  test_a_kernel_without_working_memory_is_named();
#endif
  if (may_fork) test_a_forked_child_has_its_own_workers();
  if (may_fork) test_a_child_can_map_files_while_another_thread_does();
  if (may_fork) test_a_forked_child_gets_what_calls_of_other_threads_held();
  puts("all checks held");
  return 0;
}
