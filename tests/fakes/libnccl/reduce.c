// Reductions on host memory: integers wrap, averages truncate, narrow floats are summed in f32.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "standin_nccl.h"

size_t nccl_type_size(ncclDataType_t type) {
  static const size_t sizes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return sizes[type];
}

static float read_half(const uint16_t* bits) {
  _Float16 value;
  memcpy(&value, bits, sizeof(value));
  return (float)value;
}

static uint16_t write_half(float value) {
  _Float16 half = (_Float16)value;
  uint16_t bits;
  memcpy(&bits, &half, sizeof(bits));
  return bits;
}

static float read_bfloat(const uint16_t* bits) {
  uint32_t wide = (uint32_t)*bits << 16;
  float value;
  memcpy(&value, &wide, sizeof(value));
  return value;
}

static uint16_t write_bfloat(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return (uint16_t)(bits >> 16 | 0x40);
  bits += 0x7FFF + (bits >> 16 & 1);
  return (uint16_t)(bits >> 16);
}

// WIDE is what is computed in; READ and WRITE convert.
#define REDUCE(NAME, TYPE, WIDE, READ, WRITE)                                              \
  static void reduce_##NAME(ncclRedOp_t reduction, const void* const* sources, int ranks,  \
                            size_t count, void* target) {                                  \
    for (size_t i = 0; i < count; ++i) {                                                   \
      WIDE total = READ((const TYPE*)sources[0] + i);                                      \
      for (int rank = 1; rank < ranks; ++rank) {                                           \
        WIDE value = READ((const TYPE*)sources[rank] + i);                                 \
        if (reduction == ncclSum || reduction == ncclAvg) total = total + value;           \
        if (reduction == ncclProd) total = total * value;                                  \
        if (reduction == ncclMax) total = value > total ? value : total;                   \
        if (reduction == ncclMin) total = value < total ? value : total;                   \
      }                                                                                    \
      if (reduction == ncclAvg) total = total / (WIDE)ranks;                               \
      ((TYPE*)target)[i] = WRITE(total);                                                   \
    }                                                                                      \
  }

#define PLAIN(pointer) (*(pointer))
#define I8(value) ((int8_t)(value))
#define U8(value) ((uint8_t)(value))
#define SAME(value) (value)

// Bytes wrap before they are divided, so they are computed as bytes.
REDUCE(i8, int8_t, int8_t, PLAIN, I8)
REDUCE(u8, uint8_t, uint8_t, PLAIN, U8)
REDUCE(i32, int32_t, int32_t, PLAIN, SAME)
REDUCE(u32, uint32_t, uint32_t, PLAIN, SAME)
REDUCE(i64, int64_t, int64_t, PLAIN, SAME)
REDUCE(u64, uint64_t, uint64_t, PLAIN, SAME)
REDUCE(f16, uint16_t, float, read_half, write_half)
REDUCE(f32, float, float, PLAIN, SAME)
REDUCE(f64, double, double, PLAIN, SAME)
REDUCE(bf16, uint16_t, float, read_bfloat, write_bfloat)

void nccl_reduce(ncclDataType_t type, ncclRedOp_t reduction, const void* const* sources, int ranks,
                 size_t count, void* target) {
  static void (*const reduce[ncclNumTypes])(ncclRedOp_t, const void* const*, int, size_t, void*) = {
      reduce_i8,  reduce_u8,  reduce_i32, reduce_u32, reduce_i64,
      reduce_u64, reduce_f16, reduce_f32, reduce_f64, reduce_bf16,
  };
  // In place of any source: everything is read before anything is written.
  size_t bytes = count * nccl_type_size(type);
  void* result = malloc(bytes + 1);
  reduce[type](reduction, sources, ranks, count, result);
  memcpy(target, result, bytes);
  free(result);
}
