// A model by hand, for the tests of what is only in exported libraries (library_model.c).
//
//   y[n] = x[n] * w[0] + w[1], over a tensor in the arena, and a packed function in between that looks on
#ifndef TW_TESTS_LIBRARY_MODEL_H_
#define TW_TESTS_LIBRARY_MODEL_H_

#include <stdatomic.h>

#include "library/model.h"
#include "tw_packed.h"

// Called in the middle of every call, by the thread that makes it, with the number of elements. NULL: nothing.
extern _Atomic(void (*)(int64_t n)) on_call;
// Likewise in a kernel, by whichever thread has the first workgroup.
extern _Atomic(void (*)(int64_t n)) on_kernel;

extern const tw_library_t test_library;

tw_model_t* model_of(uint32_t threads, uint32_t concurrency);

// Runs it on n elements and looks at the numbers. Returns the status.
int run_model(tw_model_t* model, int64_t n);

// Arguments of packed calls: a dense tensor in memory of the caller, as DLPack has it.
typedef struct test_tensor_t {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t rank;
  uint8_t type_code;
  uint8_t type_bits;
  uint16_t type_lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} test_tensor_t;

tw_any_t any_tensor(test_tensor_t* tensor);

// Whether the stand-in for tvm-ffi refuses to make tensors; the kind of the error that was raised last.
extern int refuses_tensors;
extern const char* raised_kind;

#endif  // TW_TESTS_LIBRARY_MODEL_H_
