// The numbers of a program's tensors: their types, from text and to text.
//
// Part of program.c, which includes it; so are program_inputs.h, program_archive.h and program_outputs.h.
#pragma once
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


enum { RANK_LIMIT = 64, TEXT_LIMIT = 1024 };

typedef struct {
  const char* type;
  int64_t shape[RANK_LIMIT];
  int32_t rank;
  uint8_t* data;
  size_t bytes;
} array_t;

static _Noreturn void fail(const char* where, const char* what, const char* hint) {
  fprintf(stderr, "error: %s%s%s\n", where ? where : "", where ? ": " : "", what);
  if (hint) fprintf(stderr, "hint: %s\n", hint);
  exit(1);
}

static void* take(size_t bytes) {
  void* memory = calloc(bytes ? bytes : 1, 1);
  if (!memory) fail(NULL, "out of memory", NULL);
  return memory;
}

// --- types ---------------------------------------------------------------------------------------------------------

typedef enum { KIND_INT, KIND_UINT, KIND_FLOAT, KIND_BOOL } number_kind_t;

typedef struct {
  const char* name;
  const char* numpy;  // NULL: numpy has no such type
  size_t bytes;
  number_kind_t kind;
  int exponent_bits;  // of floats that C has no type for
  int mantissa_bits;
} type_t;

static const type_t types[] = {
    {"f32", "<f4", 4, KIND_FLOAT, 8, 23},  {"f64", "<f8", 8, KIND_FLOAT, 11, 52}, {"f16", "<f2", 2, KIND_FLOAT, 5, 10},
    {"bf16", NULL, 2, KIND_FLOAT, 8, 7},   {"i8", "|i1", 1, KIND_INT, 0, 0},      {"i16", "<i2", 2, KIND_INT, 0, 0},
    {"i32", "<i4", 4, KIND_INT, 0, 0},     {"i64", "<i8", 8, KIND_INT, 0, 0},     {"u8", "|u1", 1, KIND_UINT, 0, 0},
    {"u16", "<u2", 2, KIND_UINT, 0, 0},    {"u32", "<u4", 4, KIND_UINT, 0, 0},    {"u64", "<u8", 8, KIND_UINT, 0, 0},
    {"bool", "|b1", 1, KIND_BOOL, 0, 0},   {"i1", "|b1", 1, KIND_BOOL, 0, 0},     {"si8", "|i1", 1, KIND_INT, 0, 0},
    {"si16", "<i2", 2, KIND_INT, 0, 0},    {"si32", "<i4", 4, KIND_INT, 0, 0},    {"si64", "<i8", 8, KIND_INT, 0, 0},
    {"ui8", "|u1", 1, KIND_UINT, 0, 0},    {"ui16", "<u2", 2, KIND_UINT, 0, 0},   {"ui32", "<u4", 4, KIND_UINT, 0, 0},
    {"ui64", "<u8", 8, KIND_UINT, 0, 0},
};

static const type_t* find_type(const char* name, size_t length) {
  for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); ++i) {
    if (strlen(types[i].name) == length && !strncmp(types[i].name, name, length)) return &types[i];
  }
  return NULL;
}

static const type_t* type_of(const char* name, const char* where) {
  const type_t* type = find_type(name, strlen(name));
  if (!type) fail(where, "numbers of this type are neither read nor printed", "give the bytes: SHAPExTYPE=@file.bin");
  return type;
}

// A float of the given fields as a double, and the nearest one (ties to even) back.
static double widen(uint32_t bits, const type_t* type) {
  int m = type->mantissa_bits, e = type->exponent_bits;
  int exponent = (int)((bits >> m) & ((1u << e) - 1));
  int bias = (1 << (e - 1)) - 1;
  double fraction = (double)(bits & ((1u << m) - 1));
  double sign = bits >> (m + e) & 1 ? -1.0 : 1.0;
  if (exponent == (1 << e) - 1) return fraction != 0 ? (double)NAN : sign * (double)INFINITY;
  if (exponent == 0) return sign * ldexp(fraction, 1 - bias - m);
  return sign * ldexp(1.0 + ldexp(fraction, -m), exponent - bias);
}

static uint32_t narrow(double value, const type_t* type) {
  int m = type->mantissa_bits, e = type->exponent_bits;
  int bias = (1 << (e - 1)) - 1;
  uint32_t sign = signbit(value) ? 1u << (m + e) : 0;
  uint32_t infinity = ((1u << e) - 1) << m;
  if (isnan(value)) return sign | infinity | 1u << (m - 1);
  if (isinf(value)) return sign | infinity;
  int exponent = 0;
  frexp(value, &exponent);
  if (exponent < 2 - bias) exponent = 2 - bias;  // what has no exponent of its own shares the smallest
  double steps = rint(ldexp(fabs(value), m + 1 - exponent));
  double units = steps + ldexp((double)(exponent - 2 + bias), m);
  return sign | (units >= (double)infinity ? infinity : (uint32_t)units);
}

static void write_number(const char* word, uint8_t* place, const type_t* type, const char* where) {
  char* end = NULL;
  errno = 0;
  bool is_word = !strcmp(word, "true") || !strcmp(word, "false");
  if (type->kind == KIND_FLOAT && !is_word) {
    double value = strtod(word, &end);
    if (end == word || *end) fail(where, "bad value: expected numbers", NULL);
    float single = (float)value;
    uint16_t half = 0;
    if (type->bytes == 2) half = (uint16_t)narrow(value, type);
    const void* source = type->bytes == 8 ? (const void*)&value : type->bytes == 4 ? (const void*)&single : &half;
    memcpy(place, source, type->bytes);
    return;
  }
  bool is_unsigned = type->kind == KIND_UINT && word[0] != '-';
  uint64_t bits = 0;
  if (is_word) {
    bits = word[0] == 't';
  } else if (is_unsigned) {
    bits = strtoull(word, &end, 0);
  } else {
    bits = (uint64_t)strtoll(word, &end, 0);
  }
  if (!is_word && (end == word || *end)) fail(where, "bad value: expected whole numbers", NULL);
  int64_t wide = (int64_t)bits;
  int shift = (int)(64 - 8 * type->bytes);
  bool fits = !errno && (type->kind == KIND_UINT ? (is_unsigned || !wide) && bits << shift >> shift == bits
                                                  : wide == (int64_t)(bits << shift) >> shift);
  if (!fits) fail(where, "bad value: out of range for the type", NULL);
  if (type->kind == KIND_BOOL) bits = bits != 0;
  memcpy(place, &bits, type->bytes);  // little-endian, as all machines that code is made for
}

static uint64_t bits_at(const uint8_t* place, const type_t* type) {
  uint64_t bits = 0;
  memcpy(&bits, place, type->bytes);
  return bits;
}

static int64_t whole_at(const uint8_t* place, const type_t* type) {
  int shift = (int)(64 - 8 * type->bytes);
  return (int64_t)(bits_at(place, type) << shift) >> shift;
}

static double value_at(const uint8_t* place, const type_t* type) {
  double value = 0;
  float single = 0;
  uint16_t half = 0;
  if (type->kind == KIND_INT) return (double)whole_at(place, type);
  if (type->kind != KIND_FLOAT) return (double)bits_at(place, type);
  if (type->bytes == 8) memcpy(&value, place, 8);
  if (type->bytes == 4) value = (memcpy(&single, place, 4), (double)single);
  if (type->bytes == 2) value = (memcpy(&half, place, 2), widen(half, type));
  return value;
}

static void print_number(const uint8_t* place, const type_t* type) {
  if (type->kind == KIND_INT) {
    printf("%" PRId64, whole_at(place, type));
  } else if (type->kind != KIND_FLOAT) {
    printf("%" PRIu64, bits_at(place, type));
  } else if (isnan(value_at(place, type))) {
    fputs("NAN", stdout);
  } else {
    printf("%.6G", value_at(place, type));
  }
}
