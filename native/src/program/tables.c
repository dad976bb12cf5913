#include "tables.h"

#include <stdlib.h>
#include <string.h>

#include "bound.h"
#include "error.h"

struct tw_tables_t {
  tw_program_t program;
  tw_flow_t flow;
  char* texts;
  void* rows[TW_TABLE_COUNT];
  size_t counts[TW_TABLE_COUNT];  // of rows
};

static const size_t columns[TW_TABLE_COUNT] = {
    [TW_TABLE_NUMBERS] = 1,      [TW_TABLE_SIGNATURES] = 4, [TW_TABLE_DIMENSIONS] = 6, [TW_TABLE_EQUALITIES] = 7,
    [TW_TABLE_EXPECTATIONS] = 7, [TW_TABLE_GUARDS] = 3,     [TW_TABLE_CHECKS] = 5,     [TW_TABLE_STORAGES] = 6,
    [TW_TABLE_ENTRIES] = 3,      [TW_TABLE_ARGUMENTS] = 1,  [TW_TABLE_CONSTANTS] = 1,  [TW_TABLE_STEPS] = 11,
    [TW_TABLE_KERNELS] = 8,      [TW_TABLE_LATE_NAMES] = 1, [TW_TABLE_LATE_SIZES] = 5, [TW_TABLE_STRETCHES] = 6,
    [TW_TABLE_GROUPS] = 4,       [TW_TABLE_LISTS] = 1,      [TW_TABLE_FORMULAS] = 3,   [TW_TABLE_TOTALS] = 2,
};

// What is read, and whether all of it fits so far.
typedef struct reader_t {
  const tw_rows_t* given;
  tw_tables_t* tables;
  size_t text_bytes;
  int fits;
  int has_memory;
} reader_t;

// ---- columns ----------------------------------------------------------------------------------------

static uint32_t below(reader_t* reader, int64_t value, size_t limit) {
  if (value >= 0 && (uint64_t)value < limit) return (uint32_t)value;
  reader->fits = 0;
  return 0;
}

static uint32_t word(reader_t* reader, int64_t value) { return below(reader, value, UINT32_MAX); }
static uint16_t half(reader_t* reader, int64_t value) { return (uint16_t)below(reader, value, UINT16_MAX); }
static size_t count_of(const reader_t* reader, tw_table_t table) { return reader->tables->counts[table]; }
static uint32_t place_in(reader_t* reader, int64_t value, tw_table_t table) {
  return below(reader, value, count_of(reader, table));
}

// The first of some rows of a table; `count` may be 0.
static uint32_t first_of(reader_t* reader, int64_t first, int64_t count, tw_table_t table) {
  const uint32_t checked = below(reader, count, count_of(reader, table) + 1);
  return below(reader, first, count_of(reader, table) - checked + 1);
}

static const char* text_at(reader_t* reader, int64_t offset) {
  return reader->tables->texts + below(reader, offset, reader->text_bytes);
}

static tw_number_t number(reader_t* reader, int64_t value) {
  if (value < INT64_MIN + TW_SIZE_LIMIT) below(reader, value - INT64_MIN, count_of(reader, TW_TABLE_FORMULAS));
  return value;
}

// ---- rows -------------------------------------------------------------------------------------------

// Memory for the rows of a table. NULL: there is none, and nothing is read.
static void* begin(reader_t* reader, tw_table_t table, size_t row_bytes) {
  if (!reader->has_memory) return NULL;
  reader->tables->rows[table] = calloc(count_of(reader, table) + 1, row_bytes);
  reader->has_memory = reader->tables->rows[table] != NULL;
  return reader->tables->rows[table];
}

static const int64_t* row_of(const reader_t* reader, tw_table_t table, size_t index) {
  return reader->given[table].numbers + index * columns[table];
}

// `rows` are of the type of the row, `row` the numbers of one of them, which `i` counts.
#define READ_ROWS(reader, table, type, ...)                                              \
  do {                                                                                   \
    type* rows = begin(reader, table, sizeof(*rows));                                    \
    for (size_t i = 0; rows != NULL && i < count_of(reader, table); ++i) {               \
      const int64_t* row = row_of(reader, table, i);                                     \
      rows[i] = (type)__VA_ARGS__;                                                       \
    }                                                                                    \
  } while (0)

static void read_numbers(reader_t* reader) {
  READ_ROWS(reader, TW_TABLE_NUMBERS, tw_number_t, { number(reader, row[0]) });
  READ_ROWS(reader, TW_TABLE_CONSTANTS, tw_number_t, { number(reader, row[0]) });
  READ_ROWS(reader, TW_TABLE_LATE_NAMES, const char*, { text_at(reader, row[0]) });
}

// Operands are sizes before this one, symbols, or numbers.
static tw_number_t operand(reader_t* reader, int64_t value, size_t before) {
  if (value < INT64_MIN + TW_SIZE_LIMIT) {
    below(reader, value - INT64_MIN, before);
  } else if (value < INT64_MIN + 2 * (int64_t)TW_SIZE_LIMIT) {
    below(reader, value - TW_SIZE_SYMBOL(0), count_of(reader, TW_TABLE_DIMENSIONS) + count_of(reader, TW_TABLE_LATE_NAMES));
  }
  return value;
}

static void read_formulas(reader_t* reader) {
  READ_ROWS(reader, TW_TABLE_FORMULAS, tw_formula_t,
            {
                .operation = (tw_operation_t)below(reader, row[0], TW_OPERATION_COUNT),
                .left = operand(reader, row[1], i),
                .right = operand(reader, row[2], i),
            });
}

static void read_signatures(reader_t* reader) {
  const tw_number_t* numbers = reader->tables->rows[TW_TABLE_NUMBERS];
  READ_ROWS(reader, TW_TABLE_SIGNATURES, tw_signature_t,
            {
                .name = text_at(reader, row[0]),
                .text = text_at(reader, row[1]),
                .shape = numbers + first_of(reader, row[2], row[3], TW_TABLE_NUMBERS),
                .rank = below(reader, row[3], TW_RANK_LIMIT + 1),
            });
}

static void read_dimensions(reader_t* reader) {
  const size_t input_count = reader->tables->program.input_count;
  READ_ROWS(reader, TW_TABLE_DIMENSIONS, tw_dimension_t,
            {
                .name = text_at(reader, row[0]),
                .input = below(reader, row[1], input_count),
                .axis = word(reader, row[2]),
                .minimum = row[3],
                .maximum = row[4],
                .leaves_nothing = row[5] != 0,
            });
}

static tw_equality_t equality(reader_t* reader, const int64_t* row) {
  return (tw_equality_t){
      .relation = (tw_relation_t)below(reader, row[0], TW_RELATION_COUNT),
      .size = number(reader, row[1]),
      .other = number(reader, row[2]),
      .size_text = text_at(reader, row[3]),
      .other_text = text_at(reader, row[4]),
      .location = text_at(reader, row[5]),
      .group = place_in(reader, row[6], TW_TABLE_GROUPS),
  };
}

static void read_conditions(reader_t* reader) {
  READ_ROWS(reader, TW_TABLE_EQUALITIES, tw_equality_t, equality(reader, row));
  READ_ROWS(reader, TW_TABLE_EXPECTATIONS, tw_equality_t, equality(reader, row));
  READ_ROWS(reader, TW_TABLE_GUARDS, tw_size_guard_t,
            {
                .size = number(reader, row[0]),
                .text = text_at(reader, row[1]),
                .group = place_in(reader, row[2], TW_TABLE_GROUPS),
            });
  READ_ROWS(reader, TW_TABLE_CHECKS, tw_index_check_t,
            {
                .location = text_at(reader, row[0]),
                .axis = (int32_t)below(reader, row[1], INT32_MAX),
                .size = number(reader, row[2]),
                .low = number(reader, row[3]),
                .high = number(reader, row[4]),
            });
}

static void read_memory(reader_t* reader) {
  READ_ROWS(reader, TW_TABLE_STORAGES, tw_storage_t,
            {
                .kind = (tw_storage_kind_t)below(reader, row[0], TW_STORAGE_BLOCK + 1),
                .first = word(reader, row[1]),
                .last = word(reader, row[2]),
                .place = row[3],
                .size_bytes = number(reader, row[4]),
                .group = place_in(reader, row[5], TW_TABLE_GROUPS),
            });
  READ_ROWS(reader, TW_TABLE_ENTRIES, tw_entry_t,
            {
                .storage = place_in(reader, row[0], TW_TABLE_STORAGES),
                .offset_bytes = number(reader, row[1]),
                .size_bytes = number(reader, row[2]),
            });
  READ_ROWS(reader, TW_TABLE_ARGUMENTS, uint32_t, { place_in(reader, row[0], TW_TABLE_ENTRIES) });
}

// Inputs, outputs and constants are in their places, each in one: whoever looks for a place finds it.
static void check_places(reader_t* reader) {
  const tw_program_t* program = &reader->tables->program;
  const tw_storage_t* storages = reader->tables->rows[TW_TABLE_STORAGES];
  const size_t wanted[] = {program->input_count, program->output_count, program->constant_storage_count};
  const size_t first[] = {0, wanted[0], wanted[0] + wanted[1]};
  const size_t total = wanted[0] + wanted[1] + wanted[2];
  uint8_t* taken = calloc(total + 1, sizeof(*taken));
  size_t found = 0;
  reader->has_memory = taken != NULL;
  for (size_t i = 0; taken != NULL && i < count_of(reader, TW_TABLE_STORAGES); ++i) {
    if (storages[i].kind > TW_STORAGE_CONSTANT) continue;
    const size_t place = first[storages[i].kind] + below(reader, storages[i].place, wanted[storages[i].kind]);
    if (!reader->fits || taken[place]) break;
    taken[place] = 1;
    ++found;
  }
  if (found != total) reader->fits = 0;
  free(taken);
}

// What a step of the kind counts on.
static void check_target(reader_t* reader, const tw_step_t* step) {
  const tw_step_t* steps = reader->tables->rows[TW_TABLE_STEPS];
  switch (step->kind) {
    case TW_STEP_DISPATCH:
      place_in(reader, step->target, TW_TABLE_KERNELS);
      break;
    case TW_STEP_GOTO:
      if (steps[place_in(reader, step->target, TW_TABLE_STEPS)].kind != TW_STEP_LABEL) reader->fits = 0;
      break;
    case TW_STEP_EXPECT:
      first_of(reader, step->target, step->constant_count, TW_TABLE_EXPECTATIONS);
      break;
    case TW_STEP_READ:
    case TW_STEP_REBIND:
      first_of(reader, step->target, step->constant_count, TW_TABLE_LATE_SIZES);
      break;
    case TW_STEP_CALL:
      reader->fits = 0;  // these programs have no functions of others
      break;
    case TW_STEP_COPY:
    case TW_STEP_LABEL:
    case TW_STEP_ROW:
    case TW_STEP_ALLOCATE:
      break;
  }
}

// As many arguments as whoever carries out the step looks at.
static void check_arguments(reader_t* reader, const tw_step_t* step) {
  const uint32_t count = step->argument_count;
  int fits = step->result_count <= count;
  if (step->kind == TW_STEP_COPY) fits = fits && count == 2;
  if (step->kind == TW_STEP_GOTO) fits = fits && count <= 1;
  if (step->kind == TW_STEP_READ || step->kind == TW_STEP_ALLOCATE) fits = fits && count == 1;
  if (step->kind == TW_STEP_ROW) fits = fits && count == 3 && step->result_count == 1;
  if (step->kind == TW_STEP_REBIND) fits = fits && count == 2u * step->result_count;
  if (!fits) reader->fits = 0;
}

// Expectations and sizes that are read are not among the constants, though a step says how many there are.
static size_t constants_of(const int64_t* row) {
  return row[0] == TW_STEP_DISPATCH || row[0] == TW_STEP_REBIND ? (size_t)row[6] : 0;
}

static void read_steps(reader_t* reader) {
  READ_ROWS(reader, TW_TABLE_STEPS, tw_step_t,
            {
                .kind = (tw_step_kind_t)below(reader, row[0], TW_STEP_EXPECT + 1),
                .target = word(reader, row[1]),
                .argument_first = first_of(reader, row[2], row[3], TW_TABLE_ARGUMENTS),
                .argument_count = half(reader, row[3]),
                .result_count = half(reader, row[4]),
                .constant_first = first_of(reader, row[5], (int64_t)constants_of(row), TW_TABLE_CONSTANTS),
                .constant_count = half(reader, row[6]),
                .barrier = row[7] != 0,
                .grid = {number(reader, row[8]), number(reader, row[9]), number(reader, row[10])},
            });
  const tw_step_t* steps = reader->tables->rows[TW_TABLE_STEPS];
  for (size_t i = 0; steps != NULL && reader->fits && i < count_of(reader, TW_TABLE_STEPS); ++i) {
    check_target(reader, &steps[i]);
    check_arguments(reader, &steps[i]);
  }
}

static void read_kernels(reader_t* reader) {
  READ_ROWS(reader, TW_TABLE_KERNELS, tw_kernel_row_t,
            {
                .name = text_at(reader, row[0]),
                .function = (tw_kernel_t)(uintptr_t)row[1],
                .environment = (uintptr_t)row[2],
                .flags = word(reader, row[3]),
                .local_memory_bytes = word(reader, row[4]),
                .workgroup_size = {word(reader, row[5]), word(reader, row[6]), word(reader, row[7])},
            });
}

static void read_flow(reader_t* reader) {
  const size_t symbols = count_of(reader, TW_TABLE_DIMENSIONS) + count_of(reader, TW_TABLE_LATE_NAMES);
  const size_t steps = count_of(reader, TW_TABLE_STEPS);
  READ_ROWS(reader, TW_TABLE_LISTS, uint32_t, { word(reader, row[0]) });
  READ_ROWS(reader, TW_TABLE_LATE_SIZES, tw_late_size_t,
            {
                .symbol = below(reader, row[0], symbols),
                .group = place_in(reader, row[1], TW_TABLE_GROUPS),
                .minimum = row[2],
                .maximum = row[3],
                .location = text_at(reader, row[4]),
            });
  READ_ROWS(reader, TW_TABLE_STRETCHES, tw_stretch_t,
            {
                .first = below(reader, row[0], steps),
                .end = below(reader, row[1], steps + 1),
                .symbol_first = first_of(reader, row[2], row[3], TW_TABLE_LISTS),
                .symbol_count = word(reader, row[3]),
                .storage_first = first_of(reader, row[4], row[5], TW_TABLE_LISTS),
                .storage_count = word(reader, row[5]),
            });
  READ_ROWS(reader, TW_TABLE_GROUPS, tw_group_t,
            {
                .symbol_first = first_of(reader, row[0], row[1], TW_TABLE_LISTS),
                .symbol_count = word(reader, row[1]),
                .storage_first = first_of(reader, row[2], row[3], TW_TABLE_LISTS),
                .storage_count = word(reader, row[3]),
            });
}

// What is done between lists of commands is no part of one, and no way leads out of a list.
static int lies_within(const tw_stretch_t* stretch, const tw_step_t* step) {
  if (step->kind == TW_STEP_GOTO) return step->target >= stretch->first && step->target < stretch->end;
  return step->kind != TW_STEP_READ && step->kind != TW_STEP_ALLOCATE && step->kind != TW_STEP_REBIND;
}

static void check_stretch(reader_t* reader, const tw_stretch_t* stretch) {
  const tw_step_t* steps = reader->tables->rows[TW_TABLE_STEPS];
  if (stretch->first >= stretch->end) reader->fits = 0;
  for (uint32_t i = stretch->first; reader->fits && i < stretch->end; ++i) {
    if (!lies_within(stretch, &steps[i])) reader->fits = 0;
  }
}

// The records of checks are written before anything runs: in memory that the inputs decide, and all of it.
static void check_records(reader_t* reader) {
  const tw_program_t* program = &reader->tables->program;
  const tw_storage_t* storages = reader->tables->rows[TW_TABLE_STORAGES];
  if (program->check_count == 0) return;
  if (program->check_storage >= program->storage_count) {
    reader->fits = 0;
    return;
  }
  const tw_storage_t* records = &storages[program->check_storage];
  if (records->kind != TW_STORAGE_TRANSIENT || records->group != 0 ||
      records->size_bytes != (int64_t)program->check_count * TW_FINDING_BYTES) {
    reader->fits = 0;
  }
}

// The lists that stretches and groups have are of symbols and storages that are there.
static void check_list(reader_t* reader, uint32_t first, uint32_t count, size_t limit) {
  const uint32_t* lists = reader->tables->rows[TW_TABLE_LISTS];
  for (uint32_t i = 0; reader->fits && i < count; ++i) below(reader, lists[first + i], limit);
}

static void check_lists(reader_t* reader) {
  const size_t symbols = count_of(reader, TW_TABLE_DIMENSIONS) + count_of(reader, TW_TABLE_LATE_NAMES);
  const size_t storages = count_of(reader, TW_TABLE_STORAGES);
  const tw_stretch_t* stretches = reader->tables->rows[TW_TABLE_STRETCHES];
  const tw_group_t* groups = reader->tables->rows[TW_TABLE_GROUPS];
  for (size_t i = 0; reader->fits && i < count_of(reader, TW_TABLE_STRETCHES); ++i) {
    check_list(reader, stretches[i].symbol_first, stretches[i].symbol_count, symbols);
    check_list(reader, stretches[i].storage_first, stretches[i].storage_count, storages);
    if (i > 0 && stretches[i].first < stretches[i - 1].end) reader->fits = 0;
    check_stretch(reader, &stretches[i]);
  }
  for (size_t i = 0; reader->fits && i < count_of(reader, TW_TABLE_GROUPS); ++i) {
    check_list(reader, groups[i].symbol_first, groups[i].symbol_count, symbols);
    check_list(reader, groups[i].storage_first, groups[i].storage_count, storages);
  }
}

// ---- the program ------------------------------------------------------------------------------------

static void count_rows(reader_t* reader) {
  for (size_t i = 0; i < TW_TABLE_COUNT; ++i) {
    reader->tables->counts[i] = reader->given[i].count / columns[i];
    if (reader->given[i].count % columns[i] != 0 || reader->tables->counts[i] > TW_SIZE_LIMIT) reader->fits = 0;
  }
  if (count_of(reader, TW_TABLE_TOTALS) != 1 || count_of(reader, TW_TABLE_GROUPS) == 0) reader->fits = 0;
}

static void set_counts(reader_t* reader) {
  tw_program_t* program = &reader->tables->program;
  const int64_t* totals = row_of(reader, TW_TABLE_TOTALS, 0);
  const size_t signatures = count_of(reader, TW_TABLE_SIGNATURES);
  program->input_count = below(reader, totals[0], signatures + 1);
  program->output_count = (uint32_t)signatures - program->input_count;
  program->check_storage = below(reader, totals[1], count_of(reader, TW_TABLE_STORAGES) + 1);
  program->dim_count = (uint32_t)count_of(reader, TW_TABLE_DIMENSIONS);
  program->equality_count = (uint32_t)count_of(reader, TW_TABLE_EQUALITIES);
  program->guard_count = (uint32_t)count_of(reader, TW_TABLE_GUARDS);
  program->check_count = (uint32_t)count_of(reader, TW_TABLE_CHECKS);
  program->storage_count = (uint32_t)count_of(reader, TW_TABLE_STORAGES);
  program->entry_count = (uint32_t)count_of(reader, TW_TABLE_ENTRIES);
  program->step_count = (uint32_t)count_of(reader, TW_TABLE_STEPS);
  program->size_count = (uint32_t)count_of(reader, TW_TABLE_FORMULAS);
  program->arena_bytes = -1;
  for (size_t i = 0; i < program->storage_count; ++i) {
    program->constant_storage_count += row_of(reader, TW_TABLE_STORAGES, i)[0] == TW_STORAGE_CONSTANT;
  }
}

static void set_tables(tw_tables_t* tables) {
  void* const* rows = tables->rows;
  tw_program_t* program = &tables->program;
  tables->flow = (tw_flow_t){
      .names = rows[TW_TABLE_LATE_NAMES],
      .late_sizes = rows[TW_TABLE_LATE_SIZES],
      .stretches = rows[TW_TABLE_STRETCHES],
      .groups = rows[TW_TABLE_GROUPS],
      .lists = rows[TW_TABLE_LISTS],
      .symbol_count = (uint32_t)(tables->counts[TW_TABLE_DIMENSIONS] + tables->counts[TW_TABLE_LATE_NAMES]),
      .stretch_count = (uint32_t)tables->counts[TW_TABLE_STRETCHES],
      .group_count = (uint32_t)tables->counts[TW_TABLE_GROUPS],
  };
  program->inputs = rows[TW_TABLE_SIGNATURES];
  program->outputs = program->inputs + program->input_count;
  program->dims = rows[TW_TABLE_DIMENSIONS];
  program->equalities = rows[TW_TABLE_EQUALITIES];
  program->expectations = rows[TW_TABLE_EXPECTATIONS];
  program->guards = rows[TW_TABLE_GUARDS];
  program->checks = rows[TW_TABLE_CHECKS];
  program->storages = rows[TW_TABLE_STORAGES];
  program->entries = rows[TW_TABLE_ENTRIES];
  program->arguments = rows[TW_TABLE_ARGUMENTS];
  program->constants = rows[TW_TABLE_CONSTANTS];
  program->steps = rows[TW_TABLE_STEPS];
  program->kernels = rows[TW_TABLE_KERNELS];
  program->formulas = rows[TW_TABLE_FORMULAS];
  program->flow = &tables->flow;
}

static void read_all(reader_t* reader) {
  set_counts(reader);
  read_numbers(reader);
  read_formulas(reader);
  read_signatures(reader);
  read_dimensions(reader);
  read_conditions(reader);
  read_memory(reader);
  read_kernels(reader);
  read_flow(reader);
  read_steps(reader);
  if (!reader->has_memory || !reader->fits) return;
  check_places(reader);
  check_lists(reader);
  check_records(reader);
  set_tables(reader->tables);
}

static int copy_texts(tw_tables_t* tables, const char* texts, size_t text_bytes) {
  tables->texts = malloc(text_bytes + 1);
  if (tables->texts == NULL) return 0;
  if (text_bytes != 0) memcpy(tables->texts, texts, text_bytes);
  tables->texts[text_bytes] = '\0';
  return 1;
}

int tw_tables_create(const tw_rows_t* given, const char* texts, size_t text_bytes, tw_tables_t** out_tables) {
  tw_tables_t* tables = calloc(1, sizeof(*tables));
  if (tables == NULL || !copy_texts(tables, texts, text_bytes)) {
    tw_tables_destroy(tables);
    return tw_error_no_memory();
  }
  reader_t reader = {.given = given, .tables = tables, .text_bytes = text_bytes + 1, .fits = 1, .has_memory = 1};
  count_rows(&reader);
  if (reader.fits) read_all(&reader);
  if (reader.fits && reader.has_memory) {
    *out_tables = tables;
    return TW_MODEL_OK;
  }
  tw_tables_destroy(tables);
  return reader.has_memory ? tw_bound_fail_inconsistent("its tables") : tw_error_no_memory();
}

const tw_program_t* tw_tables_program(const tw_tables_t* tables) { return &tables->program; }

void tw_tables_destroy(tw_tables_t* tables) {
  if (tables == NULL) return;
  for (size_t i = 0; i < TW_TABLE_COUNT; ++i) free(tables->rows[i]);
  free(tables->texts);
  free(tables);
}
