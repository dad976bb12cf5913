// Programs: the constant tables of a compiled model, as an exported library holds them.
//
// A program is a plan (`formats/plan` in Python) whose sizes, offsets, grids and push constants are numbers, or
// results of `evaluate` for the dynamic dimensions of a call. The tables are made by the compiler, compiled and
// linked with the kernels; nothing is parsed when a library is loaded. They are trusted, as code is.
//
// Some sizes may be known only when steps have run (`tw_flow_t`): they are symbols behind the dimensions.
#ifndef TW_PROGRAM_H_
#define TW_PROGRAM_H_

#include <stddef.h>
#include <stdint.h>

#include "tw_executable.h"
#include "tw_command_list.h"

// A number; or TW_SIZE(i), which stands for what `evaluate` wrote at i.
typedef int64_t tw_number_t;
#define TW_SIZE(ordinal) (INT64_MIN + (tw_number_t)(ordinal))
enum { TW_SIZE_LIMIT = 1 << 24 };  // more sizes, or symbols, than any program has
#define TW_SIZE_SYMBOL(ordinal) (INT64_MIN + TW_SIZE_LIMIT + (tw_number_t)(ordinal))

enum { TW_RANK_LIMIT = 64 };

typedef enum tw_storage_kind_t {
  TW_STORAGE_INPUT = 0,
  TW_STORAGE_OUTPUT = 1,
  TW_STORAGE_CONSTANT = 2,
  TW_STORAGE_TRANSIENT = 3,
  TW_STORAGE_ROW = 4,    // part of another, as a step says
  TW_STORAGE_BLOCK = 5,  // memory that a step allocates and another may give to another block
} tw_storage_kind_t;

// Bytes that tensors live in. `place`: of inputs, outputs and constants their position among those; of transients
// the offset in the arena, -1 where it is planned when the sizes are known.
typedef struct tw_storage_t {
  tw_storage_kind_t kind;
  uint32_t first;  // of transients: the steps it lives from and to
  uint32_t last;
  int64_t place;
  tw_number_t size_bytes;
  uint32_t group;  // of transients and outputs: behind which sizes they have their memory
} tw_storage_t;

// A tensor: `size_bytes` of a storage from byte `offset_bytes` on.
typedef struct tw_entry_t {
  uint32_t storage;
  tw_number_t offset_bytes;
  tw_number_t size_bytes;
} tw_entry_t;

// A data type as DLPack has it, and the name that messages have for it.
typedef struct tw_type_t {
  const char* name;
  uint8_t code;
  uint8_t bits;
  uint8_t item_bytes;
} tw_type_t;

// What a tensor of the signature, or of a call, looks like.
typedef struct tw_signature_t {
  const char* name;
  const char* text;          // `f32[batch, 3]`
  const tw_type_t* type;
  const tw_number_t* shape;  // `rank` extents
  uint32_t rank;
  uint64_t dims;             // bit i: some extent depends on dimension i
} tw_signature_t;

// A dynamic dimension: the extent of an axis of an input.
typedef struct tw_dimension_t {
  const char* name;
  uint32_t input;
  uint32_t axis;
  int64_t minimum;
  int64_t maximum;     // -1: any
  int leaves_nothing;  // a size of 0 leaves no element of any output: nothing runs
} tw_dimension_t;

// What a size must be to another. MIRROR PROGRAM RELATIONS: `formats/plan/size_relations.py`.
typedef enum tw_relation_t {
  TW_RELATION_EQUAL = 0,
  TW_RELATION_NOT_NEGATIVE,
  TW_RELATION_AT_MOST,
  TW_RELATION_AT_LEAST,
  TW_RELATION_MULTIPLE,
  TW_RELATION_COUNT,
} tw_relation_t;

// What must hold of a size, with the text that errors have for it. It is looked at when the sizes of its group are known.
typedef struct tw_equality_t {
  tw_relation_t relation;
  tw_number_t size;
  tw_number_t other;
  const char* size_text;
  const char* other_text;  // "": a number
  const char* location;  // of the node that needs it; "": the model does
  uint32_t group;
} tw_equality_t;

typedef struct tw_size_guard_t {
  tw_number_t size;
  const char* text;
  uint32_t group;
} tw_size_guard_t;

// What an index in the data of a call must obey.
typedef struct tw_index_check_t {
  const char* location;  // "": nobody knows
  int32_t axis;
  tw_number_t size;
  tw_number_t low;
  tw_number_t high;
} tw_index_check_t;

typedef struct tw_kernel_row_t {
  const char* name;
  tw_kernel_t function;
  uint32_t local_memory_bytes;
  uint32_t workgroup_size[3];
  uint32_t flags;         // of its commands, such as TW_COMMAND_FLUSH_DENORMALS
  uintptr_t environment;  // the address of one; 0: the default
} tw_kernel_row_t;

// A step of the computation of sizes. Operands are numbers, sizes that come before it, or symbols: TW_SIZE_SYMBOL(i).
typedef enum tw_operation_t {
  TW_OPERATION_ADD = 0,
  TW_OPERATION_MUL = 1,
  TW_OPERATION_FLOORDIV = 2,
  TW_OPERATION_MOD = 3,
  TW_OPERATION_MIN = 4,
  TW_OPERATION_MAX = 5,
  TW_OPERATION_COUNT = 6,
} tw_operation_t;

typedef struct tw_formula_t {
  tw_operation_t operation;
  tw_number_t left;
  tw_number_t right;
} tw_formula_t;

typedef enum tw_step_kind_t {
  TW_STEP_DISPATCH = 0,  // `target` is a kernel
  TW_STEP_COPY = 1,      // operand, result
  TW_STEP_CALL = 2,      // `target` is a packed function
  TW_STEP_LABEL = 3,     // where others go to
  TW_STEP_GOTO = 4,      // on at step `target`, a label: always, or where the one argument, a byte, is 0
  TW_STEP_ROW = 5,       // the result, a row storage, is the row of the second operand at the first, an int64
  TW_STEP_READ = 6,      // the argument, int64s, has the values of the late sizes from `target` on
  TW_STEP_ALLOCATE = 7,  // the result, a block, has memory from here on, as large as it is now
  TW_STEP_REBIND = 8,    // the late sizes from `target` on are `constants`, evaluated before any of them changes; the
                         // results take over the memory of the operands, in order, all at once
  TW_STEP_EXPECT = 9,    // fails unless the `constant_count` expectations from `target` on hold
} tw_step_kind_t;

// `arguments` are entries, operands before results; `constants` the kernel's push constants, or numbers of a step that
// binds sizes, of which there are as many.
typedef struct tw_step_t {
  tw_step_kind_t kind;
  uint32_t target;
  uint32_t argument_first;
  uint16_t argument_count;
  uint16_t result_count;
  uint32_t constant_first;
  uint16_t constant_count;
  uint16_t barrier;  // waits for all earlier steps
  tw_number_t grid[3];
} tw_step_t;

// A packed function, `int (*)(void*, const tw_any_t*, int32_t, tw_any_t*)`: linked, or NULL to be looked up by name.
typedef struct tw_callee_t {
  const char* name;
  int (*function)(void* self, const void* args, int32_t num_args, void* result);
} tw_callee_t;

// A size that steps bind.
typedef struct tw_late_size_t {
  uint32_t symbol;
  uint32_t group;        // which it completes
  int64_t minimum;
  int64_t maximum;       // -1: any
  const char* location;  // the node; "": nobody knows
} tw_late_size_t;

// Steps that are one list of commands for each set of values of their symbols.
typedef struct tw_stretch_t {
  uint32_t first;
  uint32_t end;
  uint32_t symbol_first;  // in `lists`, as are the storages that they use
  uint32_t symbol_count;
  uint32_t storage_first;
  uint32_t storage_count;
} tw_stretch_t;

// Transients and outputs that have their memory when the last of some sizes is known. The first group needs only the
// dimensions.
typedef struct tw_group_t {
  uint32_t symbol_first;  // in `lists`
  uint32_t symbol_count;
  uint32_t storage_first;
  uint32_t storage_count;
} tw_group_t;

// What a program has whose sizes data decides. Symbols are the dimensions, then the late sizes.
typedef struct tw_flow_t {
  const char* const* names;  // of late sizes
  const tw_late_size_t* late_sizes;
  const tw_stretch_t* stretches;  // by their first step
  const tw_group_t* groups;
  const uint32_t* lists;
  uint32_t symbol_count;
  uint32_t stretch_count;
  uint32_t group_count;
} tw_flow_t;

typedef struct tw_program_t {
  const char* level;            // of the processor that it is for: "v3"
  const char* const* features;  // that the processor must have, up to NULL
  const char* graph_json;       // the plan in its file form; NULL: left out
  const tw_signature_t* inputs;
  const tw_signature_t* outputs;
  const tw_dimension_t* dims;
  const tw_equality_t* equalities;
  const tw_size_guard_t* guards;
  const tw_index_check_t* checks;
  const tw_storage_t* storages;
  const tw_entry_t* entries;
  const uint32_t* arguments;
  const tw_number_t* constants;
  const uint64_t* weight_offsets;  // of each constant storage, in the library's bytes or in the file
  const tw_step_t* steps;
  const tw_kernel_row_t* kernels;
  const tw_callee_t* callees;            // packed functions that steps call
  void* const* callee_context;           // what tvm-ffi looks them up with; NULL: only linked ones are called
  const tw_signature_t* call_arguments;  // of the arguments of calls: parallel to `arguments`, NULL if there is no call
  const tw_equality_t* expectations;     // of steps
  const tw_flow_t* flow;                 // NULL: the dimensions decide all sizes
  // Writes `size_count` sizes of the symbols, TW_NO_SIZE (tw_size.h) for those that have no number.
  void (*evaluate)(const int64_t* symbols, int64_t* out_sizes);
  const tw_formula_t* formulas;  // instead, one for each size; NULL: `evaluate` does it
  uint32_t size_count;
  uint32_t input_count;
  uint32_t output_count;
  uint32_t constant_storage_count;
  uint32_t dim_count;
  uint32_t equality_count;
  uint32_t guard_count;
  uint32_t check_count;
  uint32_t check_storage;
  uint32_t storage_count;
  uint32_t entry_count;
  uint32_t step_count;
  int64_t arena_bytes;  // -1: known when the sizes are
} tw_program_t;

#endif  // TW_PROGRAM_H_
