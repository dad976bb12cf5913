// Built-ins that make tensors and tuples, and read them.
//
// Source: TVM 0.27, `src/runtime/vm/builtin.cc`, for arguments, order of checks and kinds of errors.
#include <stdio.h>
#include <string.h>

#include "arguments.h"
#include "builtins.h"

// ---- storages and tensors --------------------------------------------------------------------------

// Arguments: the machine, sizes of a block, the device, the type that they count, a scope of memory.
int tw_builtin_alloc_storage(tw_relax_t* program, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  (void)count;
  ffi_sizes_t sizes = {NULL, 0};
  ffi_dtype_t dtype = {0};
  int64_t device = 0;
  int64_t size_bytes = 0;
  const ffi_bytes_t scope = ffi_text(&args[4]);
  if (scope.size != 0 && (scope.size != 6 || memcmp(scope.data, "global", 6) != 0)) {
    return tw_error_keep(INPUT_ERROR, "memory scope '%.*s', expected 'global'", scope.size > 64 ? 0 : (int)scope.size,
                         scope.data);
  }
  int code = tw_read_shape(&args[1], &sizes);
  if (code == 0) code = tw_read_integer(&args[2], &device);
  if (code == 0) code = tw_read_dtype(&args[3], &dtype);
  if (code == 0) code = tw_value_bytes(sizes.data, sizes.size, dtype, &size_bytes);
  if (code != 0) return code;
  if (device != 0 && device != -1) {
    return tw_error_keep(INPUT_ERROR, "device %lld, this machine has one", (long long)device);
  }
  return tw_value_storage(&program->heap, size_bytes, result);
}

// Arguments: a storage, an offset in bytes, a shape, a type, a scope of memory (optional).
int tw_builtin_alloc_tensor(tw_relax_t* program, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  (void)program;
  (void)count;
  ffi_sizes_t sizes = {NULL, 0};
  ffi_dtype_t dtype = {0};
  int64_t offset = 0;
  int64_t size_bytes = 0;
  const ffi_tensor_t* storage = ffi_tensor(&args[0]);
  const int is_storage = storage != NULL && tw_is_on_host(storage) && storage->rank == 1 &&
                         storage->dtype.code == FFI_CODE_UINT && storage->dtype.bits == 8 &&
                         storage->dtype.lanes == 1 && tw_value_is_dense(storage);
  if (!is_storage) return tw_fail_expected("a storage", &args[0], NULL);
  int code = tw_read_integer(&args[1], &offset);
  if (code == 0) code = tw_read_shape(&args[2], &sizes);
  if (code == 0) code = tw_read_dtype(&args[3], &dtype);
  if (code == 0) code = tw_value_bytes(sizes.data, sizes.size, dtype, &size_bytes);
  if (code != 0) return code;
  if (offset < 0 || size_bytes > storage->shape[0] || offset > storage->shape[0] - size_bytes) {
    return tw_error_keep(INPUT_ERROR, "a tensor of %lld bytes at byte %lld does not fit a storage of %lld bytes",
                         (long long)size_bytes, (long long)offset, (long long)storage->shape[0]);
  }
  char* data = storage->data == NULL ? NULL : tw_data_of(storage) + offset;
  return tw_value_view(&args[0], data, sizes.data, sizes.size, dtype, result);
}

static int fail_view(ffi_sizes_t sizes, int64_t need, int64_t have) {
  char text[256];
  size_t used = 0;
  text[0] = '\0';
  for (size_t i = 0; i < sizes.size && used < sizeof(text) - 32; ++i) {
    used += (size_t)snprintf(text + used, sizeof(text) - used, i == 0 ? "%lld" : ", %lld", (long long)sizes.data[i]);
  }
  return tw_error_keep(VALUE_ERROR, "a view of shape [%s] takes %lld bytes, the tensor has %lld", text,
                       (long long)need, (long long)have);
}

// Arguments: a tensor, a shape of as many elements or fewer.
int tw_builtin_reshape(tw_relax_t* program, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  (void)program;
  (void)count;
  ffi_sizes_t sizes = {NULL, 0};
  int64_t have = 0;
  int64_t need = 0;
  const ffi_tensor_t* tensor = ffi_tensor(&args[0]);
  if (tensor == NULL) return tw_fail_expected("a tensor", &args[0], NULL);
  int code = tw_read_shape(&args[1], &sizes);
  if (code == 0) code = tw_value_bytes(tensor->shape, (size_t)tensor->rank, tensor->dtype, &have);
  if (code != 0) return code;
  if (tw_value_bytes(sizes.data, sizes.size, tensor->dtype, &need) != 0) return fail_view(sizes, -1, have);
  if (need > have) return fail_view(sizes, need, have);
  if (!tw_is_on_host(tensor) || !tw_value_is_dense(tensor)) {
    return tw_error_keep(VALUE_ERROR, "a view of a tensor that is not dense");
  }
  char* data = tensor->data == NULL ? NULL : tw_data_of(tensor);
  return tw_value_view(&args[0], data, sizes.data, sizes.size, tensor->dtype, result);
}

int tw_builtin_copy(tw_relax_t* program, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  (void)program;
  (void)count;
  *result = ffi_copy(&args[0]);
  return 0;
}

int tw_builtin_null_value(tw_relax_t* program, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  (void)program;
  (void)args;
  (void)count;
  (void)result;
  return 0;
}

// The truth of a number, or of the first element of a tensor of integers.
int tw_builtin_read_if_cond(tw_relax_t* program, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  (void)program;
  (void)count;
  *result = (ffi_any_t){.type_index = FFI_BOOL, .v_int64 = args[0].v_int64 != 0};
  if (ffi_is_integer(&args[0])) return 0;
  *result = ffi_none();
  const ffi_tensor_t* tensor = ffi_tensor(&args[0]);
  if (tensor == NULL) return tw_fail_expected("a condition", &args[0], NULL);
  const ffi_dtype_t dtype = tensor->dtype;
  const int counts = dtype.code == FFI_CODE_INT || dtype.code == FFI_CODE_UINT || dtype.code == FFI_CODE_BOOL;
  const int is_known = dtype.bits == 1 || dtype.bits == 8 || dtype.bits == 16 || dtype.bits == 32 || dtype.bits == 64;
  if (!tw_is_on_host(tensor) || !counts || !is_known || dtype.lanes != 1) {
    dtype_text_t text;
    return tw_error_keep(TYPE_ERROR, "a condition of type %s", tw_dtype_text(dtype, &text));
  }
  for (int32_t i = 0; i < tensor->rank; ++i) {
    if (tensor->shape[i] == 0) return tw_error_keep(VALUE_ERROR, "a condition without elements");
  }
  *result = (ffi_any_t){.type_index = FFI_BOOL, .v_int64 = tw_read_element(tensor, 0) != 0};
  return 0;
}

// ---- tuples ----------------------------------------------------------------------------------------

int tw_builtin_make_tuple(tw_relax_t* program, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  (void)program;
  return tw_ffi.call(tw_ffi.make_array, args, count, result);
}

static int check_item(const ffi_any_t* args) {
  int64_t index = 0;
  int64_t size = 0;
  if (args[0].type_index != FFI_ARRAY) return tw_fail_expected("a tuple", &args[0], NULL);
  int code = tw_read_integer(&args[1], &index);
  if (code == 0) code = tw_size_of_array(&args[0], &size);
  if (code != 0 || (index >= 0 && index < size)) return code;
  return tw_error_keep("IndexError", "item %lld of a tuple of %lld", (long long)index, (long long)size);
}

int tw_builtin_tuple_getitem(tw_relax_t* program, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  (void)program;
  (void)count;
  const int code = check_item(args);
  return code != 0 ? code : tw_ffi.call(tw_ffi.array_item, args, 2, result);
}

// The memory of the item is no longer needed: it goes with the tuple here.
int tw_builtin_tuple_reset_item(tw_relax_t* program, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  (void)program;
  (void)count;
  (void)result;
  return check_item(args);
}
