// What `runtime/plan_executor/binding.py` does, with the same errors (MIRROR BINDING).
#include "bound.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "error.h"
#include "record.h"
#include "tw_size.h"

int tw_bound_shape(const tw_bound_t* bound, const tw_signature_t* signature, int64_t* out_shape) {
  for (uint32_t axis = 0; axis < signature->rank; ++axis) {
    out_shape[axis] = tw_bound_number(bound, signature->shape[axis]);
    if (out_shape[axis] == TW_NO_SIZE) return 0;
  }
  return 1;
}

// ---- errors -----------------------------------------------------------------------------------------

static void add_size(tw_text_t* text, const char* name, int64_t value) {
  tw_text_add(text, "%s%s = %" PRId64, text->length == 0 ? "" : ", ", name, value);
}

// `batch = 2, sequence = 7`: all that are known.
static void add_dims(tw_text_t* text, const tw_bound_t* bound) {
  const tw_program_t* program = bound->program;
  for (uint32_t i = 0; i < program->dim_count; ++i) add_size(text, program->dims[i].name, bound->dims[i]);
  if (program->flow == NULL) return;
  for (uint32_t i = program->dim_count; i < program->flow->symbol_count; ++i) {
    if (bound->dims[i] == TW_NO_SIZE) continue;
    add_size(text, program->flow->names[i - program->dim_count], bound->dims[i]);
  }
}

int tw_bound_fail_too_large(const tw_bound_t* bound) {
  tw_text_t given = {.length = 0};
  add_dims(&given, bound);
  return tw_error_set(TW_MODEL_BAD_INPUT, "sizes are too large for this model: for %s", given.text);
}

// A symbol that nobody bound yet and some operand depends on, by what is known of the sizes before it; NONE.
#define NONE UINT32_MAX

static uint32_t unbound_in(const tw_bound_t* bound, tw_number_t operand, const uint32_t* unbound) {
  const tw_number_t first_symbol = TW_SIZE_SYMBOL(0);
  if (operand < first_symbol) return unbound[operand - INT64_MIN];
  if (operand >= first_symbol + TW_SIZE_LIMIT) return NONE;
  return bound->dims[operand - first_symbol] == TW_NO_SIZE ? (uint32_t)(operand - first_symbol) : NONE;
}

static uint32_t find_unbound(const tw_bound_t* bound, tw_number_t number) {
  const tw_formula_t* formulas = bound->program->formulas;
  if (formulas == NULL || number >= TW_SIZE_SYMBOL(0)) return NONE;
  const size_t count = (size_t)(number - INT64_MIN) + 1;
  uint32_t* unbound = malloc(count * sizeof(*unbound));
  if (unbound == NULL) return NONE;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t left = unbound_in(bound, formulas[i].left, unbound);
    unbound[i] = left != NONE ? left : unbound_in(bound, formulas[i].right, unbound);
  }
  const uint32_t found = unbound[count - 1];
  free(unbound);
  return found;
}

int tw_bound_fail_number(const tw_bound_t* bound, tw_number_t number) {
  const tw_program_t* program = bound->program;
  const uint32_t symbol = find_unbound(bound, number);
  if (symbol == NONE || symbol < program->dim_count) return tw_bound_fail_too_large(bound);
  tw_text_t text = {.length = 0};
  tw_text_add(&text, "size '%s' is used before it is read", program->flow->names[symbol - program->dim_count]);
  return tw_bound_fail_inconsistent(text.text);
}

int tw_bound_fail_too_large_in(const tw_bound_t* bound, const char* kernel, int64_t value) {
  tw_text_t given = {.length = 0};
  add_dims(&given, bound);
  return tw_error_set(TW_MODEL_BAD_INPUT,
                      "sizes are too large for this model: %" PRId64 " in kernel '%s' for %s, expected less than %llu",
                      value, kernel, given.text, 1ULL << 32);
}

// ---- what must hold of sizes --------------------------------------------------------------------------

static int holds(tw_relation_t relation, int64_t size, int64_t other) {
  switch (relation) {
    case TW_RELATION_EQUAL:
      return size == other;
    case TW_RELATION_NOT_NEGATIVE:
      return size >= 0;
    case TW_RELATION_AT_MOST:
      return size <= other;
    case TW_RELATION_AT_LEAST:
      return size >= other;
    case TW_RELATION_MULTIPLE:
      return other > 0 && size % other == 0;
    case TW_RELATION_COUNT:
      break;
  }
  return 0;
}

static void add_other(tw_text_t* text, const tw_equality_t* pair, int64_t other) {
  tw_text_add(text, "%" PRId64, other);
  if (pair->other_text[0] != '\0') tw_text_add(text, " (%s)", pair->other_text);
}

#define TW_BROADCAST_HINT "an axis of 1 is broadcast where it is known to be 1: fix it when compiling (--input-shape)"

// The words stand in `formats/plan/size_relations.py` and `runtime/plan_executor/record_steps.py`, too.
static void add_failure(tw_text_t* text, const tw_bound_t* bound, const tw_equality_t* pair) {
  static const char* const bounds[TW_RELATION_COUNT] = {
      [TW_RELATION_AT_MOST] = "at most",
      [TW_RELATION_AT_LEAST] = "at least",
      [TW_RELATION_MULTIPLE] = "a multiple of",
  };
  const int64_t size = tw_bound_number(bound, pair->size), other = tw_bound_number(bound, pair->other);
  if (pair->relation == TW_RELATION_NOT_NEGATIVE) {
    tw_text_t given = {.length = 0};
    add_dims(&given, bound);
    tw_text_add(text, "a size is below zero: %s is %" PRId64 " for %s", pair->size_text, size, given.text);
  } else if (bounds[pair->relation] != NULL) {
    tw_text_add(text, "a size does not fit: %s is %" PRId64 ", expected %s ", pair->size_text, size,
                bounds[pair->relation]);
    add_other(text, pair, other);
  } else {
    tw_text_add(text, "sizes do not agree: %s is %" PRId64 ", ", pair->size_text, size);
    if (pair->other_text[0] == '\0') {
      tw_text_add(text, "expected %" PRId64, other);
    } else {
      tw_text_add(text, "%s is %" PRId64, pair->other_text, other);
    }
    if (size == 1 || other == 1) tw_text_add(text, "\nhint: " TW_BROADCAST_HINT);
  }
}

// A location may be as long as names of a model are: it stands outside the text, which is cut.
static int fail_at(const char* location, const tw_text_t* text) {
  return tw_error_set(TW_MODEL_BAD_INPUT, "%s%s%s", location, location[0] == '\0' ? "" : ": ", text->text);
}

int tw_bound_compare(const tw_bound_t* bound, const tw_equality_t* pair) {
  const int64_t size = tw_bound_number(bound, pair->size);
  const int64_t other = tw_bound_number(bound, pair->other);
  if (size == TW_NO_SIZE) return tw_bound_fail_number(bound, pair->size);
  if (other == TW_NO_SIZE) return tw_bound_fail_number(bound, pair->other);
  if (holds(pair->relation, size, other)) return TW_MODEL_OK;
  tw_text_t text = {.length = 0};
  add_failure(&text, bound, pair);
  return fail_at(pair->location, &text);
}

int tw_bound_fail_inconsistent(const char* what) {
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

static int check_equalities(const tw_bound_t* bound, uint32_t group) {
  for (uint32_t i = 0; i < bound->program->equality_count; ++i) {
    const tw_equality_t* pair = &bound->program->equalities[i];
    if (pair->group != group) continue;
    const int status = tw_bound_compare(bound, pair);
    if (status != TW_MODEL_OK) return status;
  }
  return TW_MODEL_OK;
}

// Refuses images smaller than the windows that slide over them.
static int check_guards(const tw_bound_t* bound, uint32_t group) {
  for (uint32_t i = 0; i < bound->program->guard_count; ++i) {
    const tw_size_guard_t* guard = &bound->program->guards[i];
    if (guard->group != group) continue;
    const int64_t size = tw_bound_number(bound, guard->size);
    if (size == TW_NO_SIZE) return tw_bound_fail_number(bound, guard->size);
    if (size >= 0) continue;
    tw_text_t given = {.length = 0};
    add_dims(&given, bound);
    return tw_error_set(TW_MODEL_BAD_INPUT, "sizes are too small for this model: %s is %" PRId64 " for %s",
                        guard->text, size, given.text);
  }
  return TW_MODEL_OK;
}

int tw_bound_check_group(const tw_bound_t* bound, uint32_t group) {
  const int status = check_equalities(bound, group);
  return status == TW_MODEL_OK ? check_guards(bound, group) : status;
}

static int check_signature(const tw_bound_t* bound, const tw_signature_t* rows, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    for (uint32_t axis = 0; axis < rows[i].rank; ++axis) {
      const int64_t extent = tw_bound_number(bound, rows[i].shape[axis]);
      if (extent == TW_NO_SIZE) return tw_bound_fail_number(bound, rows[i].shape[axis]);
    }
  }
  return TW_MODEL_OK;
}

// Where data decides sizes, those of outputs are looked at when they are known.
static int check_call(const tw_bound_t* bound, int* out_is_empty) {
  const tw_program_t* program = bound->program;
  int status = check_dims(bound, out_is_empty);
  if (status == TW_MODEL_OK) status = tw_bound_check_group(bound, 0);
  if (status == TW_MODEL_OK) status = check_signature(bound, program->inputs, program->input_count);
  if (status != TW_MODEL_OK || program->flow != NULL) return status;
  return check_signature(bound, program->outputs, program->output_count);
}

int tw_bound_is_empty(const tw_bound_t* bound) {
  int is_empty = 0;
  return check_dims(bound, &is_empty) == TW_MODEL_OK && is_empty;
}

// ---- memory -----------------------------------------------------------------------------------------

static uint32_t count_transients(const tw_bound_t* bound, uint32_t group, tw_arena_block_t* blocks) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < bound->program->storage_count; ++i) {
    const tw_storage_t* storage = &bound->program->storages[i];
    if (storage->kind != TW_STORAGE_TRANSIENT || storage->group != group) continue;
    if (blocks != NULL) {
      const int64_t size = tw_bound_number(bound, storage->size_bytes);
      blocks[count] = (tw_arena_block_t){.size_bytes = size, .first = storage->first, .last = storage->last};
    }
    ++count;
  }
  return count;
}

static tw_status_t pack_group(tw_bound_t* bound, uint32_t group, tw_arena_block_t* blocks, int64_t* offsets) {
  const uint32_t count = count_transients(bound, group, blocks);
  for (uint32_t i = 0; i < count; ++i) {
    if (blocks[i].size_bytes < 0) return TW_STATUS_INVALID;
  }
  const tw_status_t status = tw_arena_pack(blocks, count, offsets, &bound->group_bytes[group]);
  for (uint32_t i = 0, block = 0; status == TW_STATUS_OK && i < bound->program->storage_count; ++i) {
    const tw_storage_t* storage = &bound->program->storages[i];
    if (storage->kind == TW_STORAGE_TRANSIENT && storage->group == group) bound->places[i] = offsets[block++];
  }
  return status;
}

int tw_bound_arrange(tw_bound_t* bound, uint32_t group) {
  const size_t count = (size_t)count_transients(bound, group, NULL) + 1;
  tw_arena_block_t* blocks = calloc(count, sizeof(*blocks));
  int64_t* offsets = calloc(count, sizeof(*offsets));
  const int fits = blocks != NULL && offsets != NULL;
  const tw_status_t status = fits ? pack_group(bound, group, blocks, offsets) : TW_STATUS_NO_MEMORY;
  free(blocks);
  free(offsets);
  if (status == TW_STATUS_OK) return TW_MODEL_OK;
  return status == TW_STATUS_NO_MEMORY ? tw_error_no_memory() : tw_bound_fail_too_large(bound);
}

// ---- creation ---------------------------------------------------------------------------------------

static uint32_t symbol_count_of(const tw_program_t* program) {
  return program->flow == NULL ? program->dim_count : program->flow->symbol_count;
}

// Sizes and places; `dims` are those, or all symbols of another.
static tw_bound_t* allocate_bound(const tw_program_t* program, const int64_t* dims, uint32_t known_count) {
  tw_bound_t* bound = calloc(1, sizeof(*bound));
  if (bound == NULL) return NULL;
  const uint32_t symbol_count = symbol_count_of(program);
  const uint32_t group_count = program->flow == NULL ? 1 : program->flow->group_count;
  bound->program = program;
  bound->dims = calloc((size_t)symbol_count + 1, sizeof(*bound->dims));
  bound->sizes = calloc((size_t)program->size_count + 1, sizeof(*bound->sizes));
  bound->places = calloc((size_t)program->storage_count + 1, sizeof(*bound->places));
  bound->slots = calloc((size_t)program->storage_count + 1, sizeof(*bound->slots));
  bound->group_bytes = calloc((size_t)group_count, sizeof(*bound->group_bytes));
  if (bound->dims == NULL || bound->sizes == NULL || bound->places == NULL || bound->slots == NULL ||
      bound->group_bytes == NULL) {
    tw_bound_destroy(bound);
    return NULL;
  }
  if (known_count != 0) memcpy(bound->dims, dims, known_count * sizeof(*dims));
  for (uint32_t i = known_count; i < symbol_count; ++i) bound->dims[i] = TW_NO_SIZE;
  return bound;
}

static int64_t operand_value(const tw_bound_t* bound, tw_number_t operand) {
  const tw_number_t first_symbol = TW_SIZE_SYMBOL(0);
  if (operand < first_symbol) return bound->sizes[operand - INT64_MIN];
  return operand < first_symbol + TW_SIZE_LIMIT ? bound->dims[operand - first_symbol] : operand;
}

static int64_t formula_value(const tw_bound_t* bound, const tw_formula_t* formula) {
  const int64_t left = operand_value(bound, formula->left);
  const int64_t right = operand_value(bound, formula->right);
  switch (formula->operation) {
    case TW_OPERATION_ADD:
      return tw_size_add(left, right);
    case TW_OPERATION_MUL:
      return tw_size_mul(left, right);
    case TW_OPERATION_FLOORDIV:
      return tw_size_floordiv(left, right);
    case TW_OPERATION_MOD:
      return tw_size_mod(left, right);
    case TW_OPERATION_MIN:
      return tw_size_min(left, right);
    case TW_OPERATION_MAX:
      return tw_size_max(left, right);
    case TW_OPERATION_COUNT:
      break;
  }
  return TW_NO_SIZE;
}

void tw_bound_evaluate(tw_bound_t* bound) {
  const tw_program_t* program = bound->program;
  if (program->formulas == NULL) {
    if (program->size_count != 0) program->evaluate(bound->dims, bound->sizes);
    return;
  }
  for (uint32_t i = 0; i < program->size_count; ++i) bound->sizes[i] = formula_value(bound, &program->formulas[i]);
}

static int finish(tw_bound_t* bound, int status, tw_bound_t** out_bound) {
  if (status != TW_MODEL_OK) {
    tw_bound_destroy(bound);
    return status;
  }
  *out_bound = bound;
  return TW_MODEL_OK;
}

int tw_bound_create(const tw_program_t* program, const int64_t* dims, tw_bound_t** out_bound) {
  tw_bound_t* bound = allocate_bound(program, dims, program->dim_count);
  if (bound == NULL) return tw_error_no_memory();
  tw_bound_evaluate(bound);
  int is_empty = 0;
  int status = check_call(bound, &is_empty);
  if (status == TW_MODEL_OK) status = tw_record_program(bound, is_empty);
  if (status == TW_MODEL_OK) {
    bound->expected = tw_expected_create(program, bound->sizes);
    if (bound->expected == NULL) status = tw_error_no_memory();
  }
  return finish(bound, status, out_bound);
}

int tw_bound_create_sizes(const tw_program_t* program, const int64_t* dims, tw_bound_t** out_bound) {
  tw_bound_t* bound = allocate_bound(program, dims, program->dim_count);
  if (bound == NULL) return tw_error_no_memory();
  tw_bound_evaluate(bound);
  int is_empty = 0;
  return finish(bound, check_call(bound, &is_empty), out_bound);
}

int tw_bound_create_stretch(const tw_bound_t* now, uint32_t stretch, tw_bound_t** out_bound) {
  const tw_program_t* program = now->program;
  tw_bound_t* bound = allocate_bound(program, now->dims, symbol_count_of(program));
  if (bound == NULL) return tw_error_no_memory();
  memcpy(bound->sizes, now->sizes, program->size_count * sizeof(*now->sizes));
  const int status = tw_record_stretch(bound, now, &program->flow->stretches[stretch]);
  free(bound->places);  // nobody asks again
  free(bound->slots);
  bound->places = NULL;
  bound->slots = NULL;
  return finish(bound, status, out_bound);
}

void tw_bound_destroy(tw_bound_t* bound) {
  if (bound == NULL) return;
  tw_command_list_destroy(bound->list);
  for (uint32_t i = 0; i < bound->failure_count; ++i) free(bound->failures[i].text);
  free(bound->failures);
  free(bound->expected);
  free(bound->dims);
  free(bound->sizes);
  free(bound->command_steps);
  free(bound->places);
  free(bound->slots);
  free(bound->group_bytes);
  free(bound->memories);
  free(bound);
}

// ---- findings ---------------------------------------------------------------------------------------

// The same text as `base.errors.index_error`.
static int report(const tw_bound_t* bound, const tw_index_check_t* check, int64_t index) {
  const int64_t size = tw_bound_number(bound, check->size);
  const int64_t low = tw_bound_number(bound, check->low);
  const int64_t high = tw_bound_number(bound, check->high);
  tw_text_t text = {.length = 0};
  tw_text_add(&text, "index %" PRId64 " is out of range on axis %d of size %" PRId64, index, check->axis, size);
  if (high < low) {
    tw_text_add(&text, ", which has no element");
  } else {
    tw_text_add(&text, ", expected %" PRId64 " .. %" PRId64, low, high);
  }
  return fail_at(check->location, &text);
}

int tw_bound_report(const tw_bound_t* bound, const void* records) {
  for (uint32_t i = 0; i < bound->program->check_count; ++i) {
    int64_t index = TW_NO_FINDING;
    memcpy(&index, (const char*)records + (size_t)i * TW_FINDING_BYTES, sizeof(index));
    if (index != TW_NO_FINDING) return report(bound, &bound->program->checks[i], index);
  }
  return TW_MODEL_OK;
}

int tw_bound_fail_late(const tw_bound_t* bound, uint32_t command) {
  for (uint32_t i = 0; i < bound->failure_count; ++i) {
    const tw_late_failure_t* failure = &bound->failures[i];
    if (failure->command == command) return tw_error_set(failure->status, "%s", failure->text);
  }
  return tw_bound_fail_inconsistent("a failure that nobody noted");
}
