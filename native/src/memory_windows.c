// Blocks and mappings on Windows; elsewhere memory.c.
#include "tw_memory.h"

#if defined(_WIN32)

#define WIN32_LEAN_AND_MEAN
#include <malloc.h>
#include <string.h>
#include <windows.h>

// From MAPPED_BYTES on a block is pages of its own, so that giving it back gives it to the system.
enum { MAPPED_BYTES = 128 << 10 };

tw_status_t tw_memory_allocate(size_t size_bytes, void** out_block) {
  if (size_bytes >= MAPPED_BYTES) {
    *out_block = VirtualAlloc(NULL, size_bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
    return *out_block == NULL ? TW_STATUS_NO_MEMORY : TW_STATUS_OK;
  }
  *out_block = _aligned_malloc(size_bytes == 0 ? 1 : size_bytes, TW_MEMORY_ALIGNMENT);
  if (*out_block == NULL) return TW_STATUS_NO_MEMORY;
  memset(*out_block, 0, size_bytes);
  return TW_STATUS_OK;
}

void tw_memory_free(void* block, size_t size_bytes) {
  if (block == NULL) return;
  if (size_bytes < MAPPED_BYTES) {
    _aligned_free(block);
  } else {
    VirtualFree(block, 0, MEM_RELEASE);
  }
}

static tw_status_t fail(tw_message_t* message) {
  return tw_message_write(message, TW_STATUS_SYSTEM, "system error %lu", GetLastError());
}

static tw_status_t map_range(HANDLE file, uint64_t offset, size_t size_bytes, tw_message_t* message,
                             tw_file_mapping_t* out_mapping) {
  LARGE_INTEGER found;
  SYSTEM_INFO system;
  if (!GetFileSizeEx(file, &found)) return fail(message);
  const uint64_t file_bytes = (uint64_t)found.QuadPart;
  if (offset > file_bytes || (size_bytes != SIZE_MAX && size_bytes > file_bytes - offset)) {
    return tw_message_write(message, TW_STATUS_INVALID,
                            "range of %llu bytes at offset %llu ends after the file's %llu bytes",
                            (unsigned long long)size_bytes, (unsigned long long)offset,
                            (unsigned long long)file_bytes);
  }
  GetSystemInfo(&system);
  const size_t length = size_bytes == SIZE_MAX ? (size_t)(file_bytes - offset) : size_bytes;
  const size_t lead = (size_t)(offset % system.dwAllocationGranularity);
  *out_mapping = (tw_file_mapping_t){.data = "", .size_bytes = length};
  if (length == 0) return TW_STATUS_OK;
  const HANDLE section = CreateFileMappingA(file, NULL, PAGE_READONLY, 0, 0, NULL);
  if (section == NULL) return fail(message);
  const uint64_t start = offset - lead;
  void* base = MapViewOfFile(section, FILE_MAP_READ, (DWORD)(start >> 32), (DWORD)start, length + lead);
  CloseHandle(section);
  if (base == NULL) return fail(message);
  out_mapping->data = (const uint8_t*)base + lead;
  out_mapping->map_base = base;
  out_mapping->map_size_bytes = length + lead;
  return TW_STATUS_OK;
}

tw_status_t tw_file_mapping_create(const char* path, uint64_t offset, size_t size_bytes, tw_message_t* message,
                                   tw_file_mapping_t* out_mapping) {
  const HANDLE file =
      CreateFileA(path, GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, NULL);
  if (file == INVALID_HANDLE_VALUE) return fail(message);
  if (GetFileType(file) != FILE_TYPE_DISK) {
    CloseHandle(file);
    return tw_message_write(message, TW_STATUS_INVALID, "is a device or a pipe, expected a file");
  }
  const tw_status_t status = map_range(file, offset, size_bytes, message, out_mapping);
  CloseHandle(file);
  return status;
}

void tw_file_mapping_destroy(tw_file_mapping_t* mapping) {
  if (mapping->map_base != NULL) UnmapViewOfFile(mapping->map_base);
  *mapping = (tw_file_mapping_t){0};
}

#endif
