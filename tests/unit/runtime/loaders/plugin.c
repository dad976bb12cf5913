// An executable plugin for the tests: provides `twist` (pair[1] = pair[0] * factor + calls so far).

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef PLUGIN_VERSION
#define PLUGIN_VERSION 1
#endif

typedef struct header_t {
  uint32_t version;
  const char* name;
  const char* description;
  uint32_t features;
  uint32_t sanitizer;
  uint64_t reserved[8];
} header_t;

typedef struct text_t {
  const char* data;
  size_t size;
} text_t;

typedef struct environment_t {
  void* self;
  uintptr_t (*control)(void* self, int command, const void* params, void** pointer);
} environment_t;

typedef struct resolve_t {
  size_t count;
  const char* const* names;
  void** functions;
  void** contexts;
} resolve_t;

typedef struct state_t {
  environment_t environment;
  int32_t factor;
  int32_t calls;
} state_t;

static int twist(void* params, void* context, void* reserved) {
  (void)reserved;
  state_t* state = context;
  int32_t* pair = params;
  if (pair[0] < 0) return 13;
  pair[1] = pair[0] * state->factor + __atomic_fetch_add(&state->calls, 0, __ATOMIC_RELAXED);
  return 0;
}

static uintptr_t load(const environment_t* environment, size_t count, const text_t (*params)[2], void** out_self) {
  const size_t size = sizeof(state_t);
  void* made = NULL;
  if (environment->control(environment->self, 0, &size, &made) != 0) return 8;
  state_t* state = made;
  *state = (state_t){*environment, 3, 0};
  for (size_t i = 0; i < count; ++i) {
    if (params[i][0].size == 6 && memcmp(params[i][0].data, "factor", 6) == 0) {
      state->factor = (int32_t)strtol(params[i][1].data, NULL, 10);
    } else {
      environment->control(environment->self, 3, NULL, &made);
      return 3;
    }
  }
  *out_self = state;
  return 0;
}

static void unload(void* self) {
  state_t* state = self;
  const environment_t environment = state->environment;
  environment.control(environment.self, 3, NULL, &self);
}

static uintptr_t resolve(void* self, const resolve_t* params, uint32_t* out_resolution) {
  *out_resolution = 0;
  uintptr_t status = 0;
  for (size_t i = 0; i < params->count; ++i) {
    if (params->functions[i] != NULL) continue;
    if (strcmp(params->names[i], "twist") == 0) {
      params->functions[i] = (void*)twist;
      params->contexts[i] = self;
    } else {
      status = 5;
    }
  }
  return status;
}

typedef struct plugin_t {
  const header_t* header;
  uintptr_t (*load)(const environment_t*, size_t, const text_t (*)[2], void**);
  void (*unload)(void*);
  uintptr_t (*resolve)(void*, const resolve_t*, uint32_t*);
} plugin_t;

static const header_t header = {PLUGIN_VERSION, "twister", "for tests", 0, 0, {0}};
static const plugin_t plugin = {&header, load, unload, resolve};

const void* iree_hal_executable_plugin_query(uint32_t max_version, void* reserved);
const void* iree_hal_executable_plugin_query(uint32_t max_version, void* reserved) {
  (void)reserved;
  return PLUGIN_VERSION <= max_version ? &plugin : NULL;
}
