// A model's parts, and a call step by step. Private to the library.
#ifndef TW_LIBRARY_MODEL_H_
#define TW_LIBRARY_MODEL_H_

#include <pthread.h>
#include <stdatomic.h>

#include "bound.h"
#include "tw_heap.h"
#include "tw_model.h"
#include "tw_pool.h"
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
  int is_taken;
} tw_model_seat_t;

// What every call reads comes first.
struct tw_model_t {
  const tw_program_t* program;
  tw_pool_t* pool;  // NULL: one thread
  tw_heap_t* heap;
  tw_model_seat_t* seats;     // NULL: calls lease from the heap
  tw_context_t* spare;        // of the call before; for whoever set what follows
  atomic_int spare_is_taken;
  uint32_t seat_count;
  int owns_seats;             // their memory is not the caller's
  const tw_library_t* library;
  pthread_mutex_t bind_lock;  // held while a program is bound
  pthread_mutex_t lock;       // guards what follows, for a few instructions
  pthread_cond_t seat_returned;
  tw_sized_t** sizes;
  uint32_t size_count;
  uint32_t size_room;
  uint64_t clock;
  tw_open_weights_t weights;
};

// ---- calls (call.c) ---------------------------------------------------------------------------------

// One call, from its sizes to its end. `tw_call_end` comes last, whatever came before.
typedef struct tw_call_t {
  tw_model_t* model;  // NULL: nothing has begun
  int (*poll)(void);  // about every 50 ms; non-zero ends the call. NULL: nothing ends it
  tw_sized_t* sized;
  tw_context_t* context;
  tw_model_seat_t* seat;
  tw_lease_t lease;  // of the arena, where there is no seat
  int has_spare;     // the place of the model's spare context is this call's
  int status;        // of a host call
} tw_call_t;

int tw_call_begin(tw_call_t* call, tw_model_t* model, const int64_t* dims, int (*poll)(void));
static inline void tw_call_bind(tw_call_t* call, uint32_t slot, void* data) {
  tw_frame_bind(call->context->frame, slot, data);
}
int tw_call_run(tw_call_t* call);
void tw_call_end(tw_call_t* call);

// Ends what calls left behind; none may run.
void tw_model_close_calls(tw_model_t* model);

// Sizes that the caller counts as a user of, until `tw_sized_leave`: known ones, or made now.
int tw_sized_enter(tw_model_t* model, const int64_t* dims, tw_sized_t** out_sized);
void tw_sized_leave(tw_model_t* model, tw_sized_t* sized);
void tw_sized_destroy(tw_sized_t* sized);

// What a call needs: the arena, then workgroup memory.
size_t tw_model_bound_bytes(const tw_model_t* model, const tw_bound_t* bound);

// ---- tensors (tensors.c) ----------------------------------------------------------------------------

// The value of a dimension, by the tensor whose axis it is.
int tw_model_dim_of(const tw_model_t* model, uint32_t index, const tw_tensor_t* tensor, int64_t* out_value);

// Checks a tensor of the call and binds its data. `slot`: of the inputs, then of the outputs.
int tw_call_take(tw_call_t* call, uint32_t slot, const tw_tensor_t* tensor);

#endif  // TW_LIBRARY_MODEL_H_
