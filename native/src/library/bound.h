// A program bound to the dimensions of calls: every size a number, every command recorded. Private to the library.
#ifndef TW_LIBRARY_BOUND_H_
#define TW_LIBRARY_BOUND_H_

#include "expected.h"
#include "tw_command_list.h"
#include "tw_model.h"

// Immutable after creation. Slots of the list: inputs, outputs, constants, then the arena if there is one, then rows.
typedef struct tw_bound_t {
  const tw_program_t* program;
  tw_command_list_t* list;
  tw_expected_t* expected;  // of each input and output
  int64_t* dims;
  int64_t* sizes;           // what the program's numbers refer to
  uint32_t* command_steps;  // of each command; `step_count` for those about findings
  int64_t* places;          // of each storage: byte offset in its slot
  uint32_t* slots;          // of each storage
  size_t arena_bytes;
  uint32_t arena_slot;      // UINT32_MAX: none
} tw_bound_t;

// Sets the error text unless it returns TW_MODEL_OK.
int tw_bound_create(const tw_program_t* program, const int64_t* dims, tw_bound_t** out_bound);
void tw_bound_destroy(tw_bound_t* bound);

// What a number of the program stands for, by what `evaluate` wrote; TW_NO_SIZE if it does not fit.
static inline int64_t tw_number_value(tw_number_t number, const int64_t* sizes) {
  return number < INT64_MIN + TW_SIZE_LIMIT ? sizes[number - INT64_MIN] : number;
}

static inline int64_t tw_bound_number(const tw_bound_t* bound, tw_number_t number) {
  return tw_number_value(number, bound->sizes);
}

// The extents of a tensor; 0 if one of them has no number.
int tw_bound_shape(const tw_bound_t* bound, const tw_signature_t* signature, int64_t* out_shape);

// Reads what the kernels found and sets the error text for the first of it.
int tw_bound_report(const tw_bound_t* bound, const void* records);

// Where the records of findings are, in the arena.
size_t tw_bound_records(const tw_bound_t* bound);

#endif  // TW_LIBRARY_BOUND_H_
