// A program bound to the dimensions of calls: every size a number, every command recorded. Private to the core.
#ifndef TW_PROGRAM_BOUND_H_
#define TW_PROGRAM_BOUND_H_

#include "expected.h"
#include "tw_command_list.h"
#include "tw_model.h"

// What recording a step failed with that perhaps never runs.
typedef struct tw_late_failure_t {
  uint32_t command;
  int status;
  char* text;
} tw_late_failure_t;

// What is said of a whole program whose sizes the dimensions decide, it says with its list of commands: slots of it are
// inputs, outputs, constants, then the arena if there is one, then rows. Immutable after creation.
// Where data decides sizes, a call has one without a list, whose sizes change as they become known, and one for each
// stretch that it runs: slots of its list are what `memories` says.
typedef struct tw_bound_t {
  const tw_program_t* program;
  tw_command_list_t* list;   // NULL: sizes alone
  tw_expected_t* expected;   // of each input and output; NULL where it has no list or a part of them
  int64_t* dims;             // and behind them the late sizes, TW_NO_SIZE while nobody knows them
  int64_t* sizes;            // what the program's numbers refer to
  uint32_t* command_steps;   // of each command; `step_count` for those about findings, `step_count` + 1 for failures
  int64_t* places;           // of each storage: byte offset in its slot
  uint32_t* slots;           // of each storage
  int64_t* group_bytes;      // of each group: its arena
  uint32_t* memories;        // of each slot of a stretch: a storage, or TW_ARENA_OF(group)
  tw_late_failure_t* failures;
  uint32_t failure_count;
  uint32_t check_slot;       // where the records of findings are
  int64_t check_place;
  size_t arena_bytes;
  uint32_t arena_slot;       // UINT32_MAX: none
} tw_bound_t;

#define TW_ARENA_OF(group) (UINT32_C(1) << 31 | (group))

// Sets the error text unless it returns TW_MODEL_OK.
int tw_bound_create(const tw_program_t* program, const int64_t* dims, tw_bound_t** out_bound);

// Sizes alone: what the dimensions decide is checked.
int tw_bound_create_sizes(const tw_program_t* program, const int64_t* dims, tw_bound_t** out_bound);

// The commands of a stretch for sizes as they are now.
int tw_bound_create_stretch(const tw_bound_t* now, uint32_t stretch, tw_bound_t** out_bound);

// Computes the sizes anew, when symbols changed.
void tw_bound_evaluate(tw_bound_t* bound);

// Looks at what must hold of the sizes of a group.
int tw_bound_check_group(const tw_bound_t* bound, uint32_t group);

// Gives the transients of a group their places and the group its size; TW_NO_SIZE and negative sizes are errors.
int tw_bound_arrange(tw_bound_t* bound, uint32_t group);

// Whether a size of 0 leaves nothing to compute.
int tw_bound_is_empty(const tw_bound_t* bound);

// The errors of sizes.
int tw_bound_fail_too_large(const tw_bound_t* bound);
int tw_bound_fail_too_large_in(const tw_bound_t* bound, const char* kernel, int64_t value);

// Of a number that has no value: sizes are too large, or one is used that nobody knows yet.
int tw_bound_fail_number(const tw_bound_t* bound, tw_number_t number);

// Looks at what must hold of a size.
int tw_bound_compare(const tw_bound_t* bound, const tw_equality_t* pair);
int tw_bound_fail_inconsistent(const char* what);

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

// The text of a failure of `failures`; returns its status.
int tw_bound_fail_late(const tw_bound_t* bound, uint32_t command);

#endif  // TW_PROGRAM_BOUND_H_
