// The kernel ABI: IREE's executable library, version 0.6, as far as a caller of kernels needs it.
//
// Not here: the library tables (read in Python, `tilewright.runtime.native.read_library`).
// Layouts are fixed by the ABI; the static assertions below restate them.
#ifndef TW_EXECUTABLE_H_
#define TW_EXECUTABLE_H_

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "tw_names.h"

enum { TW_PROCESSOR_DATA_COUNT = 8 };

// What a kernel may know about the process it runs in. One per loaded executable.
typedef struct tw_environment_t {
  const uint32_t* constants;
  int (*import_thunk)(void* function, void* params, void* context, void* reserved);
  void* const* import_functions;
  void* const* import_contexts;
  uint64_t processor_data[TW_PROCESSOR_DATA_COUNT];
} tw_environment_t;

// What all workgroups of one dispatch share.
typedef struct tw_dispatch_state_t {
  uint32_t workgroup_size_x;
  uint32_t workgroup_size_y;
  uint16_t workgroup_size_z;
  uint16_t constant_count;
  uint32_t workgroup_count_x;
  uint32_t workgroup_count_y;
  uint16_t workgroup_count_z;
  uint8_t max_concurrency;
  uint8_t binding_count;
  const uint32_t* constants;
  void* const* binding_pointers;
  const size_t* binding_lengths;
} tw_dispatch_state_t;

// What one workgroup has for itself.
typedef struct tw_workgroup_state_t {
  uint32_t workgroup_id_x;
  uint32_t workgroup_id_y;
  uint16_t workgroup_id_z;
  uint16_t reserved;
  uint32_t processor_id;
  void* local_memory;
  uint32_t local_memory_size;
} tw_workgroup_state_t;

// Returns 0, or anything else when the device is to be considered lost.
typedef int (*tw_kernel_t)(const tw_environment_t* environment, const tw_dispatch_state_t* dispatch_state,
                           const tw_workgroup_state_t* workgroup_state);

// Returns the address of the library's header pointer, NULL if it has no version up to `max_version`.
typedef const void* const* (*tw_library_query_t)(uint32_t max_version, const tw_environment_t* environment);

#if UINTPTR_MAX == UINT64_MAX
static_assert(sizeof(tw_environment_t) == 96, "ABI: environment");
static_assert(offsetof(tw_environment_t, processor_data) == 32, "ABI: environment");
static_assert(sizeof(tw_dispatch_state_t) == 48, "ABI: dispatch state");
static_assert(offsetof(tw_dispatch_state_t, workgroup_count_x) == 12, "ABI: dispatch state");
static_assert(offsetof(tw_dispatch_state_t, binding_count) == 23, "ABI: dispatch state");
static_assert(offsetof(tw_dispatch_state_t, constants) == 24, "ABI: dispatch state");
static_assert(sizeof(tw_workgroup_state_t) == 32, "ABI: workgroup state");
static_assert(offsetof(tw_workgroup_state_t, local_memory) == 16, "ABI: workgroup state");
#endif

// Fills the processor words the way the compiler's generated code reads them (bit table in processor.c).
void tw_processor_query(uint64_t out_words[TW_PROCESSOR_DATA_COUNT]);

// Whether the processor has all of the features, by LLVM's names, up to NULL; else one that it lacks.
int tw_processor_has(const char* const* features, const char** out_missing);

// What kernels call their imports through: the host's side of the border.
int tw_import_thunk(void* function, void* params, void* context, void* reserved);

// The environment of executables that bring none: no constants, no imports, this processor.
const tw_environment_t* tw_environment_default(void);

#endif  // TW_EXECUTABLE_H_
