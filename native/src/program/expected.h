// What the tensors of a call must be, in plain numbers. Private to the core.
//
// Almost every tensor of every call is just what is expected, which one short look at these rows tells. What does not
// fit them need not be wrong: whoever has the words for an error looks at it closer (packed.c, tensors.c).
#ifndef TW_PROGRAM_EXPECTED_H_
#define TW_PROGRAM_EXPECTED_H_

#include "tw_model.h"

// A tensor of the signature for one set of sizes.
typedef struct tw_expected_t {
  const int64_t* shape;
  const int64_t* strides;  // dense, in elements
  uintptr_t misaligned;    // the bits of an address that must be 0
  int32_t rank;            // -1: it has no elements, and these rows leave it to a closer look
  uint8_t type_code;
  uint8_t type_bits;
} tw_expected_t;

// A row per input, then per output, and the numbers behind them, in one block to be freed; NULL: out of memory.
tw_expected_t* tw_expected_create(const tw_program_t* program, const int64_t* sizes);

// Whether a tensor's memory and shape are surely right; its type and rank are compared before, field by field, where
// they lie. `strides` NULL: dense.
static inline int tw_expected_fits(const tw_expected_t* row, const void* data, const int64_t* shape,
                                   const int64_t* strides) {
  if (data == NULL || ((uintptr_t)data & row->misaligned) != 0) return 0;
  for (int32_t axis = 0; axis < row->rank; ++axis) {
    if (shape[axis] != row->shape[axis]) return 0;
    if (strides != NULL && strides[axis] != row->strides[axis]) return 0;
  }
  return 1;
}

#endif  // TW_PROGRAM_EXPECTED_H_
