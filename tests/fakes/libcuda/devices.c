// Devices, contexts, and the bookkeeping of all handles.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin.h"

#define MAX_DEPTH 16

pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t g_changed = PTHREAD_COND_INITIALIZER;

static pthread_mutex_t g_primary_lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext g_primary[DEVICE_COUNT];
static bool g_initialized;
static int g_live[KIND_COUNT];
static __thread CUcontext t_stack[MAX_DEPTH];
static __thread int t_depth;

static const char* const g_kind_names[KIND_COUNT] = {
    "context", "stream", "event", "pool", "module", "graph", "graph exec", "memory",
};

// --- handles -----------------------------------------------------------------------------------

void* standin_create(Kind kind, size_t size, CUcontext context) {
  Handle* handle = calloc(1, size);
  LOCK();
  handle->kind = kind;
  handle->alive = true;
  handle->context = context;
  g_live[kind]++;
  if (context) context->live[kind]++;
  UNLOCK();
  return handle;
}

static CUresult check_alive(const Handle* handle, Kind kind, const char* function) {
  if (handle == NULL || handle->kind != kind) {
    standin_misuse("%s: no %s", function, g_kind_names[kind]);
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (!handle->alive) {
    standin_misuse("%s: a %s that was destroyed", function, g_kind_names[kind]);
    return CUDA_ERROR_INVALID_HANDLE;
  }
  CUcontext current = t_depth ? t_stack[t_depth - 1] : NULL;
  if (kind != KIND_CONTEXT && handle->context && handle->context != current) {
    standin_misuse("%s: a %s of another context", function, g_kind_names[kind]);
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  return CUDA_SUCCESS;
}

CUresult standin_check(const void* handle, Kind kind, const char* function) {
  LOCK();
  CUresult result = check_alive(handle, kind, function);
  UNLOCK();
  return result;
}

void standin_destroy(void* pointer) {
  Handle* handle = pointer;
  LOCK();
  handle->alive = false;
  g_live[handle->kind]--;
  if (handle->context) handle->context->live[handle->kind]--;
  UNLOCK();
}

int standin_live(int kind) {
  LOCK();
  int count = kind < 0 || kind >= KIND_COUNT ? -1 : g_live[kind];
  UNLOCK();
  return count;
}

// --- devices -----------------------------------------------------------------------------------

CUresult cuInit(unsigned int flags) {
  ENTER(cuInit);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  g_initialized = true;
  return CUDA_SUCCESS;
}

static CUresult check_device(CUdevice device) {
  if (!g_initialized) return CUDA_ERROR_NOT_INITIALIZED;
  return device >= 0 && device < DEVICE_COUNT ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetCount(int* count) {
  ENTER(cuDeviceGetCount);
  if (!g_initialized) return CUDA_ERROR_NOT_INITIALIZED;
  *count = DEVICE_COUNT;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  ENTER(cuDeviceGet);
  *device = ordinal;
  return check_device(ordinal);
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  ENTER(cuDeviceGetName);
  snprintf(name, (size_t)length, "stand-in %d", device);
  return check_device(device);
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  ENTER(cuDeviceGetUuid);
  for (int i = 0; i < 16; ++i) uuid->bytes[i] = (unsigned char)(16 * device + i);
  return check_device(device);
}

CUresult cuDeviceTotalMem(size_t* bytes, CUdevice device) {
  ENTER(cuDeviceTotalMem);
  *bytes = DEVICE_MEMORY_BYTES;
  return check_device(device);
}

CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  static const int table[][2] = {
      {1, 1024}, {8, 49152},  {10, 32}, {13, 1410000}, {16, 108}, {19, 1}, {36, 1215000},
      {37, 5120}, {38, 41943040}, {41, 1}, {75, 8}, {76, 0}, {83, 1}, {97, 166912}, {99, 1},
      {113, 1},
  };
  ENTER(cuDeviceGetAttribute);
  *value = 0;
  for (size_t i = 0; i < sizeof(table) / sizeof(*table); ++i) {
    if (table[i][0] == attribute) *value = table[i][1];
  }
  if (attribute == 89) *value = standin_managed_supported();
  if (attribute == 115) *value = standin_pools_supported();
  return check_device(device);
}

// --- contexts ----------------------------------------------------------------------------------

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  ENTER(cuDevicePrimaryCtxRetain);
  CUresult valid = check_device(device);
  if (valid != CUDA_SUCCESS) return valid;
  pthread_mutex_lock(&g_primary_lock);
  if (g_primary[device] == NULL) {
    g_primary[device] = standin_create(KIND_CONTEXT, sizeof(struct Context), NULL);
    g_primary[device]->device = device;
  }
  g_primary[device]->references++;
  *context = g_primary[device];
  pthread_mutex_unlock(&g_primary_lock);
  return CUDA_SUCCESS;
}

// What is left behind in a healthy context is a leak; a failed one takes everything with it.
static void report_leaks(CUcontext context) {
  for (int kind = 0; kind < KIND_COUNT; ++kind) {
    if (context->live[kind] == 0) continue;
    if (context->error == CUDA_SUCCESS) {
      standin_misuse("the context ends with %d of kind %s", context->live[kind],
                     g_kind_names[kind]);
    }
    g_live[kind] -= context->live[kind];
  }
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  ENTER(cuDevicePrimaryCtxRelease);
  CUresult valid = check_device(device);
  if (valid != CUDA_SUCCESS) return valid;
  pthread_mutex_lock(&g_primary_lock);
  CUcontext context = g_primary[device];
  bool last = context != NULL && --context->references == 0;
  if (last) g_primary[device] = NULL;
  pthread_mutex_unlock(&g_primary_lock);
  if (context == NULL) {
    LOCK();
    standin_misuse("cuDevicePrimaryCtxRelease: not retained");
    UNLOCK();
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (!last) return CUDA_SUCCESS;
  standin_drain_context(context);
  LOCK();
  report_leaks(context);
  UNLOCK();
  standin_forget_memory(context);
  standin_destroy(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context) {
  ENTER(cuCtxPushCurrent);
  CHECK(context, KIND_CONTEXT);
  if (t_depth == MAX_DEPTH) return CUDA_ERROR_INVALID_VALUE;
  t_stack[t_depth++] = context;
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  ENTER(cuCtxPopCurrent);
  if (t_depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  *context = t_stack[--t_depth];
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  ENTER(cuCtxSetCurrent);
  if (context == NULL) {
    t_depth = t_depth ? t_depth - 1 : 0;
    return CUDA_SUCCESS;
  }
  CHECK(context, KIND_CONTEXT);
  if (t_depth == 0) t_depth = 1;
  t_stack[t_depth - 1] = context;
  return CUDA_SUCCESS;
}

CUresult standin_current(CUcontext* out_context) {
  if (!g_initialized) return CUDA_ERROR_NOT_INITIALIZED;
  CUcontext context = t_depth ? t_stack[t_depth - 1] : NULL;
  LOCK();
  bool alive = context != NULL && context->handle.alive;
  if (context != NULL && !alive) standin_misuse("work in a context that was released");
  CUresult error = alive ? context->error : CUDA_ERROR_INVALID_CONTEXT;
  UNLOCK();
  *out_context = context;
  return error;
}

// Forget what was not given back, so that the next test starts clean.
void standin_abandon(void) {
  pthread_mutex_lock(&g_primary_lock);
  for (int device = 0; device < DEVICE_COUNT; ++device) {
    CUcontext context = g_primary[device];
    if (context == NULL) continue;
    standin_drain_context(context);
    standin_forget_memory(context);
    context->handle.alive = false;
    g_primary[device] = NULL;
  }
  pthread_mutex_unlock(&g_primary_lock);
  LOCK();
  for (int kind = 0; kind < KIND_COUNT; ++kind) g_live[kind] = 0;
  UNLOCK();
}
