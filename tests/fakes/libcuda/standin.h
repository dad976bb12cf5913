// What the stand-in's files share: handles, operations of streams, the one lock.
//
// A stand-in for libcuda on a machine without a GPU.  "Device" memory lives on the host behind
// addresses that the host cannot use; every stream is a thread; freed handles stay as tombstones,
// so that wrong use is seen and named instead of crashing.
#ifndef TW_STANDIN_STANDIN_H_
#define TW_STANDIN_STANDIN_H_

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_api.h"

#define DEVICE_COUNT 2
#define DEVICE_MEMORY_BYTES ((size_t)1 << 30)
#define MAX_PARAMETERS 32

typedef enum {
  KIND_CONTEXT,
  KIND_STREAM,
  KIND_EVENT,
  KIND_POOL,
  KIND_MODULE,
  KIND_GRAPH,
  KIND_EXEC,
  KIND_MEMORY,
  KIND_COUNT,
} Kind;

typedef struct {
  Kind kind;
  bool alive;
  CUcontext context;
} Handle;

struct Context {
  Handle handle;
  CUdevice device;
  int references;
  CUresult error;  // sticky: set by work that failed, ends only with the context
  int live[KIND_COUNT];
};

typedef struct Operation {
  struct Operation* next;
  CUresult (*run)(struct Operation*);
  const char* what;  // "kernel", "copy", "fill", "graph": what failures are asked for by
  CUcontext context;
  CUstream stream;
} Operation;

struct Event {
  Handle handle;
  bool has_timing;
  uint64_t recorded, completed;
  double time_ms;
};

typedef struct {
  CUfunction function;
  unsigned int grid[3], block[3], shared_bytes;
  size_t parameter_bytes;
  unsigned char parameters[MAX_PARAMETERS * 8];
} Launch;

struct Module {
  Handle handle;
  CUfunction functions;
};

struct Function {
  CUfunction next;
  CUmodule module;
  char name[128];
  int parameter_count;
  size_t parameter_offsets[MAX_PARAMETERS], parameter_sizes[MAX_PARAMETERS];
  size_t parameter_bytes;
  unsigned int max_threads[3];
  unsigned int max_dynamic_shared;
};

// Every structure that changes is protected by this lock; `g_changed` tells of every change.
extern pthread_mutex_t g_lock;
extern pthread_cond_t g_changed;

#define LOCK() pthread_mutex_lock(&g_lock)
#define UNLOCK() pthread_mutex_unlock(&g_lock)

// --- control.c ---
CUresult standin_enter(const char* name);         // counts the call; an error that was asked for
CUresult standin_operation_error(const char* what);
void standin_misuse(const char* format, ...) __attribute__((format(printf, 1, 2)));
void standin_pause(void);                         // a random delay, where tests want them
bool standin_managed_supported(void);
bool standin_pools_supported(void);
unsigned standin_random(void);

#define ENTER(name)                               \
  do {                                            \
    CUresult entered = standin_enter(#name);      \
    if (entered != CUDA_SUCCESS) return entered;  \
  } while (0)

// --- devices.c ---
CUresult standin_current(CUcontext* out_context);  // the thread's context, or why there is none
void* standin_create(Kind kind, size_t size, CUcontext context);
CUresult standin_check(const void* handle, Kind kind, const char* function);
void standin_destroy(void* handle);

#define CURRENT(context)                                 \
  CUcontext context;                                     \
  do {                                                   \
    CUresult found = standin_current(&context);          \
    if (found != CUDA_SUCCESS) return found;             \
  } while (0)

#define CHECK(handle, kind)                                      \
  do {                                                           \
    CUresult checked = standin_check(handle, kind, __func__);    \
    if (checked != CUDA_SUCCESS) return checked;                 \
  } while (0)

// --- streams.c ---
CUresult standin_enqueue(CUstream stream, Operation* operation, const char* what,
                         CUresult (*run)(Operation*));
void standin_drain(CUstream stream);
void standin_drain_context(CUcontext context);

// --- memory.c ---
// The bytes behind a device address, NULL (and a complaint) when the range is not alive.
void* standin_resolve(CUdeviceptr address, size_t size, const char* what);
void standin_forget_memory(CUcontext context);
CUresult standin_copy(CUdeviceptr target, CUdeviceptr source, size_t size);
CUresult standin_fill(const CUDA_MEMSET_NODE_PARAMS* fill);

// --- modules.c ---
CUresult standin_prepare_launch(Launch* out_launch, const CUDA_KERNEL_NODE_PARAMS* params);
CUresult standin_run_launch(const Launch* launch, CUstream stream, bool in_graph);

// --- kernels.c ---
CUresult standin_run_kernel(const Launch* launch);

#endif  // TW_STANDIN_STANDIN_H_
