// What a library uses of tvm-ffi: layouts of values and tensors, and functions that are looked for. Private to the library.
#ifndef TW_LIBRARY_TVM_FFI_H_
#define TW_LIBRARY_TVM_FFI_H_

#include <stdint.h>

#include "tw_packed.h"

// Type indices of tvm-ffi, and what a DLPack device and tensor are.
enum { TYPE_NONE = 0, TYPE_INT = 1, TYPE_DL_TENSOR = 7, TYPE_RAW_STRING = 8, TYPE_TENSOR = 70 };
enum { DEVICE_CPU = 1, DEVICE_CUDA_HOST = 3, OBJECT_HEADER_BYTES = 24, DATA_ALIGNMENT = 64 };
enum { RAISED = -1, RAISED_IN_PYTHON = -2 };  // the second by old callees alone

typedef struct dl_tensor_t {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t rank;
  uint8_t type_code;
  uint8_t type_bits;
  uint16_t type_lanes;
  int64_t* shape;
  int64_t* strides;  // in elements; NULL: dense
  uint64_t byte_offset;
} dl_tensor_t;

typedef struct dl_managed_tensor_t {
  dl_tensor_t tensor;
  void* context;
  void (*deleter)(void* self);
} dl_managed_tensor_t;

typedef struct byte_array_t {
  const char* data;
  size_t size;
} byte_array_t;

// ---- functions of tvm-ffi ---------------------------------------------------------------------------

#if defined(__ELF__)

#define IMPORT(result, name, ...) extern __attribute__((weak)) result name(__VA_ARGS__)
IMPORT(void, TVMFFIErrorSetRaisedFromCStr, const char* kind, const char* message);
IMPORT(void, TVMFFIErrorMoveFromRaised, void** out_error);
IMPORT(void, TVMFFIErrorSetRaised, void* error);
IMPORT(int, TVMFFITensorFromDLPack, dl_managed_tensor_t* from, int32_t alignment, int32_t contiguous, void** out);
IMPORT(int, TVMFFIStringFromByteArray, const byte_array_t* input, tw_any_t* out);
IMPORT(int, TVMFFIFunctionGetGlobal, const byte_array_t* name, void** out);
IMPORT(int, TVMFFIFunctionCall, void* function, tw_any_t* args, int32_t num_args, tw_any_t* result);
IMPORT(int, TVMFFIObjectDecRef, void* object);
IMPORT(int, TVMFFIEnvCheckSignals, void);
IMPORT(int, TVMFFIEnvModLookupFromImports, void* context, const char* name, void** out);
#define FIND(name) (&name)

#else

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
static inline void* find(const char* name) {
  const HMODULE module = GetModuleHandleA("tvm_ffi.dll");
  return module == NULL ? NULL : (void*)(uintptr_t)GetProcAddress(module, name);
}
#else
#include <dlfcn.h>
static inline void* find(const char* name) { return dlsym(RTLD_DEFAULT, name); }
#endif

typedef void (*TVMFFIErrorSetRaisedFromCStr_t)(const char* kind, const char* message);
typedef void (*TVMFFIErrorMoveFromRaised_t)(void** out_error);
typedef void (*TVMFFIErrorSetRaised_t)(void* error);
typedef int (*TVMFFITensorFromDLPack_t)(dl_managed_tensor_t* from, int32_t alignment, int32_t contiguous, void** out);
typedef int (*TVMFFIStringFromByteArray_t)(const byte_array_t* input, tw_any_t* out);
typedef int (*TVMFFIFunctionGetGlobal_t)(const byte_array_t* name, void** out);
typedef int (*TVMFFIFunctionCall_t)(void* function, tw_any_t* args, int32_t num_args, tw_any_t* result);
typedef int (*TVMFFIObjectDecRef_t)(void* object);
typedef int (*TVMFFIEnvCheckSignals_t)(void);
typedef int (*TVMFFIEnvModLookupFromImports_t)(void* context, const char* name, void** out);
#define FIND(name) ((name##_t)(uintptr_t)find(#name))

#endif

#endif  // TW_LIBRARY_TVM_FFI_H_
