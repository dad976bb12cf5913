// The part of NVIDIA's library for collectives that the stand-in has: types and constants of its interface.
#ifndef TW_STANDIN_NCCL_API_H_
#define TW_STANDIN_NCCL_API_H_

#include <stddef.h>

typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
} ncclResult_t;

typedef enum { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg } ncclRedOp_t;

typedef enum {
  ncclInt8,
  ncclUint8,
  ncclInt32,
  ncclUint32,
  ncclInt64,
  ncclUint64,
  ncclFloat16,
  ncclFloat32,
  ncclFloat64,
  ncclBfloat16,
  ncclNumTypes,
} ncclDataType_t;

typedef struct {
  char internal[128];
} ncclUniqueId;

// As of version 2.14; what later ones added behind it is not read.
typedef struct {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
} ncclConfig_t;

typedef struct ncclComm* ncclComm_t;

#endif  // TW_STANDIN_NCCL_API_H_
