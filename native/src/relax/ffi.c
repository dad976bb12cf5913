#include "ffi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

ffi_api_t tw_ffi;

// ---- binding ----------------------------------------------------------------------------------------

static int is_bound;
static pthread_mutex_t bind_lock = PTHREAD_MUTEX_INITIALIZER;

static int find(const char* name, void* out_function) {
  void* function = dlsym(RTLD_DEFAULT, name);
  memcpy(out_function, &function, sizeof(function));
  return function != NULL;
}

static int find_global(const char* name, void** out_function) {
  const ffi_bytes_t bytes = {name, strlen(name)};
  return tw_ffi.get_global(&bytes, out_function) == 0 && *out_function != NULL;
}

static int bind_all(void) {
  return find("TVMFFIObjectIncRef", &tw_ffi.retain) && find("TVMFFIObjectDecRef", &tw_ffi.release) &&
         find("TVMFFIAnyViewToOwnedAny", &tw_ffi.to_owned) && find("TVMFFIFunctionCall", &tw_ffi.call) &&
         find("TVMFFIFunctionCreate", &tw_ffi.create_function) &&
         find("TVMFFIFunctionGetGlobal", &tw_ffi.get_global) &&
         find("TVMFFITensorFromDLPack", &tw_ffi.tensor_from_dlpack) &&
         find("TVMFFIDataTypeToString", &tw_ffi.dtype_to_text) &&
         find("TVMFFIErrorSetRaisedFromCStr", &tw_ffi.raise_text) &&
         find("TVMFFIErrorSetRaised", &tw_ffi.raise_error) &&
         find("TVMFFIErrorMoveFromRaised", &tw_ffi.take_error) &&
         find("TVMFFIEnvCheckSignals", &tw_ffi.check_signals) && find_global("ffi.Array", &tw_ffi.make_array) && find_global("ffi.Shape", &tw_ffi.make_shape) &&
         find_global("ffi.ArraySize", &tw_ffi.array_size) && find_global("ffi.ArrayGetItem", &tw_ffi.array_item);
}

int tw_ffi_bind(void) {
  pthread_mutex_lock(&bind_lock);
  if (!is_bound) is_bound = bind_all();
  pthread_mutex_unlock(&bind_lock);
  return is_bound ? 0 : -1;
}

// ---- values -----------------------------------------------------------------------------------------

ffi_bytes_t ffi_text(const ffi_any_t* value) {
  switch (value->type_index) {
    case FFI_SMALL_TEXT:
      return (ffi_bytes_t){value->v_bytes, value->small_size};
    case FFI_RAW_TEXT:
      return (ffi_bytes_t){value->v_ptr, strlen(value->v_ptr)};
    case FFI_TEXT:
      return *(const ffi_bytes_t*)(const void*)((const char*)value->v_ptr + FFI_HEADER_BYTES);
    default:
      return (ffi_bytes_t){"", 0};
  }
}

const char* ffi_kind(const ffi_any_t* value) {
  switch (value->type_index) {
    case FFI_NONE:
      return "nothing";
    case FFI_INT:
      return "'int'";
    case FFI_BOOL:
      return "'bool'";
    case FFI_FLOAT:
      return "'float'";
    case FFI_POINTER:
      return "'c_void_p'";
    case FFI_DTYPE:
      return "'dtype'";
    case FFI_RAW_TEXT:
    case FFI_SMALL_TEXT:
    case FFI_TEXT:
      return "'str'";
    case FFI_FUNCTION:
      return "'Function'";
    case FFI_SHAPE:
      return "'Shape'";
    case FFI_DL_TENSOR:
    case FFI_TENSOR:
      return "'Tensor'";
    case FFI_ARRAY:
      return "'Array'";
    default:
      return "'Object'";
  }
}

// ---- errors -----------------------------------------------------------------------------------------

enum { TEXT_LIMIT = 2048 };

static _Thread_local char kept_text[TEXT_LIMIT];
static _Thread_local const char* kept_kind;

// A text that was cut may end within a character, which Python does not take.
static void end_at_character(char* text, size_t size) {
  const size_t length = strlen(text);
  if (length + 1 < size) return;
  size_t end = length;
  while (end > 0 && ((unsigned char)text[end - 1] & 0xC0) == 0x80) --end;
  if (end > 0 && ((unsigned char)text[end - 1] & 0x80) != 0) --end;
  text[end] = '\0';
}

int tw_error_keep(const char* kind, const char* format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(kept_text, sizeof(kept_text), format, values);
  va_end(values);
  end_at_character(kept_text, sizeof(kept_text));
  kept_kind = kind;
  return TW_RAISED_HERE;
}

int tw_error_raise(const char* format, ...) {
  char text[2 * TEXT_LIMIT];
  va_list values;
  va_start(values, format);
  vsnprintf(text, TEXT_LIMIT, format, values);
  va_end(values);
  end_at_character(text, TEXT_LIMIT);
  const size_t length = strlen(text);
  snprintf(text + length, sizeof(text) - length, "%s", kept_text);
  tw_ffi.raise_text(kept_kind, text);
  return TW_RAISED;
}

typedef struct error_cell_t {
  ffi_bytes_t kind;
  ffi_bytes_t message;
  ffi_bytes_t backtrace;
  void (*update_backtrace)(void* self, const ffi_bytes_t* text, int32_t mode);
} error_cell_t;

enum { BACKTRACE_APPEND = 1 };

void tw_error_add_frame(const char* file, long long line, const char* function) {
  char text[TEXT_LIMIT];
  void* error = NULL;
  tw_ffi.take_error(&error);
  if (error == NULL) return;
  const error_cell_t* cell = (const error_cell_t*)(const void*)((const char*)error + FFI_HEADER_BYTES);
  snprintf(text, sizeof(text), "  File \"%.900s\", line %lld, in %.900s\n", file, line, function);
  end_at_character(text, sizeof(text));
  const ffi_bytes_t bytes = {text, strlen(text)};
  cell->update_backtrace(error, &bytes, BACKTRACE_APPEND);
  tw_ffi.raise_error(error);
  tw_ffi.release(error);
}
