// Archives of numpy (.npz): zip files whose members are stored .npy files.  Part of program.c.
//
// The whole file is in memory, so that pipes can be read, too; every place in it is checked before it is read.
// Source: PKWARE APPNOTE 6.3.10, 4.3 (the records) and 4.5.3 (sizes of 64 bits).
#pragma once
#include "program_inputs.h"

enum {
  END_BYTES = 22,
  LONG_END_BYTES = 56,
  LONG_END_PLACE_BYTES = 20,
  ENTRY_BYTES = 46,
  LOCAL_BYTES = 30,
  COMMENT_LIMIT = 65535,
  STORED = 0,
  LONG_VERSION = 45,  // of the format: sizes of 64 bits
  NAMES_ARE_UTF8 = 1 << 11,
  FIRST_DAY = 1 << 5 | 1,  // 1980-01-01
};

// Names are not ended by zero: they lie in the archive.
typedef struct {
  const char* name;  // without .npy
  size_t name_length;
  const uint8_t* data;
  size_t bytes;
  uint32_t checksum;
} entry_t;

typedef struct {
  uint8_t* data;
  size_t bytes;
  entry_t* entries;
  size_t count;
} archive_t;

static _Noreturn void not_an_archive(const char* where) { fail(where, "not a .npz file", "numpy.savez writes one"); }

static uint64_t number_at(const uint8_t* at, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value |= (uint64_t)at[i] << (8 * i);
  return value;
}

// The bytes from `offset` on, of which there are as many as asked for.
static const uint8_t* part_of(const archive_t* archive, uint64_t offset, uint64_t bytes, const char* where) {
  if (offset > archive->bytes || bytes > archive->bytes - offset) not_an_archive(where);
  return archive->data + offset;
}

static void read_whole(FILE* file, archive_t* archive, const char* where) {
  size_t space = 1 << 16;
  archive->data = take(space);
  for (;;) {
    archive->bytes += fread(archive->data + archive->bytes, 1, space - archive->bytes, file);
    // What never ends, as some devices, is refused before it fills the memory.
    if (archive->bytes < 2 || memcmp(archive->data, "PK", 2) != 0) not_an_archive(where);
    if (archive->bytes < space) break;
    if (space > SIZE_MAX / 2) fail(where, "too large", NULL);
    space *= 2;
    uint8_t* larger = realloc(archive->data, space);
    if (!larger) fail(where, "out of memory", NULL);
    archive->data = larger;
  }
  if (ferror(file)) fail(where, "cannot read the file", NULL);
}

// CRC-32 of what has the sum `before` (of nothing: 0) with more behind it.
static uint32_t checksum(uint32_t before, const void* data, size_t bytes) {
  static uint32_t table[256];
  for (uint32_t i = 0; i < 256 && !table[255]; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? UINT32_C(0xEDB88320) : 0);
    table[i] = value;
  }
  uint32_t sum = ~before;
  const uint8_t* at = data;
  for (size_t i = 0; i < bytes; ++i) sum = sum >> 8 ^ table[(sum ^ at[i]) & 0xFF];
  return ~sum;
}

// The last record, behind which is nothing but a comment.
static size_t find_end(const archive_t* archive, const char* where) {
  if (archive->bytes < END_BYTES) not_an_archive(where);
  size_t last = archive->bytes - END_BYTES;
  size_t first = last > COMMENT_LIMIT ? last - COMMENT_LIMIT : 0;
  for (size_t at = last + 1; at-- > first;) {
    const uint8_t* record = archive->data + at;
    if (!memcmp(record, "PK\5\6", 4) && number_at(record + 20, 2) == last - at) return at;
  }
  not_an_archive(where);
}

// A size or an offset of 32 bits, or of 64 in the extra field where that has no room for it.
static uint64_t wide_number(uint64_t value, const uint8_t** extra, const uint8_t* end, const char* where) {
  if (value != UINT32_MAX) return value;
  if (end - *extra < 8) not_an_archive(where);
  *extra += 8;
  return number_at(*extra - 8, 8);
}

// The part of an extra field with the sizes of 64 bits; empty where there is none.
static const uint8_t* find_wide(const uint8_t* extra, const uint8_t** end) {
  while (*end - extra >= 4) {
    size_t bytes = (size_t)number_at(extra + 2, 2);
    if (bytes > (size_t)(*end - extra) - 4) break;
    if (number_at(extra, 2) == 1) {
      *end = extra + 4 + bytes;
      return extra + 4;
    }
    extra += 4 + bytes;
  }
  return *end;
}

static _Noreturn void refuse(const char* where, const entry_t* entry, const char* what, const char* hint) {
  char text[TEXT_LIMIT];
  int length = entry->name_length < 200 ? (int)entry->name_length : 200;
  snprintf(text, sizeof(text), "array '%.*s' %s", length, entry->name, what);
  for (char* at = text; *at; ++at) {  // names come from the file: no control characters to the terminal
    if ((unsigned char)*at < ' ' || *at == 127) *at = '?';
  }
  fail(where, text, hint);
}

// One record of the directory.  Returns: its size.
static size_t read_entry(const archive_t* archive, uint64_t offset, entry_t* entry, const char* where) {
  static const char* suffix = ".npy";
  const uint8_t* record = part_of(archive, offset, ENTRY_BYTES, where);
  if (memcmp(record, "PK\1\2", 4) != 0) not_an_archive(where);
  size_t name_bytes = (size_t)number_at(record + 28, 2), extra_bytes = (size_t)number_at(record + 30, 2);
  size_t bytes = ENTRY_BYTES + name_bytes + extra_bytes + (size_t)number_at(record + 32, 2);
  part_of(archive, offset, bytes, where);
  entry->name = (const char*)record + ENTRY_BYTES;
  entry->name_length = name_bytes;
  size_t length = strlen(suffix);
  if (name_bytes >= length && !memcmp(entry->name + name_bytes - length, suffix, length)) entry->name_length -= length;
  if (number_at(record + 8, 2) & 1) refuse(where, entry, "is encrypted", "numpy.savez writes what is read");
  if (number_at(record + 10, 2) != STORED) {
    refuse(where, entry, "is compressed", "write it with numpy.savez, not savez_compressed");
  }
  const uint8_t* end = record + ENTRY_BYTES + name_bytes + extra_bytes;
  const uint8_t* wide = find_wide(end - extra_bytes, &end);
  uint64_t size = wide_number(number_at(record + 24, 4), &wide, end, where);
  uint64_t stored = wide_number(number_at(record + 20, 4), &wide, end, where);
  uint64_t place = wide_number(number_at(record + 42, 4), &wide, end, where);
  const uint8_t* local = part_of(archive, place, LOCAL_BYTES, where);
  if (size != stored || memcmp(local, "PK\3\4", 4) != 0) not_an_archive(where);
  uint64_t head = LOCAL_BYTES + number_at(local + 26, 2) + number_at(local + 28, 2);
  part_of(archive, place, head, where);
  entry->data = part_of(archive, place + head, size, where);
  entry->bytes = (size_t)size;
  entry->checksum = (uint32_t)number_at(record + 16, 4);
  return bytes;
}

// How many members there are and where their directory is.
static uint64_t find_directory(const archive_t* archive, uint64_t* count, const char* where) {
  size_t end = find_end(archive, where);
  *count = number_at(archive->data + end + 10, 2);
  uint64_t offset = number_at(archive->data + end + 16, 4);
  if (*count != UINT16_MAX && offset != UINT32_MAX) return offset;
  if (end < LONG_END_PLACE_BYTES) not_an_archive(where);
  const uint8_t* place = archive->data + end - LONG_END_PLACE_BYTES;
  if (memcmp(place, "PK\6\7", 4) != 0) return offset;
  const uint8_t* record = part_of(archive, number_at(place + 8, 8), LONG_END_BYTES, where);
  if (memcmp(record, "PK\6\6", 4) != 0) not_an_archive(where);
  *count = number_at(record + 32, 8);
  return number_at(record + 48, 8);
}

static archive_t open_archive(const char* path, const char* where) {
  archive_t archive = {0};
  FILE* file = open_file(path, "rb", where);
  read_whole(file, &archive, where);
  fclose(file);
  uint64_t count = 0;
  uint64_t offset = find_directory(&archive, &count, where);
  if (count > archive.bytes / ENTRY_BYTES) not_an_archive(where);
  archive.count = (size_t)count;
  archive.entries = take(archive.count * sizeof(entry_t));
  for (size_t i = 0; i < archive.count; ++i) offset += read_entry(&archive, offset, &archive.entries[i], where);
  return archive;
}

static void close_archive(archive_t* archive) {
  free(archive->entries);
  free(archive->data);
}

static bool is_called(const entry_t* entry, const char* name) {
  return strlen(name) == entry->name_length && !memcmp(name, entry->name, entry->name_length);
}

static bool is_archive(const char* value) {
  size_t length = strlen(value);
  return value[0] == '@' && length >= 4 && !strcmp(value + length - 4, ".npz");
}

static void read_member(const entry_t* entry, array_t* array, const char* where) {
  if (checksum(0, entry->data, entry->bytes) != entry->checksum) refuse(where, entry, "is damaged", NULL);
  source_t source = {.at = entry->data, .left = entry->bytes};
  read_npy(&source, array, where);
}
