#include <stdlib.h>
#include <string.h>

#include "command_list_internal.h"

enum { DISPATCH_BINDING_LIMIT = 255, DISPATCH_CONSTANT_LIMIT = 65535, WORKGROUP_Z_LIMIT = 65535 };

// ---- checks -----------------------------------------------------------------------------------------

static int range_fits(uint64_t first, uint64_t count, uint64_t limit) {
  return first <= limit && count <= limit - first;
}

static tw_status_t check_slots(const tw_command_list_layout_t* layout, tw_message_t* message) {
  for (uint32_t i = 0; i < layout->slot_count; ++i) {
    const tw_slot_t* slot = &layout->slots[i];
    if (slot->size_bytes > SIZE_MAX / 2) {
      return tw_message_write(message, TW_STATUS_INVALID, "slot %u: size is too large", i);
    }
    if ((slot->alignment & (slot->alignment - 1)) != 0) {
      return tw_message_write(message, TW_STATUS_INVALID, "slot %u: alignment %u, expected a power of two", i,
                              slot->alignment);
    }
    if ((slot->flags & TW_SLOT_ROW) && ((slot->flags & TW_SLOT_WRITABLE) || slot->size_bytes == 0)) {
      return tw_message_write(message, TW_STATUS_INVALID, "slot %u: a row has bytes and is read-only", i);
    }
  }
  return TW_STATUS_OK;
}

static tw_status_t check_bindings(const tw_command_list_layout_t* layout, tw_message_t* message) {
  for (uint32_t i = 0; i < layout->binding_count; ++i) {
    const tw_binding_t* binding = &layout->bindings[i];
    if (binding->slot >= layout->slot_count) {
      return tw_message_write(message, TW_STATUS_INVALID, "binding %u: slot %u, expected less than %u", i,
                              binding->slot, layout->slot_count);
    }
    const tw_slot_t* slot = &layout->slots[binding->slot];
    if (!range_fits(binding->offset, binding->length, slot->size_bytes)) {
      return tw_message_write(message, TW_STATUS_INVALID, "binding %u: %llu bytes at %llu leave slot %u of %llu bytes",
                              i, (unsigned long long)binding->length, (unsigned long long)binding->offset,
                              binding->slot, (unsigned long long)slot->size_bytes);
    }
    if ((binding->flags & TW_BINDING_WRITABLE) && !(slot->flags & TW_SLOT_WRITABLE)) {
      return tw_message_write(message, TW_STATUS_INVALID, "binding %u: writes slot %u, which is read-only", i,
                              binding->slot);
    }
  }
  return TW_STATUS_OK;
}

static tw_status_t check_dispatch(const tw_command_list_layout_t* layout, uint32_t ordinal, tw_message_t* message) {
  const tw_command_t* command = &layout->commands[ordinal];
  if (command->function == 0) {
    return tw_message_write(message, TW_STATUS_INVALID, "command %u: the function address is 0", ordinal);
  }
  if (command->binding_count > DISPATCH_BINDING_LIMIT || command->constant_count > DISPATCH_CONSTANT_LIMIT) {
    return tw_message_write(message, TW_STATUS_INVALID, "command %u: too many bindings or constants", ordinal);
  }
  if (!range_fits(command->constant_first, command->constant_count, layout->constant_count)) {
    return tw_message_write(message, TW_STATUS_INVALID, "command %u: constants end after the table", ordinal);
  }
  if (command->workgroup_count[2] > WORKGROUP_Z_LIMIT || command->workgroup_size[2] > WORKGROUP_Z_LIMIT) {
    return tw_message_write(message, TW_STATUS_INVALID, "command %u: z above 65535", ordinal);
  }
  const uint64_t plane = (uint64_t)command->workgroup_count[0] * command->workgroup_count[1];
  if (plane > (UINT64_MAX >> 24) / (command->workgroup_count[2] + 1u)) {
    return tw_message_write(message, TW_STATUS_INVALID, "command %u: too many workgroups", ordinal);
  }
  return TW_STATUS_OK;
}

static tw_status_t check_copy(const tw_command_list_layout_t* layout, uint32_t ordinal, tw_message_t* message) {
  const tw_command_t* command = &layout->commands[ordinal];
  if (command->binding_count != 2) {
    return tw_message_write(message, TW_STATUS_INVALID, "command %u: a copy has two bindings", ordinal);
  }
  const tw_binding_t* target = &layout->bindings[command->binding_first];
  const tw_binding_t* source = target + 1;
  if (target->length != source->length || !(target->flags & TW_BINDING_WRITABLE)) {
    return tw_message_write(message, TW_STATUS_INVALID,
                            "command %u: a copy needs a writable target and equal lengths, got %llu and %llu bytes",
                            ordinal, (unsigned long long)target->length, (unsigned long long)source->length);
  }
  const uint64_t distance =
      target->offset > source->offset ? target->offset - source->offset : source->offset - target->offset;
  if (target->slot == source->slot && distance < target->length) {
    return tw_message_write(message, TW_STATUS_INVALID, "command %u: the copied ranges overlap", ordinal);
  }
  return TW_STATUS_OK;
}

static tw_status_t check_fill(const tw_command_list_layout_t* layout, uint32_t ordinal, tw_message_t* message) {
  const tw_command_t* command = &layout->commands[ordinal];
  const uint32_t pattern_length = command->constant_count;
  if (pattern_length == 0 || pattern_length > 8 || (pattern_length & (pattern_length - 1)) != 0) {
    return tw_message_write(message, TW_STATUS_INVALID, "command %u: a pattern has 1, 2, 4 or 8 bytes, got %u",
                            ordinal, pattern_length);
  }
  const tw_binding_t* target = &layout->bindings[command->binding_first];
  if (command->binding_count != 1 || !(target->flags & TW_BINDING_WRITABLE) || target->length % pattern_length != 0) {
    return tw_message_write(message, TW_STATUS_INVALID,
                            "command %u: a fill needs one writable binding of whole patterns", ordinal);
  }
  return TW_STATUS_OK;
}

static tw_status_t check_host_call(const tw_command_list_layout_t* layout, uint32_t ordinal, tw_message_t* message) {
  const tw_command_t* command = &layout->commands[ordinal];
  if (command->function >= layout->host_call_count) {
    return tw_message_write(message, TW_STATUS_INVALID, "command %u: host call %llu, expected less than %u", ordinal,
                            (unsigned long long)command->function, layout->host_call_count);
  }
  if ((command->flags & TW_COMMAND_ON_FINDING) == 0) return TW_STATUS_OK;
  const tw_binding_t* findings = &layout->bindings[command->binding_first];
  if (command->binding_count == 1 && findings->length % TW_FINDING_BYTES == 0) return TW_STATUS_OK;
  return tw_message_write(message, TW_STATUS_INVALID, "command %u: findings are one binding of whole records", ordinal);
}

static tw_status_t check_goto(const tw_command_list_layout_t* layout, uint32_t ordinal, tw_message_t* message) {
  const tw_command_t* command = &layout->commands[ordinal];
  if (command->function > layout->command_count) {
    return tw_message_write(message, TW_STATUS_INVALID, "command %u: goes to command %llu, expected at most %u", ordinal,
                            (unsigned long long)command->function, layout->command_count);
  }
  if (command->binding_count == 0) return TW_STATUS_OK;
  if (command->binding_count == 1 && layout->bindings[command->binding_first].length != 0) return TW_STATUS_OK;
  return tw_message_write(message, TW_STATUS_INVALID, "command %u: a goto has at most one binding, of a byte", ordinal);
}

static tw_status_t check_row(const tw_command_list_layout_t* layout, uint32_t ordinal, tw_message_t* message) {
  const tw_command_t* command = &layout->commands[ordinal];
  const tw_binding_t* place = &layout->bindings[command->binding_first];
  const tw_binding_t* table = place + 1;
  if (command->binding_count != 2 || place->length != sizeof(int64_t)) {
    return tw_message_write(message, TW_STATUS_INVALID, "command %u: a row has two bindings: an int64, and a table",
                            ordinal);
  }
  if (command->function >= layout->slot_count || !(layout->slots[command->function].flags & TW_SLOT_ROW)) {
    return tw_message_write(message, TW_STATUS_INVALID, "command %u: slot %llu is not for rows", ordinal,
                            (unsigned long long)command->function);
  }
  const uint64_t row_bytes = layout->slots[command->function].size_bytes;
  const int is_nested = (layout->slots[table->slot].flags & TW_SLOT_ROW) != 0;
  if (table->length == 0 || table->length % row_bytes != 0 || is_nested) {
    return tw_message_write(message, TW_STATUS_INVALID,
                            "command %u: expected a table of rows of %llu bytes in a slot of its own, got %llu bytes",
                            ordinal, (unsigned long long)row_bytes, (unsigned long long)table->length);
  }
  return TW_STATUS_OK;
}

// So that no command finds a slot without an address.
static tw_status_t check_rows_are_bound(const tw_command_list_layout_t* layout, tw_message_t* message) {
  for (uint32_t slot = 0; slot < layout->slot_count; ++slot) {
    if (!(layout->slots[slot].flags & TW_SLOT_ROW)) continue;
    uint32_t i = 0;
    while (i < layout->command_count &&
           !(layout->commands[i].kind == TW_COMMAND_ROW && layout->commands[i].function == slot)) {
      ++i;
    }
    if (i == layout->command_count) {
      return tw_message_write(message, TW_STATUS_INVALID, "slot %u: no command says which row it is", slot);
    }
  }
  return TW_STATUS_OK;
}

static tw_status_t check_command(const tw_command_list_layout_t* layout, uint32_t ordinal, tw_message_t* message) {
  const tw_command_t* command = &layout->commands[ordinal];
  if (!range_fits(command->binding_first, command->binding_count, layout->binding_count)) {
    return tw_message_write(message, TW_STATUS_INVALID, "command %u: bindings end after the table", ordinal);
  }
  switch (command->kind) {
    case TW_COMMAND_DISPATCH:
      return check_dispatch(layout, ordinal, message);
    case TW_COMMAND_COPY:
      return check_copy(layout, ordinal, message);
    case TW_COMMAND_FILL:
      return check_fill(layout, ordinal, message);
    case TW_COMMAND_HOST_CALL:
      return check_host_call(layout, ordinal, message);
    case TW_COMMAND_GOTO:
      return check_goto(layout, ordinal, message);
    case TW_COMMAND_ROW:
      return check_row(layout, ordinal, message);
    default:
      return tw_message_write(message, TW_STATUS_INVALID, "command %u: unknown kind %u", ordinal, command->kind);
  }
}

static tw_status_t check_layout(const tw_command_list_layout_t* layout, tw_message_t* message) {
  tw_status_t status = check_slots(layout, message);
  if (status == TW_STATUS_OK) status = check_bindings(layout, message);
  for (uint32_t i = 0; status == TW_STATUS_OK && i < layout->command_count; ++i) {
    status = check_command(layout, i, message);
  }
  return status == TW_STATUS_OK ? check_rows_are_bound(layout, message) : status;
}

// ---- building ---------------------------------------------------------------------------------------

// What the thread of the run does between the jobs of the workers.
static int is_between_jobs(const tw_command_t* command) {
  return command->kind == TW_COMMAND_HOST_CALL || command->kind == TW_COMMAND_GOTO || command->kind == TW_COMMAND_ROW;
}

static uint64_t count_units(const tw_command_list_t* list, const tw_command_t* command) {
  if (is_between_jobs(command)) return 0;
  if (command->kind == TW_COMMAND_DISPATCH) {
    return (uint64_t)command->workgroup_count[0] * command->workgroup_count[1] * command->workgroup_count[2];
  }
  const uint64_t length = list->bindings[command->binding_first].length;
  return (length + TW_TRANSFER_UNIT_BYTES - 1) / TW_TRANSFER_UNIT_BYTES;
}

static int starts_batch(const tw_command_t* command, const tw_command_t* before) {
  return (command->flags & TW_COMMAND_BARRIER) || is_between_jobs(command) || is_between_jobs(before);
}

// Marks the commands that gotos lead to, in what will be their batches.
static void mark_targets(tw_command_list_t* list) {
  for (uint32_t i = 0; i < list->command_count; ++i) {
    const tw_command_t* command = &list->commands[i];
    if (command->kind == TW_COMMAND_GOTO) list->batch_of[command->function] = 1;
    if (command->kind == TW_COMMAND_ROW) ++list->row_count;
  }
}

static void build_batches(tw_command_list_t* list) {
  mark_targets(list);
  for (uint32_t i = 0; i < list->command_count; ++i) {
    tw_command_t* command = &list->commands[i];
    if (command->kind == TW_COMMAND_DISPATCH && command->environment == 0) {
      command->environment = (uint64_t)(uintptr_t)tw_environment_default();
    }
    if (i == 0 || list->batch_of[i] || starts_batch(command, command - 1)) {
      list->batches[list->batch_count++] = (tw_batch_t){.first = i, .end = i};
    }
    list->batch_of[i] = list->batch_count - 1;
    tw_batch_t* batch = &list->batches[list->batch_count - 1];
    list->unit_counts[i] = count_units(list, command);
    batch->unit_count += list->unit_counts[i];
    batch->end = i + 1;
    list->unit_ends[i] = batch->unit_count;
    if (command->kind == TW_COMMAND_DISPATCH && command->local_memory_bytes > list->local_memory_bytes) {
      list->local_memory_bytes = command->local_memory_bytes;
    }
  }
  list->batch_of[list->command_count] = list->batch_count;
}

// Sorts the bindings by slot, so that a changed slot patches its own pointers only.
static void build_slot_index(tw_command_list_t* list) {
  uint32_t* first = list->slot_binding_first;
  for (uint32_t i = 0; i < list->binding_count; ++i) {
    list->binding_lengths[i] = (size_t)list->bindings[i].length;
    ++first[list->bindings[i].slot + 1];
  }
  for (uint32_t slot = 0; slot < list->slot_count; ++slot) first[slot + 1] += first[slot];
  for (uint32_t i = 0; i < list->binding_count; ++i) list->slot_bindings[first[list->bindings[i].slot]++] = i;
  // The loop above moved every start to its end; shift them back by one.
  for (uint32_t slot = list->slot_count; slot > 0; --slot) first[slot] = first[slot - 1];
  first[0] = 0;
}

static void* copy_table(const void* table, size_t count, size_t entry_bytes) {
  void* copy = calloc(count == 0 ? 1 : count, entry_bytes);
  if (copy != NULL && table != NULL && count != 0) memcpy(copy, table, count * entry_bytes);
  return copy;
}

static int allocate_tables(tw_command_list_t* list, const tw_command_list_layout_t* layout) {
  list->slot_count = layout->slot_count;
  list->binding_count = layout->binding_count;
  list->command_count = layout->command_count;
  list->constant_count = layout->constant_count;
  list->slots = copy_table(layout->slots, layout->slot_count, sizeof(*list->slots));
  list->bindings = copy_table(layout->bindings, layout->binding_count, sizeof(*list->bindings));
  list->commands = copy_table(layout->commands, layout->command_count, sizeof(*list->commands));
  list->constants = copy_table(layout->constants, layout->constant_count, sizeof(*list->constants));
  list->binding_lengths = copy_table(NULL, layout->binding_count, sizeof(*list->binding_lengths));
  list->unit_counts = copy_table(NULL, layout->command_count, sizeof(*list->unit_counts));
  list->unit_ends = copy_table(NULL, layout->command_count, sizeof(*list->unit_ends));
  list->batches = copy_table(NULL, layout->command_count, sizeof(*list->batches));
  list->batch_of = copy_table(NULL, (size_t)layout->command_count + 1, sizeof(*list->batch_of));
  list->slot_bindings = copy_table(NULL, layout->binding_count, sizeof(*list->slot_bindings));
  list->slot_binding_first = copy_table(NULL, (size_t)layout->slot_count + 2, sizeof(*list->slot_binding_first));
  return list->slots && list->bindings && list->commands && list->constants && list->binding_lengths &&
         list->unit_counts && list->unit_ends && list->batches && list->batch_of && list->slot_bindings &&
         list->slot_binding_first;
}

tw_status_t tw_command_list_create(const tw_command_list_layout_t* layout, tw_message_t* message,
                                   tw_command_list_t** out_list) {
  const tw_status_t status = check_layout(layout, message);
  if (status != TW_STATUS_OK) return status;
  tw_command_list_t* list = calloc(1, sizeof(*list));
  if (list == NULL || !allocate_tables(list, layout)) {
    tw_command_list_destroy(list);
    return tw_message_write(message, TW_STATUS_NO_MEMORY, "out of memory");
  }
  build_slot_index(list);
  build_batches(list);
  *out_list = list;
  return TW_STATUS_OK;
}

void tw_command_list_destroy(tw_command_list_t* list) {
  if (list == NULL) return;
  free(list->slots);
  free(list->bindings);
  free(list->commands);
  free(list->constants);
  free(list->binding_lengths);
  free(list->unit_counts);
  free(list->unit_ends);
  free(list->batches);
  free(list->batch_of);
  free(list->slot_bindings);
  free(list->slot_binding_first);
  free(list);
}

uint32_t tw_command_list_slot_count(const tw_command_list_t* list) { return list->slot_count; }

uint32_t tw_command_list_command_count(const tw_command_list_t* list) { return list->command_count; }

const tw_slot_t* tw_command_list_slot(const tw_command_list_t* list, uint32_t slot) { return &list->slots[slot]; }

const tw_command_t* tw_command_list_command(const tw_command_list_t* list, uint32_t command) {
  return &list->commands[command];
}

const tw_binding_t* tw_command_list_binding(const tw_command_list_t* list, uint32_t binding) {
  return &list->bindings[binding];
}
