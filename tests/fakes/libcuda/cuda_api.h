// The part of the CUDA driver interface (API version 11.3) that the driver under test calls.
// Names, values and layouts are NVIDIA's; the functions behind them are the stand-in's.
#ifndef TW_STANDIN_CUDA_API_H_
#define TW_STANDIN_CUDA_API_H_

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct Context* CUcontext;
typedef struct Stream* CUstream;
typedef struct Event* CUevent;
typedef struct Module* CUmodule;
typedef struct Function* CUfunction;
typedef struct Pool* CUmemoryPool;
typedef struct Graph* CUgraph;
typedef struct Node* CUgraphNode;
typedef struct Exec* CUgraphExec;
typedef struct {
  unsigned char bytes[16];
} CUuuid;

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_INVALID_PTX = 218,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
  CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_UNKNOWN = 999,
};

typedef struct {
  CUfunction func;
  unsigned int gridDimX, gridDimY, gridDimZ;
  unsigned int blockDimX, blockDimY, blockDimZ;
  unsigned int sharedMemBytes;
  void** kernelParams;
  void** extra;
} CUDA_KERNEL_NODE_PARAMS;

typedef struct {
  size_t srcXInBytes, srcY, srcZ, srcLOD;
  int srcMemoryType;
  const void* srcHost;
  CUdeviceptr srcDevice;
  void* srcArray;
  void* reserved0;
  size_t srcPitch, srcHeight;
  size_t dstXInBytes, dstY, dstZ, dstLOD;
  int dstMemoryType;
  void* dstHost;
  CUdeviceptr dstDevice;
  void* dstArray;
  void* reserved1;
  size_t dstPitch, dstHeight;
  size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D;

typedef struct {
  CUdeviceptr dst;
  size_t pitch;
  unsigned int value;
  unsigned int elementSize;
  size_t width;
  size_t height;
} CUDA_MEMSET_NODE_PARAMS;

typedef struct {
  int type;
  int id;
} CUmemLocation;

typedef struct {
  int allocType;
  int handleTypes;
  CUmemLocation location;
  void* win32SecurityAttributes;
  size_t maxSize;
  unsigned char reserved[56];
} CUmemPoolProps;

typedef struct {
  CUmemLocation location;
  int flags;
} CUmemAccessDesc;

// X(name, version it appeared in); the list behind cuGetProcAddress.
#define STANDIN_FUNCTIONS(X)                                                                  \
  X(cuInit, 2000)                                                                             \
  X(cuDriverGetVersion, 2020)                                                                 \
  X(cuGetErrorName, 6000)                                                                     \
  X(cuGetErrorString, 6000)                                                                   \
  X(cuDeviceGet, 2000)                                                                        \
  X(cuDeviceGetCount, 2000)                                                                   \
  X(cuDeviceGetName, 2000)                                                                    \
  X(cuDeviceGetUuid, 9020)                                                                    \
  X(cuDeviceTotalMem, 3020)                                                                   \
  X(cuDeviceGetAttribute, 2000)                                                               \
  X(cuDevicePrimaryCtxRetain, 7000)                                                           \
  X(cuDevicePrimaryCtxRelease, 11000)                                                         \
  X(cuCtxPushCurrent, 4000)                                                                   \
  X(cuCtxPopCurrent, 4000)                                                                    \
  X(cuCtxSetCurrent, 4000)                                                                    \
  X(cuStreamCreate, 2000)                                                                     \
  X(cuStreamDestroy, 4000)                                                                    \
  X(cuStreamSynchronize, 2000)                                                                \
  X(cuStreamWaitEvent, 3020)                                                                  \
  X(cuEventCreate, 2000)                                                                      \
  X(cuEventDestroy, 4000)                                                                     \
  X(cuEventRecord, 2000)                                                                      \
  X(cuEventSynchronize, 2000)                                                                 \
  X(cuEventElapsedTime, 2000)                                                                 \
  X(cuMemAlloc, 3020)                                                                         \
  X(cuMemFree, 3020)                                                                          \
  X(cuMemAllocManaged, 6000)                                                                  \
  X(cuMemPrefetchAsync, 8000)                                                                 \
  X(cuMemHostAlloc, 2020)                                                                     \
  X(cuMemFreeHost, 2000)                                                                      \
  X(cuMemHostGetDevicePointer, 3020)                                                          \
  X(cuMemHostRegister, 6050)                                                                  \
  X(cuMemHostUnregister, 4000)                                                                \
  X(cuMemPoolCreate, 11020)                                                                   \
  X(cuMemPoolDestroy, 11020)                                                                  \
  X(cuMemPoolSetAttribute, 11020)                                                             \
  X(cuMemPoolGetAttribute, 11020)                                                             \
  X(cuMemPoolTrimTo, 11020)                                                                   \
  X(cuMemAllocFromPoolAsync, 11020)                                                           \
  X(cuMemFreeAsync, 11020)                                                                    \
  X(cuMemcpyHtoDAsync, 3020)                                                                  \
  X(cuMemcpyDtoHAsync, 3020)                                                                  \
  X(cuMemcpyDtoDAsync, 3020)                                                                  \
  X(cuMemsetD8Async, 3020)                                                                    \
  X(cuMemsetD16Async, 3020)                                                                   \
  X(cuMemsetD32Async, 3020)                                                                   \
  X(cuMemsetD2D8Async, 3020)                                                                  \
  X(cuModuleLoadDataEx, 2010)                                                                 \
  X(cuModuleUnload, 2000)                                                                     \
  X(cuModuleGetFunction, 2000)                                                                \
  X(cuFuncSetAttribute, 9000)                                                                 \
  X(cuLaunchKernel, 4000)                                                                     \
  X(cuGraphCreate, 10000)                                                                     \
  X(cuGraphDestroy, 10000)                                                                    \
  X(cuGraphAddEmptyNode, 10000)                                                               \
  X(cuGraphAddKernelNode, 10000)                                                              \
  X(cuGraphAddMemcpyNode, 10000)                                                              \
  X(cuGraphAddMemsetNode, 10000)                                                              \
  X(cuGraphInstantiate, 11000)                                                                \
  X(cuGraphExecDestroy, 10000)                                                                \
  X(cuGraphExecKernelNodeSetParams, 10010)                                                    \
  X(cuGraphExecMemcpyNodeSetParams, 10020)                                                    \
  X(cuGraphExecMemsetNodeSetParams, 10020)                                                    \
  X(cuGraphLaunch, 10000)

CUresult cuInit(unsigned int flags);
CUresult cuDriverGetVersion(int* version);
CUresult cuGetErrorName(CUresult error, const char** text);
CUresult cuGetErrorString(CUresult error, const char** text);
CUresult cuGetProcAddress(const char* symbol, void** pfn, int version, uint64_t flags);

CUresult cuDeviceGet(CUdevice* device, int ordinal);
CUresult cuDeviceGetCount(int* count);
CUresult cuDeviceGetName(char* name, int length, CUdevice device);
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device);
CUresult cuDeviceTotalMem(size_t* bytes, CUdevice device);
CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device);
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device);
CUresult cuDevicePrimaryCtxRelease(CUdevice device);
CUresult cuCtxPushCurrent(CUcontext context);
CUresult cuCtxPopCurrent(CUcontext* context);
CUresult cuCtxSetCurrent(CUcontext context);

CUresult cuStreamCreate(CUstream* stream, unsigned int flags);
CUresult cuStreamDestroy(CUstream stream);
CUresult cuStreamSynchronize(CUstream stream);
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags);
CUresult cuEventCreate(CUevent* event, unsigned int flags);
CUresult cuEventDestroy(CUevent event);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuEventSynchronize(CUevent event);
CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end);

CUresult cuMemAlloc(CUdeviceptr* pointer, size_t size);
CUresult cuMemFree(CUdeviceptr pointer);
CUresult cuMemAllocManaged(CUdeviceptr* pointer, size_t size, unsigned int flags);
CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t size, CUdevice device, CUstream stream);
CUresult cuMemHostAlloc(void** pointer, size_t size, unsigned int flags);
CUresult cuMemFreeHost(void* pointer);
CUresult cuMemHostGetDevicePointer(CUdeviceptr* device, void* host, unsigned int flags);
CUresult cuMemHostRegister(void* pointer, size_t size, unsigned int flags);
CUresult cuMemHostUnregister(void* pointer);
CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties);
CUresult cuMemPoolDestroy(CUmemoryPool pool);
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void* value);
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void* value);
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr* pointer, size_t size, CUmemoryPool pool,
                                 CUstream stream);
CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream);
CUresult cuMemcpyHtoDAsync(CUdeviceptr target, const void* source, size_t size, CUstream stream);
CUresult cuMemcpyDtoHAsync(void* target, CUdeviceptr source, size_t size, CUstream stream);
CUresult cuMemcpyDtoDAsync(CUdeviceptr target, CUdeviceptr source, size_t size, CUstream stream);
CUresult cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t count, CUstream stream);
CUresult cuMemsetD16Async(CUdeviceptr target, unsigned short value, size_t count,
                          CUstream stream);
CUresult cuMemsetD32Async(CUdeviceptr target, unsigned int value, size_t count, CUstream stream);
CUresult cuMemsetD2D8Async(CUdeviceptr target, size_t pitch, unsigned char value, size_t width,
                           size_t height, CUstream stream);

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int option_count,
                            int* options, void** values);
CUresult cuModuleUnload(CUmodule module);
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name);
CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value);
CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void** parameters, void** extra);

CUresult cuGraphCreate(CUgraph* graph, unsigned int flags);
CUresult cuGraphDestroy(CUgraph graph);
CUresult cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                             size_t count);
CUresult cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                              size_t count, const CUDA_KERNEL_NODE_PARAMS* params);
CUresult cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                              size_t count, const CUDA_MEMCPY3D* params, CUcontext context);
CUresult cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                              size_t count, const CUDA_MEMSET_NODE_PARAMS* params,
                              CUcontext context);
CUresult cuGraphInstantiate(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log,
                            size_t log_bytes);
CUresult cuGraphExecDestroy(CUgraphExec exec);
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS* params);
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMCPY3D* params, CUcontext context);
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS* params,
                                        CUcontext context);
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream);

#endif  // TW_STANDIN_CUDA_API_H_
