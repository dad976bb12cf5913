// What the Relax machine knows of tvm-ffi: values, objects, tensors, errors. Private to `relax/`.
//
// Nothing of tvm-ffi is linked: its functions are found in the process when the first program is made.
// Source: apache-tvm-ffi 0.1.15, `include/tvm/ffi/c_api.h`; DLPack 1.1.
#ifndef TW_RELAX_FFI_H_
#define TW_RELAX_FFI_H_

#include <stddef.h>
#include <stdint.h>

// Type indices; from FIRST_OBJECT on a value is an object with a count.
enum {
  FFI_NONE = 0,
  FFI_INT = 1,
  FFI_BOOL = 2,
  FFI_FLOAT = 3,
  FFI_POINTER = 4,
  FFI_DTYPE = 5,
  FFI_DL_TENSOR = 7,  // borrowed for a call
  FFI_RAW_TEXT = 8,
  FFI_SMALL_TEXT = 11,
  FFI_FIRST_OBJECT = 64,
  FFI_TEXT = 65,
  FFI_FUNCTION = 68,
  FFI_SHAPE = 69,
  FFI_TENSOR = 70,
  FFI_ARRAY = 71,
};
enum { FFI_CPU = 1, FFI_CODE_INT = 0, FFI_CODE_UINT = 1, FFI_CODE_FLOAT = 2, FFI_CODE_HANDLE = 3, FFI_CODE_BOOL = 6 };
enum { FFI_RANK_LIMIT = 64, FFI_SIZES_LIMIT = 512 };  // of tensors; of shapes as values

typedef struct ffi_dtype_t {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} ffi_dtype_t;

// A value: owned in registers, borrowed in arguments.
typedef struct ffi_any_t {
  int32_t type_index;
  uint32_t small_size;  // of a small text; else 0
  union {
    int64_t v_int64;
    double v_float64;
    void* v_ptr;
    char v_bytes[8];
    ffi_dtype_t v_dtype;
  };
} ffi_any_t;

typedef struct ffi_tensor_t {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t rank;
  ffi_dtype_t dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; NULL: dense
  uint64_t byte_offset;
} ffi_tensor_t;

typedef struct ffi_managed_tensor_t {
  ffi_tensor_t tensor;
  void* context;
  void (*deleter)(struct ffi_managed_tensor_t* self);
} ffi_managed_tensor_t;

typedef struct ffi_bytes_t {
  const char* data;
  size_t size;
} ffi_bytes_t;

typedef struct ffi_sizes_t {
  const int64_t* data;
  size_t size;
} ffi_sizes_t;

typedef int (*ffi_call_t)(void* self, const ffi_any_t* args, int32_t count, ffi_any_t* result);

// The functions of tvm-ffi that are used here.
typedef struct ffi_api_t {
  int (*retain)(void* object);
  int (*release)(void* object);
  int (*to_owned)(const ffi_any_t* view, ffi_any_t* out);
  int (*call)(void* function, const ffi_any_t* args, int32_t count, ffi_any_t* result);
  int (*create_function)(void* self, ffi_call_t call, void (*deleter)(void* self), void** out);
  int (*get_global)(const ffi_bytes_t* name, void** out);
  int (*tensor_from_dlpack)(ffi_managed_tensor_t* from, int32_t alignment, int32_t contiguous, void** out);
  int (*dtype_to_text)(const ffi_dtype_t* dtype, ffi_any_t* out);
  void (*raise_text)(const char* kind, const char* message);
  void (*raise_error)(void* error);
  void (*take_error)(void** out_error);
  int (*check_signals)(void);
  // Global functions, held for the life of the process.
  void* make_array;
  void* make_shape;
  void* array_size;
  void* array_item;
} ffi_api_t;

extern ffi_api_t tw_ffi;

// Finds the functions; 0, or -1 where tvm-ffi is not in the process or is another.
int tw_ffi_bind(void);

// ---- values ----

static inline int ffi_is_object(const ffi_any_t* value) { return value->type_index >= FFI_FIRST_OBJECT; }

static inline ffi_any_t ffi_none(void) { return (ffi_any_t){.type_index = FFI_NONE}; }

static inline ffi_any_t ffi_int(int64_t value) { return (ffi_any_t){.type_index = FFI_INT, .v_int64 = value}; }

static inline ffi_any_t ffi_pointer(void* pointer) { return (ffi_any_t){.type_index = FFI_POINTER, .v_ptr = pointer}; }

static inline ffi_any_t ffi_object(int32_t type_index, void* object) {
  return (ffi_any_t){.type_index = type_index, .v_ptr = object};
}

// A second owner of a value that is owned already.
static inline ffi_any_t ffi_copy(const ffi_any_t* value) {
  if (ffi_is_object(value)) tw_ffi.retain(value->v_ptr);
  return *value;
}

static inline void ffi_drop(ffi_any_t* value) {
  const ffi_any_t old = *value;
  *value = ffi_none();  // first: letting an object go may run foreign code
  if (ffi_is_object(&old)) tw_ffi.release(old.v_ptr);
}

static inline void ffi_drop_all(ffi_any_t* values, size_t count) {
  for (size_t i = 0; i < count; ++i) ffi_drop(&values[i]);
}

// What a tensor, a shape or a text holds lies behind the header of its object.
enum { FFI_HEADER_BYTES = 24 };

static inline const ffi_tensor_t* ffi_tensor(const ffi_any_t* value) {
  if (value->type_index == FFI_DL_TENSOR) return value->v_ptr;
  if (value->type_index != FFI_TENSOR) return NULL;
  return (const ffi_tensor_t*)(const void*)((const char*)value->v_ptr + FFI_HEADER_BYTES);
}

static inline const ffi_sizes_t* ffi_shape(const ffi_any_t* value) {
  if (value->type_index != FFI_SHAPE) return NULL;
  return (const ffi_sizes_t*)(const void*)((const char*)value->v_ptr + FFI_HEADER_BYTES);
}

// Int and bool.
static inline int ffi_is_integer(const ffi_any_t* value) {
  return value->type_index == FFI_INT || value->type_index == FFI_BOOL;
}

// The bytes of a text, empty for any other value; for as long as the value stays where it is.
ffi_bytes_t ffi_text(const ffi_any_t* value);

// What a value is, for messages: nothing, 'int', 'Tensor'.
const char* ffi_kind(const ffi_any_t* value);

// ---- errors ----

// What a function here returns: it came up here and has no place yet; it is raised in tvm-ffi; Python has it.
enum { TW_RAISED_HERE = 1, TW_RAISED = -1, TW_RAISED_IN_PYTHON = -2 };

// Keeps an error of this thread until `tw_error_raise`. Kinds are names of Python's classes. Returns TW_RAISED_HERE.
__attribute__((format(printf, 2, 3))) int tw_error_keep(const char* kind, const char* format, ...);

// Raises the kept error in tvm-ffi, with a place before its text (may be empty). Returns TW_RAISED.
__attribute__((format(printf, 1, 2))) int tw_error_raise(const char* format, ...);

// Adds a line to the backtrace of the error that is raised.
void tw_error_add_frame(const char* file, long long line, const char* function);

#endif  // TW_RELAX_FFI_H_
