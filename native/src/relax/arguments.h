// What the built-ins of a Relax program read of their arguments, and how they refuse them. Private to `relax/`.
//
// Arguments come from a file of a stranger or from a caller: nothing about them is known before it was looked at.
// Functions return 0, or TW_RAISED_HERE with the error kept.
#ifndef TW_RELAX_ARGUMENTS_H_
#define TW_RELAX_ARGUMENTS_H_

#include "ffi.h"

// Classes of relax_machine/errors.py and base/errors.py.
#define TYPE_ERROR "ArgumentTypeError"
#define VALUE_ERROR "ArgumentValueError"
#define MATCH_ERROR "ArgumentMatchError"
#define INPUT_ERROR "InputError"

// What TVM wrote into the executable about a place, in brackets; empty where there is nothing.
typedef struct context_t {
  char text[512];
} context_t;

const char* tw_context_text(const ffi_any_t* value, context_t* context);

typedef struct dtype_text_t {
  char text[64];
} dtype_text_t;

const char* tw_dtype_text(ffi_dtype_t dtype, dtype_text_t* out);

// `place` is the text about the place, or NULL.
int tw_fail_expected(const char* what, const ffi_any_t* got, const ffi_any_t* place);

int tw_read_integer(const ffi_any_t* value, int64_t* out_number);

// The number of integers or of code-number pairs that follow, no more than there are arguments for.
int tw_read_count(const ffi_any_t* value, int32_t room, int64_t* out_count);

// The sizes of a tensor or a shape.
int tw_read_sizes(const ffi_any_t* value, const ffi_any_t* place, ffi_sizes_t* out_sizes);

int tw_read_shape(const ffi_any_t* value, ffi_sizes_t* out_sizes);
int tw_read_dtype(const ffi_any_t* value, ffi_dtype_t* out_dtype);

// The word of a shape heap: a dense vector of int64 on the host.
int tw_find_word(const ffi_any_t* heap, int64_t index, int64_t** out_word);

int tw_size_of_array(const ffi_any_t* array, int64_t* out_size);

static inline int tw_is_on_host(const ffi_tensor_t* tensor) { return tensor->device_type == FFI_CPU; }

static inline char* tw_data_of(const ffi_tensor_t* tensor) { return (char*)tensor->data + tensor->byte_offset; }

// An element of a tensor of integers, which `offset` elements of its own size lie before.
int64_t tw_read_element(const ffi_tensor_t* tensor, int64_t offset);

#endif  // TW_RELAX_ARGUMENTS_H_
