// A list of commands of a program, run for one call. Private to the core.
#ifndef TW_PROGRAM_RUN_H_
#define TW_PROGRAM_RUN_H_

#include "bound.h"
#include "tw_command_list.h"
#include "tw_heap.h"
#include "tw_pool.h"

// What lists run on, and whom they ask. `context` is for all that is called.
typedef struct tw_runner_t {
  tw_pool_t* pool;  // NULL: one thread
  tw_heap_t* heap;  // of workgroup memory
  int (*poll)(void* context);  // about every 50 ms; non-zero ends the call. NULL: nothing ends it
  // A step that calls a packed function; sets the error text. NULL: the program has none.
  int (*call_step)(void* context, const tw_bound_t* bound, const tw_step_t* step, void* const* addresses);
  void* context;
} tw_runner_t;

// Runs the list of `bound`, whose slots the frame has. `scratch`: workgroup memory; NULL: the heap has it. Sets the
// error text.
int tw_run_list(const tw_runner_t* runner, const tw_bound_t* bound, tw_frame_t* frame, void* scratch);

#endif  // TW_PROGRAM_RUN_H_
