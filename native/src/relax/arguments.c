#include "arguments.h"

#include <string.h>

#include "values.h"

const char* tw_context_text(const ffi_any_t* value, context_t* context) {
  const ffi_bytes_t bytes = ffi_text(value);
  const char* data = bytes.data;
  const size_t room = sizeof(context->text) - 4;
  size_t size = bytes.size < room ? bytes.size : room;
  while (size > 0 && (*data == ' ' || *data == '\n')) ++data, --size;
  while (size > 0 && (data[size - 1] == ' ' || data[size - 1] == '\n')) --size;
  if (bytes.size > room) {  // what was cut may end within a character
    while (size > 0 && ((unsigned char)data[size - 1] & 0x80) != 0) --size;
  }
  context->text[0] = '\0';
  if (size == 0) return context->text;
  memcpy(context->text, " (", 2);
  memcpy(context->text + 2, data, size);
  memcpy(context->text + 2 + size, ")", 2);
  return context->text;
}

int tw_fail_expected(const char* what, const ffi_any_t* got, const ffi_any_t* place) {
  context_t context;
  const char* where = place == NULL ? "" : tw_context_text(place, &context);
  return tw_error_keep(TYPE_ERROR, "expected %s, got %s%s", what, ffi_kind(got), where);
}

int tw_read_integer(const ffi_any_t* value, int64_t* out_number) {
  if (!ffi_is_integer(value)) return tw_fail_expected("an integer", value, NULL);
  *out_number = value->v_int64;
  return 0;
}

int tw_read_count(const ffi_any_t* value, int32_t room, int64_t* out_count) {
  const int code = tw_read_integer(value, out_count);
  if (code != 0) return code;
  if (*out_count >= 0 && *out_count <= room) return 0;
  return tw_error_keep(INPUT_ERROR, "%lld sizes, there are arguments for %d", (long long)*out_count, room);
}

int tw_read_sizes(const ffi_any_t* value, const ffi_any_t* place, ffi_sizes_t* out_sizes) {
  const ffi_tensor_t* tensor = ffi_tensor(value);
  const ffi_sizes_t* shape = ffi_shape(value);
  if (tensor == NULL && shape == NULL) return tw_fail_expected("a tensor or a shape", value, place);
  *out_sizes = tensor == NULL ? *shape : (ffi_sizes_t){tensor->shape, (size_t)tensor->rank};
  return 0;
}

int tw_read_shape(const ffi_any_t* value, ffi_sizes_t* out_sizes) {
  const ffi_sizes_t* shape = ffi_shape(value);
  if (shape == NULL) return tw_fail_expected("a shape", value, NULL);
  *out_sizes = *shape;
  return 0;
}

int tw_read_dtype(const ffi_any_t* value, ffi_dtype_t* out_dtype) {
  if (value->type_index != FFI_DTYPE) return tw_fail_expected("a data type", value, NULL);
  *out_dtype = value->v_dtype;
  return 0;
}

const char* tw_dtype_text(ffi_dtype_t dtype, dtype_text_t* out) {
  ffi_any_t name = ffi_none();
  out->text[0] = '\0';
  if (tw_ffi.dtype_to_text(&dtype, &name) == 0) {
    const ffi_bytes_t bytes = ffi_text(&name);
    const size_t size = bytes.size < sizeof(out->text) ? bytes.size : sizeof(out->text) - 1;
    memcpy(out->text, bytes.data, size);
    out->text[size] = '\0';
  } else {
    void* error = NULL;
    tw_ffi.take_error(&error);
    if (error != NULL) tw_ffi.release(error);
    memcpy(out->text, "unknown", sizeof("unknown"));
  }
  ffi_drop(&name);
  return out->text;
}

int tw_find_word(const ffi_any_t* heap, int64_t index, int64_t** out_word) {
  const ffi_tensor_t* tensor = ffi_tensor(heap);
  if (tensor == NULL) return tw_fail_expected("a shape heap", heap, NULL);
  const int is_heap = tw_is_on_host(tensor) && tensor->rank == 1 && tensor->dtype.code == FFI_CODE_INT &&
                      tensor->dtype.bits == 64 && tensor->dtype.lanes == 1 && tw_value_is_dense(tensor);
  if (!is_heap) return tw_error_keep(INPUT_ERROR, "a shape heap that is no vector of int64");
  if (index < 0 || index >= tensor->shape[0]) {
    return tw_error_keep(INPUT_ERROR, "word %lld of a shape heap of %lld", (long long)index,
                         (long long)tensor->shape[0]);
  }
  *out_word = (int64_t*)(void*)tw_data_of(tensor) + index;
  return 0;
}

int tw_size_of_array(const ffi_any_t* array, int64_t* out_size) {
  ffi_any_t size = ffi_none();
  if (tw_ffi.call(tw_ffi.array_size, array, 1, &size) != 0) return TW_RAISED;
  *out_size = size.v_int64;
  return 0;
}

int64_t tw_read_element(const ffi_tensor_t* tensor, int64_t offset) {
  const char* at = tw_data_of(tensor) + offset * (tensor->dtype.bits <= 8 ? 1 : tensor->dtype.bits / 8);
  const int is_unsigned = tensor->dtype.code != FFI_CODE_INT;
  int8_t as_8 = 0;
  int16_t as_16 = 0;
  int32_t as_32 = 0;
  int64_t as_64 = 0;
  switch (tensor->dtype.bits) {
    case 16:
      memcpy(&as_16, at, sizeof(as_16));
      return is_unsigned ? (uint16_t)as_16 : as_16;
    case 32:
      memcpy(&as_32, at, sizeof(as_32));
      return is_unsigned ? (int64_t)(uint32_t)as_32 : as_32;
    case 64:
      memcpy(&as_64, at, sizeof(as_64));
      return as_64;
    default:
      memcpy(&as_8, at, sizeof(as_8));
      return is_unsigned ? (uint8_t)as_8 : as_8;
  }
}
