// Communicators, groups of calls, and what tests ask of the stand-in.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin_nccl.h"

#define MAX_FUNCTIONS 24

pthread_mutex_t g_nccl_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t g_nccl_changed = PTHREAD_COND_INITIALIZER;

static World* g_worlds;
static long g_next_id = 1;
static int g_live;
static int g_version = 22005;
static bool g_refuses_duplicates;
static ncclResult_t g_async_error;

typedef struct {
  char name[32];
  int calls, failing_call;
  ncclResult_t result;
} Entry;

static Entry g_entries[MAX_FUNCTIONS];

// Calls of the group that this thread has open: all of one communicator and stream.
static __thread int t_depth, t_count;
static __thread Call t_calls[MAX_CALLS];
static __thread ncclComm_t t_comm;
static __thread CUstream t_stream;

static Entry* find(const char* name) {
  for (int i = 0; i < MAX_FUNCTIONS; ++i) {
    if (g_entries[i].name[0] == 0) snprintf(g_entries[i].name, sizeof(g_entries[i].name), "%s", name);
    if (strcmp(g_entries[i].name, name) == 0) return &g_entries[i];
  }
  abort();  // the table is too small
}

static ncclResult_t enter(const char* name) {
  pthread_mutex_lock(&g_nccl_lock);
  Entry* entry = find(name);
  entry->calls++;
  bool fails = entry->failing_call > 0 && --entry->failing_call == 0;
  ncclResult_t result = fails ? entry->result : ncclSuccess;
  pthread_mutex_unlock(&g_nccl_lock);
  return result;
}

#define ENTER_NCCL(name)                             \
  do {                                               \
    ncclResult_t entered = enter(#name);             \
    if (entered != ncclSuccess) return entered;      \
  } while (0)

// --- for the tests ---------------------------------------------------------------------------------

void nccl_standin_reset(int version, int refuses_duplicates) {
  pthread_mutex_lock(&g_nccl_lock);
  memset(g_entries, 0, sizeof(g_entries));
  g_version = version;
  g_refuses_duplicates = refuses_duplicates != 0;
  g_async_error = ncclSuccess;
  pthread_mutex_unlock(&g_nccl_lock);
}

void nccl_standin_fail(const char* name, int nth_call, int result) {
  pthread_mutex_lock(&g_nccl_lock);
  find(name)->failing_call = nth_call;
  find(name)->result = (ncclResult_t)result;
  pthread_mutex_unlock(&g_nccl_lock);
}

// From now on every communicator says this of itself.
void nccl_standin_set_async_error(int result) {
  pthread_mutex_lock(&g_nccl_lock);
  g_async_error = (ncclResult_t)result;
  pthread_mutex_unlock(&g_nccl_lock);
}

int nccl_standin_calls(const char* name) {
  pthread_mutex_lock(&g_nccl_lock);
  int calls = find(name)->calls;
  pthread_mutex_unlock(&g_nccl_lock);
  return calls;
}

int nccl_standin_live(void) {
  pthread_mutex_lock(&g_nccl_lock);
  int live = g_live;
  pthread_mutex_unlock(&g_nccl_lock);
  return live;
}

// --- communicators -----------------------------------------------------------------------------------

const char* ncclGetErrorString(ncclResult_t result) {
  static const char* const texts[] = {
      "no error",         "unhandled cuda error", "unhandled system error", "internal error",
      "invalid argument", "invalid usage",        "remote process exited",  "NCCL operation in progress",
  };
  return result >= 0 && result <= ncclInProgress ? texts[result] : "unknown result code";
}

const char* ncclGetLastError(ncclComm_t comm) {
  (void)comm;
  return "the stand-in was asked to fail";
}

ncclResult_t ncclGetVersion(int* version) {
  ENTER_NCCL(ncclGetVersion);
  *version = g_version;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  ENTER_NCCL(ncclGetUniqueId);
  memset(id, 0x5A, sizeof(*id));  // no byte that a string would end at
  pthread_mutex_lock(&g_nccl_lock);
  memcpy(id->internal + 8, &g_next_id, sizeof(g_next_id));
  g_next_id++;
  pthread_mutex_unlock(&g_nccl_lock);
  return ncclSuccess;
}

static World* find_world(const ncclUniqueId* id, int count) {
  World* world = g_worlds;
  while (world && memcmp(&world->id, id, sizeof(*id)) != 0) world = world->next;
  if (world) return world;
  world = calloc(1, sizeof(*world));
  world->id = *id;
  world->count = count;
  world->next = g_worlds;
  g_worlds = world;
  return world;
}

static ncclResult_t join(World* world, int count, int rank, CUdevice device) {
  if (world->count != count || rank < 0 || rank >= count || count > MAX_RANKS) {
    return ncclInvalidArgument;
  }
  if (world->present[rank]) {
    COMPLAIN("ncclCommInitRankConfig: rank %d comes twice", rank);
    return ncclInvalidUsage;
  }
  for (int other = 0; other < count && g_refuses_duplicates; ++other) {
    if (world->present[other] && world->devices[other] == device) return ncclInvalidUsage;
  }
  world->present[rank] = true;
  world->devices[rank] = device;
  world->joined++;
  pthread_cond_broadcast(&g_nccl_changed);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* out_comm, int count, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  ENTER_NCCL(ncclCommInitRankConfig);
  CUcontext context;
  if (standin_current(&context) != CUDA_SUCCESS) return ncclUnhandledCudaError;
  if (config == NULL || config->magic != 0xcafebeef || config->size < 20) return ncclInvalidArgument;
  if (config->blocking) COMPLAIN("ncclCommInitRankConfig: it would block");
  pthread_mutex_lock(&g_nccl_lock);
  World* world = find_world(&id, count);
  ncclResult_t result = join(world, count, rank, context->device);
  if (result == ncclSuccess) {
    ncclComm_t comm = calloc(1, sizeof(*comm));
    *comm = (struct ncclComm){world, rank, context, true, false, ncclSuccess, 0, 0};
    *out_comm = comm;
    g_live++;
  }
  pthread_mutex_unlock(&g_nccl_lock);
  return result == ncclSuccess ? ncclInProgress : result;
}

static bool is_alive(ncclComm_t comm, const char* function) {
  if (comm == NULL || !comm->alive) COMPLAIN("%s: no communicator", function);
  return comm != NULL && comm->alive;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  ENTER_NCCL(ncclCommGetAsyncError);
  if (!is_alive(comm, "ncclCommGetAsyncError")) return ncclInvalidArgument;
  pthread_mutex_lock(&g_nccl_lock);
  *state = g_async_error;
  if (*state == ncclSuccess && comm->world->joined < comm->world->count) *state = ncclInProgress;
  pthread_mutex_unlock(&g_nccl_lock);
  return ncclSuccess;
}

// Handles stay as tombstones, worlds for good: jobs may still end.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  ncclResult_t result = enter("ncclCommAbort");  // a failure is only told
  if (!is_alive(comm, "ncclCommAbort")) return ncclInvalidArgument;
  pthread_mutex_lock(&g_nccl_lock);
  comm->alive = false;
  comm->aborted = true;
  g_live--;
  pthread_cond_broadcast(&g_nccl_changed);
  pthread_mutex_unlock(&g_nccl_lock);
  return result;
}

// --- calls -------------------------------------------------------------------------------------------

ncclResult_t ncclGroupStart(void) {
  ENTER_NCCL(ncclGroupStart);
  if (t_depth++ == 0) t_count = 0;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
  t_depth--;
  int count = t_count;
  t_count = 0;
  ENTER_NCCL(ncclGroupEnd);
  if (count == 0) return ncclSuccess;
  pthread_mutex_lock(&g_nccl_lock);
  ncclResult_t result = nccl_enqueue(t_comm, t_calls, count, t_stream);
  pthread_mutex_unlock(&g_nccl_lock);
  return result;
}

static ncclResult_t add(const char* function, Call call, ncclComm_t comm, CUstream stream) {
  ncclResult_t entered = enter(function);
  if (entered != ncclSuccess) return entered;
  if (!is_alive(comm, function)) return ncclInvalidArgument;
  if (t_depth != 1 || t_count == MAX_CALLS) {
    COMPLAIN("%s: outside of a group", function);
    return ncclInvalidUsage;
  }
  if (standin_check(stream, KIND_STREAM, function) != CUDA_SUCCESS) return ncclInvalidArgument;
  if (comm->world->joined < comm->world->count) {
    COMPLAIN("%s: the communicator is not ready", function);
    return ncclInvalidUsage;
  }
  bool is_wrong = call.type >= ncclNumTypes || call.reduction > ncclAvg || call.peer < 0 ||
                  call.peer >= comm->world->count;
  if (is_wrong) return ncclInvalidArgument;
  t_comm = comm;
  t_stream = stream;
  t_calls[t_count++] = call;
  return ncclSuccess;
}

ncclResult_t ncclAllGather(CUdeviceptr send, CUdeviceptr receive, size_t count, ncclDataType_t type,
                           ncclComm_t comm, CUstream stream) {
  Call call = {ALL_GATHER, send, receive, count, type, ncclSum, 0};
  return add("ncclAllGather", call, comm, stream);
}

ncclResult_t ncclAllReduce(CUdeviceptr send, CUdeviceptr receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t reduction, ncclComm_t comm, CUstream stream) {
  Call call = {ALL_REDUCE, send, receive, count, type, reduction, 0};
  return add("ncclAllReduce", call, comm, stream);
}

ncclResult_t ncclBroadcast(CUdeviceptr send, CUdeviceptr receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, CUstream stream) {
  Call call = {BROADCAST, send, receive, count, type, ncclSum, root};
  return add("ncclBroadcast", call, comm, stream);
}

ncclResult_t ncclReduce(CUdeviceptr send, CUdeviceptr receive, size_t count, ncclDataType_t type,
                        ncclRedOp_t reduction, int root, ncclComm_t comm, CUstream stream) {
  Call call = {REDUCE, send, receive, count, type, reduction, root};
  return add("ncclReduce", call, comm, stream);
}

ncclResult_t ncclReduceScatter(CUdeviceptr send, CUdeviceptr receive, size_t count,
                               ncclDataType_t type, ncclRedOp_t reduction, ncclComm_t comm,
                               CUstream stream) {
  Call call = {REDUCE_SCATTER, send, receive, count, type, reduction, 0};
  return add("ncclReduceScatter", call, comm, stream);
}

ncclResult_t ncclSend(CUdeviceptr send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, CUstream stream) {
  return add("ncclSend", (Call){SEND, send, 0, count, type, ncclSum, peer}, comm, stream);
}

ncclResult_t ncclRecv(CUdeviceptr receive, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, CUstream stream) {
  return add("ncclRecv", (Call){RECV, 0, receive, count, type, ncclSum, peer}, comm, stream);
}
