// Calls of programs whose sizes data decides: what `runtime/plan_executor/flow.py` does (MIRROR FLOW).
//
// The steps between two decisions are a stretch, which is recorded once for each set of sizes and replayed, its loops
// too; between them the thread of the call reads sizes, goes where a condition says, and gives memory to what has
// its size now. Nothing of a call is shared but the recorded stretches.
#include "flow.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "tw_size.h"
#include "wait.h"

enum { POLL_INTERVAL_NS = 50 * 1000 * 1000 };
#define NONE UINT32_MAX

// A stretch that this call ran, for the next trip.
typedef struct used_t {
  tw_recorded_t* recorded;
  tw_frame_t* frame;
} used_t;

struct tw_flow_call_t {
  const tw_flow_shared_t* shared;
  const tw_flow_caller_t* caller;
  tw_bound_t* now;         // sizes as they are now
  void** memory;           // of each storage that has memory of its own
  int64_t* output_bytes;   // of each output that has its memory; -1
  int64_t* output_shapes;  // of each output TW_RANK_LIMIT extents, those that it was placed with; -1
  tw_lease_t* leases;      // arenas by group, then as many as there are blocks
  uint64_t* lease_bytes;   // of each lease: what was asked for
  uint32_t* block_leases;  // of each storage: its lease
  uint32_t* free_leases;
  int64_t* placed;         // of each group, as `lists` has its symbols: the values that it has its arena for
  uint8_t* has_arena;      // of each group
  used_t* used;            // of each stretch
  uint32_t free_count;
  uint64_t next_poll_ns;
};

// ---- parts ------------------------------------------------------------------------------------------

static uint32_t list_room(const tw_flow_t* flow) {
  uint32_t room = 0;
  for (uint32_t i = 0; i < flow->group_count; ++i) {
    const uint32_t end = flow->groups[i].symbol_first + flow->groups[i].symbol_count;
    if (end > room) room = end;
  }
  return room;
}

static void free_parts(tw_flow_call_t* flow) {
  tw_bound_destroy(flow->now);
  free(flow->memory);
  free(flow->output_bytes);
  free(flow->output_shapes);
  free(flow->leases);
  free(flow->lease_bytes);
  free(flow->block_leases);
  free(flow->free_leases);
  free(flow->placed);
  free(flow->has_arena);
  free(flow->used);
  free(flow);
}

static int allocate_parts(tw_flow_call_t* flow, const tw_program_t* program) {
  const tw_flow_t* table = program->flow;
  const size_t storages = (size_t)program->storage_count + 1;
  const size_t leases = table->group_count + storages;
  flow->memory = calloc(storages, sizeof(*flow->memory));
  flow->output_bytes = calloc((size_t)program->output_count + 1, sizeof(*flow->output_bytes));
  flow->output_shapes = calloc((size_t)program->output_count + 1, TW_RANK_LIMIT * sizeof(*flow->output_shapes));
  flow->leases = calloc(leases, sizeof(*flow->leases));
  flow->lease_bytes = calloc(leases, sizeof(*flow->lease_bytes));
  flow->block_leases = calloc(storages, sizeof(*flow->block_leases));
  flow->free_leases = calloc(storages, sizeof(*flow->free_leases));
  flow->placed = calloc((size_t)list_room(table) + 1, sizeof(*flow->placed));
  flow->has_arena = calloc((size_t)table->group_count + 1, sizeof(*flow->has_arena));
  flow->used = calloc((size_t)table->stretch_count + 1, sizeof(*flow->used));
  return flow->memory != NULL && flow->output_bytes != NULL && flow->output_shapes != NULL && flow->leases != NULL &&
         flow->lease_bytes != NULL && flow->block_leases != NULL && flow->free_leases != NULL && flow->placed != NULL && flow->has_arena != NULL &&
         flow->used != NULL;
}

// Constants have their memory, blocks and outputs none.
static void fill_parts(tw_flow_call_t* flow) {
  const tw_program_t* program = flow->shared->program;
  for (uint32_t i = 0; i < program->output_count; ++i) {
    flow->output_bytes[i] = -1;
    flow->output_shapes[(size_t)i * TW_RANK_LIMIT] = -1;
  }
  for (uint32_t i = 0; i < program->storage_count; ++i) {
    const tw_storage_t* storage = &program->storages[i];
    flow->block_leases[i] = NONE;
    if (storage->kind == TW_STORAGE_BLOCK) flow->free_leases[flow->free_count++] = program->flow->group_count + i;
    if (storage->kind != TW_STORAGE_CONSTANT) continue;
    flow->memory[i] = (void*)(uintptr_t)flow->shared->constants[storage->place];
  }
}

int tw_flow_create(const tw_flow_shared_t* shared, const int64_t* dims, tw_flow_call_t** out_flow) {
  tw_flow_call_t* flow = calloc(1, sizeof(*flow));
  if (flow == NULL) return tw_error_no_memory();
  flow->shared = shared;
  int status = allocate_parts(flow, shared->program) ? TW_MODEL_OK : tw_error_no_memory();
  if (status == TW_MODEL_OK) status = tw_bound_create_sizes(shared->program, dims, &flow->now);
  if (status != TW_MODEL_OK) {
    free_parts(flow);
    return status;
  }
  fill_parts(flow);
  *out_flow = flow;
  return TW_MODEL_OK;
}

void tw_flow_destroy(tw_flow_call_t* flow) {
  if (flow == NULL) return;
  const tw_program_t* program = flow->shared->program;
  for (uint32_t i = 0; i < program->flow->stretch_count; ++i) {
    const used_t* used = &flow->used[i];
    if (used->recorded != NULL) tw_recorded_leave(flow->shared->lock, used->recorded, used->frame);
  }
  const uint32_t lease_count = program->flow->group_count + program->storage_count;
  for (uint32_t i = 0; i < lease_count; ++i) {
    if (flow->leases[i].base != NULL) tw_heap_return(flow->shared->heap, &flow->leases[i]);
  }
  free_parts(flow);
}

const tw_bound_t* tw_flow_sizes(const tw_flow_call_t* flow) { return flow->now; }

// ---- inputs and outputs -----------------------------------------------------------------------------

static uint32_t storage_of(const tw_program_t* program, uint32_t slot) {
  const int is_input = slot < program->input_count;
  const tw_storage_kind_t kind = is_input ? TW_STORAGE_INPUT : TW_STORAGE_OUTPUT;
  const int64_t place = is_input ? slot : slot - program->input_count;
  uint32_t index = 0;
  while (program->storages[index].kind != kind || program->storages[index].place != place) ++index;
  return index;
}

uint32_t tw_output_group(const tw_program_t* program, uint32_t output) {
  return program->flow == NULL ? 0 : program->storages[storage_of(program, program->input_count + output)].group;
}

void tw_flow_bind(tw_flow_call_t* flow, uint32_t slot, void* data) {
  const tw_program_t* program = flow->now->program;
  const uint32_t storage = storage_of(program, slot);
  flow->memory[storage] = data;
  if (slot < program->input_count) return;
  flow->output_bytes[slot - program->input_count] = tw_bound_number(flow->now, program->storages[storage].size_bytes);
}

int64_t tw_flow_slot_bytes(const tw_flow_call_t* flow, uint32_t slot) {
  const tw_program_t* program = flow->now->program;
  const int64_t size = tw_bound_number(flow->now, program->storages[storage_of(program, slot)].size_bytes);
  return size == TW_NO_SIZE ? -1 : size;
}

// Whether an output that has its memory was placed with this shape, or with none: then with this one from now on.
static int has_shape(const tw_flow_call_t* flow, uint32_t index, const int64_t* shape) {
  int64_t* known = flow->output_shapes + (size_t)index * TW_RANK_LIMIT;
  const size_t shape_bytes = flow->now->program->outputs[index].rank * sizeof(*shape);
  if (known[0] < 0) memcpy(known, shape, shape_bytes);
  return memcmp(known, shape, shape_bytes) == 0;
}

// Memory for an output whose shape is known now.
static int place_output(tw_flow_call_t* flow, uint32_t index, int64_t size_bytes) {
  const tw_program_t* program = flow->now->program;
  int64_t shape[TW_RANK_LIMIT];
  if (size_bytes < 0 || !tw_bound_shape(flow->now, &program->outputs[index], shape)) {
    return tw_bound_fail_too_large(flow->now);
  }
  const int is_same = has_shape(flow, index, shape) && flow->output_bytes[index] == size_bytes;
  if (is_same) return TW_MODEL_OK;
  if (flow->output_bytes[index] >= 0) return tw_bound_fail_inconsistent("an output has two sizes");
  void* data = NULL;
  const tw_flow_caller_t* caller = flow->caller;
  const int status = caller->allocate(caller->runner.context, index, shape, (size_t)size_bytes, &data);
  if (status == TW_MODEL_OK) tw_flow_bind(flow, program->input_count + index, data);
  return status;
}

// ---- memory -----------------------------------------------------------------------------------------

// The words of `runtime/native/memory_report.py`.
static int fail_no_memory(const tw_lease_request_t* request, const tw_refusal_t* refusal) {
  const char* what = request->use == TW_MEMORY_ARENA ? " for intermediate tensors" : "";
  if (refusal->capacity_bytes == 0) return tw_error_no_memory_for(request->size_bytes, what);
  return tw_error_set(TW_MODEL_NO_MEMORY,
                      "no room for %zu bytes%s: %zu of %zu are in use"
                      "\nhint: " TW_HINT_MORE ", run fewer calls at the same time, or hold fewer buffers",
                      request->size_bytes, what, refusal->in_use_bytes, refusal->capacity_bytes);
}

static int lease(tw_flow_call_t* flow, uint32_t index, int64_t size_bytes, tw_memory_use_t use) {
  tw_lease_t* out_lease = &flow->leases[index];
  flow->lease_bytes[index] = (uint64_t)size_bytes;
  // Of no bytes a lease has no address, and what has none is not returned.
  const tw_lease_request_t request = {
      .size_bytes = size_bytes == 0 ? 1 : (size_t)size_bytes, .use = use, .ends_with_call = 1};
  tw_refusal_t refusal = {.size_bytes = 0};
  const tw_status_t status = tw_heap_lease(flow->shared->heap, &request, out_lease, &refusal);
  if (status == TW_STATUS_OK) return TW_MODEL_OK;
  out_lease->base = NULL;
  return fail_no_memory(&request, &refusal);
}

static void give_back(const tw_flow_call_t* flow, tw_lease_t* held) {
  if (held->base == NULL) return;
  tw_heap_return(flow->shared->heap, held);
  held->base = NULL;
}

// Whether the group has its arena for these sizes; notes them otherwise.
static int is_placed(tw_flow_call_t* flow, uint32_t group) {
  const tw_flow_t* table = flow->now->program->flow;
  const uint32_t first = table->groups[group].symbol_first;
  int is_same = flow->has_arena[group];
  flow->has_arena[group] = 1;
  for (uint32_t i = first; i < first + table->groups[group].symbol_count; ++i) {
    const int64_t value = flow->now->dims[table->lists[i]];
    is_same = is_same && flow->placed[i] == value;
    flow->placed[i] = value;
  }
  return is_same;
}

static int are_known(const tw_bound_t* now, uint32_t group) {
  const tw_flow_t* table = now->program->flow;
  const tw_group_t* row = &table->groups[group];
  for (uint32_t i = 0; i < row->symbol_count; ++i) {
    if (now->dims[table->lists[row->symbol_first + i]] == TW_NO_SIZE) return 0;
  }
  return 1;
}

// Gives what is sized now its memory. What transients held before is not asked for again.
static int place_group(tw_flow_call_t* flow, uint32_t group) {
  const tw_program_t* program = flow->now->program;
  const tw_group_t* row = &program->flow->groups[group];
  int status = tw_bound_arrange(flow->now, group);
  if (status != TW_MODEL_OK) return status;
  tw_lease_t* held = &flow->leases[group];
  if (held->base == NULL || held->size_bytes < (size_t)flow->now->group_bytes[group]) {
    give_back(flow, held);
    status = lease(flow, group, flow->now->group_bytes[group], TW_MEMORY_ARENA);
  }
  for (uint32_t i = 0; status == TW_MODEL_OK && i < row->storage_count; ++i) {
    const tw_storage_t* storage = &program->storages[program->flow->lists[row->storage_first + i]];
    if (storage->kind != TW_STORAGE_OUTPUT) continue;
    status = place_output(flow, (uint32_t)storage->place, tw_bound_number(flow->now, storage->size_bytes));
  }
  return status;
}

// Looks at, and places, what depends on sizes that have just been bound, and on none that is bound later.
static int complete(tw_flow_call_t* flow, const tw_late_size_t* sizes, uint32_t count) {
  int status = TW_MODEL_OK;
  for (uint32_t i = 0; status == TW_MODEL_OK && i < count; ++i) {
    const uint32_t group = sizes[i].group;
    uint32_t same = 0;
    while (sizes[same].group != group) ++same;
    if (same != i) continue;  // looked at already
    status = tw_bound_check_group(flow->now, group);
    if (status != TW_MODEL_OK || !are_known(flow->now, group) || is_placed(flow, group)) continue;
    status = place_group(flow, group);
  }
  return status;
}

// ---- decisions --------------------------------------------------------------------------------------

// What memory a storage has now, in bytes.
static uint64_t room_of(const tw_flow_call_t* flow, uint32_t storage) {
  const tw_storage_t* row = &flow->now->program->storages[storage];
  const size_t* constant_bytes = flow->shared->constant_bytes;
  switch (row->kind) {
    case TW_STORAGE_TRANSIENT:
      return flow->leases[row->group].base == NULL ? 0 : flow->leases[row->group].size_bytes;
    case TW_STORAGE_BLOCK:
      return flow->memory[storage] == NULL ? 0 : flow->lease_bytes[flow->block_leases[storage]];
    case TW_STORAGE_OUTPUT:
      return flow->output_bytes[row->place] < 0 ? 0 : (uint64_t)flow->output_bytes[row->place];
    case TW_STORAGE_CONSTANT:
      return constant_bytes == NULL ? UINT64_MAX : constant_bytes[row->place];
    case TW_STORAGE_INPUT:
    case TW_STORAGE_ROW:
      break;
  }
  return UINT64_MAX;  // as large as the program says: whoever bound it looked
}

// The address of an entry, as it is now.
static int address_of(const tw_flow_call_t* flow, uint32_t entry_index, int64_t wanted_bytes,
                      const uint8_t** out_address) {
  const tw_program_t* program = flow->now->program;
  const tw_entry_t* entry = &program->entries[entry_index];
  const tw_storage_t* storage = &program->storages[entry->storage];
  const int64_t offset = tw_bound_number(flow->now, entry->offset_bytes);
  const int64_t size = tw_bound_number(flow->now, entry->size_bytes);
  const int64_t place = flow->now->places[entry->storage];
  const uint8_t* base = storage->kind == TW_STORAGE_TRANSIENT ? flow->leases[storage->group].base
                                                              : flow->memory[entry->storage];
  const int64_t room = tw_bound_number(flow->now, storage->size_bytes);
  if (base == NULL || offset < 0 || size < wanted_bytes || offset > room || size > room - offset ||
      (uint64_t)place + (uint64_t)room > room_of(flow, entry->storage)) {
    return tw_bound_fail_inconsistent("memory is used before it is there");
  }
  *out_address = base + place + offset;
  return TW_MODEL_OK;
}

// Ends the location of a check of a condition.  ORDER base/errors.py
static const char does_not_hold[] = ", which does not hold for this call";

static int is_condition(const char* location) {
  const size_t length = strlen(location);
  const size_t tail = sizeof(does_not_hold) - 1;
  return length >= tail && strcmp(location + length - tail, does_not_hold) == 0;
}

static int check_bounds(const tw_late_size_t* size, int64_t value) {
  const char* limit = value < size->minimum ? "at least" : "at most";
  if (value >= size->minimum && (size->maximum < 0 || value <= size->maximum)) return TW_MODEL_OK;
  if (is_condition(size->location)) {
    const int length = (int)(strlen(size->location) - (sizeof(does_not_hold) - 1));
    return tw_error_set(TW_MODEL_BAD_INPUT, "%.*s: does not hold for this call", length, size->location);
  }
  return tw_error_set(TW_MODEL_BAD_INPUT, "%s%sthe data gives size %" PRId64 ", expected %s %" PRId64, size->location,
                      size->location[0] == '\0' ? "" : ": ", value, limit,
                      value < size->minimum ? size->minimum : size->maximum);
}

static int read_sizes(tw_flow_call_t* flow, const tw_step_t* step) {
  const tw_program_t* program = flow->now->program;
  const tw_late_size_t* sizes = &program->flow->late_sizes[step->target];
  const uint8_t* data = NULL;
  const int64_t wanted_bytes = (int64_t)sizeof(int64_t) * step->constant_count;
  int status = address_of(flow, program->arguments[step->argument_first], wanted_bytes, &data);
  for (uint32_t i = 0; status == TW_MODEL_OK && i < step->constant_count; ++i) {
    int64_t value;
    memcpy(&value, data + (size_t)i * sizeof(value), sizeof(value));  // a caller's buffer may lie anywhere
    status = check_bounds(&sizes[i], value);
    if (status == TW_MODEL_OK) flow->now->dims[sizes[i].symbol] = value;
  }
  if (status != TW_MODEL_OK) return status;
  tw_bound_evaluate(flow->now);
  return complete(flow, sizes, step->constant_count);
}

static int allocate(tw_flow_call_t* flow, const tw_step_t* step) {
  const tw_program_t* program = flow->now->program;
  const uint32_t storage = program->entries[program->arguments[step->argument_first]].storage;
  const int64_t size = tw_bound_number(flow->now, program->storages[storage].size_bytes);
  if (size < 0) return tw_bound_fail_number(flow->now, program->storages[storage].size_bytes);
  uint32_t index = flow->block_leases[storage];
  if (index == NONE) {
    if (flow->free_count == 0) return tw_bound_fail_inconsistent("more blocks have memory than there are");
    index = flow->free_leases[--flow->free_count];
    flow->block_leases[storage] = index;
  }
  give_back(flow, &flow->leases[index]);
  const int status = lease(flow, index, size, TW_MEMORY_TRANSIENT);
  flow->memory[storage] = flow->leases[index].base;
  return status;
}

// A block has no memory any more; what it had is returned unless another took it over.
static uint32_t take_block(tw_flow_call_t* flow, uint32_t storage) {
  const uint32_t index = flow->block_leases[storage];
  flow->block_leases[storage] = NONE;
  flow->memory[storage] = NULL;
  return index;
}

static int move_blocks(tw_flow_call_t* flow, const tw_step_t* step) {
  const tw_program_t* program = flow->now->program;
  const uint32_t* arguments = program->arguments + step->argument_first;
  uint32_t moved[UINT8_MAX];
  if (step->result_count > UINT8_MAX) return tw_bound_fail_inconsistent("a step moves more than 255 blocks");
  for (uint32_t i = 0; i < step->result_count; ++i) {
    moved[i] = take_block(flow, program->entries[arguments[i]].storage);
    if (moved[i] == NONE) return tw_bound_fail_inconsistent("memory is used before it is there");
  }
  for (uint32_t i = 0; i < step->result_count; ++i) {
    const uint32_t storage = program->entries[arguments[step->result_count + i]].storage;
    const uint32_t before = take_block(flow, storage);
    if (before != NONE) {
      give_back(flow, &flow->leases[before]);
      flow->free_leases[flow->free_count++] = before;
    }
    flow->block_leases[storage] = moved[i];
    flow->memory[storage] = flow->leases[moved[i]].base;
  }
  return TW_MODEL_OK;
}

static int rebind(tw_flow_call_t* flow, const tw_step_t* step) {
  const tw_program_t* program = flow->now->program;
  const tw_late_size_t* sizes = &program->flow->late_sizes[step->target];
  int64_t values[UINT8_MAX];
  if (step->constant_count > UINT8_MAX) return tw_bound_fail_inconsistent("a step binds more than 255 sizes");
  for (uint32_t i = 0; i < step->constant_count; ++i) {
    const tw_number_t size = program->constants[step->constant_first + i];
    values[i] = tw_bound_number(flow->now, size);
    if (values[i] == TW_NO_SIZE) return tw_bound_fail_number(flow->now, size);
    const int status = check_bounds(&sizes[i], values[i]);
    if (status != TW_MODEL_OK) return status;
  }
  const int status = move_blocks(flow, step);
  if (status != TW_MODEL_OK) return status;
  for (uint32_t i = 0; i < step->constant_count; ++i) flow->now->dims[sizes[i].symbol] = values[i];
  tw_bound_evaluate(flow->now);
  return complete(flow, sizes, step->constant_count);
}

// ---- stretches --------------------------------------------------------------------------------------

// The address of a slot, which is no larger than its memory.
static int memory_of(const tw_flow_call_t* flow, uint32_t memory, uint64_t size_bytes, void** out_address) {
  const uint32_t group = memory ^ TW_ARENA_OF(0);
  if (group < flow->now->program->flow->group_count) {
    *out_address = flow->leases[group].base;
    return *out_address != NULL && size_bytes <= flow->leases[group].size_bytes;
  }
  *out_address = flow->memory[memory];
  return (*out_address != NULL || size_bytes == 0) && size_bytes <= room_of(flow, memory);
}

static int fail_memory(const tw_flow_call_t* flow, uint32_t memory) {
  const uint32_t group = memory ^ TW_ARENA_OF(0);
  const void* address = group < flow->now->program->flow->group_count ? flow->leases[group].base : flow->memory[memory];
  return tw_bound_fail_inconsistent(address == NULL ? "memory is used before it is there"
                                                    : "a block is larger than its memory");
}

static int bind_stretch(const tw_flow_call_t* flow, const tw_bound_t* bound, tw_frame_t* frame) {
  const uint32_t count = tw_command_list_slot_count(bound->list);
  for (uint32_t i = 0; i < count; ++i) {
    const tw_slot_t* slot = tw_command_list_slot(bound->list, i);
    if (slot->flags & TW_SLOT_ROW) continue;
    void* address = NULL;
    if (!memory_of(flow, bound->memories[i], slot->size_bytes, &address)) return fail_memory(flow, bound->memories[i]);
    tw_frame_bind(frame, i, address);
  }
  return TW_MODEL_OK;
}

static int replay(tw_flow_call_t* flow, uint32_t stretch) {
  const tw_flow_shared_t* shared = flow->shared;
  used_t* used = &flow->used[stretch];
  if (used->recorded == NULL || !tw_recorded_fits(used->recorded, flow->now)) {
    if (used->recorded != NULL) tw_recorded_leave(shared->lock, used->recorded, used->frame);
    used->recorded = NULL;
    const int status =
        tw_recorded_enter(shared->recordings, shared->lock, flow->now, stretch, &used->recorded, &used->frame);
    if (status != TW_MODEL_OK) return status;
  }
  const tw_bound_t* bound = tw_recorded_bound(used->recorded);
  const int status = bind_stretch(flow, bound, used->frame);
  return status == TW_MODEL_OK ? tw_run_list(&flow->caller->runner, bound, used->frame, NULL) : status;
}

// ---- the way through the steps ----------------------------------------------------------------------

// A loop whose trips are short would never come to look otherwise.
static int poll_sometimes(tw_flow_call_t* flow) {
  const tw_runner_t* runner = &flow->caller->runner;
  if (runner->poll == NULL) return TW_MODEL_OK;
  const uint64_t now_ns = tw_clock_coarse_ns();
  if (now_ns < flow->next_poll_ns) return TW_MODEL_OK;
  const int is_first = flow->next_poll_ns == 0;
  flow->next_poll_ns = now_ns + POLL_INTERVAL_NS;
  if (is_first) return TW_MODEL_OK;
  return runner->poll(runner->context) == 0 ? TW_MODEL_OK : tw_error_set(TW_MODEL_INTERRUPTED, "the call was interrupted");
}

static int follow(tw_flow_call_t* flow, const tw_step_t* step, uint32_t* place) {
  const tw_program_t* program = flow->now->program;
  const uint8_t* condition = NULL;
  if (step->argument_count != 0) {
    const int status = address_of(flow, program->arguments[step->argument_first], 1, &condition);
    if (status != TW_MODEL_OK) return status;
  }
  if (condition != NULL && *condition != 0) return TW_MODEL_OK;
  *place = step->target;
  return poll_sometimes(flow);
}

static int take_step(tw_flow_call_t* flow, const tw_step_t* step, uint32_t* place) {
  switch (step->kind) {
    case TW_STEP_GOTO:
      return follow(flow, step, place);
    case TW_STEP_READ:
      return read_sizes(flow, step);
    case TW_STEP_ALLOCATE:
      return allocate(flow, step);
    case TW_STEP_REBIND:
      return rebind(flow, step);
    default:
      return TW_MODEL_OK;  // a label
  }
}

// The stretch that begins at a step, or NONE.
static uint32_t stretch_at(const tw_flow_t* table, uint32_t step) {
  uint32_t low = 0;
  uint32_t high = table->stretch_count;
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    if (table->stretches[middle].first < step) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < table->stretch_count && table->stretches[low].first == step ? low : NONE;
}

static int walk(tw_flow_call_t* flow) {
  const tw_program_t* program = flow->now->program;
  int status = TW_MODEL_OK;
  for (uint32_t place = 0; status == TW_MODEL_OK && place < program->step_count;) {
    const uint32_t stretch = stretch_at(program->flow, place);
    if (stretch != NONE) {
      status = replay(flow, stretch);
      place = program->flow->stretches[stretch].end;
    } else {
      const tw_step_t* step = &program->steps[place++];
      status = take_step(flow, step, &place);
    }
  }
  return status;
}

// From here on nothing was found: not all records are written, or read, in every call.
static void clear_checks(const tw_flow_call_t* flow) {
  const tw_program_t* program = flow->now->program;
  const int64_t none = TW_NO_FINDING;
  if (program->check_count == 0) return;
  uint8_t* records = (uint8_t*)flow->leases[0].base + flow->now->places[program->check_storage];
  for (uint32_t i = 0; i < program->check_count; ++i) {
    memcpy(records + (size_t)i * TW_FINDING_BYTES, &none, sizeof(none));
  }
}

static int has_late_outputs(const tw_program_t* program) {
  for (uint32_t i = 0; i < program->output_count; ++i) {
    if (tw_output_group(program, i) != 0) return 1;
  }
  return 0;
}

int tw_flow_run(tw_flow_call_t* flow, const tw_flow_caller_t* caller) {
  const tw_program_t* program = flow->now->program;
  flow->caller = caller;
  is_placed(flow, 0);
  int status = place_group(flow, 0);
  if (status != TW_MODEL_OK) return status;
  if (tw_bound_is_empty(flow->now) && !has_late_outputs(program)) return TW_MODEL_OK;
  clear_checks(flow);
  status = walk(flow);
  if (status != TW_MODEL_OK) return status;
  for (uint32_t i = 0; i < program->output_count; ++i) {
    if (flow->output_bytes[i] < 0) return tw_bound_fail_inconsistent("an output is left without a size");
  }
  return TW_MODEL_OK;
}
