// What command_list.c (recording) and replay.c (running) share. Private to the core.
#ifndef TW_COMMAND_LIST_INTERNAL_H_
#define TW_COMMAND_LIST_INTERNAL_H_

#include "tw_command_list.h"

// Copies and fills are cut into units of this many bytes; a multiple of every pattern length.
enum { TW_TRANSFER_UNIT_BYTES = 256 << 10 };

// Commands that may run at the same time; their units are numbered through.
typedef struct tw_batch_t {
  uint32_t first;
  uint32_t end;
  uint64_t unit_count;
} tw_batch_t;

struct tw_command_list_t {
  tw_slot_t* slots;
  tw_binding_t* bindings;
  tw_command_t* commands;
  uint32_t* constants;
  size_t* binding_lengths;       // parallel to bindings, as kernels want them
  uint64_t* unit_counts;         // per command: workgroups, or transfer units; 0 for host calls
  uint64_t* unit_ends;           // per command: the batch's units up to and including this command
  tw_batch_t* batches;
  uint32_t* batch_of;            // per command, and for the end: the batch that it is in
  uint32_t* slot_bindings;       // binding ordinals sorted by slot
  uint32_t* slot_binding_first;  // slot_count + 1 entries into slot_bindings
  uint32_t slot_count;
  uint32_t binding_count;
  uint32_t command_count;
  uint32_t constant_count;
  uint32_t batch_count;
  uint32_t row_count;            // commands that bind rows
  uint32_t local_memory_bytes;   // the largest any dispatch asks for
};

#endif  // TW_COMMAND_LIST_INTERNAL_H_
