// Tensors of the command line: 2x3xf32=1 2 3 4 5 6, @file.npy, 2x3xf32=@file.bin.  Part of program.c.
#pragma once
#include "program_numbers.h"

static size_t elements_of(const int64_t* shape, int32_t rank, const char* where) {
  uint64_t count = 1;
  bool is_empty = false;
  for (int32_t i = 0; i < rank; ++i) {
    if (shape[i] < 0) fail(where, "a size is negative", NULL);
    if (shape[i] == 0) is_empty = true;
  }
  for (int32_t i = 0; i < rank && !is_empty; ++i) {
    if (count > (UINT64_C(1) << 48) / (uint64_t)shape[i]) fail(where, "too many elements", NULL);
    count *= (uint64_t)shape[i];
  }
  return is_empty ? 0 : (size_t)count;
}

static void allocate(array_t* array, const type_t* type, const char* where) {
  array->type = type->name[0] == 's' || (type->name[0] == 'u' && type->name[1] == 'i') ? type->name + 1 : type->name;
  if (!strcmp(type->name, "i1")) array->type = "bool";
  if (type->name[0] == 'u' && type->name[1] == 'i') {
    array->type = type->bytes == 1 ? "u8" : type->bytes == 2 ? "u16" : type->bytes == 4 ? "u32" : "u64";
  }
  array->bytes = elements_of(array->shape, array->rank, where) * type->bytes;
  array->data = take(array->bytes);
}

static FILE* open_file(const char* path, const char* mode, const char* where) {
  FILE* file = fopen(path, mode);
  if (!file) {
    char text[TEXT_LIMIT];
    snprintf(text, sizeof(text), "cannot open '%s': %s", path, strerror(errno));
    fail(where, text, NULL);
  }
  return file;
}

// What is read from front to back: a file, or a part of one that is in memory.
typedef struct {
  FILE* file;         // NULL: in memory
  const uint8_t* at;  // the next byte that is in memory
  size_t left;        // of these
} source_t;

static bool read_from(source_t* source, void* target, size_t bytes) {
  if (source->file) return fread(target, 1, bytes, source->file) == bytes;
  if (bytes > source->left) return false;
  memcpy(target, source->at, bytes);
  source->at += bytes;
  source->left -= bytes;
  return true;
}

static void read_bytes(source_t* source, array_t* array, const char* where) {
  if (!read_from(source, array->data, array->bytes)) fail(where, "the file is too short", NULL);
}

// What stands behind a key of the header of a .npy file: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
static const char* member(const char* header, const char* key, const char* where) {
  const char* found = strstr(header, key);
  if (!found) fail(where, "not a .npy file", NULL);
  found = strchr(found, ':');
  if (!found) fail(where, "not a .npy file", NULL);
  ++found;
  while (*found == ' ') ++found;
  return found;
}

// The header of a .npy file: text that ends with zero, to be freed.
static char* read_npy_head(source_t* source, const char* where) {
  unsigned char head[12];
  if (!read_from(source, head, 10) || memcmp(head, "\x93NUMPY", 6) != 0) fail(where, "not a .npy file", NULL);
  size_t length = (size_t)head[8] | (size_t)head[9] << 8;
  if (head[6] > 1) {
    if (!read_from(source, head + 10, 2)) fail(where, "not a .npy file", NULL);
    length |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
  }
  if (length > 1 << 20) fail(where, "not a .npy file", NULL);
  char* header = take(length + 1);
  if (!read_from(source, header, length)) fail(where, "not a .npy file", NULL);
  return header;
}

static const type_t* type_of_npy(const char* header, const char* where) {
  const char* descr = member(header, "'descr'", where);
  for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); ++i) {
    const char* numpy = types[i].numpy;
    size_t length = numpy ? strlen(numpy) : 0;
    if (numpy && descr[0] == '\'' && !strncmp(descr + 1, numpy, length) && descr[1 + length] == '\'') return &types[i];
  }
  fail(where, "arrays of this type are not read", "give the bytes: SHAPExTYPE=@file.bin");
}

// An array whose first axis runs fastest becomes one whose last axis does.
static void order_by_rows(array_t* array, size_t item_bytes) {
  size_t strides[RANK_LIMIT], step = item_bytes;
  int64_t index[RANK_LIMIT] = {0};
  for (int32_t axis = array->rank; axis-- > 0;) {
    strides[axis] = step;
    step *= (size_t)array->shape[axis];
  }
  uint8_t* rows = take(array->bytes);
  size_t place = 0;
  for (size_t at = 0; at < array->bytes; at += item_bytes) {
    memcpy(rows + place, array->data + at, item_bytes);
    for (int32_t axis = 0; axis < array->rank; ++axis) {
      place += strides[axis];
      if (++index[axis] < array->shape[axis]) break;
      place -= strides[axis] * (size_t)array->shape[axis];
      index[axis] = 0;
    }
  }
  free(array->data);
  array->data = rows;
}

static void read_npy(source_t* source, array_t* array, const char* where) {
  char* header = read_npy_head(source, where);
  const type_t* type = type_of_npy(header, where);
  bool is_by_columns = !strncmp(member(header, "'fortran_order'", where), "True", 4);
  const char* at = member(header, "'shape'", where);
  if (*at++ != '(') fail(where, "not a .npy file", NULL);
  while (*at && *at != ')') {
    char* end = NULL;
    int64_t extent = strtoll(at, &end, 10);
    if (end == at || array->rank == RANK_LIMIT) fail(where, "not a .npy file", NULL);
    array->shape[array->rank++] = extent;
    at = end;
    while (*at == ',' || *at == ' ') ++at;
  }
  if (!source->file && elements_of(array->shape, array->rank, where) * type->bytes > source->left) {
    fail(where, "the file is too short", NULL);
  }
  allocate(array, type, where);
  read_bytes(source, array, where);
  if (is_by_columns) order_by_rows(array, type->bytes);
  free(header);
}

static void read_literal(const char* text, array_t* array, const type_t* type, const char* where) {
  allocate(array, type, where);
  size_t wanted = array->bytes / type->bytes, count = 0;
  char* copy = take(strlen(text) + 1);
  strcpy(copy, text);
  static const char* separators = " \t\n,[]";
  for (char* word = strtok(copy, separators); word; word = strtok(NULL, separators), ++count) {
    if (count == 0 && wanted == 0) continue;  // one value for no element
    if (count < wanted) write_number(word, array->data + count * type->bytes, type, where);
  }
  if (count > 1 ? count != wanted : false) {
    char message[TEXT_LIMIT];
    snprintf(message, sizeof(message), "got %zu values, expected %zu (or 1 for all)", count, wanted);
    fail(where, message, NULL);
  }
  for (size_t i = 1; count == 1 && i < wanted; ++i) memcpy(array->data + i * type->bytes, array->data, type->bytes);
  free(copy);
}

// The files of several values: one that begins with + goes on where the last read ended.
typedef struct {
  const char* path;
  FILE* file;
} opened_t;

typedef struct {
  opened_t* opened;  // room for one per value
  size_t count;
} files_t;

static source_t source_of(files_t* files, const char* marked_path, const char* where) {
  const char* path = marked_path + 1;
  size_t i = 0;
  while (i < files->count && strcmp(files->opened[i].path, path) != 0) ++i;
  opened_t* opened = &files->opened[i];
  bool is_open = i < files->count;
  if (is_open && marked_path[0] != '@') return (source_t){.file = opened->file};
  if (is_open) fclose(opened->file);
  *opened = (opened_t){.path = path, .file = open_file(path, "rb", where)};
  if (!is_open) ++files->count;
  return (source_t){.file = opened->file};
}

static void close_files(files_t* files) {
  for (size_t i = 0; i < files->count; ++i) fclose(files->opened[i].file);
  files->count = 0;
}

static bool has_more(FILE* file) {
  int next = getc(file);
  return next != EOF && ungetc(next, file) != EOF;
}

static void read_array(const char* value, array_t* array, files_t* files) {
  static const char* grammar = "write 2x3xf32=1 2 3 4 5 6, f32=1.5, @file.npy or 2x3xf32=@file.bin";
  memset(array, 0, sizeof(*array));
  if (value[0] == '@' || value[0] == '+') {
    source_t source = source_of(files, value, value);
    read_npy(&source, array, value);
    return;
  }
  const char* equals = strchr(value, '=');
  const char* end = equals ? equals : value + strlen(value);
  const char* at = value;
  if (!value[strspn(value, " ")]) fail("--input", "the value is empty", grammar);
  while (at < end && *at >= '0' && *at <= '9') {
    char* next = NULL;
    int64_t extent = strtoll(at, &next, 10);
    if (*next != 'x' || array->rank == RANK_LIMIT) break;
    array->shape[array->rank++] = extent;
    at = next + 1;
  }
  const type_t* type = find_type(at, (size_t)(end - at));
  if (!type && !equals) {  // a bare number
    array->rank = 0;
    type = find_type(value[strcspn(value, ".eEnN")] ? "f32" : "i32", 3);
    read_literal(value, array, type, value);
    return;
  }
  if (!type) fail(value, "not a tensor", grammar);
  if (equals && (equals[1] == '@' || equals[1] == '+')) {
    allocate(array, type, value);
    source_t source = source_of(files, equals + 1, value);
    read_bytes(&source, array, value);
    return;
  }
  read_literal(equals ? equals + 1 : "", array, type, value);
}

// A value that shares its files with no other.
static void read_alone(const char* value, array_t* array) {
  opened_t opened = {0};
  files_t files = {.opened = &opened};
  if (value[0] == '*') {
    source_t source = source_of(&files, value, value);
    read_npy(&source, array, value);
    if (has_more(source.file)) fail(value, "has several arrays, expected one", NULL);
  } else {
    read_array(value, array, &files);
  }
  close_files(&files);
}
