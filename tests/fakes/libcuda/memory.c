// Memory: device addresses that mean nothing to the host, pools, pinned and managed memory, and
// the copies and fills between them.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "standin.h"

// No host has memory there: an address that leaks into host code faults at once.
#define DEVICE_BASE ((CUdeviceptr)1 << 62)
#define ALIGNMENT 256
#define QUARANTINE 64

typedef enum { PLAIN, POOLED, PINNED, REGISTERED, MANAGED } MemoryKind;

typedef struct Memory {
  Handle handle;
  struct Memory* next;
  CUdeviceptr device;
  size_t size;
  char* host;
  MemoryKind kind;
  bool ready;    // its allocation has been reached in its stream
  bool leaving;  // its release is in a stream
  bool readonly;
  CUmemoryPool pool;
} Memory;

struct Pool {
  Handle handle;
  uint64_t threshold, reserved, reserved_high, used, used_high;
};

static Memory* g_memory;  // newest first
static CUdeviceptr g_next_address = DEVICE_BASE;
static size_t g_allocated;
static char* g_quarantine[QUARANTINE];
static int g_quarantine_next;

// --- book-keeping ------------------------------------------------------------------------------

static Memory* find_device(CUdeviceptr address) {
  for (Memory* memory = g_memory; memory; memory = memory->next) {
    if (address >= memory->device && address < memory->device + memory->size) return memory;
  }
  return NULL;
}

static Memory* find_host(const void* host, bool inside) {
  for (Memory* memory = g_memory; memory; memory = memory->next) {
    if (!memory->handle.alive || memory->kind < PINNED) continue;
    const char* place = host;
    if (place == memory->host) return memory;
    if (inside && place >= memory->host && place < memory->host + memory->size) return memory;
  }
  return NULL;
}

static Memory* add(CUcontext context, MemoryKind kind, size_t size, char* host) {
  Memory* memory = standin_create(KIND_MEMORY, sizeof(Memory), context);
  LOCK();
  memory->kind = kind;
  memory->size = size;
  memory->host = host;
  memory->ready = kind != POOLED;
  memory->device = kind == MANAGED ? (CUdeviceptr)(uintptr_t)host : g_next_address;
  if (kind != MANAGED) g_next_address += (size + 2 * ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  memory->next = g_memory;
  g_memory = memory;
  if (kind == PLAIN || kind == POOLED) g_allocated += size;
  UNLOCK();
  return memory;
}

static char* fresh(size_t size) {
  char* host = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
  if (host) memset(host, 0xCD, size);
  return host;
}

// The bytes stay poisoned for a while, so that late use gives wrong results, not a crash.
static void retire(Memory* memory) {
  standin_destroy(memory);
  LOCK();
  if (memory->kind == PLAIN || memory->kind == POOLED) g_allocated -= memory->size;
  if (memory->kind != REGISTERED) {
    memset(memory->host, 0xDD, memory->size);
    free(g_quarantine[g_quarantine_next]);
    g_quarantine[g_quarantine_next] = memory->host;
    g_quarantine_next = (g_quarantine_next + 1) % QUARANTINE;
  }
  UNLOCK();
}

// Memory ends with its context: what was registered of the host may come back as other memory.
void standin_forget_memory(CUcontext context) {
  LOCK();
  for (Memory* memory = g_memory; memory; memory = memory->next) {
    if (memory->handle.context == context) memory->handle.alive = false;
  }
  UNLOCK();
}

static bool is_too_much(size_t size) {
  LOCK();
  bool too_much = size > DEVICE_MEMORY_BYTES || g_allocated + size > DEVICE_MEMORY_BYTES;
  UNLOCK();
  return too_much;
}

void* standin_resolve(CUdeviceptr address, size_t size, const char* what) {
  LOCK();
  Memory* memory = find_device(address);
  const char* wrong = NULL;
  if (memory == NULL) {
    wrong = "no such memory";
  } else if (!memory->handle.alive) {
    wrong = "memory that was freed";
  } else if (!memory->ready) {
    wrong = "memory whose allocation has not happened";
  } else if (size > memory->size - (size_t)(address - memory->device)) {
    wrong = "a range beyond its memory";
  }
  char* place = wrong ? NULL : memory->host + (address - memory->device);
  if (wrong) standin_misuse("%s: %s", what, wrong);
  UNLOCK();
  return place;
}

// --- device memory -----------------------------------------------------------------------------

CUresult cuMemAlloc(CUdeviceptr* pointer, size_t size) {
  ENTER(cuMemAlloc);
  CURRENT(context);
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (is_too_much(size)) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = add(context, PLAIN, size, fresh(size))->device;
  return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr* pointer, size_t size, unsigned int flags) {
  ENTER(cuMemAllocManaged);
  CURRENT(context);
  if (size == 0 || flags != 1) return CUDA_ERROR_INVALID_VALUE;
  if (is_too_much(size)) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = add(context, MANAGED, size, fresh(size))->device;
  return CUDA_SUCCESS;
}

static Memory* find_start(CUdeviceptr pointer, const char* function) {
  LOCK();
  Memory* memory = find_device(pointer);
  if (memory && memory->device != pointer) memory = NULL;
  if (memory == NULL) standin_misuse("%s: no such memory", function);
  if (memory && (!memory->handle.alive || memory->leaving)) {
    standin_misuse("%s: freed twice", function);
    memory = NULL;
  }
  UNLOCK();
  return memory;
}

CUresult cuMemFree(CUdeviceptr pointer) {
  ENTER(cuMemFree);
  CURRENT(context);
  Memory* memory = find_start(pointer, "cuMemFree");
  if (memory == NULL || memory->kind == PINNED) return CUDA_ERROR_INVALID_VALUE;
  standin_drain_context(context);
  retire(memory);
  return CUDA_SUCCESS;
}

CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t size, CUdevice device, CUstream stream) {
  ENTER(cuMemPrefetchAsync);
  CURRENT(context);
  CHECK(stream, KIND_STREAM);
  (void)device;
  return standin_resolve(pointer, size, "cuMemPrefetchAsync") ? CUDA_SUCCESS
                                                              : CUDA_ERROR_INVALID_VALUE;
}

// --- host memory -------------------------------------------------------------------------------

CUresult cuMemHostAlloc(void** pointer, size_t size, unsigned int flags) {
  ENTER(cuMemHostAlloc);
  CURRENT(context);
  if (size == 0 || flags > 7) return CUDA_ERROR_INVALID_VALUE;
  if (is_too_much(size)) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = add(context, PINNED, size, fresh(size))->host;
  return CUDA_SUCCESS;
}

static CUresult release_host(void* pointer, MemoryKind kind, const char* function) {
  LOCK();
  Memory* memory = find_host(pointer, false);
  if (memory && memory->kind != kind) memory = NULL;
  if (memory == NULL) standin_misuse("%s: no such memory", function);
  UNLOCK();
  if (memory == NULL) return CUDA_ERROR_INVALID_VALUE;
  retire(memory);
  return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void* pointer) {
  ENTER(cuMemFreeHost);
  CURRENT(context);
  return release_host(pointer, PINNED, "cuMemFreeHost");
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr* device, void* host, unsigned int flags) {
  ENTER(cuMemHostGetDevicePointer);
  CURRENT(context);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  LOCK();
  Memory* memory = find_host(host, true);
  if (memory) *device = memory->device + (CUdeviceptr)((char*)host - memory->host);
  UNLOCK();
  return memory ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemHostRegister(void* pointer, size_t size, unsigned int flags) {
  ENTER(cuMemHostRegister);
  CURRENT(context);
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  LOCK();
  bool taken = find_host(pointer, true) || find_host((char*)pointer + size - 1, true);
  UNLOCK();
  if (taken) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  add(context, REGISTERED, size, pointer)->readonly = (flags & 8) != 0;
  return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void* pointer) {
  ENTER(cuMemHostUnregister);
  CURRENT(context);
  return release_host(pointer, REGISTERED, "cuMemHostUnregister");
}

// --- pools -------------------------------------------------------------------------------------

CUresult cuMemPoolCreate(CUmemoryPool* out_pool, const CUmemPoolProps* properties) {
  ENTER(cuMemPoolCreate);
  CURRENT(context);
  if (!standin_pools_supported()) return CUDA_ERROR_NOT_SUPPORTED;
  if (properties->allocType != 1 || properties->location.type != 1) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out_pool = standin_create(KIND_POOL, sizeof(struct Pool), context);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  ENTER(cuMemPoolDestroy);
  CURRENT(context);
  CHECK(pool, KIND_POOL);
  standin_destroy(pool);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void* value) {
  ENTER(cuMemPoolSetAttribute);
  CHECK(pool, KIND_POOL);
  if (attribute != 4) return CUDA_ERROR_INVALID_VALUE;
  pool->threshold = *(uint64_t*)value;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void* value) {
  ENTER(cuMemPoolGetAttribute);
  CHECK(pool, KIND_POOL);
  LOCK();
  uint64_t values[] = {pool->threshold, pool->reserved, pool->reserved_high, pool->used,
                       pool->used_high};
  UNLOCK();
  if (attribute < 4 || attribute > 8) return CUDA_ERROR_INVALID_VALUE;
  *(uint64_t*)value = values[attribute - 4];
  return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes) {
  ENTER(cuMemPoolTrimTo);
  CHECK(pool, KIND_POOL);
  LOCK();
  uint64_t least = pool->used > keep_bytes ? pool->used : keep_bytes;
  if (pool->reserved > least) pool->reserved = least;
  UNLOCK();
  return CUDA_SUCCESS;
}

typedef struct {
  Operation base;
  Memory* memory;
} MemoryOperation;

static CUresult run_alloc(Operation* operation) {
  LOCK();
  ((MemoryOperation*)operation)->memory->ready = true;
  UNLOCK();
  return CUDA_SUCCESS;
}

static void count_use(CUmemoryPool pool, size_t size) {
  LOCK();
  pool->used += size;
  if (pool->used > pool->used_high) pool->used_high = pool->used;
  if (pool->used > pool->reserved) pool->reserved = pool->used;
  if (pool->reserved > pool->reserved_high) pool->reserved_high = pool->reserved;
  UNLOCK();
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* pointer, size_t size, CUmemoryPool pool,
                                 CUstream stream) {
  ENTER(cuMemAllocFromPoolAsync);
  CURRENT(context);
  CHECK(pool, KIND_POOL);
  CHECK(stream, KIND_STREAM);
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (is_too_much(size)) return CUDA_ERROR_OUT_OF_MEMORY;
  Memory* memory = add(context, POOLED, size, fresh(size));
  memory->pool = pool;
  count_use(pool, size);
  *pointer = memory->device;
  MemoryOperation* operation = calloc(1, sizeof(*operation));
  operation->memory = memory;
  return standin_enqueue(stream, &operation->base, "alloc", run_alloc);
}

static CUresult run_free(Operation* operation) {
  Memory* memory = ((MemoryOperation*)operation)->memory;
  LOCK();
  if (!memory->ready) standin_misuse("cuMemFreeAsync: runs before the allocation");
  memory->pool->used -= memory->size;
  if (memory->pool->reserved > memory->pool->threshold) {
    memory->pool->reserved = memory->pool->used;
  }
  UNLOCK();
  retire(memory);
  return CUDA_SUCCESS;
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
  ENTER(cuMemFreeAsync);
  CURRENT(context);
  CHECK(stream, KIND_STREAM);
  Memory* memory = find_start(pointer, "cuMemFreeAsync");
  if (memory == NULL || memory->kind != POOLED) return CUDA_ERROR_INVALID_VALUE;
  LOCK();
  memory->leaving = true;
  UNLOCK();
  MemoryOperation* operation = calloc(1, sizeof(*operation));
  operation->memory = memory;
  return standin_enqueue(stream, &operation->base, "free", run_free);
}
