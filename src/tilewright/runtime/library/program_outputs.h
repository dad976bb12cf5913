// What is done with results: printed as IREE does, or written to files.  Part of program.c.
#pragma once
#include "program_inputs.h"

static void print_elements(const array_t* array, const type_t* type, int32_t axis, size_t* at, int64_t* budget) {
  int64_t extent = array->shape[axis];
  if (axis == array->rank - 1) {
    for (int64_t i = 0; i < extent; ++i, ++*at) {
      if (i >= *budget) continue;
      if (i) putchar(' ');
      print_number(array->data + *at * type->bytes, type);
    }
    if (extent > (*budget > 0 ? *budget : 0)) fputs("...", stdout);
    *budget -= extent;
    return;
  }
  for (int64_t i = 0; i < extent; ++i) {
    if (*budget <= 0) {
      fputs("...", stdout);
      return;
    }
    putchar('[');
    print_elements(array, type, axis + 1, at, budget);
    putchar(']');
  }
}

static void print_array(const array_t* array, int64_t limit) {
  const type_t* type = type_of(array->type, NULL);
  for (int32_t i = 0; i < array->rank; ++i) printf("%" PRId64 "x", array->shape[i]);
  printf("%s=", type->kind == KIND_BOOL ? "i1" : type->name);
  size_t at = 0;
  if (array->rank) {
    print_elements(array, type, 0, &at, &limit);
  } else {
    print_number(array->data, type);
  }
  putchar('\n');
}

static void write_npy_head(FILE* file, const array_t* array, const char* where) {
  const type_t* type = type_of(array->type, where);
  if (!type->numpy) fail(where, "numpy has no such type", "write the bytes: @file.bin");
  char header[RANK_LIMIT * 24 + 128];
  int length = snprintf(header, sizeof(header), "{'descr': '%s', 'fortran_order': False, 'shape': (", type->numpy);
  for (int32_t i = 0; i < array->rank; ++i) {
    const char* separator = i ? ", " : "";
    length += snprintf(header + length, sizeof(header) - (size_t)length, "%s%" PRId64, separator, array->shape[i]);
  }
  length += snprintf(header + length, sizeof(header) - (size_t)length, "%s), }", array->rank == 1 ? "," : "");
  while ((10 + length + 1) % 64) header[length++] = ' ';
  header[length++] = '\n';
  fwrite("\x93NUMPY\x01\x00", 1, 8, file);
  fputc(length & 0xFF, file);
  fputc(length >> 8 & 0xFF, file);
  fwrite(header, 1, (size_t)length, file);
}

static void write_array(const char* output, const array_t* array) {
  const char* path = output + 1;
  size_t length = strlen(path);
  FILE* file = open_file(path, "wb", output);
  if (length > 4 && !strcmp(path + length - 4, ".npy")) write_npy_head(file, array, output);
  bool is_whole = fwrite(array->data, 1, array->bytes, file) == array->bytes;
  if (fclose(file) || !is_whole) fail(output, "cannot write the file", NULL);
}
