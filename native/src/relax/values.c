#include "values.h"

#include <stdlib.h>
#include <string.h>

int tw_value_bytes(const int64_t* sizes, size_t rank, ffi_dtype_t dtype, int64_t* out_bytes) {
  int64_t bits = (int64_t)dtype.bits * dtype.lanes;
  int is_empty = bits == 0;
  int too_large = 0;
  for (size_t i = 0; i < rank; ++i) {
    if (sizes[i] < 0) return tw_error_keep("ArgumentValueError", "size %lld on axis %zu", (long long)sizes[i], i);
    if (sizes[i] == 0) is_empty = 1;
  }
  for (size_t i = 0; i < rank && !is_empty; ++i) too_large |= __builtin_mul_overflow(bits, sizes[i], &bits);
  too_large |= !is_empty && bits > INT64_MAX - 7;
  if (too_large) return tw_error_keep("ArgumentValueError", "a tensor of more bytes than there are addresses");
  *out_bytes = is_empty ? 0 : (bits + 7) / 8;
  return 0;
}

int tw_value_is_dense(const ffi_tensor_t* tensor) {
  if (tensor->strides == NULL) return 1;
  int64_t expected = 1;
  int dense = 1;
  for (int32_t axis = tensor->rank - 1; axis >= 0; --axis) {
    const int64_t extent = tensor->shape[axis];
    if (extent == 0) return 1;
    if (extent != 1 && tensor->strides[axis] != expected) dense = 0;
    expected *= extent;
  }
  return dense;
}

// ---- storages ---------------------------------------------------------------------------------------

typedef struct storage_t {
  ffi_managed_tensor_t managed;
  tw_relax_heap_t heap;
  tw_lease_t lease;
  int64_t size;
  int64_t stride;
} storage_t;

static void delete_storage(ffi_managed_tensor_t* managed) {
  storage_t* storage = managed->context;
  tw_heap_return(storage->heap.heap, &storage->lease);
  ffi_drop(&storage->heap.owner);
  free(storage);
}

static int fail_refused(const tw_refusal_t* refusal) {
  if (refusal->capacity_bytes == 0) {
    return tw_error_keep("DeviceError", "no memory for %zu bytes, %zu are in use", refusal->size_bytes,
                         refusal->in_use_bytes);
  }
  return tw_error_keep("DeviceError", "no memory for %zu bytes, %zu of %zu are in use", refusal->size_bytes,
                       refusal->in_use_bytes, refusal->capacity_bytes);
}

static int fail_no_memory(void) { return tw_error_keep("MemoryError", "out of memory"); }

// Hands a tensor to tvm-ffi, which frees it through its deleter when it is not taken either.
static int hand_over(ffi_managed_tensor_t* managed, ffi_any_t* out) {
  void* object = NULL;
  if (tw_ffi.tensor_from_dlpack(managed, 0, 0, &object) != 0) {
    managed->deleter(managed);
    return TW_RAISED;
  }
  *out = ffi_object(FFI_TENSOR, object);
  return 0;
}

int tw_value_storage(const tw_relax_heap_t* heap, int64_t size_bytes, ffi_any_t* out) {
  if (size_bytes < 0) {
    return tw_error_keep("ArgumentValueError", "a storage of %lld bytes", (long long)size_bytes);
  }
  storage_t* storage = malloc(sizeof(*storage));
  if (storage == NULL) return fail_no_memory();
  const tw_lease_request_t request = {.size_bytes = (size_t)size_bytes, .use = TW_MEMORY_TRANSIENT};
  tw_refusal_t refusal;
  if (tw_heap_lease(heap->heap, &request, &storage->lease, &refusal) != TW_STATUS_OK) {
    free(storage);
    return fail_refused(&refusal);
  }
  storage->heap = (tw_relax_heap_t){.heap = heap->heap, .owner = ffi_copy(&heap->owner)};
  storage->size = size_bytes;
  storage->stride = 1;
  storage->managed = (ffi_managed_tensor_t){
      .tensor = {.data = storage->lease.base,
                 .device_type = FFI_CPU,
                 .rank = 1,
                 .dtype = {.code = FFI_CODE_UINT, .bits = 8, .lanes = 1},
                 .shape = &storage->size,
                 .strides = &storage->stride},
      .context = storage,
      .deleter = delete_storage,
  };
  return hand_over(&storage->managed, out);
}

// ---- views ------------------------------------------------------------------------------------------

typedef struct view_t {
  ffi_managed_tensor_t managed;
  ffi_any_t owner;
  int64_t extents[];  // shape, then strides
} view_t;

static void delete_view(ffi_managed_tensor_t* managed) {
  view_t* view = managed->context;
  ffi_drop(&view->owner);
  free(view);
}

int tw_value_view(const ffi_any_t* owner, void* data, const int64_t* sizes, size_t rank, ffi_dtype_t dtype,
                  ffi_any_t* out) {
  if (rank > FFI_RANK_LIMIT) {
    return tw_error_keep("ArgumentValueError", "a tensor of rank %zu, at most %d", rank, (int)FFI_RANK_LIMIT);
  }
  view_t* view = malloc(sizeof(*view) + 2 * rank * sizeof(int64_t));
  if (view == NULL) return fail_no_memory();
  view->owner = ffi_copy(owner);
  view->managed = (ffi_managed_tensor_t){
      .tensor = {.data = data,
                 .device_type = FFI_CPU,
                 .rank = (int32_t)rank,
                 .dtype = dtype,
                 .shape = view->extents,
                 .strides = view->extents + rank},
      .context = view,
      .deleter = delete_view,
  };
  if (rank > 0) memcpy(view->extents, sizes, rank * sizeof(int64_t));
  uint64_t stride = 1;  // may wrap where the product of an empty tensor's sizes does; nobody reads it then
  for (size_t i = rank; i > 0; --i) {
    view->extents[rank + i - 1] = (int64_t)stride;
    stride *= (uint64_t)sizes[i - 1];
  }
  return hand_over(&view->managed, out);
}

int tw_value_tensor(const tw_relax_heap_t* heap, const int64_t* sizes, size_t rank, ffi_dtype_t dtype,
                    ffi_any_t* out) {
  int64_t size_bytes = 0;
  ffi_any_t storage = ffi_none();
  int code = tw_value_bytes(sizes, rank, dtype, &size_bytes);
  if (code == 0) code = tw_value_storage(heap, size_bytes, &storage);
  if (code == 0) code = tw_value_view(&storage, ffi_tensor(&storage)->data, sizes, rank, dtype, out);
  ffi_drop(&storage);
  return code;
}

int tw_value_shape(const int64_t* sizes, size_t rank, ffi_any_t* out) {
  ffi_any_t values[FFI_SIZES_LIMIT];
  if (rank > FFI_SIZES_LIMIT) {
    return tw_error_keep("ArgumentValueError", "a shape of rank %zu, at most %d", rank, (int)FFI_SIZES_LIMIT);
  }
  for (size_t i = 0; i < rank; ++i) values[i] = ffi_int(sizes[i]);
  return tw_ffi.call(tw_ffi.make_shape, values, (int32_t)rank, out);
}

// ---- what a caller gives ----------------------------------------------------------------------------

static int copy_tensor(const tw_relax_heap_t* heap, const ffi_tensor_t* from, ffi_any_t* out) {
  if (from->device_type != FFI_CPU || !tw_value_is_dense(from)) {
    return tw_error_keep("ArgumentValueError", "a borrowed tensor that is not a dense one of the CPU");
  }
  int64_t size_bytes = 0;
  int code = tw_value_bytes(from->shape, (size_t)from->rank, from->dtype, &size_bytes);
  if (code == 0) code = tw_value_tensor(heap, from->shape, (size_t)from->rank, from->dtype, out);
  if (code == 0 && size_bytes > 0) {
    memcpy(ffi_tensor(out)->data, (const char*)from->data + from->byte_offset, (size_t)size_bytes);
  }
  return code;
}

int tw_value_take(const tw_relax_heap_t* heap, const ffi_any_t* given, ffi_any_t* out) {
  const ffi_tensor_t* tensor = ffi_tensor(given);
  if (tensor == NULL) return tw_ffi.to_owned(given, out) == 0 ? 0 : TW_RAISED;
  if (given->type_index == FFI_DL_TENSOR) return copy_tensor(heap, tensor, out);
  for (int32_t i = 0; i < tensor->rank; ++i) {
    if (tensor->shape[i] != 0 || tensor->device_type != FFI_CPU) continue;
    return tw_value_view(given, tensor->data, tensor->shape, (size_t)tensor->rank, tensor->dtype, out);
  }
  *out = ffi_copy(given);
  return 0;
}
