// Packed functions of an exported library: what its `__tvm_ffi_<name>` symbols do.
//
// A library has one model for all of them, made at the first call. Thread-safety: any thread may call.
#ifndef TW_PACKED_H_
#define TW_PACKED_H_

#include <stdatomic.h>
#include <stdint.h>

#include "tw_model.h"

// A symbol that may be missing, and its address or NULL. Elsewhere than in ELF files it is not looked for.
#if defined(__ELF__)
#define TW_WEAK __attribute__((weak))
#define TW_LINKED(symbol) symbol
#else
#define TW_WEAK
#define TW_LINKED(symbol) NULL
#endif

// A symbol as a linker sees it, for functions whose names are not the compiler's: `int f(void) __asm__(TW_SYMBOL("g"))`.
#define TW_TEXT_OF(word) #word
#define TW_TEXT(word) TW_TEXT_OF(word)
#define TW_SYMBOL(name) TW_TEXT(__USER_LABEL_PREFIX__) name

// What a library shows; all else is hidden.
#if defined(_WIN32)
#define TW_EXPORT __declspec(dllexport)
#else
#define TW_EXPORT __attribute__((visibility("default")))
#endif

// A value of tvm-ffi: 16 bytes.
typedef struct tw_any_t {
  int32_t type_index;
  uint32_t padding;
  union {
    int64_t v_int64;
    double v_float64;
    void* v_ptr;
    const char* v_c_str;
  };
} tw_any_t;

// The functions return 0; or -1, with the error raised in tvm-ffi if that is there; or -2 where Python raised it.

// The model of a library's packed functions.
typedef struct tw_packed_model_t {
  const tw_library_t* library;
  _Atomic(tw_model_t*) model;  // NULL until the first call
} tw_packed_model_t;

// main(x…) -> y: outputs are new tensors, several in an array; main(x…, y…): outputs are filled.
int tw_packed_main(tw_packed_model_t* model, const tw_any_t* args, int32_t num_args, tw_any_t* result);

// A kernel alone, whose model has one step: operands, then results, which are filled.
int tw_packed_kernel(tw_packed_model_t* model, const tw_any_t* args, int32_t num_args, tw_any_t* result);

// Questions. Those that take an index take one argument.
int tw_packed_input_count(tw_packed_model_t* model, const tw_any_t* args, int32_t num_args, tw_any_t* result);
int tw_packed_output_count(tw_packed_model_t* model, const tw_any_t* args, int32_t num_args, tw_any_t* result);
int tw_packed_input_name(tw_packed_model_t* model, const tw_any_t* args, int32_t num_args, tw_any_t* result);
int tw_packed_output_name(tw_packed_model_t* model, const tw_any_t* args, int32_t num_args, tw_any_t* result);
int tw_packed_graph_json(tw_packed_model_t* model, const tw_any_t* args, int32_t num_args, tw_any_t* result);
int tw_packed_level(tw_packed_model_t* model, const tw_any_t* args, int32_t num_args, tw_any_t* result);

// When the library goes.
void tw_packed_close(tw_packed_model_t* model);

#endif  // TW_PACKED_H_
