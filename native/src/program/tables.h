// Programs made of plain numbers, where no compiler of C writes them down: what a session knows of a plan. Private to
// the core.
//
// MIRROR PROGRAM TABLES: `runtime/plan_executor/program_tables.py`. Every place, number of rows and text is checked here;
// what steps of each kind have for arguments is the verifier's matter, as is who uses which memory when.
#ifndef TW_PROGRAM_TABLES_H_
#define TW_PROGRAM_TABLES_H_

#include <stddef.h>
#include <stdint.h>

#include "tw_program.h"

// The tables, in the order in which they are given, with the columns of their rows. Texts are byte offsets; shapes and
// lists are a first place and a count.
typedef enum tw_table_t {
  TW_TABLE_NUMBERS = 0,       // a number: extents
  TW_TABLE_SIGNATURES,        // name, text, numbers (2): inputs, then outputs
  TW_TABLE_DIMENSIONS,        // name, input, axis, minimum, maximum, leaves nothing
  TW_TABLE_EQUALITIES,        // relation, size, other, text, text, location, group
  TW_TABLE_EXPECTATIONS,      // the same
  TW_TABLE_GUARDS,            // size, text, group
  TW_TABLE_CHECKS,            // location, axis, size, low, high
  TW_TABLE_STORAGES,          // kind, first, last, place, size, group
  TW_TABLE_ENTRIES,           // storage, offset, size
  TW_TABLE_ARGUMENTS,         // entry
  TW_TABLE_CONSTANTS,         // number
  TW_TABLE_STEPS,             // kind, target, arguments (2), results, constants (2), barrier, grid (3)
  TW_TABLE_KERNELS,           // name, function, environment, flags, bytes of workgroup memory, workgroup sizes (3)
  TW_TABLE_LATE_NAMES,        // name
  TW_TABLE_LATE_SIZES,        // symbol, group, minimum, maximum, location
  TW_TABLE_STRETCHES,         // first step, end, symbols (2), storages (2)
  TW_TABLE_GROUPS,            // symbols (2), storages (2)
  TW_TABLE_LISTS,             // a symbol or a storage
  TW_TABLE_FORMULAS,          // operation, left, right
  TW_TABLE_TOTALS,            // inputs, storage of the checks: one row
  TW_TABLE_COUNT,
} tw_table_t;

typedef struct tw_rows_t {
  const int64_t* numbers;
  size_t count;  // of numbers
} tw_rows_t;

typedef struct tw_tables_t tw_tables_t;

// Copies them: nothing of what is given is needed afterwards. Sets the error text.
int tw_tables_create(const tw_rows_t* tables, const char* texts, size_t text_bytes, tw_tables_t** out_tables);
const tw_program_t* tw_tables_program(const tw_tables_t* tables);
void tw_tables_destroy(tw_tables_t* tables);

#endif  // TW_PROGRAM_TABLES_H_
