// What is done with results: printed as IREE does, or written to files.  Part of program.c.
#pragma once
#include "program_archive.h"

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

enum { NPY_HEAD_LIMIT = RANK_LIMIT * 24 + 256 };

// Returns: how many bytes of `head` are what stands before the numbers in a .npy file.
static size_t write_npy_head(char* head, const array_t* array, const char* where) {
  const type_t* type = type_of(array->type, where);
  if (!type->numpy) fail(where, "numpy has no such type", "write the bytes: @file.bin");
  char* text = head + 10;
  size_t room = NPY_HEAD_LIMIT - 10 - 64;
  size_t length = (size_t)snprintf(text, room, "{'descr': '%s', 'fortran_order': False, 'shape': (", type->numpy);
  for (int32_t i = 0; i < array->rank; ++i) {
    const char* separator = i ? ", " : "";
    length += (size_t)snprintf(text + length, room - length, "%s%" PRId64, separator, array->shape[i]);
  }
  length += (size_t)snprintf(text + length, room - length, "%s), }", array->rank == 1 ? "," : "");
  while ((10 + length + 1) % 64) text[length++] = ' ';
  text[length++] = '\n';
  memcpy(head, "\x93NUMPY\x01\x00", 8);
  head[8] = (char)(length & 0xFF);
  head[9] = (char)(length >> 8);
  return 10 + length;
}

static void close_written(FILE* file, const char* where) {
  bool is_whole = !ferror(file);
  if (fclose(file) || !is_whole) fail(where, "cannot write the file", NULL);
}

// Writes `@file` anew and goes on at the end of `+file`.
static void write_array(const char* output, const array_t* array) {
  const char* path = output + 1;
  size_t length = strlen(path);
  FILE* file = open_file(path, output[0] == '+' ? "ab" : "wb", output);
  if (length > 4 && !strcmp(path + length - 4, ".npy")) {
    char head[NPY_HEAD_LIMIT];
    size_t bytes = write_npy_head(head, array, output);
    fwrite(head, 1, bytes, file);
  }
  fwrite(array->data, 1, array->bytes, file);
  close_written(file, output);
}

// --- archives ------------------------------------------------------------------------------------------------------

// A member of an archive that is written: what its record of the directory says.
typedef struct {
  const char* name;
  uint64_t offset;
  uint64_t bytes;
  uint32_t checksum;
} member_t;

typedef struct {
  FILE* file;
  uint64_t offset;
} writer_t;

static void put_bytes(writer_t* writer, const void* data, size_t bytes) {
  fwrite(data, 1, bytes, writer->file);
  writer->offset += bytes;
}

static void put(writer_t* writer, uint64_t value, size_t bytes) {
  uint8_t data[8];
  for (size_t i = 0; i < bytes; ++i) data[i] = (uint8_t)(value >> (8 * i));
  put_bytes(writer, data, bytes);
}

static void put_name(writer_t* writer, const member_t* member) {
  put_bytes(writer, member->name, strlen(member->name));
  put_bytes(writer, ".npy", 4);
}

// What the record before a member and the one in the directory have in common.  All sizes are in the extra field.
static void put_record(writer_t* writer, const member_t* member, size_t extra_bytes) {
  put(writer, LONG_VERSION, 2);
  put(writer, NAMES_ARE_UTF8, 2);
  put(writer, STORED, 2);
  put(writer, 0, 2);
  put(writer, FIRST_DAY, 2);
  put(writer, member->checksum, 4);
  put(writer, UINT32_MAX, 4);
  put(writer, UINT32_MAX, 4);
  put(writer, strlen(member->name) + 4, 2);
  put(writer, extra_bytes, 2);
}

static void put_sizes(writer_t* writer, const member_t* member, size_t extra_bytes) {
  put(writer, 1, 2);
  put(writer, extra_bytes - 4, 2);
  put(writer, member->bytes, 8);
  put(writer, member->bytes, 8);
}

static void put_member(writer_t* writer, member_t* member, const array_t* array, const char* where) {
  char head[NPY_HEAD_LIMIT];
  size_t head_bytes = write_npy_head(head, array, where);
  if (strlen(member->name) > UINT16_MAX - 4) fail(where, "the name of an output is too long", NULL);
  member->offset = writer->offset;
  member->bytes = (uint64_t)head_bytes + array->bytes;
  member->checksum = checksum(checksum(0, head, head_bytes), array->data, array->bytes);
  put_bytes(writer, "PK\3\4", 4);
  put_record(writer, member, 20);
  put_name(writer, member);
  put_sizes(writer, member, 20);
  put_bytes(writer, head, head_bytes);
  put_bytes(writer, array->data, array->bytes);
}

static void put_entry(writer_t* writer, const member_t* member) {
  put_bytes(writer, "PK\1\2", 4);
  put(writer, LONG_VERSION, 2);
  put_record(writer, member, 28);
  put(writer, 0, 8);  // comment, disk, attributes
  put(writer, 0, 2);
  put(writer, UINT32_MAX, 4);
  put_name(writer, member);
  put_sizes(writer, member, 28);
  put(writer, member->offset, 8);
}

static void put_end(writer_t* writer, uint64_t directory, uint64_t count) {
  uint64_t end = writer->offset;
  put_bytes(writer, "PK\6\6", 4);
  put(writer, LONG_END_BYTES - 12, 8);
  put(writer, LONG_VERSION, 2);
  put(writer, LONG_VERSION, 2);
  put(writer, 0, 8);  // disks
  put(writer, count, 8);
  put(writer, count, 8);
  put(writer, end - directory, 8);
  put(writer, directory, 8);
  put_bytes(writer, "PK\6\7", 4);
  put(writer, 0, 4);
  put(writer, end, 8);
  put(writer, 1, 4);
  put_bytes(writer, "PK\5\6", 4);
  put(writer, 0, 4);
  put(writer, UINT32_MAX, 4);  // both counts
  put(writer, UINT64_MAX, 8);  // size and place of the directory
  put(writer, 0, 2);
}

// Arrays under their names, as numpy.load reads them; sizes are always those of 64 bits.
static void write_archive(const char* output, member_t* members, const array_t* arrays, size_t count) {
  writer_t writer = {.file = open_file(output + 1, "wb", output)};
  for (size_t i = 0; i < count; ++i) put_member(&writer, &members[i], &arrays[i], output);
  uint64_t directory = writer.offset;
  for (size_t i = 0; i < count; ++i) put_entry(&writer, &members[i]);
  put_end(&writer, directory, count);
  close_written(writer.file, output);
}
