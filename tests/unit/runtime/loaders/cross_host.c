// Runs one kernel of an image on the machine it was made for, under an emulator.
//
// The image comes as the loader's own steps (bytes, relocations, protections), so that the core's image.c is what
// maps it; the results go to standard output.  Input, little-endian u64 unless said otherwise:
//   size, segment count, {offset, length, bytes}, relocation count, {offset, value, is base relative},
//   protection count, {offset, length, bits}, query offset, length of the kernel's name, name, grid x,
//   constant count, {u32}, binding count, {length, bytes}

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tw_executable.h"
#include "tw_image.h"

static void fail(const char* what) {
  fprintf(stderr, "cross_host: %s\n", what);
  exit(1);
}

static uint64_t number(void) {
  uint64_t value = 0;
  if (fread(&value, sizeof(value), 1, stdin) != 1) fail("short input");
  return value;
}

static void* bytes(uint64_t length) {
  void* data = aligned_alloc(64, ((size_t)length + 127) / 64 * 64);
  if (data == NULL || (length != 0 && fread(data, (size_t)length, 1, stdin) != 1)) fail("short input");
  return data;
}

int main(void) {
  tw_image_t* image = NULL;
  if (tw_image_create(number(), &image) != TW_STATUS_OK) fail("create");
  for (uint64_t n = number(); n != 0; --n) {
    const uint64_t offset = number(), length = number();
    void* data = bytes(length);
    if (tw_image_write(image, offset, data, (size_t)length) != TW_STATUS_OK) fail("write");
    free(data);
  }
  for (uint64_t n = number(); n != 0; --n) {
    const uint64_t offset = number(), value = number();
    if (tw_image_relocate(image, offset, value, (int)number()) != TW_STATUS_OK) fail("relocate");
  }
  for (uint64_t n = number(); n != 0; --n) {
    const uint64_t offset = number(), length = number();
    if (tw_image_protect(image, offset, length, (uint32_t)number()) != TW_STATUS_OK) fail("protect");
  }
  if (tw_image_seal(image) != TW_STATUS_OK) fail("seal");
  const tw_environment_t environment = {0};
  const tw_library_query_t query = (tw_library_query_t)(uintptr_t)(tw_image_base(image) + number());
  const void* const* library = query(6, &environment);
  if (library == NULL) fail("query");
  // header, import count and names, export count, functions, attributes, parameters, occupancy, names
  const uint64_t name_length = number();
  const char* name = bytes(name_length);
  const char* const* names = library[8];
  uint32_t ordinal = 0;
  while (strlen(names[ordinal]) != name_length || memcmp(names[ordinal], name, name_length) != 0) {
    if (++ordinal == *(const uint32_t*)&library[3]) fail("no such kernel");
  }
  const tw_kernel_t kernel = ((const tw_kernel_t*)library[4])[ordinal];
  const uint8_t* attributes = (const uint8_t*)library[5] + 64 * ordinal;
  const uint32_t local_bytes = 4096u * *(const uint16_t*)(attributes + 8);
  void* local_memory = aligned_alloc(64, local_bytes + 64);
  tw_dispatch_state_t dispatch = {.workgroup_size_x = 1, .workgroup_size_y = 1, .workgroup_size_z = 1,
                                  .workgroup_count_x = (uint32_t)number(), .workgroup_count_y = 1,
                                  .workgroup_count_z = 1, .max_concurrency = 1};
  dispatch.constant_count = (uint16_t)number();
  dispatch.constants = bytes((uint64_t)dispatch.constant_count * 4);
  dispatch.binding_count = (uint8_t)number();
  void* pointers[64];
  size_t lengths[64];
  for (int i = 0; i < dispatch.binding_count; ++i) {
    lengths[i] = (size_t)number();
    pointers[i] = bytes(lengths[i]);
  }
  dispatch.binding_pointers = pointers;
  dispatch.binding_lengths = lengths;
  for (uint32_t x = 0; x < dispatch.workgroup_count_x; ++x) {
    const tw_workgroup_state_t group = {
        .workgroup_id_x = x, .local_memory = local_memory, .local_memory_size = local_bytes};
    if (kernel(&environment, &dispatch, &group) != 0) fail("the kernel failed");
  }
  for (int i = 0; i < dispatch.binding_count; ++i) fwrite(pointers[i], lengths[i], 1, stdout);
  tw_image_destroy(image);
  return 0;
}
