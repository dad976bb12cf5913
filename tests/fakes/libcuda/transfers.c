// Copies and fills in streams.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "standin.h"

typedef struct {
  Operation base;
  CUdeviceptr target, source;
  void* host_target;
  size_t size;
  CUDA_MEMSET_NODE_PARAMS fill;
  char data[];  // what came from the host: pageable memory is read before the call returns
} Transfer;

static Transfer* new_transfer(size_t size, size_t data_bytes) {
  Transfer* transfer = calloc(1, sizeof(Transfer) + data_bytes);
  transfer->size = size;
  return transfer;
}

// --- copies ------------------------------------------------------------------------------------

CUresult standin_copy(CUdeviceptr target, CUdeviceptr source, size_t size) {
  void* to = standin_resolve(target, size, "copy: target");
  void* from = standin_resolve(source, size, "copy: source");
  if (to == NULL || from == NULL) return CUDA_ERROR_ILLEGAL_ADDRESS;
  memmove(to, from, size);
  return CUDA_SUCCESS;
}

static CUresult run_to_device(Operation* operation) {
  Transfer* transfer = (Transfer*)operation;
  void* to = standin_resolve(transfer->target, transfer->size, "copy: target");
  if (to == NULL) return CUDA_ERROR_ILLEGAL_ADDRESS;
  memcpy(to, transfer->data, transfer->size);
  return CUDA_SUCCESS;
}

static CUresult run_to_host(Operation* operation) {
  Transfer* transfer = (Transfer*)operation;
  void* from = standin_resolve(transfer->source, transfer->size, "copy: source");
  if (from == NULL) return CUDA_ERROR_ILLEGAL_ADDRESS;
  memcpy(transfer->host_target, from, transfer->size);
  return CUDA_SUCCESS;
}

static CUresult run_on_device(Operation* operation) {
  Transfer* transfer = (Transfer*)operation;
  return standin_copy(transfer->target, transfer->source, transfer->size);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr target, const void* source, size_t size, CUstream stream) {
  ENTER(cuMemcpyHtoDAsync);
  CURRENT(context);
  CHECK(stream, KIND_STREAM);
  Transfer* transfer = new_transfer(size, size);
  transfer->target = target;
  memcpy(transfer->data, source, size);
  return standin_enqueue(stream, &transfer->base, "copy", run_to_device);
}

CUresult cuMemcpyDtoHAsync(void* target, CUdeviceptr source, size_t size, CUstream stream) {
  ENTER(cuMemcpyDtoHAsync);
  CURRENT(context);
  CHECK(stream, KIND_STREAM);
  Transfer* transfer = new_transfer(size, 0);
  transfer->host_target = target;
  transfer->source = source;
  return standin_enqueue(stream, &transfer->base, "copy", run_to_host);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr target, CUdeviceptr source, size_t size, CUstream stream) {
  ENTER(cuMemcpyDtoDAsync);
  CURRENT(context);
  CHECK(stream, KIND_STREAM);
  Transfer* transfer = new_transfer(size, 0);
  transfer->target = target;
  transfer->source = source;
  return standin_enqueue(stream, &transfer->base, "copy", run_on_device);
}

// --- fills -------------------------------------------------------------------------------------

static void fill_row(char* row, unsigned int value, size_t element_bytes, size_t count) {
  for (size_t i = 0; i < count; ++i) memcpy(row + i * element_bytes, &value, element_bytes);
}

CUresult standin_fill(const CUDA_MEMSET_NODE_PARAMS* fill) {
  size_t row_bytes = fill->width * fill->elementSize;
  if (row_bytes == 0 || fill->height == 0) return CUDA_SUCCESS;
  size_t size = fill->height == 1 ? row_bytes : (fill->height - 1) * fill->pitch + row_bytes;
  char* to = standin_resolve(fill->dst, size, "fill");
  if (to == NULL) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (size_t y = 0; y < fill->height; ++y) {
    fill_row(to + y * fill->pitch, fill->value, fill->elementSize, fill->width);
  }
  return CUDA_SUCCESS;
}

static CUresult run_fill(Operation* operation) {
  return standin_fill(&((Transfer*)operation)->fill);
}

static CUresult enqueue_fill(CUstream stream, CUDA_MEMSET_NODE_PARAMS fill) {
  CURRENT(context);
  CHECK(stream, KIND_STREAM);
  if (fill.dst % fill.elementSize != 0) return CUDA_ERROR_INVALID_VALUE;
  Transfer* transfer = new_transfer(0, 0);
  transfer->fill = fill;
  return standin_enqueue(stream, &transfer->base, "fill", run_fill);
}

CUresult cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t count, CUstream stream) {
  ENTER(cuMemsetD8Async);
  return enqueue_fill(stream, (CUDA_MEMSET_NODE_PARAMS){target, 0, value, 1, count, 1});
}

CUresult cuMemsetD16Async(CUdeviceptr target, unsigned short value, size_t count,
                          CUstream stream) {
  ENTER(cuMemsetD16Async);
  return enqueue_fill(stream, (CUDA_MEMSET_NODE_PARAMS){target, 0, value, 2, count, 1});
}

CUresult cuMemsetD32Async(CUdeviceptr target, unsigned int value, size_t count, CUstream stream) {
  ENTER(cuMemsetD32Async);
  return enqueue_fill(stream, (CUDA_MEMSET_NODE_PARAMS){target, 0, value, 4, count, 1});
}

CUresult cuMemsetD2D8Async(CUdeviceptr target, size_t pitch, unsigned char value, size_t width,
                           size_t height, CUstream stream) {
  ENTER(cuMemsetD2D8Async);
  if (width > pitch) return CUDA_ERROR_INVALID_VALUE;
  return enqueue_fill(stream, (CUDA_MEMSET_NODE_PARAMS){target, pitch, value, 1, width, height});
}
