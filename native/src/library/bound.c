// What `runtime/plan_executor/binding.py` does, with the same errors (MIRROR BINDING).
#include "bound.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "error.h"
#include "tw_size.h"

int tw_bound_shape(const tw_bound_t* bound, const tw_signature_t* signature, int64_t* out_shape) {
  for (uint32_t axis = 0; axis < signature->rank; ++axis) {
    out_shape[axis] = tw_bound_number(bound, signature->shape[axis]);
    if (out_shape[axis] == TW_NO_SIZE) return 0;
  }
  return 1;
}

// ---- errors -----------------------------------------------------------------------------------------

// `batch = 2, sequence = 7`.
static void add_dims(tw_text_t* text, const tw_bound_t* bound) {
  for (uint32_t i = 0; i < bound->program->dim_count; ++i) {
    tw_text_add(text, "%s%s = %" PRId64, i == 0 ? "" : ", ", bound->program->dims[i].name, bound->dims[i]);
  }
}

static int fail_too_large(const tw_bound_t* bound) {
  tw_text_t given = {.length = 0};
  add_dims(&given, bound);
  return tw_error_set(TW_MODEL_BAD_INPUT, "sizes are too large for this model: for %s", given.text);
}

static int fail_inconsistent(const char* what) {
  return tw_error_set(TW_MODEL_FAILED, "the program does not fit itself: %s", what);
}

// ---- checks of the dimensions -----------------------------------------------------------------------

static int check_dim(const tw_program_t* program, uint32_t index, int64_t value, int* out_is_empty) {
  const tw_dimension_t* dim = &program->dims[index];
  const char* limit = NULL;
  int64_t bound = 0;
  if (value == 0 && dim->leaves_nothing) {
    *out_is_empty = 1;
    return TW_MODEL_OK;
  }
  if (value < dim->minimum) {
    limit = "at least";
    bound = dim->minimum;
  } else if (dim->maximum >= 0 && value > dim->maximum) {
    limit = "at most";
    bound = dim->maximum;
  }
  if (limit == NULL) return TW_MODEL_OK;
  return tw_error_set(TW_MODEL_BAD_INPUT,
                      "input '%s': dimension '%s' (axis %u) is %" PRId64 ", expected %s %" PRId64,
                      program->inputs[dim->input].name, dim->name, dim->axis, value, limit, bound);
}

static int check_dims(const tw_bound_t* bound, int* out_is_empty) {
  *out_is_empty = 0;
  int status = TW_MODEL_OK;
  for (uint32_t i = 0; status == TW_MODEL_OK && i < bound->program->dim_count; ++i) {
    status = check_dim(bound->program, i, bound->dims[i], out_is_empty);
  }
  return status;
}

static int check_equalities(const tw_bound_t* bound) {
  for (uint32_t i = 0; i < bound->program->equality_count; ++i) {
    const tw_equality_t* pair = &bound->program->equalities[i];
    const int64_t left = tw_bound_number(bound, pair->left);
    const int64_t right = tw_bound_number(bound, pair->right);
    if (left == TW_NO_SIZE || right == TW_NO_SIZE) return fail_too_large(bound);
    if (left == right) continue;
    return tw_error_set(TW_MODEL_BAD_INPUT, "sizes do not agree: %s is %" PRId64 ", %s is %" PRId64, pair->left_text,
                        left, pair->right_text, right);
  }
  return TW_MODEL_OK;
}

// Refuses images smaller than the windows that slide over them.
static int check_guards(const tw_bound_t* bound) {
  for (uint32_t i = 0; i < bound->program->guard_count; ++i) {
    const tw_size_guard_t* guard = &bound->program->guards[i];
    const int64_t size = tw_bound_number(bound, guard->size);
    if (size == TW_NO_SIZE) return fail_too_large(bound);
    if (size >= 0) continue;
    tw_text_t given = {.length = 0};
    add_dims(&given, bound);
    return tw_error_set(TW_MODEL_BAD_INPUT, "sizes are too small for this model: %s is %" PRId64 " for %s",
                        guard->text, size, given.text);
  }
  return TW_MODEL_OK;
}

static int check_signature(const tw_bound_t* bound, const tw_signature_t* rows, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    for (uint32_t axis = 0; axis < rows[i].rank; ++axis) {
      const int64_t extent = tw_bound_number(bound, rows[i].shape[axis]);
      if (extent == TW_NO_SIZE) return fail_too_large(bound);
    }
  }
  return TW_MODEL_OK;
}

static int check_call(const tw_bound_t* bound, int* out_is_empty) {
  const tw_program_t* program = bound->program;
  int status = check_dims(bound, out_is_empty);
  if (status == TW_MODEL_OK) status = check_equalities(bound);
  if (status == TW_MODEL_OK) status = check_guards(bound);
  if (status == TW_MODEL_OK) status = check_signature(bound, program->inputs, program->input_count);
  if (status == TW_MODEL_OK) status = check_signature(bound, program->outputs, program->output_count);
  return status;
}

// ---- recording --------------------------------------------------------------------------------------

typedef struct recorder_t {
  tw_bound_t* bound;
  tw_slot_t* slots;
  tw_binding_t* bindings;
  tw_command_t* commands;
  uint32_t* constants;
  uint32_t* step_commands;          // of each step, the first command that is not before it
  tw_command_list_layout_t layout;  // the tables above, and how full they are
  int has_flow;                     // some step says which comes next
  int has_unread;                   // checks were written since the last look at them
} recorder_t;

static int is_flow(const tw_step_t* step) { return step->kind == TW_STEP_LABEL || step->kind == TW_STEP_GOTO; }

// One per step, a look at the checks before each and behind the last, and one that clears them.
static size_t command_room(const tw_program_t* program) { return 2 * (size_t)program->step_count + 2; }

static int allocate_tables(recorder_t* recorder) {
  const tw_program_t* program = recorder->bound->program;
  size_t bindings = 2;
  size_t constants = 1;
  for (uint32_t i = 0; i < program->step_count; ++i) {
    recorder->has_flow = recorder->has_flow || is_flow(&program->steps[i]);
    bindings += program->steps[i].argument_count + (size_t)1;  // a look at the checks stands before it, perhaps
    constants += program->steps[i].constant_count;
  }
  recorder->slots = calloc((size_t)program->storage_count + 1, sizeof(*recorder->slots));
  recorder->bindings = calloc(bindings, sizeof(*recorder->bindings));
  recorder->commands = calloc(command_room(program), sizeof(*recorder->commands));
  recorder->step_commands = calloc((size_t)program->step_count + 1, sizeof(*recorder->step_commands));
  recorder->constants = calloc(constants, sizeof(*recorder->constants));
  return recorder->slots != NULL && recorder->bindings != NULL && recorder->commands != NULL &&
         recorder->constants != NULL && recorder->step_commands != NULL;
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
    if (size < 0) return fail_too_large(bound);
    bound->slots[i] = first[storage->kind] + (uint32_t)storage->place;
    recorder->slots[bound->slots[i]] = (tw_slot_t){
        .size_bytes = (uint64_t)size,
        .flags = storage->kind == TW_STORAGE_OUTPUT ? TW_SLOT_WRITABLE : 0,
        .alignment = 1,
    };
  }
  return TW_MODEL_OK;
}

// Plans the arena for sizes that the compiler did not know.
static int pack_transients(tw_bound_t* bound, int64_t* out_bytes) {
  const tw_program_t* program = bound->program;
  tw_arena_block_t* blocks = calloc((size_t)program->storage_count + 1, sizeof(*blocks));
  int64_t* offsets = calloc((size_t)program->storage_count + 1, sizeof(*offsets));
  uint32_t count = 0;
  int fits = blocks != NULL && offsets != NULL;
  for (uint32_t i = 0; fits && i < program->storage_count; ++i) {
    const tw_storage_t* storage = &program->storages[i];
    if (storage->kind != TW_STORAGE_TRANSIENT) continue;
    const int64_t size = tw_bound_number(bound, storage->size_bytes);
    blocks[count++] = (tw_arena_block_t){.size_bytes = size, .first = storage->first, .last = storage->last};
  }
  const tw_status_t status = fits ? tw_arena_pack(blocks, count, offsets, out_bytes) : TW_STATUS_NO_MEMORY;
  for (uint32_t i = 0, block = 0; status == TW_STATUS_OK && i < program->storage_count; ++i) {
    if (program->storages[i].kind == TW_STORAGE_TRANSIENT) bound->places[i] = offsets[block++];
  }
  free(blocks);
  free(offsets);
  if (status == TW_STATUS_OK) return TW_MODEL_OK;
  return status == TW_STATUS_NO_MEMORY ? tw_error_no_memory() : fail_too_large(bound);
}

static int place_transients(recorder_t* recorder, int is_used) {
  tw_bound_t* bound = recorder->bound;
  const tw_program_t* program = bound->program;
  int64_t arena_bytes = is_used ? program->arena_bytes : 0;
  bound->arena_slot = UINT32_MAX;
  if (arena_bytes < 0) {
    const int status = pack_transients(bound, &arena_bytes);
    if (status != TW_MODEL_OK) return status;
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

static int add_binding(recorder_t* recorder, uint32_t entry_index, int writable) {
  const tw_bound_t* bound = recorder->bound;
  const tw_entry_t* entry = &bound->program->entries[entry_index];
  const int64_t offset = tw_bound_number(bound, entry->offset_bytes);
  const int64_t size = tw_bound_number(bound, entry->size_bytes);
  const int64_t room = tw_bound_number(bound, bound->program->storages[entry->storage].size_bytes);
  if (offset == TW_NO_SIZE || size == TW_NO_SIZE) return fail_too_large(bound);
  if (offset < 0 || size < 0 || offset > room || size > room - offset) {
    return fail_inconsistent("a tensor lies outside its storage");
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
  command->function = (uint64_t)(uintptr_t)kernel->function;
  command->local_memory_bytes = kernel->local_memory_bytes;
  command->constant_first = recorder->layout.constant_count;
  command->constant_count = step->constant_count;
  for (uint32_t i = 0; i < step->constant_count; ++i) {
    const int64_t value = tw_bound_number(bound, bound->program->constants[step->constant_first + i]);
    if (value < 0 || value > UINT32_MAX) {
      if (value == TW_NO_SIZE) return fail_too_large(bound);
      tw_text_t given = {.length = 0};
      add_dims(&given, bound);
      return tw_error_set(TW_MODEL_BAD_INPUT,
                          "sizes are too large for this model: %" PRId64 " in kernel '%s' for %s, expected less than %llu",
                          value, kernel->name, given.text, 1ULL << 32);
    }
    recorder->constants[recorder->layout.constant_count++] = (uint32_t)value;
  }
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t count = tw_bound_number(bound, step->grid[axis]);
    if (count < 0 || count > UINT32_MAX) return fail_too_large(bound);
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

static int record(recorder_t* recorder, uint32_t index) {
  const tw_program_t* program = recorder->bound->program;
  const tw_step_t* step = &program->steps[index];
  const uint32_t binding_first = recorder->layout.binding_count;
  if (step->argument_count > UINT8_MAX) return fail_inconsistent("a step has more than 255 arguments");
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
  add_command(recorder, &command, index);
  return status;
}

// A command over the records of all checks.
static void record_about_checks(recorder_t* recorder, tw_command_t command, uint32_t binding_flags) {
  const tw_bound_t* bound = recorder->bound;
  const tw_program_t* program = bound->program;
  command.flags |= TW_COMMAND_BARRIER;
  command.binding_first = recorder->layout.binding_count;
  command.binding_count = 1;
  recorder->bindings[recorder->layout.binding_count++] = (tw_binding_t){
      .slot = bound->slots[program->check_storage],
      .flags = binding_flags,
      .offset = (uint64_t)bound->places[program->check_storage],
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

// What checks find is looked at before anybody decides where to go on: a later trip would write over it.
static int record_steps(recorder_t* recorder) {
  const tw_program_t* program = recorder->bound->program;
  int status = TW_MODEL_OK;
  if (recorder->has_flow && program->check_count != 0) clear_checks(recorder);
  for (uint32_t i = 0; status == TW_MODEL_OK && i < program->step_count; ++i) {
    const tw_step_t* step = &program->steps[i];
    if (is_flow(step)) look_at_checks(recorder);
    recorder->step_commands[i] = recorder->layout.command_count;
    if (step->kind != TW_STEP_LABEL) status = record(recorder, i);
    recorder->has_unread = recorder->has_unread || writes_checks(recorder, step);
  }
  look_at_checks(recorder);
  for (uint32_t i = 0; status == TW_MODEL_OK && i < recorder->layout.command_count; ++i) {
    tw_command_t* command = &recorder->commands[i];
    if (command->kind == TW_COMMAND_GOTO) command->function = recorder->step_commands[command->function];
  }
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
  if (status != TW_STATUS_OK) return fail_inconsistent(message.text);
  recorder->bound->expected = tw_expected_create(recorder->bound->program, recorder->bound->sizes);
  return recorder->bound->expected == NULL ? tw_error_no_memory() : TW_MODEL_OK;
}

static int record_all(recorder_t* recorder) {
  int is_empty = 0;
  int status = check_call(recorder->bound, &is_empty);
  if (status == TW_MODEL_OK) status = place_named(recorder);
  if (status == TW_MODEL_OK) status = place_transients(recorder, !is_empty);
  if (status == TW_MODEL_OK && !is_empty) {
    place_rows(recorder);
    status = record_steps(recorder);
  }
  return status == TW_MODEL_OK ? finish(recorder) : status;
}

// ---- creation ---------------------------------------------------------------------------------------

static tw_bound_t* allocate_bound(const tw_program_t* program, const int64_t* dims) {
  tw_bound_t* bound = calloc(1, sizeof(*bound));
  if (bound == NULL) return NULL;
  bound->program = program;
  bound->dims = calloc((size_t)program->dim_count + 1, sizeof(*bound->dims));
  bound->sizes = calloc((size_t)program->size_count + 1, sizeof(*bound->sizes));
  bound->command_steps = calloc(command_room(program), sizeof(*bound->command_steps));
  bound->places = calloc((size_t)program->storage_count + 1, sizeof(*bound->places));
  bound->slots = calloc((size_t)program->storage_count + 1, sizeof(*bound->slots));
  if (bound->dims == NULL || bound->sizes == NULL || bound->command_steps == NULL || bound->places == NULL ||
      bound->slots == NULL) {
    tw_bound_destroy(bound);
    return NULL;
  }
  if (program->dim_count != 0) memcpy(bound->dims, dims, program->dim_count * sizeof(*dims));
  if (program->size_count != 0) program->evaluate(dims, bound->sizes);
  return bound;
}

int tw_bound_create(const tw_program_t* program, const int64_t* dims, tw_bound_t** out_bound) {
  recorder_t recorder = {.bound = allocate_bound(program, dims)};
  if (recorder.bound == NULL) return tw_error_no_memory();
  const int status = allocate_tables(&recorder) ? record_all(&recorder) : tw_error_no_memory();
  free_tables(&recorder);
  if (status != TW_MODEL_OK) {
    tw_bound_destroy(recorder.bound);
    return status;
  }
  *out_bound = recorder.bound;
  return TW_MODEL_OK;
}

void tw_bound_destroy(tw_bound_t* bound) {
  if (bound == NULL) return;
  tw_command_list_destroy(bound->list);
  free(bound->expected);
  free(bound->dims);
  free(bound->sizes);
  free(bound->command_steps);
  free(bound->places);
  free(bound->slots);
  free(bound);
}

// ---- findings ---------------------------------------------------------------------------------------

size_t tw_bound_records(const tw_bound_t* bound) { return (size_t)bound->places[bound->program->check_storage]; }

// The same text as `base.errors.index_error`.
static int report(const tw_bound_t* bound, const tw_index_check_t* check, int64_t index) {
  const int64_t size = tw_bound_number(bound, check->size);
  const int64_t low = tw_bound_number(bound, check->low);
  const int64_t high = tw_bound_number(bound, check->high);
  tw_text_t text = {.length = 0};
  if (check->location[0] != '\0') tw_text_add(&text, "%s: ", check->location);
  tw_text_add(&text, "index %" PRId64 " is out of range on axis %d of size %" PRId64, index, check->axis, size);
  if (high < low) {
    tw_text_add(&text, ", which has no element");
  } else {
    tw_text_add(&text, ", expected %" PRId64 " .. %" PRId64, low, high);
  }
  return tw_error_set(TW_MODEL_BAD_INPUT, "%s", text.text);
}

int tw_bound_report(const tw_bound_t* bound, const void* records) {
  for (uint32_t i = 0; i < bound->program->check_count; ++i) {
    int64_t index = TW_NO_FINDING;
    memcpy(&index, (const char*)records + (size_t)i * TW_FINDING_BYTES, sizeof(index));
    if (index != TW_NO_FINDING) return report(bound, &bound->program->checks[i], index);
  }
  return TW_MODEL_OK;
}
