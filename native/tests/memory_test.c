// Blocks, mapped files and heaps; called by core_test.c.

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "tw_fault.h"
#include "tw_heap.h"
#include "tw_memory.h"

// ---- mappings and blocks ----------------------------------------------------------------------------

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

void test_memory(int may_fork) {
  test_blocks_are_aligned_and_zeroed();
  test_a_mapping_that_is_cut_reads_as_zeros_and_is_lost();
  test_blocks_come_in_classes_an_eighth_apart();
  test_many_sizes_take_little_more_than_the_largest();
  test_a_heap_holds_its_capacity();
  test_what_is_kept_gives_way_to_memory_of_others();
  test_threads_share_a_heap();
  if (may_fork) test_a_child_can_map_files_while_another_thread_does();
  if (may_fork) test_a_forked_child_gets_what_calls_of_other_threads_held();
}
