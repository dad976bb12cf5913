// Calls of programs whose sizes data decides. Private to the core.
//
// Ownership: whoever creates a call destroys it. Thread-safety: calls are independent; what they record is shared.
// Errors: functions return a status, with the text of `error.h`.
#ifndef TW_PROGRAM_FLOW_H_
#define TW_PROGRAM_FLOW_H_

#include <pthread.h>

#include "bound.h"
#include "recorded.h"
#include "run.h"
#include "tw_heap.h"

// What all calls of a program share, for as long as there are any.
typedef struct tw_flow_shared_t {
  const tw_program_t* program;
  const void* const* constants;  // memory of each constant storage, by its place
  const size_t* constant_bytes;  // of each; NULL: they are as large as the program says
  tw_heap_t* heap;
  tw_recordings_t* recordings;
  pthread_mutex_t* lock;  // of the recordings
} tw_flow_shared_t;

// Who makes a call. `allocate` gives the memory of an output whose shape is known now.
typedef struct tw_flow_caller_t {
  tw_runner_t runner;
  int (*allocate)(void* context, uint32_t output, const int64_t* shape, size_t size_bytes, void** out_data);
} tw_flow_caller_t;

typedef struct tw_flow_call_t tw_flow_call_t;

// A call of which nothing ran yet, for sizes that the inputs decide, which are checked. `shared` outlives it.
int tw_flow_create(const tw_flow_shared_t* shared, const int64_t* dims, tw_flow_call_t** out_flow);

// The sizes as they are now.
const tw_bound_t* tw_flow_sizes(const tw_flow_call_t* flow);

// The bytes of an input, or an output behind them; -1 where nobody knows them yet.
int64_t tw_flow_slot_bytes(const tw_flow_call_t* flow, uint32_t slot);

// The memory of an input, or of an output that is not to be allocated; it is as large as it has to be.
void tw_flow_bind(tw_flow_call_t* flow, uint32_t slot, void* data);

int tw_flow_run(tw_flow_call_t* flow, const tw_flow_caller_t* caller);
void tw_flow_destroy(tw_flow_call_t* flow);

// The group of an output: 0 where its shape is known before the call.
uint32_t tw_output_group(const tw_program_t* program, uint32_t output);

#endif  // TW_PROGRAM_FLOW_H_
