// Calls with tensors: types, ranks and extents are checked, with the errors of `plan_executor/executor.py`.
#include <inttypes.h>
#include <string.h>

#include "error.h"
#include "model.h"

// Data types of DLPack by the names that messages have for them; what is not here has its code.
static const tw_type_t known_types[] = {
    {"bool", 6, 8, 1}, {"i8", 0, 8, 1},   {"i16", 0, 16, 2},  {"i32", 0, 32, 4}, {"i64", 0, 64, 8},
    {"u8", 1, 8, 1},   {"u16", 1, 16, 2}, {"u32", 1, 32, 4},  {"u64", 1, 64, 8}, {"f16", 2, 16, 2},
    {"f32", 2, 32, 4}, {"f64", 2, 64, 8}, {"bf16", 4, 16, 2},
};

const char* tw_value_word(int32_t type_index) {
  static const char* const plain[] = {"None", "int", "bool", "float", "a pointer", "a data type", "a device", "a tensor",
                                      "str", "bytes", "a reference", "str", "bytes"};
  enum { OBJECT = 64 };
  static const char* const objects[] = {"an object", "str", "bytes", "an error", "a function", "a shape", "a tensor",
                                        "a list", "a dict", "a module", "a Python object", "a list", "a dict"};
  if (type_index >= 0 && (size_t)type_index < sizeof(plain) / sizeof(plain[0])) return plain[type_index];
  const int64_t object = (int64_t)type_index - OBJECT;
  if (object >= 0 && (size_t)object < sizeof(objects) / sizeof(objects[0])) return objects[object];
  return "an object";
}

static void add_type(tw_text_t* text, const tw_tensor_t* tensor) {
  for (size_t i = 0; i < sizeof(known_types) / sizeof(known_types[0]); ++i) {
    if (known_types[i].code != tensor->type_code || known_types[i].bits != tensor->type_bits) continue;
    tw_text_add(text, "%s", known_types[i].name);
    return;
  }
  tw_text_add(text, "type %u of %u bits ", tensor->type_code, tensor->type_bits);
}

static void add_tensor(tw_text_t* text, const tw_tensor_t* tensor) {
  add_type(text, tensor);
  if (tensor->rank < 0 || tensor->rank > TW_RANK_LIMIT) {  // no number of extents: none is read
    tw_text_add(text, " of rank %" PRId32, tensor->rank);
    return;
  }
  tw_text_add(text, "[");
  for (int32_t axis = 0; axis < tensor->rank; ++axis) {
    tw_text_add(text, "%s%" PRId64, axis == 0 ? "" : ", ", tensor->shape[axis]);
  }
  tw_text_add(text, "]");
}

// ` with batch = 2, sequence = 7`: what the extents depend on, in the order of the alphabet.
static void add_dims(tw_text_t* text, const tw_program_t* program, const tw_signature_t* row, const int64_t* dims) {
  const char* before = NULL;
  for (;;) {
    const tw_dimension_t* next = NULL;
    int64_t value = 0;
    for (uint32_t i = 0; i < program->dim_count && i < 64; ++i) {
      const tw_dimension_t* dim = &program->dims[i];
      if (((row->dims >> i) & 1u) == 0 || (before != NULL && strcmp(dim->name, before) <= 0)) continue;
      if (next != NULL && strcmp(dim->name, next->name) > 0) continue;
      next = dim;
      value = dims[i];
    }
    if (next == NULL) return;
    tw_text_add(text, "%s%s = %" PRId64, before == NULL ? " with " : ", ", next->name, value);
    before = next->name;
  }
}

static int has_type(const tw_tensor_t* tensor, const tw_signature_t* row) {
  return tensor->type_code == row->type->code && tensor->type_bits == row->type->bits;
}

// `dims` are what the inputs say of the dimensions, if they do.
static int fail_mismatch(const tw_program_t* program, const tw_signature_t* row, const char* what,
                         const tw_tensor_t* tensor, const int64_t* dims) {
  tw_text_t text = {.length = 0};
  add_tensor(&text, tensor);
  tw_text_add(&text, ", expected %s", row->text);
  const int has_rank = tensor->rank == (int32_t)row->rank;
  if (dims != NULL && has_rank) add_dims(&text, program, row, dims);
  if (has_rank && !has_type(tensor, row)) tw_text_add(&text, "\nhint: convert it to %s", row->type->name);
  return tw_error_set(TW_MODEL_BAD_INPUT, "%s '%s': got %s", what, row->name, text.text);
}

int tw_model_dim_of(const tw_model_t* model, uint32_t index, const tw_tensor_t* tensor, int64_t* out_value) {
  const tw_program_t* program = tw_model_program(model);
  const tw_dimension_t* dim = &program->dims[index];
  if ((int64_t)dim->axis >= tensor->rank) {
    return fail_mismatch(program, &program->inputs[dim->input], "input", tensor, NULL);
  }
  *out_value = tensor->shape[dim->axis];
  return TW_MODEL_OK;
}

int tw_check_data(const tw_signature_t* row, const char* what, const void* data) {
  if (data == NULL) return tw_error_set(TW_MODEL_BAD_INPUT, "%s '%s': has no data", what, row->name);
  if (((uintptr_t)data & (row->type->item_bytes - 1u)) == 0) return TW_MODEL_OK;
  return tw_error_set(TW_MODEL_BAD_INPUT, "%s '%s': is at address %p, expected a multiple of %u", what, row->name,
                      data, row->type->item_bytes);
}

static int look_closer(const tw_bound_t* bound, const tw_signature_t* row, const char* what,
                       const tw_tensor_t* tensor) {
  int fits = has_type(tensor, row) && tensor->rank == (int32_t)row->rank;
  int is_empty = 0;
  for (uint32_t axis = 0; fits && axis < row->rank; ++axis) {
    fits = tensor->shape[axis] == tw_bound_number(bound, row->shape[axis]);
    is_empty |= tensor->shape[axis] == 0;
  }
  if (!fits) return fail_mismatch(bound->program, row, what, tensor, bound->dims);
  return is_empty ? TW_MODEL_OK : tw_check_data(row, what, tensor->data);
}

int tw_check_tensor(const tw_bound_t* bound, uint32_t slot, const tw_tensor_t* tensor) {
  const tw_expected_t* row = bound->expected == NULL ? NULL : &bound->expected[slot];
  if (row != NULL && tensor->rank == row->rank && tensor->type_code == row->type_code && tensor->type_bits == row->type_bits &&
      tw_expected_fits(row, tensor->data, tensor->shape, NULL)) {
    return TW_MODEL_OK;
  }
  const tw_program_t* program = bound->program;
  if (slot < program->input_count) return look_closer(bound, &program->inputs[slot], "input", tensor);
  return look_closer(bound, &program->outputs[slot - program->input_count], "output", tensor);
}

int tw_call_take(tw_call_t* call, uint32_t slot, const tw_tensor_t* tensor) {
  if (call->late != NULL) return tw_late_take(call, slot, tensor);
  const int status = tw_check_tensor(call->bound, slot, tensor);
  if (status == TW_MODEL_OK) tw_call_bind(call, slot, tensor->data);
  return status;
}

// Tensors of the call from one slot on.
static int take_all(tw_call_t* call, uint32_t slot, uint32_t count, const tw_tensor_t* tensors) {
  int status = TW_MODEL_OK;
  for (uint32_t i = 0; status == TW_MODEL_OK && i < count; ++i) status = tw_call_take(call, slot + i, &tensors[i]);
  return status;
}

static int check_shapes(const tw_signature_t* rows, uint32_t count, const char* what, const tw_tensor_t* tensors) {
  for (uint32_t i = 0; i < count; ++i) {
    if (tensors[i].shape != NULL || tensors[i].rank == 0) continue;
    return tw_error_set(TW_MODEL_BAD_INPUT, "%s '%s': has no shape", what, rows[i].name);
  }
  return TW_MODEL_OK;
}

// A call whose tensors say what the dimensions are, and its inputs.
static int begin(tw_call_t* call, tw_model_t* model, const tw_tensor_t* inputs) {
  const tw_program_t* program = model->program;
  int64_t dims[TW_DIM_LIMIT];
  int status = check_shapes(program->inputs, program->input_count, "input", inputs);
  for (uint32_t i = 0; status == TW_MODEL_OK && i < program->dim_count; ++i) {
    status = tw_model_dim_of(model, i, &inputs[program->dims[i].input], &dims[i]);
  }
  if (status == TW_MODEL_OK) status = tw_call_begin(call, model, dims, NULL);
  return status == TW_MODEL_OK ? take_all(call, 0, program->input_count, inputs) : status;
}

int tw_model_run_tensors(tw_model_t* model, const tw_tensor_t* inputs, const tw_tensor_t* outputs) {
  int status = tw_model_check_arrays(model, inputs, outputs);
  if (status != TW_MODEL_OK) return status;
  const tw_program_t* program = model->program;
  status = check_shapes(program->outputs, program->output_count, "output", outputs);
  tw_call_t call;
  call.model = NULL;  // nothing has begun
  if (status == TW_MODEL_OK) status = begin(&call, model, inputs);
  if (status == TW_MODEL_OK) status = take_all(&call, program->input_count, program->output_count, outputs);
  if (status == TW_MODEL_OK) status = tw_call_run(&call);
  tw_call_end(&call);
  return status;
}

// Who gives the outputs of a call their memory.
typedef struct caller_t {
  tw_model_allocate_t allocate;
  void* context;
} caller_t;

static int allocate_by_caller(void* context, tw_call_t* call, uint32_t output, const int64_t* shape, size_t size_bytes,
                              void** out_data) {
  const caller_t* caller = context;
  const tw_signature_t* row = &call->model->program->outputs[output];
  *out_data = caller->allocate(caller->context, output, shape, (int32_t)row->rank, size_bytes);
  if (size_bytes == 0) return TW_MODEL_OK;
  if (*out_data != NULL) return tw_check_data(row, "output", *out_data);
  return tw_error_set(TW_MODEL_NO_MEMORY, "output '%s': the caller has no memory for it, %zu bytes", row->name,
                      size_bytes);
}

int tw_model_run_allocating(tw_model_t* model, const tw_tensor_t* inputs, tw_model_allocate_t allocate, void* context) {
  int status = tw_model_check_arrays(model, inputs, model);
  if (status == TW_MODEL_OK && allocate == NULL) status = tw_error_set(TW_MODEL_BAD_INPUT, "allocate is NULL");
  if (status != TW_MODEL_OK) return status;
  caller_t caller = {.allocate = allocate, .context = context};
  tw_call_t call;
  call.model = NULL;  // nothing has begun
  status = begin(&call, model, inputs);
  if (status == TW_MODEL_OK) {
    call.allocate = allocate_by_caller;
    call.allocate_context = &caller;
    status = tw_call_run(&call);
  }
  tw_call_end(&call);
  return status;
}
