// Tensors of a Relax program: storages from a heap, views of them, shapes. Private to `relax/`.
//
// A storage is a tensor of bytes; what lies in it holds it, and it goes back to its heap with the last that does.
// Functions return 0 with an owned value, or what `ffi.h` says of errors.
#ifndef TW_RELAX_VALUES_H_
#define TW_RELAX_VALUES_H_

#include "ffi.h"
#include "tw_heap.h"

// A heap, and the object of tvm-ffi that keeps it.
typedef struct tw_relax_heap_t {
  tw_heap_t* heap;
  ffi_any_t owner;
} tw_relax_heap_t;

// The bytes of a dense tensor. Fails for a size below 0 and for what 63 bits cannot count.
int tw_value_bytes(const int64_t* sizes, size_t rank, ffi_dtype_t dtype, int64_t* out_bytes);

int tw_value_is_dense(const ffi_tensor_t* tensor);

// A tensor of bytes with undefined contents.
int tw_value_storage(const tw_relax_heap_t* heap, int64_t size_bytes, ffi_any_t* out);

// A dense tensor at an address within memory that the object `owner` keeps.
int tw_value_view(const ffi_any_t* owner, void* data, const int64_t* sizes, size_t rank, ffi_dtype_t dtype,
                  ffi_any_t* out);

// A dense tensor in a storage of its own, with undefined contents.
int tw_value_tensor(const tw_relax_heap_t* heap, const int64_t* sizes, size_t rank, ffi_dtype_t dtype, ffi_any_t* out);

int tw_value_shape(const int64_t* sizes, size_t rank, ffi_any_t* out);

// What a caller gives, owned: a tensor that is only borrowed is copied, an empty one gets the strides that kernels
// expect.
int tw_value_take(const tw_relax_heap_t* heap, const ffi_any_t* given, ffi_any_t* out);

#endif  // TW_RELAX_VALUES_H_
