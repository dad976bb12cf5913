// Arithmetic on sizes, as `base/symbolic` has it: mathematical integers, `//` and `%` toward minus infinity.
//
// What does not fit 63 bits, and a quotient by zero, is TW_NO_SIZE, and so is whatever is computed with it: an
// error only for whoever needs that size.
#ifndef TW_SIZE_H_
#define TW_SIZE_H_

#include <stdint.h>

#define TW_NO_SIZE INT64_MIN

static inline int64_t tw_size_add(int64_t a, int64_t b) {
  int64_t sum = 0;
  return a == TW_NO_SIZE || b == TW_NO_SIZE || __builtin_add_overflow(a, b, &sum) ? TW_NO_SIZE : sum;
}

static inline int64_t tw_size_mul(int64_t a, int64_t b) {
  int64_t product = 0;
  return a == TW_NO_SIZE || b == TW_NO_SIZE || __builtin_mul_overflow(a, b, &product) ? TW_NO_SIZE : product;
}

static inline int64_t tw_size_floordiv(int64_t a, int64_t b) {
  if (a == TW_NO_SIZE || b == TW_NO_SIZE || b == 0) return TW_NO_SIZE;
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static inline int64_t tw_size_mod(int64_t a, int64_t b) {
  if (a == TW_NO_SIZE || b == TW_NO_SIZE || b == 0) return TW_NO_SIZE;
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

static inline int64_t tw_size_min(int64_t a, int64_t b) { return a < b ? a : b; }  // TW_NO_SIZE is below all

static inline int64_t tw_size_max(int64_t a, int64_t b) {
  if (a == TW_NO_SIZE || b == TW_NO_SIZE) return TW_NO_SIZE;
  return a > b ? a : b;
}

#endif  // TW_SIZE_H_
