// Steps that call packed functions: linked ones, or such as tvm-ffi finds among what the library imports.
#include "packed.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "model.h"
#include "tvm_ffi.h"

// The tensors of a step, with their extents behind them.
typedef struct step_tensors_t {
  dl_tensor_t* tensors;
  tw_any_t* args;
  int64_t* shapes;
} step_tensors_t;

static int fill_tensors(const tw_bound_t* bound, const tw_step_t* step, void* const* addresses,
                        step_tensors_t* out_tensors) {
  const tw_signature_t* rows = bound->program->call_arguments + step->argument_first;
  const size_t count = step->argument_count;
  out_tensors->tensors = calloc(count + 1, sizeof(dl_tensor_t));
  out_tensors->args = calloc(count + 1, sizeof(tw_any_t));
  out_tensors->shapes = calloc(count * TW_RANK_LIMIT + 1, sizeof(int64_t));
  if (out_tensors->tensors == NULL || out_tensors->args == NULL || out_tensors->shapes == NULL) return tw_error_no_memory();
  for (size_t i = 0; i < count; ++i) {
    dl_tensor_t* tensor = &out_tensors->tensors[i];
    *tensor = (dl_tensor_t){
        .data = addresses[i],
        .device_type = DEVICE_CPU,
        .rank = (int32_t)rows[i].rank,
        .type_code = rows[i].type->code,
        .type_bits = rows[i].type->bits,
        .type_lanes = 1,
        .shape = out_tensors->shapes + i * TW_RANK_LIMIT,
    };
    tw_bound_shape(bound, &rows[i], tensor->shape);
    out_tensors->args[i] = (tw_any_t){.type_index = TYPE_DL_TENSOR, .v_ptr = tensor};
  }
  return TW_MODEL_OK;
}

// A tensor for a function of another module, which may be Python's: tvm-ffi gives no DLPack of a bare pointer. The
// memory is the call's.
typedef struct lent_tensor_t {
  dl_managed_tensor_t managed;
  int64_t shape[TW_RANK_LIMIT];
} lent_tensor_t;

// Makes a tensor of tvm-ffi of a pointer to one.
static int lend_tensor(tw_any_t* value) {
  int (*from_dlpack)(dl_managed_tensor_t*, int32_t, int32_t, void**) = FIND(TVMFFITensorFromDLPack);
  const dl_tensor_t* tensor = value->v_ptr;
  lent_tensor_t* lent = calloc(1, sizeof(*lent));
  if (from_dlpack == NULL || lent == NULL) {
    free(lent);
    return RAISED;
  }
  lent->managed = (dl_managed_tensor_t){.tensor = *tensor, .deleter = free};
  memcpy(lent->shape, tensor->shape, (size_t)tensor->rank * sizeof(lent->shape[0]));
  lent->managed.tensor.shape = lent->shape;
  tw_any_t made = {.type_index = TYPE_TENSOR};
  if (from_dlpack(&lent->managed, 0, 0, &made.v_ptr) != 0) {
    free(lent);
    return RAISED;
  }
  *value = made;
  return 0;
}

static int call_imported(void* function, tw_any_t* args, int32_t count, tw_any_t* result) {
  int32_t lent = 0;
  int code = 0;
  while (lent < count && (code = lend_tensor(&args[lent])) == 0) ++lent;
  if (code == 0) code = FIND(TVMFFIFunctionCall)(function, args, count, result);
  for (int32_t i = 0; i < lent; ++i) FIND(TVMFFIObjectDecRef)(args[i].v_ptr);
  return code;
}

static int call_function(const tw_program_t* program, const tw_callee_t* callee, tw_any_t* args, int32_t count) {
  tw_any_t result = {.type_index = TYPE_NONE};
  int (*look_up)(void*, const char*, void**) = FIND(TVMFFIEnvModLookupFromImports);
  int code = 0;
  void* function = NULL;
  if (callee->function != NULL) {
    code = callee->function(NULL, args, count, &result);
  } else if (look_up == NULL || program->callee_context == NULL || *program->callee_context == NULL) {
    return tw_error_set(TW_MODEL_FAILED, "function '%s' is not linked, and tvm-ffi, which would look it up among the "
                                         "library's imports, is not there", callee->name);
  } else if (look_up(*program->callee_context, callee->name, &function) != 0) {
    return tw_error_set(TW_MODEL_FAILED, "function '%s' is not among the library's imports", callee->name);
  } else {
    code = call_imported(function, args, count, &result);
  }
  if (code == 0 && result.type_index >= 64 && FIND(TVMFFIObjectDecRef) != NULL) FIND(TVMFFIObjectDecRef)(result.v_ptr);
  if (code == RAISED_IN_PYTHON) return tw_error_set(TW_MODEL_INTERRUPTED, "the call was interrupted");
  return code == 0 ? TW_MODEL_OK : tw_error_set(TW_MODEL_CALLEE_FAILED, "function '%s' failed", callee->name);
}

int tw_packed_call_step(const tw_bound_t* bound, const tw_step_t* step, void* const* addresses) {
  step_tensors_t tensors = {.tensors = NULL};
  int status = fill_tensors(bound, step, addresses, &tensors);
  if (status == TW_MODEL_OK) {
    const tw_callee_t* callee = &bound->program->callees[step->target];
    status = call_function(bound->program, callee, tensors.args, step->argument_count);
  }
  free(tensors.tensors);
  free(tensors.args);
  free(tensors.shapes);
  return status;
}
