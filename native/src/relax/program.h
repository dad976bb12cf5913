// A Relax executable that is run natively: its code, its constants, the functions it calls. Private to `relax/`.
//
// Ownership: a program lives as long as a function that was made of it (what `tw_relax_make` gives) or a call of one.
// Functions as values do not keep it. Thread-safety: any thread may call; each call has registers of its own.
#ifndef TW_RELAX_PROGRAM_H_
#define TW_RELAX_PROGRAM_H_

#include <pthread.h>
#include <stdatomic.h>

#include "ffi.h"
#include "values.h"

typedef struct tw_relax_t tw_relax_t;
typedef struct tw_builtin_t tw_builtin_t;

// A built-in: borrowed arguments, an owned result that is none before. Returns 0 or what `ffi.h` says of errors.
typedef int (*tw_builtin_call_t)(tw_relax_t* program, const ffi_any_t* args, int32_t count, ffi_any_t* result);

struct tw_builtin_t {
  const char* name;
  int32_t least;  // arguments
  tw_builtin_call_t call;
};

// NULL for a name that is none of them.
const tw_builtin_t* tw_builtin_find(const char* name, size_t size);

// The function of a built-in as compiled code calls it, for the program that runs on the thread.
int tw_builtin_function(const tw_builtin_t* builtin, ffi_any_t* out);

// ORDER as `FunctionKind` in formats/relax_executable/records.py.
typedef enum tw_relax_kind_t { TW_RELAX_PACKED = 0, TW_RELAX_BYTECODE = 1, TW_RELAX_COMPILED = 2 } tw_relax_kind_t;

// ORDER as the opcodes of the file, and in native_program.py. All words of an instruction:
//   CALL, place, target or -1, function, count, (argument kind, value) * count
//   RETURN, place, argument kind, value
//   GOTO, place, word to go on at
//   BRANCH, place, argument kind, value, word to go on at when it is 0
enum { TW_RELAX_CALL = 1, TW_RELAX_RETURN = 2, TW_RELAX_GOTO = 3, TW_RELAX_BRANCH = 4 };
enum { TW_RELAX_CALL_WORDS = 5 };
// Kinds of arguments; the first four are those of the file.
enum {
  TW_RELAX_REGISTER = 0,
  TW_RELAX_NUMBER = 1,
  TW_RELAX_CONSTANT = 2,
  TW_RELAX_FUNCTION = 3,
  TW_RELAX_NOTHING = 4,  // also the machine: built-ins know the one that runs
};

typedef struct tw_relax_function_t {
  tw_relax_kind_t kind;
  char* name;
  char* parameters;  // for messages: "(x, y)", or empty
  int64_t argument_count;
  int64_t register_count;
  int64_t first;  // word of its code
  const tw_builtin_t* builtin;
  ffi_any_t callee;  // a packed function, or compiled code
  ffi_any_t value;   // the function as a value
} tw_relax_function_t;

// What functions as values hold: the program, while it lives.
typedef struct tw_relax_link_t {
  pthread_mutex_t lock;
  atomic_size_t count;
  tw_relax_t* program;  // NULL once it is gone
} tw_relax_link_t;

struct tw_relax_t {
  size_t count;  // of those that keep it; guarded by link->lock
  tw_relax_link_t* link;
  char* location;
  tw_relax_heap_t heap;
  tw_relax_function_t* functions;
  int64_t function_count;
  ffi_any_t* values;  // of all functions, as compiled code indexes them
  ffi_any_t* constants;
  int64_t constant_count;
  int64_t* code;
  int64_t argument_limit;  // of the call with most arguments
  atomic_int is_instrumented;
  ffi_any_t instrument;  // hears of every call that bytecode makes; guarded by link->lock
};

// The packed function `make(location, words, names, parameters, callees, constants, heap, owner)`: see
// relax_machine/native_program.py, which alone calls it.
int tw_relax_make(void* self, const ffi_any_t* args, int32_t count, ffi_any_t* result);

// The packed function `builtin(name)`: the function of a built-in, or none.
int tw_relax_find_builtin(void* self, const ffi_any_t* args, int32_t count, ffi_any_t* result);

// ---- running ----

// Runs a function of bytecode or of compiled code; arguments are borrowed, as many as it takes. Errors have a place.
int tw_relax_run(tw_relax_t* program, int64_t index, const ffi_any_t* args, ffi_any_t* result);

// The instrument, owned; none where nobody listens.
ffi_any_t tw_relax_instrument(tw_relax_t* program);

// The program that runs on this thread, and which of its compiled functions; NULL outside.
tw_relax_t* tw_relax_current(const tw_relax_function_t** out_function);

#endif  // TW_RELAX_PROGRAM_H_
