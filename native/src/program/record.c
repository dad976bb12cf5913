// What `runtime/plan_executor/record_steps.py` does, with the same errors (MIRROR RECORDING).
#include "record.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "tw_size.h"

// ---- recording --------------------------------------------------------------------------------------

typedef struct recorder_t {
  tw_bound_t* bound;
  tw_slot_t* slots;
  tw_binding_t* bindings;
  tw_command_t* commands;
  uint32_t* constants;
  uint32_t* step_commands;          // of each step, the first command that is not before it
  tw_command_list_layout_t layout;  // the tables above, and how full they are
  uint32_t first;                   // the steps
  uint32_t end;
  int has_flow;                     // some step says which comes next
  int has_gone;                     // one was recorded: what follows perhaps never runs
  int has_unread;                   // checks were written since the last look at them
} recorder_t;

static int is_flow(const tw_step_t* step) { return step->kind == TW_STEP_LABEL || step->kind == TW_STEP_GOTO; }

// One per step, a look at the checks before each and behind the last, and one that clears them.
static size_t command_room(const recorder_t* recorder) { return 2 * (size_t)(recorder->end - recorder->first) + 2; }

static int allocate_tables(recorder_t* recorder, size_t slot_room) {
  const tw_program_t* program = recorder->bound->program;
  size_t bindings = 2;
  size_t constants = 1;
  for (uint32_t i = recorder->first; i < recorder->end; ++i) {
    recorder->has_flow = recorder->has_flow || is_flow(&program->steps[i]);
    bindings += program->steps[i].argument_count + (size_t)1;  // a look at the checks stands before it, perhaps
    constants += program->steps[i].constant_count;
  }
  recorder->slots = calloc(slot_room + 1, sizeof(*recorder->slots));
  recorder->bindings = calloc(bindings, sizeof(*recorder->bindings));
  recorder->commands = calloc(command_room(recorder), sizeof(*recorder->commands));
  recorder->step_commands = calloc((size_t)(recorder->end - recorder->first) + 1, sizeof(*recorder->step_commands));
  recorder->constants = calloc(constants, sizeof(*recorder->constants));
  recorder->bound->command_steps = calloc(command_room(recorder), sizeof(*recorder->bound->command_steps));
  return recorder->slots != NULL && recorder->bindings != NULL && recorder->commands != NULL &&
         recorder->constants != NULL && recorder->step_commands != NULL && recorder->bound->command_steps != NULL;
}

static void free_tables(recorder_t* recorder) {
  free(recorder->slots);
  free(recorder->bindings);
  free(recorder->commands);
  free(recorder->constants);
  free(recorder->step_commands);
}

static uint32_t add_slot(recorder_t* recorder, int64_t size_bytes, uint32_t flags) {
  recorder->slots[recorder->layout.slot_count] =
      (tw_slot_t){.size_bytes = (uint64_t)size_bytes, .flags = flags, .alignment = 1};
  return recorder->layout.slot_count++;
}

// Inputs, outputs and constants are slots by their position.
static int place_named(recorder_t* recorder) {
  tw_bound_t* bound = recorder->bound;
  const tw_program_t* program = bound->program;
  const uint32_t first[] = {0, program->input_count, program->input_count + program->output_count};
  recorder->layout.slot_count = first[2] + program->constant_storage_count;
  for (uint32_t i = 0; i < program->storage_count; ++i) {
    const tw_storage_t* storage = &program->storages[i];
    if (storage->kind == TW_STORAGE_TRANSIENT || storage->kind == TW_STORAGE_ROW) continue;
    const int64_t size = tw_bound_number(bound, storage->size_bytes);
    if (size < 0) return tw_bound_fail_too_large(bound);
    bound->slots[i] = first[storage->kind] + (uint32_t)storage->place;
    recorder->slots[bound->slots[i]] = (tw_slot_t){
        .size_bytes = (uint64_t)size,
        .flags = storage->kind == TW_STORAGE_OUTPUT ? TW_SLOT_WRITABLE : 0,
        .alignment = 1,
    };
  }
  return TW_MODEL_OK;
}

static int place_transients(recorder_t* recorder, int is_used) {
  tw_bound_t* bound = recorder->bound;
  const tw_program_t* program = bound->program;
  int64_t arena_bytes = is_used ? program->arena_bytes : 0;
  bound->arena_slot = UINT32_MAX;
  if (arena_bytes < 0) {
    const int status = tw_bound_arrange(bound, 0);
    if (status != TW_MODEL_OK) return status;
    arena_bytes = bound->group_bytes[0];
  }
  for (uint32_t i = 0; i < program->storage_count; ++i) {
    const tw_storage_t* storage = &program->storages[i];
    if (storage->kind != TW_STORAGE_TRANSIENT) continue;
    if (bound->arena_slot == UINT32_MAX) bound->arena_slot = add_slot(recorder, arena_bytes, TW_SLOT_WRITABLE);
    bound->slots[i] = bound->arena_slot;
    if (is_used && program->arena_bytes >= 0) bound->places[i] = storage->place;
  }
  bound->arena_bytes = (size_t)arena_bytes;
  return TW_MODEL_OK;
}

static void place_rows(recorder_t* recorder) {
  tw_bound_t* bound = recorder->bound;
  for (uint32_t i = 0; i < bound->program->storage_count; ++i) {
    const tw_storage_t* storage = &bound->program->storages[i];
    if (storage->kind != TW_STORAGE_ROW) continue;
    bound->slots[i] = add_slot(recorder, tw_bound_number(bound, storage->size_bytes), TW_SLOT_ROW);
  }
}

// The slot of a memory of a stretch, a new one where it is the first there.
static uint32_t slot_of(recorder_t* recorder, uint32_t memory, int64_t size_bytes, uint32_t flags) {
  uint32_t slot = 0;
  while (slot < recorder->layout.slot_count && recorder->bound->memories[slot] != memory) ++slot;
  if (slot < recorder->layout.slot_count) return slot;
  recorder->bound->memories[slot] = memory;
  return add_slot(recorder, size_bytes, flags);
}

static int place_one(recorder_t* recorder, const tw_bound_t* now, uint32_t index) {
  tw_bound_t* bound = recorder->bound;
  const tw_storage_t* storage = &bound->program->storages[index];
  const int64_t size = tw_bound_number(bound, storage->size_bytes);
  if (size < 0) return tw_bound_fail_number(bound, storage->size_bytes);
  if (storage->kind == TW_STORAGE_TRANSIENT) {
    const uint32_t arena = TW_ARENA_OF(storage->group);
    bound->slots[index] = slot_of(recorder, arena, now->group_bytes[storage->group], TW_SLOT_WRITABLE);
    bound->places[index] = now->places[index];
    return TW_MODEL_OK;
  }
  const int is_written = storage->kind == TW_STORAGE_OUTPUT || storage->kind == TW_STORAGE_BLOCK;
  const uint32_t flags = storage->kind == TW_STORAGE_ROW ? TW_SLOT_ROW : is_written ? TW_SLOT_WRITABLE : 0;
  bound->slots[index] = slot_of(recorder, index, size, flags);
  return TW_MODEL_OK;
}

static int place_stretch(recorder_t* recorder, const tw_bound_t* now, const tw_stretch_t* stretch) {
  tw_bound_t* bound = recorder->bound;
  bound->memories = calloc((size_t)stretch->storage_count + 1, sizeof(*bound->memories));
  if (bound->memories == NULL) return tw_error_no_memory();
  const uint32_t* storages = bound->program->flow->lists + stretch->storage_first;
  int status = TW_MODEL_OK;
  for (uint32_t i = 0; status == TW_MODEL_OK && i < stretch->storage_count; ++i) {
    status = place_one(recorder, now, storages[i]);
  }
  return status;
}

static int add_binding(recorder_t* recorder, uint32_t entry_index, int writable) {
  const tw_bound_t* bound = recorder->bound;
  const tw_entry_t* entry = &bound->program->entries[entry_index];
  const int64_t offset = tw_bound_number(bound, entry->offset_bytes);
  const int64_t size = tw_bound_number(bound, entry->size_bytes);
  const int64_t room = tw_bound_number(bound, bound->program->storages[entry->storage].size_bytes);
  if (offset == TW_NO_SIZE) return tw_bound_fail_number(bound, entry->offset_bytes);
  if (size == TW_NO_SIZE) return tw_bound_fail_number(bound, entry->size_bytes);
  if (offset < 0 || size < 0 || offset > room || size > room - offset) {
    return tw_bound_fail_inconsistent("a tensor lies outside its storage");
  }
  recorder->bindings[recorder->layout.binding_count++] = (tw_binding_t){
      .slot = bound->slots[entry->storage],
      .flags = writable ? TW_BINDING_WRITABLE : 0,
      .offset = (uint64_t)(bound->places[entry->storage] + offset),
      .length = (uint64_t)size,
  };
  return TW_MODEL_OK;
}

static int add_arguments(recorder_t* recorder, const tw_step_t* step) {
  const uint32_t* arguments = recorder->bound->program->arguments + step->argument_first;
  int status = TW_MODEL_OK;
  for (uint32_t i = 0; status == TW_MODEL_OK && i < step->argument_count; ++i) {
    const int is_result = i >= (uint32_t)step->argument_count - step->result_count;
    if (step->kind == TW_STEP_ROW && is_result) break;  // says which slot, not what is read
    status = add_binding(recorder, arguments[i], is_result);
  }
  return status;
}

static int fill_dispatch(recorder_t* recorder, const tw_step_t* step, tw_command_t* command) {
  const tw_bound_t* bound = recorder->bound;
  const tw_kernel_row_t* kernel = &bound->program->kernels[step->target];
  command->kind = TW_COMMAND_DISPATCH;
  command->flags |= kernel->flags;
  command->function = (uint64_t)(uintptr_t)kernel->function;
  command->environment = kernel->environment;
  command->local_memory_bytes = kernel->local_memory_bytes;
  command->constant_first = recorder->layout.constant_count;
  command->constant_count = step->constant_count;
  for (uint32_t i = 0; i < step->constant_count; ++i) {
    const tw_number_t constant = bound->program->constants[step->constant_first + i];
    const int64_t value = tw_bound_number(bound, constant);
    if (value < 0 || value > UINT32_MAX) {
      if (value == TW_NO_SIZE) return tw_bound_fail_number(bound, constant);
      return tw_bound_fail_too_large_in(bound, kernel->name, value);
    }
    recorder->constants[recorder->layout.constant_count++] = (uint32_t)value;
  }
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t count = tw_bound_number(bound, step->grid[axis]);
    if (count < 0 || count > UINT32_MAX) return tw_bound_fail_number(bound, step->grid[axis]);
    command->workgroup_count[axis] = (uint32_t)count;
    command->workgroup_size[axis] = kernel->workgroup_size[axis];
  }
  return TW_MODEL_OK;
}

// The core wants the target first.
static int fill_copy(recorder_t* recorder, tw_command_t* command) {
  tw_binding_t* pair = recorder->bindings + command->binding_first;
  const tw_binding_t source = pair[0];
  pair[0] = pair[1];
  pair[1] = source;
  command->kind = TW_COMMAND_COPY;
  return TW_MODEL_OK;
}

static int fill_host_call(recorder_t* recorder, tw_command_t* command) {
  command->kind = TW_COMMAND_HOST_CALL;
  command->function = recorder->layout.host_call_count++;
  return TW_MODEL_OK;
}

static int fill_goto(const tw_step_t* step, tw_command_t* command) {
  command->kind = TW_COMMAND_GOTO;
  command->function = step->target;  // until all commands are there
  return TW_MODEL_OK;
}

static int fill_row(const recorder_t* recorder, const tw_step_t* step, tw_command_t* command) {
  const tw_program_t* program = recorder->bound->program;
  const uint32_t entry = program->arguments[step->argument_first + step->argument_count - 1];
  command->kind = TW_COMMAND_ROW;
  command->binding_count = 2;
  command->function = recorder->bound->slots[program->entries[entry].storage];
  return TW_MODEL_OK;
}

static int fill_command(recorder_t* recorder, const tw_step_t* step, tw_command_t* command) {
  switch (step->kind) {
    case TW_STEP_DISPATCH:
      return fill_dispatch(recorder, step, command);
    case TW_STEP_COPY:
      return fill_copy(recorder, command);
    case TW_STEP_GOTO:
      return fill_goto(step, command);
    case TW_STEP_ROW:
      return fill_row(recorder, step, command);
    default:
      return fill_host_call(recorder, command);
  }
}

static void add_command(recorder_t* recorder, const tw_command_t* command, uint32_t step) {
  recorder->bound->command_steps[recorder->layout.command_count] = step;
  recorder->commands[recorder->layout.command_count++] = *command;
}

// Nothing is recorded for sizes that agree.
static int expect(const tw_bound_t* bound, const tw_step_t* step) {
  for (uint32_t i = 0; i < step->constant_count; ++i) {
    const int status = tw_bound_compare(bound, &bound->program->expectations[step->target + i]);
    if (status != TW_MODEL_OK) return status;
  }
  return TW_MODEL_OK;
}

static int record(recorder_t* recorder, uint32_t index) {
  const tw_program_t* program = recorder->bound->program;
  const tw_step_t* step = &program->steps[index];
  const uint32_t binding_first = recorder->layout.binding_count;
  if (step->kind == TW_STEP_EXPECT) return expect(recorder->bound, step);
  if (step->argument_count > UINT8_MAX) return tw_bound_fail_inconsistent("a step has more than 255 arguments");
  int status = add_arguments(recorder, step);
  if (status != TW_MODEL_OK) return status;
  if (step->kind == TW_STEP_COPY && recorder->bindings[binding_first].length == 0) {
    recorder->layout.binding_count = binding_first;
    return TW_MODEL_OK;
  }
  tw_command_t command = {
      .flags = step->barrier ? TW_COMMAND_BARRIER : 0,
      .binding_first = binding_first,
      .binding_count = step->argument_count,
  };
  status = fill_command(recorder, step, &command);
  if (status == TW_MODEL_OK) add_command(recorder, &command, index);
  return status;
}

// A command that fails where it is reached, with the error that this thread has now.
static int add_failure(recorder_t* recorder, int status) {
  tw_bound_t* bound = recorder->bound;
  const size_t size = (bound->failure_count + (size_t)1) * sizeof(*bound->failures);
  tw_late_failure_t* failures = realloc(bound->failures, size);
  if (failures == NULL) return tw_error_no_memory();
  bound->failures = failures;
  char* text = strdup(tw_error_text());
  if (text == NULL) return tw_error_no_memory();
  failures[bound->failure_count++] =
      (tw_late_failure_t){.command = recorder->layout.command_count, .status = status, .text = text};
  const tw_command_t command = {.kind = TW_COMMAND_HOST_CALL,
                                .flags = TW_COMMAND_BARRIER,
                                .binding_first = recorder->layout.binding_count,
                                .function = recorder->layout.host_call_count++};
  add_command(recorder, &command, bound->program->step_count + 1);
  return TW_MODEL_OK;
}

// Behind a branch sizes may be such that only another branch makes sense: a step that could not be recorded fails if it
// is reached.
static int record_or_fail(recorder_t* recorder, uint32_t index) {
  const tw_command_list_layout_t before = recorder->layout;
  const int status = record(recorder, index);
  if (status == TW_MODEL_OK || status == TW_MODEL_NO_MEMORY || !recorder->has_gone) return status;
  recorder->layout = before;
  return add_failure(recorder, status);
}

// A command over the records of all checks.
static void record_about_checks(recorder_t* recorder, tw_command_t command, uint32_t binding_flags) {
  const tw_bound_t* bound = recorder->bound;
  const tw_program_t* program = bound->program;
  command.flags |= TW_COMMAND_BARRIER;
  command.binding_first = recorder->layout.binding_count;
  command.binding_count = 1;
  recorder->bindings[recorder->layout.binding_count++] = (tw_binding_t){
      .slot = bound->check_slot,
      .flags = binding_flags,
      .offset = (uint64_t)bound->check_place,
      .length = (uint64_t)program->check_count * TW_FINDING_BYTES,
  };
  add_command(recorder, &command, program->step_count);
}

// With control flow not all records are written: from here on nothing was found.
static void clear_checks(recorder_t* recorder) {
  const tw_command_t command = {
      .kind = TW_COMMAND_FILL, .function = (uint64_t)TW_NO_FINDING, .constant_count = sizeof(int64_t)};
  record_about_checks(recorder, command, TW_BINDING_WRITABLE);
}

// Reads what the kernels found since the last look, if they looked for anything.
static void look_at_checks(recorder_t* recorder) {
  if (!recorder->has_unread) return;
  recorder->has_unread = 0;
  const tw_command_t command = {.kind = TW_COMMAND_HOST_CALL,
                                .flags = TW_COMMAND_ON_FINDING,
                                .function = recorder->layout.host_call_count++};
  record_about_checks(recorder, command, 0);
}

static int writes_checks(const recorder_t* recorder, const tw_step_t* step) {
  const tw_program_t* program = recorder->bound->program;
  if (program->check_count == 0 || is_flow(step)) return 0;
  for (uint32_t i = step->argument_count - step->result_count; i < step->argument_count; ++i) {
    const uint32_t entry = program->arguments[step->argument_first + i];
    if (program->entries[entry].storage == program->check_storage) return 1;
  }
  return 0;
}

static void lead_gotos(recorder_t* recorder) {
  for (uint32_t i = 0; i < recorder->layout.command_count; ++i) {
    tw_command_t* command = &recorder->commands[i];
    if (command->kind != TW_COMMAND_GOTO) continue;
    command->function = recorder->step_commands[command->function - recorder->first];
  }
}

// What checks find is looked at before anybody decides where to go on: a later trip would write over it.
static int record_steps(recorder_t* recorder) {
  const tw_program_t* program = recorder->bound->program;
  int status = TW_MODEL_OK;
  for (uint32_t i = recorder->first; status == TW_MODEL_OK && i < recorder->end; ++i) {
    const tw_step_t* step = &program->steps[i];
    if (is_flow(step)) look_at_checks(recorder);
    recorder->step_commands[i - recorder->first] = recorder->layout.command_count;
    if (step->kind != TW_STEP_LABEL) status = record_or_fail(recorder, i);
    recorder->has_gone = recorder->has_gone || step->kind == TW_STEP_GOTO;
    recorder->has_unread = recorder->has_unread || writes_checks(recorder, step);
  }
  look_at_checks(recorder);
  if (status == TW_MODEL_OK) lead_gotos(recorder);
  return status;
}

static int finish(recorder_t* recorder) {
  tw_message_t message = {.text = ""};
  recorder->layout.slots = recorder->slots;
  recorder->layout.bindings = recorder->bindings;
  recorder->layout.commands = recorder->commands;
  recorder->layout.constants = recorder->constants;
  const tw_status_t status = tw_command_list_create(&recorder->layout, &message, &recorder->bound->list);
  if (status == TW_STATUS_NO_MEMORY) return tw_error_no_memory();
  return status == TW_STATUS_OK ? TW_MODEL_OK : tw_bound_fail_inconsistent(message.text);
}

static void place_checks(tw_bound_t* bound, const tw_bound_t* now) {
  if (bound->program->check_count == 0) return;
  bound->check_slot = bound->slots[bound->program->check_storage];
  bound->check_place = now->places[bound->program->check_storage];
}

static int record_program(recorder_t* recorder, int is_empty) {
  tw_bound_t* bound = recorder->bound;
  int status = place_named(recorder);
  if (status == TW_MODEL_OK) status = place_transients(recorder, !is_empty);
  if (status == TW_MODEL_OK && !is_empty) {
    place_rows(recorder);
    place_checks(bound, bound);
    if (recorder->has_flow && bound->program->check_count != 0) clear_checks(recorder);
    status = record_steps(recorder);
  }
  return status == TW_MODEL_OK ? finish(recorder) : status;
}

int tw_record_program(tw_bound_t* bound, int is_empty) {
  recorder_t recorder = {.bound = bound, .end = bound->program->step_count};
  const int fits = allocate_tables(&recorder, bound->program->storage_count);
  const int status = fits ? record_program(&recorder, is_empty) : tw_error_no_memory();
  free_tables(&recorder);
  return status;
}

int tw_record_stretch(tw_bound_t* bound, const tw_bound_t* now, const tw_stretch_t* stretch) {
  recorder_t recorder = {.bound = bound, .first = stretch->first, .end = stretch->end};
  int status = allocate_tables(&recorder, stretch->storage_count) ? TW_MODEL_OK : tw_error_no_memory();
  if (status == TW_MODEL_OK) status = place_stretch(&recorder, now, stretch);
  if (status == TW_MODEL_OK) {
    place_checks(bound, now);
    status = record_steps(&recorder);
  }
  if (status == TW_MODEL_OK) status = finish(&recorder);
  free_tables(&recorder);
  return status;
}
