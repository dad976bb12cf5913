// An executable library for the tests of the loaders; what is strange about it is chosen by macros.
//
//   apply   y[i] = import(x[i]) through the environment's thunk, or x[i] * constant 0 without one
//   ready   y[0] = what the initialisers left behind, y[1] = specialisation constant 0

#include <stddef.h>
#include <stdint.h>

#include "tw_executable.h"

#ifndef NAME
#define NAME "demo"
#endif
#ifndef VERSION
#define VERSION 6
#endif
#ifndef SANITIZER
#define SANITIZER 0
#endif

typedef struct header_t {
  uint32_t version;
  const char* name;
  uint32_t features;
  uint32_t sanitizer;
} header_t;

typedef struct attributes_t {
  uint64_t flags;
  uint16_t local_memory_pages;
  uint8_t constant_count, binding_count;
  uint32_t size_x, size_y;
  uint16_t size_z, parameter_count;
  uint64_t reserved[5];
} attributes_t;

typedef struct library_t {
  const header_t* header;
  uint32_t import_count;
  const char* const* imports;
  uint32_t export_count;
  const tw_kernel_t* functions;
  const attributes_t* attributes;
  const void* parameters;
  const void* occupancy;
  const char* const* names;
  const void* unused[4];
  uint32_t constant_count, padding;
  uint32_t source_count;
  const void* sources;
} library_t;

static int initialized = 0;

#ifdef INITIALIZERS
__attribute__((constructor)) static void first(void) { initialized += 1; }
__attribute__((constructor)) static void second(void) { initialized += 10; }
#endif

static int apply(const tw_environment_t* environment, const tw_dispatch_state_t* dispatch,
                 const tw_workgroup_state_t* group) {
  const int32_t* x = dispatch->binding_pointers[0];
  int32_t* y = dispatch->binding_pointers[1];
  const uint32_t i = group->workgroup_id_x;
#ifdef IMPORTS
  int32_t pair[2] = {x[i], 0};
  // The optional import comes first in the table, as names are sorted.
  if (environment->import_functions[0] != NULL) {
    environment->import_thunk(environment->import_functions[0], pair, environment->import_contexts[0], NULL);
  }
  const int code = environment->import_thunk(environment->import_functions[1], pair, environment->import_contexts[1], NULL);
  y[i] = pair[1];
  return code;
#else
  (void)environment;
  y[i] = x[i] * (int32_t)dispatch->constants[0];
  return 0;
#endif
}

static int ready(const tw_environment_t* environment, const tw_dispatch_state_t* dispatch,
                 const tw_workgroup_state_t* group) {
  (void)group;
  int32_t* y = dispatch->binding_pointers[0];
  y[0] = initialized;
  y[1] = environment->constants != NULL ? (int32_t)environment->constants[0] : -1;
  return 0;
}

static const header_t header = {VERSION, NAME, 0, SANITIZER};
#ifdef EXPORT_IS_DATA
static const tw_kernel_t functions[] = {(tw_kernel_t)&header, ready};
#else
static const tw_kernel_t functions[] = {apply, ready};
#endif
static const attributes_t attributes[] = {
    {.constant_count = 1, .binding_count = 2, .size_x = 1, .size_y = 1, .size_z = 1},
    {.binding_count = 1, .size_x = 1, .size_y = 1, .size_z = 1},
};
static const char* const names[] = {"apply", "ready"};
#ifdef IMPORTS
static const char* const imports[] = {"?hint", "twist"};
#define IMPORT_COUNT 2
#define IMPORT_NAMES imports
#else
#define IMPORT_COUNT 0
#define IMPORT_NAMES NULL
#endif
#ifndef CONSTANTS
#define CONSTANTS 0
#endif

static const library_t library = {
    .header = &header,
    .import_count = IMPORT_COUNT,
    .imports = IMPORT_NAMES,
    .export_count = 2,
    .functions = functions,
    .attributes = attributes,
    .names = names,
    .constant_count = CONSTANTS,
};

#ifdef QUERY_IS_DATA
__attribute__((visibility("default"))) const library_t* iree_hal_executable_library_query = &library;
#else
__attribute__((visibility("default"))) const void* iree_hal_executable_library_query(
    uint32_t max_version, const tw_environment_t* environment);

const void* iree_hal_executable_library_query(uint32_t max_version, const tw_environment_t* environment) {
  (void)environment;
  return max_version == VERSION ? &library : NULL;
}
#endif
