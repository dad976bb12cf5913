// What the files of the stand-in for NCCL share: communicators, jobs of streams, the arithmetic.
//
// Ranks are threads of one process: a job in the stream of each rank waits for the jobs of the
// others; the last one moves the data of all.  A job ends early when its communicator is aborted.
// The GPU is the stand-in for libcuda, which this library is linked to.
#ifndef TW_STANDIN_NCCL_H_
#define TW_STANDIN_NCCL_H_

#include <stdbool.h>

#include "../libcuda/standin.h"
#include "nccl_api.h"

#define MAX_RANKS 16
#define MAX_CALLS 64

typedef enum { ALL_GATHER, ALL_REDUCE, BROADCAST, REDUCE, REDUCE_SCATTER, SEND, RECV } NcclKind;

typedef struct {
  NcclKind kind;
  CUdeviceptr send, receive;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t reduction;
  int peer;  // or root
} Call;

// What all ranks do at one turn; lives until every rank has left it.
typedef struct Meeting {
  struct Meeting* next;
  long turn;
  int arrived, left;
  bool done;
  Call calls[MAX_RANKS];
} Meeting;

// Memory that a rank sends to another, in the order of the pair.
typedef struct Parcel {
  struct Parcel* next;
  int source, target;
  CUdeviceptr memory;
  size_t count;
  ncclDataType_t type;
  bool taken;
} Parcel;

typedef struct World {
  struct World* next;
  ncclUniqueId id;
  int count, joined, aborted;
  bool present[MAX_RANKS];
  CUdevice devices[MAX_RANKS];
  Meeting* meetings;
  Parcel* parcels;
} World;

struct ncclComm {
  World* world;
  int rank;
  CUcontext context;
  bool alive;
  bool aborted;
  ncclResult_t error;
  int jobs;  // in streams
  long turn;
};

extern pthread_mutex_t g_nccl_lock;
extern pthread_cond_t g_nccl_changed;

#define COMPLAIN(...)            \
  do {                           \
    LOCK();                      \
    standin_misuse(__VA_ARGS__); \
    UNLOCK();                    \
  } while (0)

void nccl_wait(void);  // for a change, or a while: contexts that fail tell nobody
size_t nccl_type_size(ncclDataType_t type);

// reduce.c: the values of all ranks become one, in the order of the ranks.
void nccl_reduce(ncclDataType_t type, ncclRedOp_t reduction, const void* const* sources, int ranks,
                 size_t count, void* target);

// jobs.c
ncclResult_t nccl_enqueue(ncclComm_t comm, const Call* calls, int count, CUstream stream);

#endif  // TW_STANDIN_NCCL_H_
