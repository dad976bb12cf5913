#include "packed.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "model.h"
#include "place.h"
#include "tvm_ffi.h"

typedef int (*check_signals_t)(void);

static check_signals_t find_check_signals(void) { return FIND(TVMFFIEnvCheckSignals); }

// Hands the error text to tvm-ffi.
static int raise_error(const char* kind) {
  void (*set_raised)(const char*, const char*) = FIND(TVMFFIErrorSetRaisedFromCStr);
  if (set_raised != NULL) set_raised(kind, tw_error_text());
  return RAISED;
}

// A function that only gives a status has raised nothing, and a call that fails without an error ends Python.
static int raise_by_callee(void) {
  void* raised = NULL;
  if (FIND(TVMFFIErrorMoveFromRaised) != NULL) FIND(TVMFFIErrorMoveFromRaised)(&raised);
  if (raised == NULL) return raise_error("RuntimeError");
  FIND(TVMFFIErrorSetRaised)(raised);
  FIND(TVMFFIObjectDecRef)(raised);
  return RAISED;
}

static int raise_status(int status) {
  switch (status) {
    case TW_MODEL_INTERRUPTED:
      return raise_error("EnvErrorAlreadySet");  // by a handler of signals; tvm-ffi knows this kind by its name
    case TW_MODEL_CALLEE_FAILED:
      return raise_by_callee();
    case TW_MODEL_BAD_INPUT:
      return raise_error("ValueError");
    case TW_MODEL_NO_MEMORY:
      return raise_error("MemoryError");
    default:
      return raise_error("RuntimeError");
  }
}

static int fail_without_tvm_ffi(void) {
  return tw_error_set(TW_MODEL_FAILED, "results are tensors of tvm-ffi, which this process has not loaded"
                                       "\nhint: pass the outputs, too: main(inputs..., outputs...)");
}

// ---- the model --------------------------------------------------------------------------------------

// Threads that come first at the same time all make one, without a lock that a forked child would inherit closed: the
// first one that is done stays.
static int create_model(tw_packed_model_t* packed, tw_model_t** out_model) {
  tw_model_t* made = NULL;
  const int status = tw_model_create(packed->library, NULL, &made);
  if (status != TW_MODEL_OK) return status;
  tw_place_stay();
  *out_model = NULL;
  if (atomic_compare_exchange_strong(&packed->model, out_model, made)) {
    *out_model = made;
  } else {
    tw_model_destroy(made);
  }
  return TW_MODEL_OK;
}

static inline int get_model(tw_packed_model_t* packed, tw_model_t** out_model) {
  *out_model = atomic_load_explicit(&packed->model, memory_order_acquire);
  return *out_model != NULL ? TW_MODEL_OK : create_model(packed, out_model);
}

// Called where the library is closed (`dlclose`), and likewise where the process ends: nobody says which.
//
// ELF and Mach-O: closed, its code is unmapped, so the workers must have ended before. At the end of the process other
// threads may be in calls, or about to be: then all is left to the process. So what is idle goes, and what is not stays;
// the struct stays in either case, for a thread that has read its address and finds it closed.
// PE: this runs under the loader's lock, which a thread needs to end; waiting for a worker here would never end. And
// when the process ends, its other threads were ended before, wherever they were. So nothing is done here, and a library
// with a model of packed functions is never unloaded (`tw_place_stay`).
// In neither is a model touched that a program made (`tw_model_create`): to destroy it is the program's business.
void tw_packed_close(tw_packed_model_t* packed) {
#if defined(_WIN32)
  (void)packed;
#else
  tw_model_t* model = atomic_load(&packed->model);
  if (model != NULL) tw_model_close(model);
#endif
}

// ---- arguments --------------------------------------------------------------------------------------

// Extents come from strangers: their product may have no number.
static int is_dense(const dl_tensor_t* tensor) {
  if (tensor->strides == NULL) return 1;
  int64_t expected = 1;
  int dense = 1;
  for (int32_t axis = tensor->rank - 1; axis >= 0; --axis) {
    const int64_t extent = tensor->shape[axis];
    if (extent == 0) return 1;
    if (extent != 1 && tensor->strides[axis] != expected) dense = 0;
    if (dense && __builtin_mul_overflow(expected, extent, &expected)) dense = 0;
  }
  return dense;
}

static const dl_tensor_t* tensor_of(const tw_any_t* value) {
  if (value->type_index == TYPE_DL_TENSOR) return value->v_ptr;
  if (value->type_index != TYPE_TENSOR) return NULL;
  return (const dl_tensor_t*)(const void*)((const uint8_t*)value->v_ptr + OBJECT_HEADER_BYTES);
}

// An offset from nowhere leads nowhere.
static void* data_of(const dl_tensor_t* tensor) {
  return tensor->data == NULL ? NULL : (uint8_t*)tensor->data + tensor->byte_offset;
}

static tw_tensor_t view_of(const dl_tensor_t* tensor) {
  return (tw_tensor_t){
      .data = data_of(tensor),
      .shape = tensor->shape,
      .rank = tensor->rank,
      .type_code = tensor->type_code,
      .type_bits = tensor->type_lanes == 1 ? tensor->type_bits : 0,
  };
}

static int is_reachable(const dl_tensor_t* tensor) {
  return tensor->device_type == DEVICE_CPU || tensor->device_type == DEVICE_CUDA_HOST;
}

static const char* role_of(const tw_program_t* program, uint32_t slot) {
  return slot < program->input_count ? "input" : "output";
}

static const char* name_of(const tw_program_t* program, uint32_t slot) {
  const uint32_t inputs = program->input_count;
  return slot < inputs ? program->inputs[slot].name : program->outputs[slot - inputs].name;
}

// Whether an argument is a tensor that the model can take in place; the error has its role and name.
static int read_tensor(const tw_program_t* program, uint32_t slot, const tw_any_t* value, tw_tensor_t* out_tensor) {
  const dl_tensor_t* tensor = tensor_of(value);
  if (tensor == NULL) {
    return tw_error_set(TW_MODEL_BAD_INPUT, "%s '%s': got %s, expected a tensor",
                        role_of(program, slot), name_of(program, slot), tw_value_word(value->type_index));
  }
  if (!is_reachable(tensor)) {
    return tw_error_set(TW_MODEL_BAD_INPUT, "%s '%s': is on a device of type %d, expected the CPU's memory",
                        role_of(program, slot), name_of(program, slot), tensor->device_type);
  }
  if (tensor->rank > 0 && tensor->shape == NULL) {
    return tw_error_set(TW_MODEL_BAD_INPUT, "%s '%s': has no shape", role_of(program, slot), name_of(program, slot));
  }
  if (!is_dense(tensor)) {
    return tw_error_set(TW_MODEL_BAD_INPUT, "%s '%s': is not contiguous, expected a dense tensor in row-major order",
                        role_of(program, slot), name_of(program, slot));
  }
  *out_tensor = view_of(tensor);
  return TW_MODEL_OK;
}

// ---- results ----------------------------------------------------------------------------------------

// A tensor, its extents and its data in one block, which begins with it. The C library's own function frees it: a
// result may outlive this library, and then none of its code is there any more.
typedef struct fresh_tensor_t {
  dl_managed_tensor_t managed;
  int64_t shape[];
} fresh_tensor_t;

static fresh_tensor_t* allocate_fresh(const tw_signature_t* row, uint64_t size_bytes) {
  const size_t head = sizeof(fresh_tensor_t) + row->rank * sizeof(int64_t);
  if (size_bytes > SIZE_MAX / 2) return NULL;
  fresh_tensor_t* fresh = malloc(head + DATA_ALIGNMENT + (size_t)size_bytes);
  if (fresh == NULL) return NULL;
  const uintptr_t data = ((uintptr_t)fresh + head + DATA_ALIGNMENT - 1) & ~(uintptr_t)(DATA_ALIGNMENT - 1);
  fresh->managed = (dl_managed_tensor_t){
      .tensor =
          {
              .data = (void*)data,
              .device_type = DEVICE_CPU,
              .rank = (int32_t)row->rank,
              .type_code = row->type->code,
              .type_bits = row->type->bits,
              .type_lanes = 1,
              .shape = fresh->shape,
          },
      .deleter = free,
  };
  return fresh;
}

// A new tensor of tvm-ffi for an output of the call, in the array of all. Whoever calls drops the results, also where
// the call failed.
static int make_output(void* context, tw_call_t* call, uint32_t index, const int64_t* shape, size_t size_bytes,
                       void** out_data) {
  tw_any_t* values = context;
  const tw_signature_t* row = &call->model->program->outputs[index];
  int (*from_dlpack)(dl_managed_tensor_t*, int32_t, int32_t, void**) = FIND(TVMFFITensorFromDLPack);
  if (from_dlpack == NULL) return fail_without_tvm_ffi();
  fresh_tensor_t* fresh = allocate_fresh(row, size_bytes);
  if (fresh == NULL) return tw_error_no_memory();
  memcpy(fresh->shape, shape, row->rank * sizeof(*shape));
  *out_data = fresh->managed.tensor.data;
  tw_any_t made = {.type_index = TYPE_TENSOR};
  if (from_dlpack(&fresh->managed, 0, 0, &made.v_ptr) == 0) {
    values[index] = made;
    return TW_MODEL_OK;
  }
  free(fresh);
  return tw_error_set(TW_MODEL_FAILED, "tvm-ffi did not take the tensor of output '%s'", row->name);
}

// Drops those that were made.
static void release(tw_any_t* values, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    if (values[i].type_index == TYPE_TENSOR) FIND(TVMFFIObjectDecRef)(values[i].v_ptr);
    values[i] = (tw_any_t){.type_index = TYPE_NONE};
  }
}

// An array of the outputs, which it takes over.
static int make_array(tw_any_t* values, uint32_t count, tw_any_t* result) {
  static const byte_array_t name = {"ffi.Array", sizeof("ffi.Array") - 1};
  void* function = NULL;
  int failed = FIND(TVMFFIFunctionGetGlobal)(&name, &function) != 0 || function == NULL;
  if (!failed) {
    failed = FIND(TVMFFIFunctionCall)(function, values, (int32_t)count, result) != 0;
    FIND(TVMFFIObjectDecRef)(function);
  }
  release(values, count);
  return failed ? tw_error_set(TW_MODEL_FAILED, "tvm-ffi made no array of the outputs") : TW_MODEL_OK;
}

// ---- main -------------------------------------------------------------------------------------------

// A call whose tensors say what the dimensions are.
static int begin_sized(tw_call_t* call, tw_model_t* model, const tw_any_t* args) {
  const tw_program_t* program = model->program;
  int64_t dims[TW_DIM_LIMIT];
  for (uint32_t i = 0; i < program->dim_count; ++i) {
    const uint32_t input = program->dims[i].input;
    tw_tensor_t tensor;
    int status = read_tensor(program, input, &args[input], &tensor);
    if (status == TW_MODEL_OK) status = tw_model_dim_of(model, i, &tensor, &dims[i]);
    if (status != TW_MODEL_OK) return status;
  }
  return tw_call_begin(call, model, dims, find_check_signals());
}

static int begin(tw_call_t* call, tw_model_t* model, const tw_any_t* args) {
  if (model->program->dim_count != 0) return begin_sized(call, model, args);
  return tw_call_begin(call, model, NULL, find_check_signals());
}

// Binds an argument if it is just what is expected.
static inline int take_expected(tw_call_t* call, uint32_t slot, const tw_any_t* value) {
  if (call->late != NULL) return 0;
  const tw_expected_t* row = &call->bound->expected[slot];
  const dl_tensor_t* tensor = tensor_of(value);
  if (tensor == NULL || tensor->shape == NULL || !is_reachable(tensor)) return 0;
  if (tensor->rank != row->rank || tensor->type_code != row->type_code || tensor->type_bits != row->type_bits ||
      tensor->type_lanes != 1) {
    return 0;
  }
  void* data = data_of(tensor);
  if (!tw_expected_fits(row, data, tensor->shape, tensor->strides)) return 0;
  tw_call_bind(call, slot, data);
  return 1;
}

// Arguments are inputs, or inputs and outputs, in the order of their slots.
static int take_all(tw_call_t* call, const tw_any_t* args, uint32_t count) {
  for (uint32_t slot = 0; slot < count; ++slot) {
    if (take_expected(call, slot, &args[slot])) continue;
    tw_tensor_t tensor;
    int status = read_tensor(call->model->program, slot, &args[slot], &tensor);
    if (status == TW_MODEL_OK) status = tw_call_take(call, slot, &tensor);
    if (status != TW_MODEL_OK) return status;
  }
  return TW_MODEL_OK;
}

static int run_into(tw_call_t* call, tw_any_t* result) {
  const int status = tw_call_run(call);
  if (status == TW_MODEL_OK) *result = (tw_any_t){.type_index = TYPE_NONE};
  return status;
}

static int run_for(tw_call_t* call, tw_any_t* values, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) values[i] = (tw_any_t){.type_index = TYPE_NONE};
  call->allocate = make_output;
  call->allocate_context = values;
  const int status = tw_call_run(call);
  if (status != TW_MODEL_OK) release(values, count);
  return status;
}

static int run_for_several(tw_call_t* call, tw_any_t* result) {
  const uint32_t count = call->model->program->output_count;
  tw_any_t* values = calloc((size_t)count + 1, sizeof(*values));
  int status = values == NULL ? tw_error_no_memory() : run_for(call, values, count);
  if (status == TW_MODEL_OK) status = make_array(values, count, result);
  free(values);
  return status;
}

static int run(tw_model_t* model, const tw_any_t* args, int32_t num_args, tw_any_t* result) {
  const tw_program_t* program = model->program;
  tw_call_t call;
  call.model = NULL;  // nothing has begun
  int status = begin(&call, model, args);
  if (status == TW_MODEL_OK) status = take_all(&call, args, (uint32_t)num_args);
  if (status == TW_MODEL_OK) {
    if (num_args != (int32_t)program->input_count) {
      status = run_into(&call, result);
    } else if (program->output_count == 1) {
      status = run_for(&call, result, 1);
    } else {
      status = run_for_several(&call, result);
    }
  }
  tw_call_end(&call);
  return status;
}

int tw_packed_main(tw_packed_model_t* packed, const tw_any_t* args, int32_t num_args, tw_any_t* result) {
  tw_model_t* model = NULL;
  const int status = get_model(packed, &model);
  if (status != TW_MODEL_OK) return raise_status(status);
  const uint32_t inputs = model->program->input_count;
  const uint32_t all = inputs + model->program->output_count;
  if (num_args != (int32_t)inputs && num_args != (int32_t)all) {
    tw_error_set(TW_MODEL_BAD_INPUT, "%s: got %d arguments, expected %u inputs, or these and %u outputs",
                 packed->library->name, num_args, inputs, model->program->output_count);
    return raise_error("TypeError");
  }
  const int ran = run(model, args, num_args, result);
  return ran == TW_MODEL_OK ? 0 : raise_status(ran);
}

int tw_packed_kernel(tw_packed_model_t* packed, const tw_any_t* args, int32_t num_args, tw_any_t* result) {
  const tw_program_t* program = packed->library->programs[0];
  if (num_args == (int32_t)(program->input_count + program->output_count)) {
    return tw_packed_main(packed, args, num_args, result);
  }
  tw_error_set(TW_MODEL_BAD_INPUT, "kernel '%s': got %d tensors, expected %u operands, then %u results",
               packed->library->name, num_args, program->input_count, program->output_count);
  return raise_error("TypeError");
}

// ---- questions --------------------------------------------------------------------------------------

static int answer_count(uint32_t count, tw_any_t* result) {
  *result = (tw_any_t){.type_index = TYPE_INT, .v_int64 = count};
  return 0;
}

// A string of tvm-ffi where that is; else of C.
static int answer_text(const char* text, tw_any_t* result) {
  int (*from_bytes)(const byte_array_t*, tw_any_t*) = FIND(TVMFFIStringFromByteArray);
  const byte_array_t bytes = {text, strlen(text)};
  if (from_bytes != NULL) return from_bytes(&bytes, result);
  *result = (tw_any_t){.type_index = TYPE_RAW_STRING, .v_c_str = text};
  return 0;
}

static int answer_name(const tw_signature_t* rows, uint32_t count, const tw_any_t* args, int32_t num_args,
                       tw_any_t* result) {
  if (num_args != 1 || args[0].type_index != TYPE_INT) {
    tw_error_set(TW_MODEL_BAD_INPUT, "expected one argument, an index");
    return raise_error("TypeError");
  }
  if (args[0].v_int64 >= 0 && args[0].v_int64 < (int64_t)count) return answer_text(rows[args[0].v_int64].name, result);
  tw_error_set(TW_MODEL_BAD_INPUT, "got index %lld, expected less than %u", (long long)args[0].v_int64, count);
  return raise_error("IndexError");
}

// All programs of a library have one signature.
static const tw_program_t* any_program(const tw_packed_model_t* packed) { return packed->library->programs[0]; }

int tw_packed_input_count(tw_packed_model_t* packed, const tw_any_t* args, int32_t num_args, tw_any_t* result) {
  (void)args;
  (void)num_args;
  return answer_count(any_program(packed)->input_count, result);
}

int tw_packed_output_count(tw_packed_model_t* packed, const tw_any_t* args, int32_t num_args, tw_any_t* result) {
  (void)args;
  (void)num_args;
  return answer_count(any_program(packed)->output_count, result);
}

int tw_packed_input_name(tw_packed_model_t* packed, const tw_any_t* args, int32_t num_args, tw_any_t* result) {
  return answer_name(any_program(packed)->inputs, any_program(packed)->input_count, args, num_args, result);
}

int tw_packed_output_name(tw_packed_model_t* packed, const tw_any_t* args, int32_t num_args, tw_any_t* result) {
  return answer_name(any_program(packed)->outputs, any_program(packed)->output_count, args, num_args, result);
}

int tw_packed_graph_json(tw_packed_model_t* packed, const tw_any_t* args, int32_t num_args, tw_any_t* result) {
  (void)args;
  (void)num_args;
  tw_model_t* model = NULL;
  const int status = get_model(packed, &model);
  if (status != TW_MODEL_OK) return raise_status(status);
  return answer_text(model->program->graph_json == NULL ? "" : model->program->graph_json, result);
}

int tw_packed_level(tw_packed_model_t* packed, const tw_any_t* args, int32_t num_args, tw_any_t* result) {
  (void)args;
  (void)num_args;
  tw_model_t* model = NULL;
  const int status = get_model(packed, &model);
  return status == TW_MODEL_OK ? answer_text(model->program->level, result) : raise_status(status);
}
