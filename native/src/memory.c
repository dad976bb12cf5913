#include "tw_memory.h"

#if !defined(_WIN32)  // else memory_windows.c

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tw_fault.h"

// From MAPPED_BYTES on a block is a mapping of its own, so that giving it back gives it to the system.
enum { MAPPED_BYTES = 128 << 10, HUGE_PAGE_BYTES = 2 << 20 };

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

// A zeroed block of whole pages at a huge-page boundary: map more than needed, give back the ends.
static tw_status_t allocate_large(size_t size_bytes, void** out_block) {
  const size_t page = page_bytes();
  if (size_bytes > SIZE_MAX - HUGE_PAGE_BYTES - page) return TW_STATUS_NO_MEMORY;
  const size_t length = (size_bytes + page - 1) / page * page;
  uint8_t* raw = mmap(NULL, length + HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return TW_STATUS_NO_MEMORY;
  const size_t head = (size_t)(-(uintptr_t)raw & (HUGE_PAGE_BYTES - 1));
  if (head != 0) munmap(raw, head);
  if (head != HUGE_PAGE_BYTES) munmap(raw + head + length, HUGE_PAGE_BYTES - head);
#ifdef MADV_HUGEPAGE
  madvise(raw + head, length, MADV_HUGEPAGE);
#endif
  *out_block = raw + head;
  return TW_STATUS_OK;
}

static tw_status_t allocate_pages(size_t size_bytes, void** out_block) {
  void* block = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) return TW_STATUS_NO_MEMORY;
  *out_block = block;
  return TW_STATUS_OK;
}

tw_status_t tw_memory_allocate(size_t size_bytes, void** out_block) {
  if (size_bytes >= HUGE_PAGE_BYTES) return allocate_large(size_bytes, out_block);
  if (size_bytes >= MAPPED_BYTES) return allocate_pages(size_bytes, out_block);
  void* block = NULL;
  if (posix_memalign(&block, TW_MEMORY_ALIGNMENT, size_bytes == 0 ? 1 : size_bytes) != 0) {
    return TW_STATUS_NO_MEMORY;
  }
  memset(block, 0, size_bytes);
  *out_block = block;
  return TW_STATUS_OK;
}

void tw_memory_free(void* block, size_t size_bytes) {
  if (block == NULL) return;
  if (size_bytes < MAPPED_BYTES) {
    free(block);
    return;
  }
  const size_t page = page_bytes();
  munmap(block, (size_bytes + page - 1) / page * page);
}

static tw_status_t map_descriptor(int descriptor, uint64_t offset, size_t size_bytes, tw_message_t* message,
                                  tw_file_mapping_t* out_mapping) {
  struct stat info;
  if (fstat(descriptor, &info) != 0) return tw_message_write(message, TW_STATUS_SYSTEM, "%s", strerror(errno));
  if (S_ISDIR(info.st_mode)) return tw_message_write(message, TW_STATUS_INVALID, "is a folder, expected a file");
  if (!S_ISREG(info.st_mode)) return tw_message_write(message, TW_STATUS_INVALID, "is a device or a pipe, expected a file");
  const uint64_t file_bytes = (uint64_t)info.st_size;
  if (offset > file_bytes || (size_bytes != SIZE_MAX && size_bytes > file_bytes - offset)) {
    return tw_message_write(message, TW_STATUS_INVALID,
                            "range of %llu bytes at offset %llu ends after the file's %llu bytes",
                            (unsigned long long)size_bytes, (unsigned long long)offset,
                            (unsigned long long)file_bytes);
  }
  const size_t length = size_bytes == SIZE_MAX ? (size_t)(file_bytes - offset) : size_bytes;
  const size_t lead = (size_t)(offset % page_bytes());
  *out_mapping = (tw_file_mapping_t){.data = "", .size_bytes = length};
  if (length == 0) return TW_STATUS_OK;
  void* base = mmap(NULL, length + lead, PROT_READ, MAP_SHARED, descriptor, (off_t)(offset - lead));
  if (base == MAP_FAILED) return tw_message_write(message, TW_STATUS_SYSTEM, "%s", strerror(errno));
#ifdef MADV_HUGEPAGE
  // Weights are read from end to end in every call.  What is not in memory yet is then read in huge pages where the
  // file system has them; where it has none, nothing changes.
  if (length >= HUGE_PAGE_BYTES) madvise(base, length + lead, MADV_HUGEPAGE);
#endif
  out_mapping->data = (const uint8_t*)base + lead;
  out_mapping->map_base = base;
  out_mapping->map_size_bytes = length + lead;
  return TW_STATUS_OK;
}

tw_status_t tw_file_mapping_create(const char* path, uint64_t offset, size_t size_bytes, tw_message_t* message,
                                   tw_file_mapping_t* out_mapping) {
  // Opening a pipe would wait for somebody to write into it.
  const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return tw_message_write(message, TW_STATUS_SYSTEM, "%s", strerror(errno));
  const tw_status_t status = map_descriptor(descriptor, offset, size_bytes, message, out_mapping);
  const int saved = errno;
  close(descriptor);
  errno = saved;
  if (status == TW_STATUS_OK && out_mapping->map_base != NULL) {
    tw_fault_guard(out_mapping->map_base, out_mapping->map_size_bytes, path);
  }
  return status;
}

void tw_file_mapping_destroy(tw_file_mapping_t* mapping) {
  if (mapping->map_base != NULL) {
    tw_fault_release(mapping->map_base);
    munmap(mapping->map_base, mapping->map_size_bytes);
  }
  *mapping = (tw_file_mapping_t){0};
}

#endif
