// The functions of TVM's runtime that its compiled code calls. See tw_backend.h.
//
// Source: TVM 0.27, `c_backend_api.h` and `vm/builtin.cc` for names and arguments.

#include "tw_backend.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tw_heap.h"

// Names that libraries import must be visible; everything else of the core is hidden.
#define TW_VISIBLE __attribute__((visibility("default")))

enum { FFI_NONE = 0, FFI_FIRST_OBJECT = 64, DATA_OFFSET = 64, TASKS_LIMIT = 1024 };

// ---- tvm-ffi, which is in the process before any library that calls us ---------------------------------------------

typedef struct ffi_any_t {
  int32_t type_index;
  uint32_t padding;
  void* pointer;
} ffi_any_t;

typedef void (*move_error_t)(void** out_error);
typedef void (*set_error_t)(void* error);
typedef void (*raise_text_t)(const char* kind, const char* message);
typedef int (*release_t)(void* object);

static void* find_ffi(const char* name) { return dlsym(RTLD_DEFAULT, name); }

// Looked for once: compiled code resets registers many times in a call.
static release_t find_release(void) {
  static _Atomic(release_t) found;
  release_t release = atomic_load_explicit(&found, memory_order_relaxed);
  if (release != NULL) return release;
  release = (release_t)(uintptr_t)find_ffi("TVMFFIObjectDecRef");
  atomic_store_explicit(&found, release, memory_order_relaxed);
  return release;
}

static void release_any(ffi_any_t* value) {
  if (value->type_index >= FFI_FIRST_OBJECT && value->pointer != NULL) {
    const release_t release = find_release();
    if (release != NULL) release(value->pointer);
  }
  *value = (ffi_any_t){.type_index = FFI_NONE};
}

static int raise_text(const char* message) {
  const raise_text_t raise = (raise_text_t)(uintptr_t)find_ffi("TVMFFIErrorSetRaisedFromCStr");
  if (raise != NULL) raise("RuntimeError", message);
  return -1;
}

// ---- scratch memory ------------------------------------------------------------------------------------------------

typedef struct workspace_t {
  tw_lease_t lease;
} workspace_t;

static void* allocate_workspace(int device_type, int device_id, uint64_t size_bytes, int code, int bits) {
  (void)device_type;
  (void)device_id;
  (void)code;
  (void)bits;
  workspace_t* workspace = size_bytes > SIZE_MAX / 2 ? NULL : malloc(sizeof(*workspace));
  if (workspace == NULL) return NULL;
  const tw_lease_request_t request = {.size_bytes = (size_t)size_bytes + DATA_OFFSET, .use = TW_MEMORY_SCRATCH};
  tw_refusal_t refusal;
  tw_heap_t* heap = tw_heap_default();
  if (heap == NULL || tw_heap_lease(heap, &request, &workspace->lease, &refusal) != TW_STATUS_OK) {
    free(workspace);
    return NULL;
  }
  memcpy(workspace->lease.base, &workspace, sizeof(workspace));
  return (char*)workspace->lease.base + DATA_OFFSET;
}

static int free_workspace(int device_type, int device_id, void* data) {
  (void)device_type;
  (void)device_id;
  if (data == NULL) return 0;
  workspace_t* workspace = NULL;
  memcpy(&workspace, (char*)data - DATA_OFFSET, sizeof(workspace));
  tw_heap_return(tw_heap_default(), &workspace->lease);
  free(workspace);
  return 0;
}

// ---- parallel loops ------------------------------------------------------------------------------------------------

typedef struct group_t {
  void* sync_handle;
  int32_t task_count;
} group_t;

typedef int (*task_t)(int task, group_t* group, void* data);

typedef struct launch_t {
  task_t task;
  void* data;
  group_t group;
  _Atomic(void*) error;  // of the first task that failed, an object of tvm-ffi's
  atomic_int failed;
} launch_t;

static _Atomic(tw_pool_t*) used_pool;
static _Thread_local int is_inside;  // a parallel loop inside of another runs on its thread alone

void tw_backend_use(tw_pool_t* pool) { atomic_store(&used_pool, pool); }

static int launch_serial(task_t task, void* data, int task_count) {
  (void)task_count;
  group_t group = {.task_count = 1};
  const int was_inside = is_inside;
  is_inside = 1;
  const int code = task(0, &group, data);
  is_inside = was_inside;
  return code;
}

// Errors belong to the thread they came up on: the first one is carried to the caller's.
static void keep_error(launch_t* launch) {
  const move_error_t move = (move_error_t)(uintptr_t)find_ffi("TVMFFIErrorMoveFromRaised");
  const release_t release = (release_t)(uintptr_t)find_ffi("TVMFFIObjectDecRef");
  void* error = NULL;
  void* none = NULL;
  if (move != NULL) move(&error);
  if (!atomic_compare_exchange_strong(&launch->error, &none, error) && error != NULL && release != NULL) {
    release(error);
  }
  atomic_store(&launch->failed, 1);
}

static void run_tasks(void* context, uint32_t worker_index, uint64_t begin, uint64_t end) {
  (void)worker_index;
  launch_t* launch = context;
  const int was_inside = is_inside;
  is_inside = 1;
  for (uint64_t i = begin; i < end; ++i) {
    if (launch->task((int)i, &launch->group, launch->data) != 0) keep_error(launch);
  }
  is_inside = was_inside;
}

static int launch_parallel(task_t task, void* data, int task_count) {
  tw_pool_t* pool = atomic_load(&used_pool);
  tw_seat_t* seat = is_inside || pool == NULL ? NULL : tw_pool_enter(pool);
  if (seat == NULL) return launch_serial(task, data, 1);
  const int32_t threads = (int32_t)tw_pool_thread_count(pool);
  const int32_t count = task_count <= 0 || task_count > TASKS_LIMIT ? threads : task_count;
  launch_t launch = {.task = task, .data = data, .group = {.task_count = count}};
  const tw_status_t status = tw_pool_run(seat, (uint64_t)count, run_tasks, &launch);
  tw_pool_leave(seat);
  if (status != TW_STATUS_OK) return raise_text("a parallel loop was cut by a fork");
  if (!atomic_load(&launch.failed)) return 0;
  const set_error_t set = (set_error_t)(uintptr_t)find_ffi("TVMFFIErrorSetRaised");
  const release_t release = (release_t)(uintptr_t)find_ffi("TVMFFIObjectDecRef");
  void* error = atomic_load(&launch.error);
  if (error == NULL || set == NULL) return raise_text("a part of a parallel loop failed");
  set(error);
  if (release != NULL) release(error);
  return -1;
}

// With one part there is nobody to wait for; `tw_backend_find` sees to it.
static int wait_for_parts(int task, group_t* group) {
  (void)task;
  return group->task_count <= 1 ? 0 : raise_text("a barrier between parts of a parallel loop");
}

// ---- registers in memory -------------------------------------------------------------------------------------------

TW_VISIBLE int TVMBackendAnyListSetPackedArg(void* list, int index, ffi_any_t* arguments, int place);
TW_VISIBLE int TVMBackendAnyListResetItem(void* list, int index);
TW_VISIBLE int TVMBackendAnyListMoveFromPackedReturn(void* list, int index, ffi_any_t* values, int place);

int TVMBackendAnyListSetPackedArg(void* list, int index, ffi_any_t* arguments, int place) {
  arguments[place] = ((ffi_any_t*)list)[index];
  return 0;
}

int TVMBackendAnyListResetItem(void* list, int index) {
  release_any((ffi_any_t*)list + index);
  return 0;
}

int TVMBackendAnyListMoveFromPackedReturn(void* list, int index, ffi_any_t* values, int place) {
  const ffi_any_t value = values[place];
  values[place] = (ffi_any_t){.type_index = FFI_NONE};
  release_any((ffi_any_t*)list + index);
  ((ffi_any_t*)list)[index] = value;
  return 0;
}

// ---- by name -------------------------------------------------------------------------------------------------------

void* tw_backend_find(const char* name, int has_barriers) {
  const struct {
    const char* name;
    uintptr_t address;
  } rows[] = {
      {"TVMBackendAllocWorkspace", (uintptr_t)allocate_workspace},
      {"TVMBackendFreeWorkspace", (uintptr_t)free_workspace},
      {"TVMBackendParallelLaunch", (uintptr_t)(has_barriers ? launch_serial : launch_parallel)},
      {"TVMBackendParallelBarrier", (uintptr_t)wait_for_parts},
      {"TVMBackendAnyListSetPackedArg", (uintptr_t)TVMBackendAnyListSetPackedArg},
      {"TVMBackendAnyListResetItem", (uintptr_t)TVMBackendAnyListResetItem},
      {"TVMBackendAnyListMoveFromPackedReturn", (uintptr_t)TVMBackendAnyListMoveFromPackedReturn},
  };
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
    if (strcmp(rows[i].name, name) == 0) return (void*)rows[i].address;
  }
  return NULL;
}
