// Aligned memory blocks and file mappings.
//
// Ownership: the caller frees what it got, with the size it asked for. Thread-safety: blocks are
// independent. Not here: what a device keeps and counts (tw_heap.h).
#ifndef TW_MEMORY_H_
#define TW_MEMORY_H_

#include <stddef.h>
#include <stdint.h>

#include "tw_status.h"

enum { TW_MEMORY_ALIGNMENT = 64 };

// A zeroed block aligned to 64 bytes; from 128 KiB on pages of its own; from 2 MiB on aligned to 2 MiB, with huge
// pages advised.
tw_status_t tw_memory_allocate(size_t size_bytes, void** out_block);
void tw_memory_free(void* block, size_t size_bytes);

// A read-only shared mapping of a file range. `offset` needs no alignment.
typedef struct tw_file_mapping_t {
  const void* data;
  size_t size_bytes;
  void* map_base;
  size_t map_size_bytes;
} tw_file_mapping_t;

// `size_bytes` SIZE_MAX means up to the end of the file. Fails with TW_STATUS_INVALID past its end.
tw_status_t tw_file_mapping_create(const char* path, uint64_t offset, size_t size_bytes, tw_message_t* message,
                                   tw_file_mapping_t* out_mapping);
void tw_file_mapping_destroy(tw_file_mapping_t* mapping);

#endif  // TW_MEMORY_H_
