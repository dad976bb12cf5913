// Whether results are what was expected, as `tilewright run` compares them.  Part of program.c.
#pragma once
#include "program_inputs.h"

typedef struct {
  double relative;
  double absolute;
} tolerance_t;

// As numpy.isclose says it, with NaN equal to NaN.
static bool is_close(double actual, double expected, const tolerance_t* tolerance) {
  if (isnan(actual) || isnan(expected)) return isnan(actual) && isnan(expected);
  if (isinf(actual) || isinf(expected)) return actual == expected;
  return fabs(actual - expected) <= tolerance->absolute + tolerance->relative * fabs(expected);
}

static void describe_type(FILE* file, const array_t* array) {
  fprintf(file, "%s[", array->type);
  for (int32_t i = 0; i < array->rank; ++i) fprintf(file, "%s%" PRId64, i ? ", " : "", array->shape[i]);
  fputc(']', file);
}

static bool has_type_of(const array_t* a, const array_t* b) {
  size_t bytes = (size_t)a->rank * sizeof(a->shape[0]);
  return !strcmp(a->type, b->type) && a->rank == b->rank && !memcmp(a->shape, b->shape, bytes);
}

// The place of an element in every axis.
static void print_place(FILE* file, const array_t* array, size_t element) {
  int64_t place[RANK_LIMIT];
  for (int32_t axis = array->rank; axis-- > 0;) {
    place[axis] = (int64_t)(element % (size_t)array->shape[axis]);
    element /= (size_t)array->shape[axis];
  }
  fputc('[', file);
  for (int32_t axis = 0; axis < array->rank; ++axis) fprintf(file, "%s%" PRId64, axis ? ", " : "", place[axis]);
  fputc(']', file);
}

// Says on standard error what differs.  Returns: whether nothing does.
static bool is_expected(uint32_t index, const array_t* actual, const array_t* expected, const tolerance_t* tolerance) {
  if (!has_type_of(actual, expected)) {
    fprintf(stderr, "mismatch: result[%" PRIu32 "]: got ", index);
    describe_type(stderr, actual);
    fputs(", expected ", stderr);
    describe_type(stderr, expected);
    fputc('\n', stderr);
    return false;
  }
  const type_t* type = type_of(actual->type, NULL);
  size_t count = actual->bytes / type->bytes, different = 0, first = 0;
  for (size_t i = 0; i < count; ++i) {
    double a = value_at(actual->data + i * type->bytes, type), b = value_at(expected->data + i * type->bytes, type);
    if (!is_close(a, b, tolerance) && !different++) first = i;
  }
  if (!different) return true;
  fprintf(stderr, "mismatch: result[%" PRIu32 "]: %zu of %zu elements differ, first at ", index, different, count);
  print_place(stderr, actual, first);
  size_t at = first * type->bytes;
  double got = value_at(actual->data + at, type), wanted = value_at(expected->data + at, type);
  // Of NaN the sign is not shown.
  fprintf(stderr, ": got %.6G, expected %.6G\n", isnan(got) ? (double)NAN : got, isnan(wanted) ? (double)NAN : wanted);
  return false;
}
