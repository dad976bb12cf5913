// Calls: a bound program per set of sizes, a frame per call in flight.
//
// A model without `concurrency` leases the memory of a call from a heap, where calls of other sizes find it again.
// The context of the call before lies ready (`spare`), counted as a user of its sizes. One call at a time has its place
// and takes no lock; the flag that says so costs one atomic exchange, at the beginning.
// With `concurrency`, memory for so many calls (seats) is made beforehand, as are their frames: a call then takes a seat, or
// waits for one, and allocates nothing.
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "model.h"
#include "packed.h"

enum { SIZES_LIMIT = 32, IDLE_LIMIT = 8, SEAT_ALIGNMENT = 64 };

// ---- contexts ---------------------------------------------------------------------------------------

static void context_destroy(tw_context_t* context) {
  if (context == NULL) return;
  tw_frame_destroy(context->frame);
  free(context);
}

// What all calls share.
static void bind_constants(const tw_model_t* model, tw_context_t* context) {
  const tw_program_t* program = model->program;
  const uint32_t first = program->input_count + program->output_count;
  for (uint32_t i = 0; i < program->constant_storage_count; ++i) {
    tw_frame_bind(context->frame, first + i, (void*)(uintptr_t)model->constants[i]);
  }
}

static tw_context_t* context_create(const tw_model_t* model, tw_sized_t* sized) {
  const tw_bound_t* bound = sized->bound;
  tw_context_t* context = calloc(1, sizeof(*context));
  if (context == NULL || tw_frame_create(bound->list, &context->frame) != TW_STATUS_OK) {
    free(context);
    return NULL;
  }
  context->sized = sized;
  bind_constants(model, context);
  return context;
}

void tw_sized_destroy(tw_sized_t* sized) {
  if (sized == NULL) return;
  for (tw_context_t* context = sized->idle; context != NULL;) {
    tw_context_t* next = context->next;
    context_destroy(context);
    context = next;
  }
  tw_bound_destroy(sized->bound);
  free(sized);
}

static int add_contexts(const tw_model_t* model, tw_sized_t* sized, uint32_t count) {
  for (; sized->idle_count < count; ++sized->idle_count) {
    tw_context_t* context = context_create(model, sized);
    if (context == NULL) return tw_error_no_memory();
    context->next = sized->idle;
    sized->idle = context;
  }
  return TW_MODEL_OK;
}

static size_t round_up(size_t size_bytes) {
  return (size_bytes + SEAT_ALIGNMENT - 1) & ~(size_t)(SEAT_ALIGNMENT - 1);
}

static uint32_t threads_of(const tw_model_t* model) {
  return model->pool == NULL ? 1 : tw_pool_thread_count(model->pool);
}

size_t tw_model_bound_bytes(const tw_model_t* model, const tw_bound_t* bound) {
  return round_up(bound->arena_bytes) + tw_command_list_scratch_bytes(bound->list, threads_of(model));
}

// ---- sizes ------------------------------------------------------------------------------------------

static int has_dims(const tw_sized_t* sized, const int64_t* dims) {
  const uint32_t count = sized->bound->program->dim_count;
  return count == 0 || memcmp(sized->bound->dims, dims, count * sizeof(*dims)) == 0;
}

static int fail_closed(void) { return tw_error_set(TW_MODEL_FAILED, "the library of the model is closed"); }

// Known sizes, counted as used; only with the lock.
static tw_sized_t* find_sized(tw_model_t* model, const int64_t* dims) {
  for (uint32_t i = 0; i < model->size_count; ++i) {
    tw_sized_t* sized = model->sizes[i];
    if (!has_dims(sized, dims)) continue;
    ++sized->users;
    ++model->user_count;
    sized->last_use = ++model->clock;
    return sized;
  }
  return NULL;
}

// A user less; only with the lock. Returns whether the sizes are to be destroyed.
static int end_use(tw_model_t* model, tw_sized_t* sized) {
  --model->user_count;
  return --sized->users == 0 && sized->is_dropped;
}

// Takes out what was used longest ago, if there are too many; only with the lock. Returns what is to be destroyed.
static tw_sized_t* drop_oldest(tw_model_t* model) {
  if (model->size_count <= SIZES_LIMIT || model->seats != NULL) return NULL;
  uint32_t oldest = 0;
  for (uint32_t i = 1; i < model->size_count; ++i) {
    if (model->sizes[i]->last_use < model->sizes[oldest]->last_use) oldest = i;
  }
  tw_sized_t* sized = model->sizes[oldest];
  model->sizes[oldest] = model->sizes[--model->size_count];
  sized->is_dropped = 1;
  return sized->users == 0 ? sized : NULL;
}

static int reserve_sizes(tw_model_t* model) {
  if (model->size_count < model->size_room) return 1;
  const uint32_t room = model->size_room == 0 ? 4 : model->size_room * 2;
  tw_sized_t** sizes = realloc(model->sizes, room * sizeof(*sizes));
  if (sizes == NULL) return 0;
  model->sizes = sizes;
  model->size_room = room;
  return 1;
}

static int insert_sized(tw_model_t* model, tw_sized_t* sized) {
  tw_sized_t* dropped = NULL;
  pthread_mutex_lock(&model->lock);
  const int fits = reserve_sizes(model);
  if (fits) {
    sized->users = 1;
    ++model->user_count;
    sized->last_use = ++model->clock;
    model->sizes[model->size_count++] = sized;
    dropped = drop_oldest(model);
  }
  pthread_mutex_unlock(&model->lock);
  tw_sized_destroy(dropped);
  return fits ? TW_MODEL_OK : tw_error_no_memory();
}

static int make_sized(tw_model_t* model, const int64_t* dims, tw_sized_t** out_sized) {
  tw_sized_t* sized = calloc(1, sizeof(*sized));
  if (sized == NULL) return tw_error_no_memory();
  int status = tw_bound_create(model->program, dims, &sized->bound);
  if (status == TW_MODEL_OK) status = add_contexts(model, sized, model->seat_count == 0 ? 1 : model->seat_count);
  if (status == TW_MODEL_OK && model->seats != NULL) status = tw_seats_grow(model, tw_model_bound_bytes(model, sized->bound));
  if (status == TW_MODEL_OK) status = insert_sized(model, sized);
  if (status == TW_MODEL_OK) {
    *out_sized = sized;
  } else {
    tw_sized_destroy(sized);
  }
  return status;
}

tw_sized_t* tw_sized_find(tw_model_t* model, const int64_t* dims) {
  pthread_mutex_lock(&model->lock);
  tw_sized_t* sized = find_sized(model, dims);
  pthread_mutex_unlock(&model->lock);
  return sized;
}

int tw_sized_enter(tw_model_t* model, const int64_t* dims, tw_sized_t** out_sized) {
  *out_sized = NULL;
  pthread_mutex_lock(&model->lock);
  while (model->is_binding) tw_model_wait(model);
  const int is_closed = model->is_closed;
  if (!is_closed) *out_sized = find_sized(model, dims);  // somebody may have made it meanwhile
  const int binds = !is_closed && *out_sized == NULL;
  if (binds) model->is_binding = 1;
  pthread_mutex_unlock(&model->lock);
  if (!binds) return is_closed ? fail_closed() : TW_MODEL_OK;
  const int status = make_sized(model, dims, out_sized);
  pthread_mutex_lock(&model->lock);
  model->is_binding = 0;
  tw_model_tell(model);
  pthread_mutex_unlock(&model->lock);
  return status;
}

void tw_sized_leave(tw_model_t* model, tw_sized_t* sized) {
  pthread_mutex_lock(&model->lock);
  const int is_last = end_use(model, sized);
  pthread_mutex_unlock(&model->lock);
  if (is_last) tw_sized_destroy(sized);
}

// ---- calls ------------------------------------------------------------------------------------------

// Gives a context back to its sizes; only with the lock. Returns the context if it is to be destroyed.
static tw_context_t* shelve(const tw_model_t* model, tw_context_t* context) {
  tw_sized_t* sized = context->sized;
  if (model->seats == NULL && sized->idle_count >= IDLE_LIMIT) return context;
  context->next = sized->idle;
  sized->idle = context;
  ++sized->idle_count;
  return NULL;
}

// The other sizes' context, which lay ready for a call that did not come.
static void put_back(tw_model_t* model, tw_context_t* context) {
  tw_sized_t* sized = context->sized;
  pthread_mutex_lock(&model->lock);
  sized->last_use = ++model->clock;
  tw_context_t* surplus = shelve(model, context);
  const int is_last = end_use(model, sized);
  pthread_mutex_unlock(&model->lock);
  context_destroy(surplus);
  if (is_last) tw_sized_destroy(sized);
}

// The context of the call before, if no other call has it and it had these sizes.
static int take_spare(tw_call_t* call, const int64_t* dims) {
  tw_model_t* model = call->model;
  if (atomic_exchange_explicit(&model->spare_is_taken, 1, memory_order_acquire)) return 0;
  tw_context_t* spare = model->spare;
  call->has_spare = 1;
  if (spare == NULL) return 0;
  if (has_dims(spare->sized, dims)) {
    call->context = spare;
    call->sized = spare->sized;
    return 1;
  }
  model->spare = NULL;
  put_back(model, spare);
  return 0;
}

// Leaves the context of a call, if it has one, for the next call.
static void leave_spare(const tw_call_t* call) {
  tw_model_t* model = call->model;
  model->spare = call->context;
  atomic_store_explicit(&model->spare_is_taken, 0, memory_order_release);
}

// Sizes for a call, counted as used.
static int take_sized(tw_call_t* call, const int64_t* dims) {
  tw_model_t* model = call->model;
  call->sized = tw_sized_find(model, dims);
  if (call->sized != NULL) return TW_MODEL_OK;
  if (model->seats == NULL) return tw_sized_enter(model, dims, &call->sized);
  return tw_error_set(TW_MODEL_BAD_INPUT, "these sizes were not prepared, and calls of this model allocate nothing"
                                          "\nhint: prepare them before, or create the model without concurrency");
}

// A seat where there are any, and a context of the sizes.
static int take_context(tw_call_t* call) {
  tw_model_t* model = call->model;
  pthread_mutex_lock(&model->lock);
  if (model->seats != NULL) {
    call->seat = tw_seat_take(model);
    if (call->seat == NULL) {
      pthread_mutex_unlock(&model->lock);
      return TW_MODEL_FAILED;
    }
  }
  call->context = call->sized->idle;
  if (call->context != NULL) {
    call->sized->idle = call->context->next;
    --call->sized->idle_count;
  }
  if (call->seat != NULL) call->seat->context = call->context;
  pthread_mutex_unlock(&model->lock);
  if (call->context == NULL) call->context = context_create(model, call->sized);
  return call->context == NULL ? tw_error_no_memory() : TW_MODEL_OK;
}

int tw_call_begin(tw_call_t* call, tw_model_t* model, const int64_t* dims, int (*poll)(void)) {
  call->model = model;
  call->poll = poll;
  call->allocate = NULL;
  call->late = NULL;
  call->sized = NULL;
  call->context = NULL;
  call->seat = NULL;
  call->has_spare = 0;
  if (model->program->flow != NULL) return tw_late_begin(call, dims);
  int status = TW_MODEL_OK;
  if (model->seats != NULL || !take_spare(call, dims)) {
    status = take_sized(call, dims);
    if (status == TW_MODEL_OK) status = take_context(call);
    if (status != TW_MODEL_OK) return status;
  }
  call->bound = call->sized->bound;
  call->frame = call->context->frame;
  return TW_MODEL_OK;
}

// Gives back what a call took under the lock.
static void give_back(tw_call_t* call) {
  tw_model_t* model = call->model;
  tw_sized_t* sized = call->sized;
  pthread_mutex_lock(&model->lock);
  tw_context_t* surplus = call->context == NULL ? NULL : shelve(model, call->context);
  if (call->seat != NULL) tw_seat_give_back(model, call->seat);
  const int is_last = end_use(model, sized);
  pthread_mutex_unlock(&model->lock);
  context_destroy(surplus);
  if (is_last) tw_sized_destroy(sized);
}

void tw_call_end(tw_call_t* call) {
  if (call->model == NULL) return;
  tw_late_end(call);
  if (call->has_spare) {
    leave_spare(call);
    if (call->context != NULL) return;
  }
  if (call->sized != NULL) give_back(call);
}

// The context that lies ready goes to the others; whoever calls this has its place.
static void clear_spare(tw_model_t* model) {
  tw_context_t* spare = model->spare;
  model->spare = NULL;
  if (spare != NULL) put_back(model, spare);
}

int tw_model_close_to_calls(tw_model_t* model) {
  if (atomic_exchange(&model->spare_is_taken, 1)) return 0;  // a call has it
  clear_spare(model);
  pthread_mutex_lock(&model->lock);
  const int closes = model->user_count == 0 && !model->is_binding;
  if (closes) model->is_closed = 1;
  pthread_mutex_unlock(&model->lock);
  if (!closes) atomic_store(&model->spare_is_taken, 0);
  return closes;
}

void tw_model_close_calls(tw_model_t* model) {
  atomic_load(&model->spare_is_taken);  // sees what the last call left
  clear_spare(model);
  for (uint32_t i = 0; i < model->size_count; ++i) tw_sized_destroy(model->sizes[i]);
  free(model->sizes);
  model->sizes = NULL;
  model->size_count = 0;
  tw_recordings_close(&model->recordings);
}

// The other thread may have been in the middle of a binding of its frame.
static void context_reset(const tw_model_t* model, tw_context_t* context) {
  tw_frame_reset(context->frame);
  bind_constants(model, context);
}

// Seats and the spare are free again. A call that had neither keeps its context and its count as a user: the child never
// uses that again, which is memory of a frame for each call that was in flight.
void tw_model_forget_others(tw_model_t* model) {
  const uintptr_t self = (uintptr_t)pthread_self();
  model->waiter_count = 0;
  model->is_binding = 0;
  if (atomic_load(&model->spare_is_taken) && model->spare_thread != self) {
    if (model->spare != NULL) context_reset(model, model->spare);
    atomic_store(&model->spare_is_taken, 0);
  }
  for (uint32_t i = 0; i < model->seat_count; ++i) {
    tw_model_seat_t* seat = &model->seats[i];
    if (seat->thread == 0 || seat->thread == self) continue;
    if (seat->context != NULL) {
      context_reset(model, seat->context);
      shelve(model, seat->context);
      end_use(model, seat->context->sized);
    }
    tw_seat_give_back(model, seat);
  }
}

void tw_call_enter_others(const tw_call_t* call) {
  if (call->has_spare) call->model->spare_thread = (uintptr_t)pthread_self();
}

void tw_call_leave_others(const tw_call_t* call) {
  if (call->has_spare) call->model->spare_thread = 0;
}

// ---- what a run asks --------------------------------------------------------------------------------

static int call_step(void* context, const tw_bound_t* bound, const tw_step_t* step, void* const* addresses) {
  const tw_call_t* call = context;
  tw_call_enter_others(call);
  const int status = tw_packed_call_step(bound, step, addresses);
  tw_call_leave_others(call);
  return status;
}

static int poll(void* context) {
  const tw_call_t* call = context;
  tw_call_enter_others(call);
  const int ends = call->poll();
  tw_call_leave_others(call);
  return ends;
}

tw_runner_t tw_call_runner(tw_call_t* call) {
  return (tw_runner_t){
      .pool = call->model->pool,
      .heap = call->model->heap,
      .poll = call->poll == NULL ? NULL : poll,
      .call_step = call_step,
      .context = call,
  };
}

// The arena of the call, in its seat or leased from the heap.
static int bind_arena(tw_call_t* call) {
  const tw_bound_t* bound = call->sized->bound;
  uint8_t* memory = NULL;
  if (call->seat != NULL) {
    memory = call->seat->memory;
  } else {
    const tw_lease_request_t request = {
        .size_bytes = bound->arena_bytes, .use = TW_MEMORY_ARENA, .ends_with_call = 1};
    tw_refusal_t refusal;
    if (tw_heap_lease(call->model->heap, &request, &call->lease, &refusal) != TW_STATUS_OK) {
      return tw_error_no_memory_for(bound->arena_bytes, " for intermediate tensors");
    }
    memory = call->lease.base;
  }
  tw_frame_bind(call->context->frame, bound->arena_slot, memory);
  return TW_MODEL_OK;
}

// Memory for all outputs, whose shapes are known.
static int allocate_outputs(tw_call_t* call) {
  const tw_program_t* program = call->bound->program;
  int64_t shape[TW_RANK_LIMIT];
  int status = TW_MODEL_OK;
  for (uint32_t i = 0; status == TW_MODEL_OK && i < program->output_count; ++i) {
    const uint32_t slot = program->input_count + i;
    void* data = NULL;
    tw_bound_shape(call->bound, &program->outputs[i], shape);
    tw_call_enter_others(call);
    status = call->allocate(call->allocate_context, call, i, shape, (size_t)tw_call_slot_bytes(call, slot), &data);
    tw_call_leave_others(call);
    if (status == TW_MODEL_OK) tw_call_bind(call, slot, data);
  }
  return status;
}

int tw_call_run(tw_call_t* call) {
  if (call->late != NULL) return tw_late_run(call);
  tw_model_t* model = call->model;
  const tw_bound_t* bound = call->bound;
  const int has_arena = bound->arena_bytes != 0;
  const int has_scratch = call->seat != NULL && tw_command_list_scratch_bytes(bound->list, 1) != 0;
  int status = call->allocate == NULL ? TW_MODEL_OK : allocate_outputs(call);
  if (status == TW_MODEL_OK && has_arena) status = bind_arena(call);
  if (status != TW_MODEL_OK) return status;
  const tw_runner_t runner = tw_call_runner(call);
  void* scratch = has_scratch ? call->seat->memory + round_up(bound->arena_bytes) : NULL;
  status = tw_run_list(&runner, bound, call->frame, scratch);
  if (has_arena && call->seat == NULL) tw_heap_return(model->heap, &call->lease);
  return status == TW_MODEL_OK ? tw_weights_check(&model->weights) : status;
}

int64_t tw_call_slot_bytes(const tw_call_t* call, uint32_t slot) {
  if (call->late != NULL) return tw_flow_slot_bytes(call->late->flow, slot);
  return (int64_t)tw_command_list_slot(call->bound->list, slot)->size_bytes;
}

// The size of a tensor of the signature tells whether it may have no data. Kernels count on elements that are aligned.
static int check_data(const tw_call_t* call, uint32_t slot, const void* data) {
  if (tw_call_slot_bytes(call, slot) == 0) return TW_MODEL_OK;
  const tw_program_t* program = call->model->program;
  const int is_input = slot < program->input_count;
  const tw_signature_t* row = is_input ? &program->inputs[slot] : &program->outputs[slot - program->input_count];
  return tw_check_data(row, is_input ? "input" : "output", data);
}

static int bind_all(tw_call_t* call, const void* const* inputs, void* const* outputs) {
  const uint32_t input_count = call->model->program->input_count;
  int status = TW_MODEL_OK;
  for (uint32_t i = 0; status == TW_MODEL_OK && i < input_count; ++i) {
    status = check_data(call, i, inputs[i]);
    tw_call_bind(call, i, (void*)(uintptr_t)inputs[i]);
  }
  for (uint32_t i = 0; status == TW_MODEL_OK && i < call->model->program->output_count; ++i) {
    status = check_data(call, input_count + i, outputs[i]);
    tw_call_bind(call, input_count + i, outputs[i]);
  }
  return status;
}

// Addresses do not say how large an output may be.
static int refuse_late_outputs(const tw_program_t* program) {
  for (uint32_t i = 0; i < program->output_count; ++i) {
    if (tw_output_group(program, i) == 0) continue;
    return tw_error_set(TW_MODEL_BAD_INPUT, "output '%s': data decides its shape, %s, which is known when a call runs"
                                            "\nhint: let the call allocate it, or pass a tensor of the right shape",
                        program->outputs[i].name, program->outputs[i].text);
  }
  return TW_MODEL_OK;
}

int tw_model_run(tw_model_t* model, const int64_t* dims, const void* const* inputs, void* const* outputs) {
  int status = tw_model_check_dims(model, dims);
  if (status == TW_MODEL_OK) status = tw_model_check_arrays(model, inputs, outputs);
  if (status == TW_MODEL_OK) status = refuse_late_outputs(model->program);
  if (status != TW_MODEL_OK) return status;
  tw_call_t call;
  status = tw_call_begin(&call, model, dims, NULL);
  if (status == TW_MODEL_OK) status = bind_all(&call, inputs, outputs);
  if (status == TW_MODEL_OK) status = tw_call_run(&call);
  tw_call_end(&call);
  return status;
}

int tw_model_prepare(tw_model_t* model, const int64_t* dims) {
  tw_sized_t* sized = NULL;
  int status = tw_model_check_dims(model, dims);
  if (status == TW_MODEL_OK && model->program->flow != NULL) {  // there is nothing to prepare
    tw_bound_t* bound = NULL;
    status = tw_bound_create_sizes(model->program, dims, &bound);
    if (status == TW_MODEL_OK) tw_bound_destroy(bound);
    return status;
  }
  if (status == TW_MODEL_OK) status = tw_sized_enter(model, dims, &sized);
  if (status == TW_MODEL_OK) tw_sized_leave(model, sized);
  return status;
}
