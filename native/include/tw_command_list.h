// Command lists: commands recorded, checked once, replayed many times.
//
// The record layouts below are little endian, without padding, and mirrored by `struct` formats in
// `tilewright/runtime/native/records.py` (MIRROR COMMAND RECORDS). All numbers are checked when the list is made;
// the addresses of functions and environments are trusted.
#ifndef TW_COMMAND_LIST_H_
#define TW_COMMAND_LIST_H_

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "tw_executable.h"
#include "tw_heap.h"
#include "tw_pool.h"
#include "tw_status.h"

enum {
  TW_COMMAND_DISPATCH = 0,
  TW_COMMAND_COPY = 1,
  TW_COMMAND_FILL = 2,
  TW_COMMAND_HOST_CALL = 3,
  TW_COMMAND_GOTO = 4,
  TW_COMMAND_ROW = 5,
};
enum {
  TW_COMMAND_BARRIER = 1,          // waits for all earlier commands
  TW_COMMAND_FLUSH_DENORMALS = 2,  // the kernel runs with denormal operands and results taken as zero
  TW_COMMAND_ON_FINDING = 4,       // the host is called only if a record of the binding holds a finding
};
// MIRROR FINDINGS. A record of findings: an int64 at the start of a cache line, TW_NO_FINDING where all was well.
enum { TW_FINDING_BYTES = 64 };
#define TW_NO_FINDING INT64_MIN
enum { TW_BINDING_WRITABLE = 1 };
enum {
  TW_SLOT_WRITABLE = 1,
  TW_SLOT_ROW = 2,  // a row of what another slot holds: row commands bind it, not the caller; read-only
};

// MIRROR COMMAND RECORDS. One buffer of a run.
typedef struct tw_slot_t {
  uint64_t size_bytes;
  uint32_t flags;
  uint32_t alignment;  // a power of two, or 0
} tw_slot_t;

// MIRROR COMMAND RECORDS. A byte range of a slot.
typedef struct tw_binding_t {
  uint32_t slot;
  uint32_t flags;
  uint64_t offset;
  uint64_t length;
} tw_binding_t;

// MIRROR COMMAND RECORDS. One command.
//   dispatch   function, environment (0: default), constants, bindings, workgroup counts and sizes
//   copy       two bindings of equal length: target, source
//   fill       one binding; `function` holds the pattern, `constant_count` its length 1, 2, 4 or 8
//   host call  any bindings; `function` is the index handed to the callback; with ON_FINDING one binding of whole
//              records
//   goto       `function` is the command to go on with (the number of commands: the end), always where there is no
//              binding, else where the first byte of the only one is 0
//   row        two bindings, an int64 and a table of whole rows, not itself in a slot of rows: the slot `function` is
//              from here on the row at that place, which counts from the end where it is negative and is moved to the
//              nearest row where there is none. Before the first such command a slot is the first row of its table.
// Batches of their own, which wait for all before: host calls, gotos, rows; and a command that a goto leads to.
typedef struct tw_command_t {
  uint32_t kind;
  uint32_t flags;
  uint32_t binding_first;
  uint32_t binding_count;
  uint32_t constant_first;
  uint32_t constant_count;
  uint32_t workgroup_count[3];
  uint32_t workgroup_size[3];
  uint32_t local_memory_bytes;
  uint32_t reserved;
  uint64_t function;
  uint64_t environment;
} tw_command_t;

static_assert(sizeof(tw_slot_t) == 16, "MIRROR COMMAND RECORDS");
static_assert(sizeof(tw_binding_t) == 24, "MIRROR COMMAND RECORDS");
static_assert(sizeof(tw_command_t) == 72, "MIRROR COMMAND RECORDS");

typedef struct tw_command_list_layout_t {
  const tw_slot_t* slots;
  const tw_binding_t* bindings;
  const tw_command_t* commands;
  const uint32_t* constants;
  uint32_t slot_count;
  uint32_t binding_count;
  uint32_t command_count;
  uint32_t constant_count;
  uint32_t host_call_count;
} tw_command_list_layout_t;

// Immutable after creation; any number of threads may run it, each with its own frame.
typedef struct tw_command_list_t tw_command_list_t;

tw_status_t tw_command_list_create(const tw_command_list_layout_t* layout, tw_message_t* message,
                                   tw_command_list_t** out_list);
void tw_command_list_destroy(tw_command_list_t* list);

uint32_t tw_command_list_slot_count(const tw_command_list_t* list);
uint32_t tw_command_list_command_count(const tw_command_list_t* list);
const tw_slot_t* tw_command_list_slot(const tw_command_list_t* list, uint32_t slot);
const tw_command_t* tw_command_list_command(const tw_command_list_t* list, uint32_t command);
const tw_binding_t* tw_command_list_binding(const tw_command_list_t* list, uint32_t binding);

// The workgroup memory that a run on so many threads takes.
size_t tw_command_list_scratch_bytes(const tw_command_list_t* list, uint32_t thread_count);

// The mutable part of one run in flight: patched pointers, dispatch states. The list outlives it.
typedef struct tw_frame_t tw_frame_t;

tw_status_t tw_frame_create(const tw_command_list_t* list, tw_frame_t** out_frame);
void tw_frame_destroy(tw_frame_t* frame);

// As it was made: nothing is bound. Also of a frame that a thread left in the middle of a run, in a forked child.
void tw_frame_reset(tw_frame_t* frame);

// Sets the address of a slot. Remembered between runs, so only what changes costs anything.
void tw_frame_bind(tw_frame_t* frame, uint32_t slot, void* base);
void* tw_frame_slot_base(const tw_frame_t* frame, uint32_t slot);

// When something ran, on the monotonic clock; both 0: it did not.
typedef struct tw_span_t {
  uint64_t begin_ns;
  uint64_t end_ns;
} tw_span_t;

typedef struct tw_run_options_t {
  tw_pool_t* pool;                                    // NULL: the caller works alone
  tw_heap_t* heap;                                    // of workgroup memory; NULL: one without bound
  void* scratch;                                      // workgroup memory instead of the heap's, aligned to 64 bytes
  int (*host_call)(void* context, uint32_t command);  // non-zero stops with TW_STATUS_HOST_FAILED
  int (*poll)(void* context);  // called between workgroups about every 50 ms; non-zero: TW_STATUS_INTERRUPTED
  void* context;
  tw_span_t* spans;            // NULL, or per command its own span and one per thread of the pool, from its first
                               // to its last unit of the command; then commands run one at a time
} tw_run_options_t;

typedef struct tw_failure_t {
  uint32_t command;
  int32_t code;            // what the kernel returned
  uint32_t scratch_bytes;  // what it asked for in vain, for every thread
  tw_refusal_t refusal;    // of that
} tw_failure_t;

// Replays the list. `out_failure` is set with TW_STATUS_KERNEL_FAILED and TW_STATUS_NO_SCRATCH.
tw_status_t tw_frame_run(tw_frame_t* frame, const tw_run_options_t* options, tw_failure_t* out_failure);

#endif  // TW_COMMAND_LIST_H_
