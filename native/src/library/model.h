// A model's parts, and a call step by step. Private to the library.
#ifndef TW_LIBRARY_MODEL_H_
#define TW_LIBRARY_MODEL_H_

#include <pthread.h>
#include <stdatomic.h>

#include "bound.h"
#include "late.h"
#include "recorded.h"
#include "run.h"
#include "tw_heap.h"
#include "tw_model.h"
#include "tw_pool.h"
#include "wait.h"
#include "weights.h"

enum { TW_DIM_LIMIT = 64 };  // MIRROR LIBRARY LIMITS

// What one call at a time uses of its sizes.
typedef struct tw_context_t {
  struct tw_context_t* next;
  struct tw_sized_t* sized;
  tw_frame_t* frame;
} tw_context_t;

// What all calls of one set of sizes share.
typedef struct tw_sized_t {
  tw_bound_t* bound;
  tw_context_t* idle;
  uint32_t idle_count;
  uint32_t users;
  uint64_t last_use;
  int is_dropped;  // the last user destroys it
} tw_sized_t;

// Memory of one call at a time.
typedef struct tw_model_seat_t {
  uint8_t* memory;
  size_t size_bytes;
  uintptr_t thread;       // who sits here, or 0
  tw_context_t* context;  // of the call, if it is one
} tw_model_seat_t;

// What every call reads comes first.
struct tw_model_t {
  const tw_program_t* program;
  tw_pool_t* pool;  // NULL: one thread
  int shares_pool;  // it is the library's
  tw_heap_t* heap;
  tw_model_seat_t* seats;     // NULL: calls lease from the heap
  tw_context_t* spare;        // of the call before; for whoever set what follows
  atomic_int spare_is_taken;
  uint32_t seat_count;
  int owns_seats;          // their memory is not the caller's
  const tw_library_t* library;
  uintptr_t spare_thread;  // of the call that took the spare, while it is in a function of others
  pthread_mutex_t lock;    // guards what follows, for a few instructions
  tw_word_t changes;       // changes when a seat is given back or a binding ends, where somebody waits for it
  uint32_t waiter_count;   // for that
  int is_binding;          // one thread binds a program, others wait
  int is_closed;           // all but this struct is gone
  uint32_t user_count;     // of all sizes together
  tw_sized_t** sizes;
  uint32_t size_count;
  uint32_t size_room;
  uint64_t clock;
  tw_recordings_t recordings;  // where data decides sizes
  tw_flow_shared_t flow;       // the same
  tw_open_weights_t weights;
  const void** constants;      // their memory, by place
  tw_model_t* next;  // in the list of live models
};

// Destroys all but the struct, where no call runs: whoever has just read its address finds it closed. Returns 0, and
// does nothing, where one runs.
int tw_model_close(tw_model_t* model);

// Whether callers gave what they have to; the error names the argument that is NULL, which all may be that a model has
// none of.
int tw_model_check_dims(const tw_model_t* model, const int64_t* dims);
int tw_model_check_arrays(const tw_model_t* model, const void* inputs, const void* outputs);

// ---- seats (seats.c) --------------------------------------------------------------------------------

// Sleeps until something changed, or for no reason; only with the lock, which is open meanwhile.
void tw_model_wait(tw_model_t* model);

// Tells those who wait; only with the lock.
void tw_model_tell(tw_model_t* model);

// Takes any seat, or waits for one; only with the lock. NULL, with the error text: this thread has them all.
tw_model_seat_t* tw_seat_take(tw_model_t* model);
void tw_seat_give_back(tw_model_t* model, tw_model_seat_t* seat);

// Makes every seat large enough; calls in flight are waited for, one at a time. Without the lock.
int tw_seats_grow(tw_model_t* model, size_t size_bytes);

// ---- calls (call.c) ---------------------------------------------------------------------------------

typedef struct tw_call_t tw_call_t;

// Gives the memory of an output whose shape is known now; sets the error text where it has none.
typedef int (*tw_allocate_t)(void* context, tw_call_t* call, uint32_t output, const int64_t* shape, size_t size_bytes,
                             void** out_data);

// One call, from its sizes to its end. `tw_call_end` comes last, whatever came before.
struct tw_call_t {
  tw_model_t* model;  // NULL: nothing has begun
  int (*poll)(void);  // about every 50 ms; non-zero ends the call. NULL: nothing ends it
  tw_allocate_t allocate;  // of outputs that were not bound; NULL: all are, or will be
  void* allocate_context;
  const tw_bound_t* bound;  // of what runs
  tw_frame_t* frame;
  tw_late_t* late;       // where data decides sizes; NULL: one list of commands
  tw_sized_t* sized;
  tw_context_t* context;
  tw_model_seat_t* seat;
  tw_lease_t lease;  // of the arena, where there is no seat
  int has_spare;     // the place of the model's spare context is this call's
};

int tw_call_begin(tw_call_t* call, tw_model_t* model, const int64_t* dims, int (*poll)(void));

// The memory of an input or output. Nobody looks at it.
static inline void tw_call_bind(tw_call_t* call, uint32_t slot, void* data) {
  if (call->late == NULL) {
    tw_frame_bind(call->frame, slot, data);
  } else {
    tw_flow_bind(call->late->flow, slot, data);
  }
}

// The bytes of an input or output, as far as they are known; -1.
int64_t tw_call_slot_bytes(const tw_call_t* call, uint32_t slot);

// Functions of others may fork: a call is known by its thread while it is in one.
void tw_call_enter_others(const tw_call_t* call);
void tw_call_leave_others(const tw_call_t* call);

// What lists of the call run on; it asks the call, which stays where it is.
tw_runner_t tw_call_runner(tw_call_t* call);

int tw_call_run(tw_call_t* call);
void tw_call_end(tw_call_t* call);

// Ends what calls left behind; none may run.
void tw_model_close_calls(tw_model_t* model);

// Has no call run from here on, if none does now.
int tw_model_close_to_calls(tw_model_t* model);

// In a forked child, with the lock: what calls of other threads held can be used again.
void tw_model_forget_others(tw_model_t* model);

// Sizes that the caller counts as a user of, until `tw_sized_leave`: known ones (NULL: they are not), or made now.
tw_sized_t* tw_sized_find(tw_model_t* model, const int64_t* dims);
int tw_sized_enter(tw_model_t* model, const int64_t* dims, tw_sized_t** out_sized);
void tw_sized_leave(tw_model_t* model, tw_sized_t* sized);
void tw_sized_destroy(tw_sized_t* sized);

// What a call needs: the arena, then workgroup memory.
size_t tw_model_bound_bytes(const tw_model_t* model, const tw_bound_t* bound);

// ---- tensors (tensors.c) ----------------------------------------------------------------------------

// What a value of a type of tvm-ffi is, in the words of Python.
const char* tw_value_word(int32_t type_index);

// The value of a dimension, by the tensor whose axis it is.
int tw_model_dim_of(const tw_model_t* model, uint32_t index, const tw_tensor_t* tensor, int64_t* out_value);

// Checks data that is not empty: that it is there, and where.
int tw_check_data(const tw_signature_t* row, const char* what, const void* data);

// Checks a tensor of the signature. `slot`: of the inputs, then of the outputs.
int tw_check_tensor(const tw_bound_t* bound, uint32_t slot, const tw_tensor_t* tensor);

// Checks a tensor of the call and binds its data.
int tw_call_take(tw_call_t* call, uint32_t slot, const tw_tensor_t* tensor);

#endif  // TW_LIBRARY_MODEL_H_
