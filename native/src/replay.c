#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "denormals.h"
#include "command_list_internal.h"
#include "wait.h"

enum { POLL_INTERVAL_NS = 50 * 1000 * 1000, LOOK_STRIDE_LIMIT = 64, UNSEEN_LOOKS = 4, SCRATCH_ALIGNMENT = 4096 };
enum { LONG_BYTES = 64 * 1024 };  // of a tensor, from which on a command may take long beside a look at the clock

// What short runs never need stays out of the functions they go through.
#define NOT_INLINE __attribute__((noinline))

// One run in flight. Only the calling thread writes here.
typedef struct run_t {
  tw_frame_t* frame;
  const tw_run_options_t* options;
  tw_seat_t* seat;
  uint64_t next_poll_ns;
  uint64_t looked_ns;  // what the clock said last
  uint32_t stride;     // how many chances to look at the clock one is: 1 while they are slow, more when they are fast
  uint32_t unseen;     // chances that are still let go: short calls never look
  int interrupted;
} run_t;

struct tw_frame_t {
  const tw_command_list_t* list;
  tw_dispatch_state_t* states;  // one per command
  void** pointers;              // one per binding
  void** slot_bases;            // what the pointers were patched for
  run_t* run;                   // the one in flight
  tw_lease_t scratch;           // of the run in flight: workgroup memory, a piece per thread
  size_t scratch_stride;        // of the pieces; 0: no kernel asks for any
  uint8_t max_concurrency;      // what the states were patched for
  _Atomic uint64_t failure;     // 0, or (command + 1) << 32 | code
};

// ---- frames -----------------------------------------------------------------------------------------

static void fill_state(tw_frame_t* frame, uint32_t ordinal) {
  const tw_command_list_t* list = frame->list;
  const tw_command_t* command = &list->commands[ordinal];
  frame->states[ordinal] = (tw_dispatch_state_t){
      .workgroup_size_x = command->workgroup_size[0],
      .workgroup_size_y = command->workgroup_size[1],
      .workgroup_size_z = (uint16_t)command->workgroup_size[2],
      .constant_count = (uint16_t)command->constant_count,
      .workgroup_count_x = command->workgroup_count[0],
      .workgroup_count_y = command->workgroup_count[1],
      .workgroup_count_z = (uint16_t)command->workgroup_count[2],
      .max_concurrency = frame->max_concurrency,
      .binding_count = (uint8_t)command->binding_count,
      .constants = list->constants + command->constant_first,
      .binding_pointers = frame->pointers + command->binding_first,
      .binding_lengths = list->binding_lengths + command->binding_first,
  };
}

void tw_frame_reset(tw_frame_t* frame) {
  const tw_command_list_t* list = frame->list;
  frame->max_concurrency = 1;
  memset(frame->slot_bases, 0, list->slot_count * sizeof(*frame->slot_bases));
  for (uint32_t i = 0; i < list->binding_count; ++i) {
    frame->pointers[i] = (void*)(uintptr_t)list->bindings[i].offset;
  }
  for (uint32_t i = 0; i < list->command_count; ++i) {
    if (list->commands[i].kind == TW_COMMAND_DISPATCH) fill_state(frame, i);
  }
}

tw_status_t tw_frame_create(const tw_command_list_t* list, tw_frame_t** out_frame) {
  tw_frame_t* frame = calloc(1, sizeof(*frame));
  if (frame == NULL) return TW_STATUS_NO_MEMORY;
  frame->list = list;
  frame->states = calloc((size_t)list->command_count + 1, sizeof(*frame->states));
  frame->pointers = calloc((size_t)list->binding_count + 1, sizeof(*frame->pointers));
  frame->slot_bases = calloc((size_t)list->slot_count + 1, sizeof(*frame->slot_bases));
  if (frame->states == NULL || frame->pointers == NULL || frame->slot_bases == NULL) {
    tw_frame_destroy(frame);
    return TW_STATUS_NO_MEMORY;
  }
  tw_frame_reset(frame);
  *out_frame = frame;
  return TW_STATUS_OK;
}

void tw_frame_destroy(tw_frame_t* frame) {
  if (frame == NULL) return;
  free(frame->states);
  free(frame->pointers);
  free(frame->slot_bases);
  free(frame);
}

void tw_frame_bind(tw_frame_t* frame, uint32_t slot, void* base) {
  if (frame->slot_bases[slot] == base) return;
  const tw_command_list_t* list = frame->list;
  frame->slot_bases[slot] = base;
  const uint32_t end = list->slot_binding_first[slot + 1];
  for (uint32_t i = list->slot_binding_first[slot]; i < end; ++i) {
    const uint32_t binding = list->slot_bindings[i];
    frame->pointers[binding] = (void*)((uintptr_t)base + (uintptr_t)list->bindings[binding].offset);
  }
}

void* tw_frame_slot_base(const tw_frame_t* frame, uint32_t slot) { return frame->slot_bases[slot]; }

static uint8_t max_concurrency_of(const tw_run_options_t* options) {
  const unsigned thread_count = options->pool == NULL ? 1 : tw_pool_thread_count(options->pool);
  return thread_count > UINT8_MAX ? UINT8_MAX : (uint8_t)thread_count;
}

NOT_INLINE static void set_max_concurrency(tw_frame_t* frame, uint8_t value) {
  frame->max_concurrency = value;
  for (uint32_t i = 0; i < frame->list->command_count; ++i) frame->states[i].max_concurrency = value;
}

// ---- polling ----------------------------------------------------------------------------------------

// Asks the caller, now and then, whether to go on; once it said no, the answer stays.
static void poll_sometimes(run_t* run, uint64_t now_ns) {
  if (run->options->poll == NULL || run->interrupted || now_ns < run->next_poll_ns) return;
  const int first = run->next_poll_ns == 0;
  run->next_poll_ns = now_ns + POLL_INTERVAL_NS;
  if (!first) run->interrupted = run->options->poll(run->options->context) != 0;
}

static void report_failure(tw_frame_t* frame, uint32_t command, int code);

// Whether this chance to look at the clock is taken. Looks stay rare over a whole run, as a loop of commands of one
// unit each has as many chances as a grid of many units.
static inline int look_is_due(run_t* run) {
  if (run->unseen == 0) return 1;
  --run->unseen;
  return 0;
}

NOT_INLINE static void look_at_clock(run_t* run) {
  const uint64_t now_ns = tw_clock_coarse_ns();
  if (now_ns != run->looked_ns) {
    run->stride = 1;
  } else if (run->stride < LOOK_STRIDE_LIMIT) {
    run->stride *= 2;
  }
  run->looked_ns = now_ns;
  run->unseen = run->stride - 1;
  poll_sometimes(run, now_ns);
}

NOT_INLINE static void look_around(tw_frame_t* frame, uint32_t ordinal) {
  look_at_clock(frame->run);
  if (frame->run->interrupted) report_failure(frame, ordinal, 0);  // so that the workers stop, too
}

// While the caller waits for the workers' last units.
static void watch_run(void* context) {
  run_t* run = context;
  poll_sometimes(run, tw_clock_coarse_ns());
  if (run->interrupted) report_failure(run->frame, 0, 0);
}

// ---- units ------------------------------------------------------------------------------------------

// The first failure wins; the rest of the run is skipped.
static void report_failure(tw_frame_t* frame, uint32_t command, int code) {
  uint64_t none = 0;
  const uint64_t failure = ((uint64_t)command + 1) << 32 | (uint32_t)code;
  atomic_compare_exchange_strong(&frame->failure, &none, failure);
}

static void* scratch_of(const tw_frame_t* frame, uint32_t worker_index) {
  return (uint8_t*)frame->scratch.base + worker_index * frame->scratch_stride;
}

static void run_grid(tw_frame_t* frame, uint32_t ordinal, uint32_t worker_index, uint64_t begin, uint64_t end) {
  const tw_command_t* command = &frame->list->commands[ordinal];
  const tw_dispatch_state_t* state = &frame->states[ordinal];
  const tw_kernel_t kernel = (tw_kernel_t)(uintptr_t)command->function;
  const tw_environment_t* environment = (const tw_environment_t*)(uintptr_t)command->environment;
  const uint32_t count_x = command->workgroup_count[0];
  const uint32_t count_y = command->workgroup_count[1];
  tw_workgroup_state_t workgroup = {
      .processor_id = worker_index,
      .local_memory = command->local_memory_bytes == 0 ? NULL : scratch_of(frame, worker_index),
      .local_memory_size = command->local_memory_bytes,
  };
  if (begin != 0) {
    workgroup.workgroup_id_x = (uint32_t)(begin % count_x);
    workgroup.workgroup_id_y = (uint32_t)(begin / count_x % count_y);
    workgroup.workgroup_id_z = (uint16_t)(begin / count_x / count_y);
  }
  const int looks = worker_index == 0 && frame->run->options->poll != NULL;
  for (uint64_t unit = begin; unit < end; ++unit) {
    const int code = kernel(environment, state, &workgroup);
    if (code != 0) report_failure(frame, ordinal, code);
    if (looks && look_is_due(frame->run)) look_around(frame, ordinal);
    if (atomic_load_explicit(&frame->failure, memory_order_relaxed) != 0) return;
    if (++workgroup.workgroup_id_x < count_x) continue;
    workgroup.workgroup_id_x = 0;
    if (++workgroup.workgroup_id_y < count_y) continue;
    workgroup.workgroup_id_y = 0;
    ++workgroup.workgroup_id_z;
  }
}

static void run_workgroups(tw_frame_t* frame, uint32_t ordinal, uint32_t worker_index, uint64_t begin,
                           uint64_t end) {
  const int flushes = (frame->list->commands[ordinal].flags & TW_COMMAND_FLUSH_DENORMALS) != 0;
  const uint64_t control = flushes ? float_control_read() : 0;
  if (flushes) float_control_write(control | FLUSH_DENORMALS);
  run_grid(frame, ordinal, worker_index, begin, end);
  if (flushes) float_control_write(control);
}

// Writes whole patterns; a range starts at a pattern boundary because units are multiples of 8 bytes.
static void fill_bytes(uint8_t* target, size_t length, uint64_t pattern, uint32_t pattern_length) {
  uint8_t block[64];
  for (size_t i = 0; i < sizeof(block); ++i) block[i] = (uint8_t)(pattern >> (8 * (i % pattern_length)));
  if (pattern_length == 1) {
    memset(target, block[0], length);
    return;
  }
  size_t done = 0;
  for (; done + sizeof(block) <= length; done += sizeof(block)) memcpy(target + done, block, sizeof(block));
  memcpy(target + done, block, length - done);
}

static void run_transfer(tw_frame_t* frame, uint32_t ordinal, uint64_t begin, uint64_t end) {
  const tw_command_list_t* list = frame->list;
  const tw_command_t* command = &list->commands[ordinal];
  const uint64_t length = list->bindings[command->binding_first].length;
  const size_t first = (size_t)(begin * TW_TRANSFER_UNIT_BYTES);
  const size_t stop = (size_t)(end * TW_TRANSFER_UNIT_BYTES < length ? end * TW_TRANSFER_UNIT_BYTES : length);
  uint8_t* target = frame->pointers[command->binding_first];
  if (command->kind == TW_COMMAND_FILL) {
    fill_bytes(target + first, stop - first, command->function, command->constant_count);
    return;
  }
  const uint8_t* source = frame->pointers[command->binding_first + 1];
  if (source == target) return;  // an output in the memory of the input that it updates
  memmove(target + first, source + first, stop - first);
}

static void run_units(tw_frame_t* frame, uint32_t ordinal, uint32_t worker_index, uint64_t begin, uint64_t end) {
  if (frame->list->commands[ordinal].kind == TW_COMMAND_DISPATCH) {
    run_workgroups(frame, ordinal, worker_index, begin, end);
  } else {
    run_transfer(frame, ordinal, begin, end);
  }
}

// ---- batches ----------------------------------------------------------------------------------------

typedef struct batch_job_t {
  tw_frame_t* frame;
  uint32_t first;
  tw_span_t* spans;  // of a timed command: one per thread, each written by that thread alone
} batch_job_t;

// Runs a range of a batch's units: finds the command each part belongs to.
static void work_on_batch(void* context, uint32_t worker_index, uint64_t begin, uint64_t end) {
  const batch_job_t* job = context;
  tw_frame_t* frame = job->frame;
  const tw_command_list_t* list = frame->list;
  uint64_t command_begin = 0;
  for (uint32_t ordinal = job->first; begin < end; ++ordinal) {
    if (atomic_load_explicit(&frame->failure, memory_order_relaxed) != 0) return;
    const uint64_t command_end = list->unit_ends[ordinal];
    if (begin < command_end) {
      const uint64_t stop = end < command_end ? end : command_end;
      run_units(frame, ordinal, worker_index, begin - command_begin, stop - command_begin);
      begin = stop;
    }
    command_begin = command_end;
  }
}

// How a job ended.
static tw_status_t job_status(const run_t* run, tw_status_t status) {
  if (run->interrupted) return TW_STATUS_INTERRUPTED;
  if (status != TW_STATUS_OK) return status;
  const uint64_t failure = atomic_load_explicit(&run->frame->failure, memory_order_relaxed);
  return failure == 0 ? TW_STATUS_OK : TW_STATUS_KERNEL_FAILED;
}

// Whether some record of the command's binding is not TW_NO_FINDING.
static int has_finding(const tw_frame_t* frame, const tw_command_t* command) {
  const tw_binding_t* binding = &frame->list->bindings[command->binding_first];
  const char* record = tw_frame_slot_base(frame, binding->slot);
  if (record == NULL) return 0;
  record += binding->offset;
  for (uint64_t left = binding->length; left >= TW_FINDING_BYTES; left -= TW_FINDING_BYTES) {
    int64_t found;
    memcpy(&found, record, sizeof(found));  // a caller's buffer may lie anywhere
    if (found != TW_NO_FINDING) return 1;
    record += TW_FINDING_BYTES;
  }
  return 0;
}

static tw_status_t run_host_call(run_t* run, uint32_t ordinal) {
  const tw_command_t* command = &run->frame->list->commands[ordinal];
  if ((command->flags & TW_COMMAND_ON_FINDING) && !has_finding(run->frame, command)) return TW_STATUS_OK;
  if (run->options->host_call == NULL) return TW_STATUS_HOST_FAILED;
  run->unseen = 0;  // it may take long
  const int failed = run->options->host_call(run->options->context, ordinal);
  return failed ? TW_STATUS_HOST_FAILED : TW_STATUS_OK;
}

static int64_t row_place(const tw_frame_t* frame, const tw_command_t* command) {
  int64_t place;
  memcpy(&place, frame->pointers[command->binding_first], sizeof(place));  // a caller's buffer may lie anywhere
  return place;
}

static void bind_row(tw_frame_t* frame, const tw_command_t* command, int64_t place) {
  const tw_command_list_t* list = frame->list;
  const uint32_t slot = (uint32_t)command->function;
  const uint64_t row_bytes = list->slots[slot].size_bytes;
  const int64_t count = (int64_t)(list->bindings[command->binding_first + 1].length / row_bytes);
  if (place < 0) place = place < -count ? 0 : place + count;
  if (place >= count) place = count - 1;
  tw_frame_bind(frame, slot, (uint8_t*)frame->pointers[command->binding_first + 1] + (uint64_t)place * row_bytes);
}

// Where no command has said yet which row a slot is, it is the first: no address is one of an earlier run.
NOT_INLINE static void bind_first_rows(tw_frame_t* frame) {
  for (uint32_t i = frame->list->command_count; i > 0; --i) {
    const tw_command_t* command = &frame->list->commands[i - 1];
    if (command->kind == TW_COMMAND_ROW) bind_row(frame, command, 0);
  }
}

// The command that comes next.
static inline uint32_t next_command(const tw_frame_t* frame, uint32_t ordinal) {
  const tw_command_t* command = &frame->list->commands[ordinal];
  if (command->kind != TW_COMMAND_GOTO) return ordinal + 1;
  const int goes = command->binding_count == 0 || *(const uint8_t*)frame->pointers[command->binding_first] == 0;
  return goes ? (uint32_t)command->function : ordinal + 1;
}

// A command that no worker has a part in; what a goto decides is asked for with `next_command`.
static tw_status_t run_between_jobs(run_t* run, uint32_t ordinal) {
  const tw_command_t* command = &run->frame->list->commands[ordinal];
  if (command->kind == TW_COMMAND_HOST_CALL) return run_host_call(run, ordinal);
  if (command->kind == TW_COMMAND_ROW) bind_row(run->frame, command, row_place(run->frame, command));
  return TW_STATUS_OK;
}

static int is_job(const tw_command_t* command) { return command->kind < TW_COMMAND_HOST_CALL; }

static tw_status_t poll_between_commands(run_t* run) {
  if (run->options->poll == NULL || !look_is_due(run)) return TW_STATUS_OK;
  look_at_clock(run);
  return run->interrupted ? TW_STATUS_INTERRUPTED : TW_STATUS_OK;
}

// What is asked of a grid of many units once, a trip of a short loop would ask many times: a grid of one unit, on this
// thread alone, where nobody else can fail, is only its kernel and a chance to look at the clock.
static inline tw_status_t run_one_unit(run_t* run, uint32_t ordinal) {
  tw_frame_t* frame = run->frame;
  const tw_command_t* command = &frame->list->commands[ordinal];
  tw_workgroup_state_t workgroup = {
      .local_memory = command->local_memory_bytes == 0 ? NULL : scratch_of(frame, 0),
      .local_memory_size = command->local_memory_bytes,
  };
  const int code = ((tw_kernel_t)(uintptr_t)command->function)(
      (const tw_environment_t*)(uintptr_t)command->environment, &frame->states[ordinal], &workgroup);
  if (code != 0) report_failure(frame, ordinal, code);
  if (run->options->poll != NULL && look_is_due(run)) look_at_clock(run);
  return code == 0 && !run->interrupted ? TW_STATUS_OK : job_status(run, TW_STATUS_OK);
}

// What is let go was counted on commands that were fast: in front of one that may be slow nothing is.
static inline void expect_time(run_t* run, const tw_command_t* command) {
  const size_t* lengths = run->frame->list->binding_lengths + command->binding_first;
  for (uint32_t i = 0; i < command->binding_count; ++i) {
    if (lengths[i] > LONG_BYTES) run->unseen = 0;
  }
}

static tw_status_t run_job_alone(run_t* run, uint32_t ordinal) {
  const tw_command_list_t* list = run->frame->list;
  const tw_command_t* command = &list->commands[ordinal];
  expect_time(run, command);
  const int is_small = list->unit_counts[ordinal] == 1 && (command->flags & TW_COMMAND_FLUSH_DENORMALS) == 0;
  if (command->kind == TW_COMMAND_DISPATCH && is_small) return run_one_unit(run, ordinal);
  const int looks_around = command->kind == TW_COMMAND_DISPATCH;
  const tw_status_t status = looks_around ? TW_STATUS_OK : poll_between_commands(run);
  if (status != TW_STATUS_OK) return status;
  run_units(run->frame, ordinal, 0, 0, list->unit_counts[ordinal]);
  return job_status(run, TW_STATUS_OK);
}

// One command after the other, on this thread alone.
static tw_status_t run_alone(run_t* run) {
  tw_frame_t* frame = run->frame;
  const tw_command_list_t* list = frame->list;
  tw_status_t status = TW_STATUS_OK;
  for (uint32_t i = 0; status == TW_STATUS_OK && i < list->command_count; i = next_command(frame, i)) {
    if (is_job(&list->commands[i])) {
      status = run_job_alone(run, i);
    } else {
      status = poll_between_commands(run);
      if (status == TW_STATUS_OK) status = run_between_jobs(run, i);
    }
  }
  return status;
}

static tw_status_t run_batch(run_t* run, const tw_batch_t* batch) {
  tw_frame_t* frame = run->frame;
  if (!is_job(&frame->list->commands[batch->first])) return run_between_jobs(run, batch->first);
  // One unit is nothing to share, whoever is there.
  if (batch->unit_count == 1 && batch->end == batch->first + 1) return run_job_alone(run, batch->first);
  for (uint32_t i = batch->first; i < batch->end; ++i) expect_time(run, &frame->list->commands[i]);
  batch_job_t job = {.frame = frame, .first = batch->first};
  return job_status(run, tw_pool_run(run->seat, batch->unit_count, work_on_batch, &job));
}

static tw_status_t run_batches(run_t* run) {
  const tw_command_list_t* list = run->frame->list;
  for (uint32_t i = 0; i < list->batch_count; i = list->batch_of[next_command(run->frame, list->batches[i].end - 1)]) {
    tw_status_t status = poll_between_commands(run);
    if (status == TW_STATUS_OK) status = run_batch(run, &list->batches[i]);
    if (status != TW_STATUS_OK) return status;
  }
  return TW_STATUS_OK;
}

// One timed command inside a batch: the units of its neighbours are left out.
static void work_on_command(void* context, uint32_t worker_index, uint64_t begin, uint64_t end) {
  const batch_job_t* job = context;
  if (atomic_load_explicit(&job->frame->failure, memory_order_relaxed) != 0) return;
  tw_span_t* span = &job->spans[worker_index];
  if (span->begin_ns == 0) span->begin_ns = tw_clock_ns();
  run_units(job->frame, job->first, worker_index, begin, end);
  span->end_ns = tw_clock_ns();
}

static tw_status_t run_command(run_t* run, uint32_t ordinal, tw_span_t* spans) {
  const tw_command_list_t* list = run->frame->list;
  const tw_command_t* command = &list->commands[ordinal];
  if (!is_job(command)) return run_between_jobs(run, ordinal);
  batch_job_t job = {.frame = run->frame, .first = ordinal, .spans = spans};
  return job_status(run, tw_pool_run(run->seat, list->unit_counts[ordinal], work_on_command, &job));
}

// Adds a run of a command to what it took in the trips of a loop before: the span is as long as all of them.
static void add_span(tw_span_t* total, const tw_span_t* trip) {
  if (trip->begin_ns == 0) return;
  if (total->begin_ns == 0) {
    *total = *trip;
  } else {
    total->end_ns += trip->end_ns - trip->begin_ns;
  }
}

// Runs a command and times it; `trip` has room for its own span and one per thread.
static tw_status_t time_command(run_t* run, uint32_t ordinal, tw_span_t* trip, uint32_t thread_count) {
  tw_span_t* total = run->options->spans + (size_t)ordinal * (thread_count + 1);
  memset(trip, 0, (thread_count + 1) * sizeof(*trip));
  trip[0].begin_ns = tw_clock_ns();
  const tw_status_t status = run_command(run, ordinal, trip + 1);
  trip[0].end_ns = tw_clock_ns();
  for (uint32_t i = 0; i <= thread_count; ++i) add_span(&total[i], &trip[i]);
  return status;
}

NOT_INLINE static tw_status_t run_timed(run_t* run) {
  const uint32_t thread_count = run->options->pool == NULL ? 1 : tw_pool_thread_count(run->options->pool);
  tw_span_t* trip = calloc((size_t)thread_count + 1, sizeof(*trip));
  if (trip == NULL) return TW_STATUS_NO_MEMORY;
  tw_status_t status = TW_STATUS_OK;
  for (uint32_t i = 0; status == TW_STATUS_OK && i < run->frame->list->command_count; i = next_command(run->frame, i)) {
    status = poll_between_commands(run);
    if (status == TW_STATUS_OK) status = time_command(run, i, trip, thread_count);
  }
  free(trip);
  return status;
}

// The kernel that asks for the most workgroup memory.
static uint32_t find_hungriest(const tw_command_list_t* list) {
  uint32_t ordinal = 0;
  while (list->commands[ordinal].kind != TW_COMMAND_DISPATCH ||
         list->commands[ordinal].local_memory_bytes != list->local_memory_bytes) {
    ++ordinal;
  }
  return ordinal;
}

static size_t scratch_stride(const tw_command_list_t* list) {
  return ((size_t)list->local_memory_bytes + SCRATCH_ALIGNMENT - 1) & ~(size_t)(SCRATCH_ALIGNMENT - 1);
}

size_t tw_command_list_scratch_bytes(const tw_command_list_t* list, uint32_t thread_count) {
  return scratch_stride(list) * thread_count;
}

// Workgroup memory for every thread and any kernel of the list, for the time of the run.
static tw_status_t lease_scratch(const run_t* run, tw_heap_t* heap, tw_failure_t* out_failure) {
  tw_frame_t* frame = run->frame;
  const tw_command_list_t* list = frame->list;
  const size_t thread_count = run->seat == NULL ? 1 : tw_pool_thread_count(run->options->pool);
  frame->scratch_stride = scratch_stride(list);
  const tw_lease_request_t request = {
      .size_bytes = frame->scratch_stride * thread_count, .use = TW_MEMORY_SCRATCH, .ends_with_call = 1};
  tw_refusal_t refusal = {.size_bytes = request.size_bytes};
  if (heap != NULL && tw_heap_lease(heap, &request, &frame->scratch, &refusal) == TW_STATUS_OK) return TW_STATUS_OK;
  *out_failure = (tw_failure_t){
      .command = find_hungriest(list), .scratch_bytes = list->local_memory_bytes, .refusal = refusal};
  return TW_STATUS_NO_SCRATCH;
}

static tw_status_t run_commands(run_t* run) {
  if (run->options->spans != NULL) return run_timed(run);
  return run->seat == NULL ? run_alone(run) : run_batches(run);
}

NOT_INLINE static tw_status_t run_with_scratch(run_t* run, tw_failure_t* out_failure) {
  tw_frame_t* frame = run->frame;
  if (run->options->scratch != NULL) {
    frame->scratch.base = run->options->scratch;
    frame->scratch_stride = scratch_stride(frame->list);
    return run_commands(run);
  }
  tw_heap_t* heap = run->options->heap == NULL ? tw_heap_default() : run->options->heap;
  tw_status_t status = lease_scratch(run, heap, out_failure);
  if (status != TW_STATUS_OK) return status;
  status = run_commands(run);
  tw_heap_return(heap, &frame->scratch);
  return status;
}

tw_status_t tw_frame_run(tw_frame_t* frame, const tw_run_options_t* options, tw_failure_t* out_failure) {
  run_t run = {.frame = frame, .options = options, .stride = 1, .unseen = UNSEEN_LOOKS};
  atomic_store_explicit(&frame->failure, 0, memory_order_relaxed);
  const uint8_t concurrency = max_concurrency_of(options);
  if (frame->max_concurrency != concurrency) set_max_concurrency(frame, concurrency);
  frame->run = &run;
  if (frame->list->row_count != 0) bind_first_rows(frame);
  if (options->pool != NULL) run.seat = tw_pool_enter(options->pool);
  if (run.seat != NULL) tw_seat_watch(run.seat, watch_run, &run);
  const int needs_scratch = frame->list->local_memory_bytes != 0;
  const tw_status_t status = needs_scratch ? run_with_scratch(&run, out_failure) : run_commands(&run);
  if (run.seat != NULL) tw_pool_leave(run.seat);
  frame->run = NULL;
  if (status == TW_STATUS_KERNEL_FAILED) {
    const uint64_t failure = atomic_load(&frame->failure);
    *out_failure = (tw_failure_t){.command = (uint32_t)(failure >> 32) - 1, .code = (int32_t)(uint32_t)failure};
  }
  return status;
}
