#include "late.h"

#include <stdlib.h>

#include "error.h"
#include "model.h"

// The model stays open for as long as the call lasts.
static int enter(tw_model_t* model) {
  pthread_mutex_lock(&model->lock);
  const int is_closed = model->is_closed;
  if (!is_closed) ++model->user_count;
  pthread_mutex_unlock(&model->lock);
  if (is_closed) return tw_error_set(TW_MODEL_FAILED, "the library of the model is closed");
  return TW_MODEL_OK;
}

static void leave(tw_model_t* model) {
  pthread_mutex_lock(&model->lock);
  --model->user_count;
  pthread_mutex_unlock(&model->lock);
}

static void free_late(tw_late_t* late) {
  if (late == NULL) return;
  tw_flow_destroy(late->flow);
  free(late->given);
  free(late->is_given);
  free(late);
}

static int make(const tw_model_t* model, const int64_t* dims, tw_late_t** out_late) {
  const size_t output_count = model->program->output_count;
  tw_late_t* late = calloc(1, sizeof(*late));
  if (late == NULL) return tw_error_no_memory();
  late->given = calloc(output_count + 1, sizeof(*late->given));
  late->is_given = calloc(output_count + 1, sizeof(*late->is_given));
  int status = late->given != NULL && late->is_given != NULL ? TW_MODEL_OK : tw_error_no_memory();
  if (status == TW_MODEL_OK) status = tw_flow_create(&model->flow, dims, &late->flow);
  if (status != TW_MODEL_OK) {
    free_late(late);
    return status;
  }
  *out_late = late;
  return TW_MODEL_OK;
}

int tw_late_begin(tw_call_t* call, const int64_t* dims) {
  int status = enter(call->model);
  if (status != TW_MODEL_OK) return status;
  status = make(call->model, dims, &call->late);
  if (status != TW_MODEL_OK) leave(call->model);
  return status;
}

void tw_late_end(tw_call_t* call) {
  if (call->late == NULL) return;
  free_late(call->late);
  leave(call->model);
}

int tw_late_take(tw_call_t* call, uint32_t slot, const tw_tensor_t* tensor) {
  tw_late_t* late = call->late;
  const uint32_t input_count = call->model->program->input_count;
  if (slot >= input_count) {
    late->given[slot - input_count] = *tensor;
    late->is_given[slot - input_count] = 1;
    return TW_MODEL_OK;
  }
  const int status = tw_check_tensor(tw_flow_sizes(late->flow), slot, tensor);
  if (status == TW_MODEL_OK) tw_flow_bind(late->flow, slot, tensor->data);
  return status;
}

// The tensor that was given, or what the caller of the call allocates.
static int allocate(void* context, uint32_t output, const int64_t* shape, size_t size_bytes, void** out_data) {
  tw_call_t* call = context;
  const tw_late_t* late = call->late;
  if (late->is_given[output]) {
    *out_data = late->given[output].data;
    const uint32_t slot = call->model->program->input_count + output;
    return tw_check_tensor(tw_flow_sizes(late->flow), slot, &late->given[output]);
  }
  if (call->allocate == NULL) return tw_bound_fail_inconsistent("nobody has memory for an output");
  return call->allocate(call->allocate_context, call, output, shape, size_bytes, out_data);
}

int tw_late_run(tw_call_t* call) {
  const tw_flow_caller_t caller = {.runner = tw_call_runner(call), .allocate = allocate};
  const int status = tw_flow_run(call->late->flow, &caller);
  return status == TW_MODEL_OK ? tw_weights_check(&call->model->weights) : status;
}
