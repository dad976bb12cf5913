#include "library_model.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "tw_size.h"

enum { PER_GROUP = 16, LOCAL_BYTES = 64, TENSOR_INDEX = 70, HEADER_BYTES = 24 };

_Atomic(void (*)(int64_t n)) on_call;
_Atomic(void (*)(int64_t n)) on_kernel;

// ---- code -------------------------------------------------------------------------------------------

static void range_of(const tw_dispatch_state_t* dispatch, const tw_workgroup_state_t* group, uint32_t* out_first,
                     uint32_t* out_end) {
  const uint32_t count = dispatch->constants[0];
  *out_first = group->workgroup_id_x * PER_GROUP;
  *out_end = *out_first + PER_GROUP < count ? *out_first + PER_GROUP : count;
}

static int scale(const tw_environment_t* environment, const tw_dispatch_state_t* dispatch,
                 const tw_workgroup_state_t* group) {
  (void)environment;
  const float* x = dispatch->binding_pointers[0];
  const float* w = dispatch->binding_pointers[1];
  float* t = dispatch->binding_pointers[2];
  void (*const look)(int64_t n) = atomic_load(&on_kernel);
  if (look != NULL && group->workgroup_id_x == 0) look(dispatch->constants[0]);
  uint32_t first, end;
  range_of(dispatch, group, &first, &end);
  for (uint32_t i = first; i < end; ++i) t[i] = x[i] * w[0];
  return 0;
}

static int shift(const tw_environment_t* environment, const tw_dispatch_state_t* dispatch,
                 const tw_workgroup_state_t* group) {
  (void)environment;
  const float* t = dispatch->binding_pointers[0];
  const float* w = dispatch->binding_pointers[1];
  float* y = dispatch->binding_pointers[2];
  float* local = group->local_memory;
  uint32_t first, end;
  range_of(dispatch, group, &first, &end);
  for (uint32_t i = first; i < end; ++i) local[i - first] = t[i];
  for (uint32_t i = first; i < end; ++i) y[i] = local[i - first] + w[1];
  return 0;
}

static int look_on(void* self, const void* args, int32_t num_args, void* result) {
  (void)self;
  (void)result;
  CHECK(num_args == 1);
  const test_tensor_t* tensor = ((const tw_any_t*)args)[0].v_ptr;
  void (*const look)(int64_t n) = atomic_load(&on_call);
  if (look != NULL) look(tensor->shape[0]);
  return 0;
}

// ---- tables -----------------------------------------------------------------------------------------

static void evaluate(const int64_t* dims, int64_t* out_sizes) {
  out_sizes[0] = dims[0];
  out_sizes[1] = tw_size_mul(dims[0], 4);
  out_sizes[2] = tw_size_floordiv(tw_size_add(dims[0], PER_GROUP - 1), PER_GROUP);
}

static const tw_type_t f32 = {"f32", 2, 32, 4};
static const tw_number_t row_shape[] = {INT64_MIN};
static const tw_signature_t inputs[] = {{"x", "f32[n]", &f32, row_shape, 1, 1}};
static const tw_signature_t outputs[] = {{"y", "f32[n]", &f32, row_shape, 1, 1}};
static const tw_dimension_t dims[] = {{"n", 0, 0, 1, -1, 0}};
static const tw_storage_t storages[] = {
    {TW_STORAGE_INPUT, 0, 0, 0, INT64_MIN + 1, 0},
    {TW_STORAGE_OUTPUT, 0, 0, 0, INT64_MIN + 1, 0},
    {TW_STORAGE_CONSTANT, 0, 0, 0, 8, 0},
    {TW_STORAGE_TRANSIENT, 0, 2, -1, INT64_MIN + 1, 0},
};
static const tw_entry_t entries[] = {{0, 0, INT64_MIN + 1}, {1, 0, INT64_MIN + 1}, {2, 0, 8}, {3, 0, INT64_MIN + 1}};
static const uint32_t arguments[] = {0, 2, 3, 3, 3, 2, 1};
static const tw_signature_t call_arguments[] = {{"", "", &f32, row_shape, 1, 1}, {"", "", &f32, row_shape, 1, 1},
                                                {"", "", &f32, row_shape, 1, 1}, {"t", "f32[n]", &f32, row_shape, 1, 1}};
static const tw_number_t constants[] = {INT64_MIN};
static const tw_step_t steps[] = {
    {TW_STEP_DISPATCH, 0, 0, 3, 1, 0, 1, 1, {INT64_MIN + 2, 1, 1}},
    {TW_STEP_CALL, 0, 3, 1, 0, 0, 0, 1, {0, 0, 0}},
    {TW_STEP_DISPATCH, 1, 4, 3, 1, 0, 1, 1, {INT64_MIN + 2, 1, 1}},
};
static const tw_kernel_row_t kernels[] = {{"scale", scale, 0, {1, 1, 1}, 0, 0}, {"shift", shift, LOCAL_BYTES, {1, 1, 1}, 0, 0}};
static const tw_callee_t callees[] = {{"look_on", look_on}};
static const char* const features[] = {NULL};

static const uint64_t weight_offsets[] = {0};

static const tw_program_t program = {
    .level = "any",
    .features = features,
    .inputs = inputs,
    .outputs = outputs,
    .dims = dims,
    .storages = storages,
    .entries = entries,
    .arguments = arguments,
    .constants = constants,
    .weight_offsets = weight_offsets,
    .steps = steps,
    .kernels = kernels,
    .callees = callees,
    .call_arguments = call_arguments,
    .evaluate = evaluate,
    .size_count = 3,
    .input_count = 1,
    .output_count = 1,
    .constant_storage_count = 1,
    .dim_count = 1,
    .storage_count = 4,
    .entry_count = 4,
    .step_count = 3,
    .arena_bytes = -1,
};

static const tw_program_t* const programs[] = {&program};
static const float weight_data[] = {2, 1};
static const tw_weights_t weights = {.data = (const uint8_t*)(const void*)weight_data};

const tw_library_t test_library = {"test", "0", programs, &weights, 1, NULL};

// ---- calls ------------------------------------------------------------------------------------------

tw_model_t* model_of(uint32_t threads, uint32_t concurrency) {
  const tw_model_options_t options = {
      .struct_bytes = sizeof(options), .threads = threads, .concurrency = concurrency};
  tw_model_t* model = NULL;
  CHECK(tw_model_create(&test_library, &options, &model) == TW_MODEL_OK);
  return model;
}

int run_model(tw_model_t* model, int64_t n) {
  float* x = aligned_alloc(64, ((size_t)n * 4 + 63) / 64 * 64);
  float* y = aligned_alloc(64, ((size_t)n * 4 + 63) / 64 * 64);
  CHECK(x != NULL && y != NULL);
  for (int64_t i = 0; i < n; ++i) x[i] = (float)(i % 1000);
  memset(y, 0, (size_t)n * 4);
  const void* given[] = {x};
  void* made[] = {y};
  const int status = tw_model_run(model, &n, given, made);
  for (int64_t i = 0; status == TW_MODEL_OK && i < n; ++i) CHECK(y[i] == x[i] * 2 + 1);
  free(x);
  free(y);
  return status;
}

// ---- a stand-in for tvm-ffi -------------------------------------------------------------------------

tw_any_t any_tensor(test_tensor_t* tensor) { return (tw_any_t){.type_index = 7, .v_ptr = tensor}; }

int refuses_tensors;
const char* raised_kind;

typedef struct managed_t {
  test_tensor_t tensor;
  void* context;
  void (*deleter)(void* self);
} managed_t;

typedef struct object_t {
  uint8_t header[HEADER_BYTES];
  test_tensor_t tensor;
  managed_t* managed;
} object_t;

void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message);
int TVMFFITensorFromDLPack(managed_t* from, int32_t alignment, int32_t contiguous, void** out);
int TVMFFIObjectDecRef(void* object);

void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message) {
  (void)message;
  raised_kind = kind;
}

int TVMFFITensorFromDLPack(managed_t* from, int32_t alignment, int32_t contiguous, void** out) {
  (void)alignment;
  (void)contiguous;
  if (refuses_tensors) return -1;
  static object_t the_only_one;  // not allocated, which may be made to fail
  object_t* object = &the_only_one;
  CHECK(object->managed == NULL);
  object->tensor = from->tensor;
  object->managed = from;
  *out = object;
  return 0;
}

int TVMFFIObjectDecRef(void* object) {
  CHECK(object != NULL);
  managed_t* managed = ((object_t*)object)->managed;
  ((object_t*)object)->managed = NULL;
  managed->deleter(managed);
  return 0;
}
