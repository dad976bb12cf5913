// Models: programs with their weights and memory, ready to be called. What the functions of an exported library
// do (`<name>_create`, `<name>_run` …); the header that users include is generated and repeats these layouts.
//
// Ownership: whoever creates a model destroys it, when no call of it runs. Thread-safety: calls of one model from
// several threads are independent. Errors: functions return a status; `tw_error_text` says more to the thread
// that got it.
#ifndef TW_MODEL_H_
#define TW_MODEL_H_

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "tw_names.h"
#include "tw_pool.h"
#include "tw_program.h"

// MIRROR MODEL STATUS.
typedef enum tw_model_status_t {
  TW_MODEL_OK = 0,
  TW_MODEL_BAD_INPUT = 1,    // a tensor, a size, an index or an option that does not fit
  TW_MODEL_NO_MEMORY = 2,
  TW_MODEL_NO_CODE = 3,      // the library has none for this processor
  TW_MODEL_BAD_WEIGHTS = 4,  // the file of the weights is missing, foreign or damaged
  TW_MODEL_FAILED = 5,       // a kernel or a called function failed
  TW_MODEL_INTERRUPTED = 6,
  TW_MODEL_CALLEE_FAILED = 7,  // a packed function that the model calls, which raised its own error
} tw_model_status_t;

// MIRROR MODEL OPTIONS. All zero: the defaults.
typedef struct tw_model_options_t {
  size_t struct_bytes;       // sizeof(tw_model_options_t) of whoever fills it in; 0: this one
  uint32_t threads;          // 0: one per processor that this process may use
  uint32_t concurrency;      // 0: calls take memory when they need some. n: memory for n calls at a time is taken
                             // when sizes are known for the first time, further calls wait, and none takes any
  const char* weights_path;  // NULL: in the library, or the file beside it
  const char* level;         // NULL: the best that the processor has
  void* workspace;           // memory for one call at a time, instead of the model's own; aligned to 64 bytes
  size_t workspace_bytes;
} tw_model_options_t;

// MIRROR MODEL TENSOR. A dense row-major tensor in memory of the caller.
typedef struct tw_tensor_t {
  void* data;
  const int64_t* shape;
  int32_t rank;
  uint8_t type_code;  // as DLPack has them
  uint8_t type_bits;
  uint16_t reserved;
} tw_tensor_t;

// Where the weights are: in the library, or in a file of `file_bytes` whose first `header_bytes` have this checksum.
typedef struct tw_weights_t {
  const uint8_t* data;      // NULL: in a file
  const char* file_name;    // beside the library
  uint64_t file_bytes;
  uint64_t header_bytes;
  uint64_t header_checksum;  // FNV-1a, 64 bits
} tw_weights_t;

// Threads that the models of several libraries share. All zero at first; the first model makes them.
typedef struct tw_model_workers_t {
  _Atomic(tw_pool_t*) pool;
  _Atomic(int32_t) users;  // models; negative: closed
} tw_model_workers_t;

// All of a model that is constant.
typedef struct tw_library_t {
  const char* name;
  const char* version;  // of the compiler
  const tw_program_t* const* programs;  // best first
  const tw_weights_t* weights;
  uint32_t program_count;
  tw_model_workers_t* workers;  // NULL: each model has its own
} tw_library_t;

typedef struct tw_model_t tw_model_t;

int tw_model_create(const tw_library_t* library, const tw_model_options_t* options, tw_model_t** out_model);
void tw_model_destroy(tw_model_t* model);

// Ends the threads, unless a model that shares them is there.
void tw_model_workers_close(tw_model_workers_t* workers);

// Runs on dense tensors of the right types. `dims` are the values of the dynamic dimensions; NULL if there is none.
int tw_model_run(tw_model_t* model, const int64_t* dims, const void* const* inputs, void* const* outputs);

// The same with tensors whose types and shapes are checked, and say what the dimensions are.
int tw_model_run_tensors(tw_model_t* model, const tw_tensor_t* inputs, const tw_tensor_t* outputs);

// Gives memory for an output, `size_bytes` of it, aligned to its elements; called by the thread of the call, once for each
// output, when its shape is known. NULL ends the call, unless there are no bytes.
typedef void* (*tw_model_allocate_t)(void* context, uint32_t output, const int64_t* shape, int32_t rank,
                                     size_t size_bytes);

// The same, where the caller learns the shapes of the outputs in the call: data may decide them.
int tw_model_run_allocating(tw_model_t* model, const tw_tensor_t* inputs, tw_model_allocate_t allocate, void* context);

// Makes what calls of these sizes need, which they then find. A model with `concurrency` keeps it; others keep the
// 32 sizes that were used last.
int tw_model_prepare(tw_model_t* model, const int64_t* dims);

// The extents of a tensor of the signature for these sizes.
int tw_model_input_shape(tw_model_t* model, const int64_t* dims, uint32_t index, int64_t* out_shape);
int tw_model_output_shape(tw_model_t* model, const int64_t* dims, uint32_t index, int64_t* out_shape);

// What a workspace for these sizes must have.
int tw_model_workspace_bytes(tw_model_t* model, const int64_t* dims, size_t* out_bytes);

// The program that was chosen.
const tw_program_t* tw_model_program(const tw_model_t* model);

// The bytes of a weight, NULL if there are not so many.
const void* tw_model_constant(const tw_model_t* model, uint32_t index);

// What went wrong in the last call of this thread that did not return TW_MODEL_OK: "location: what\nhint: …".
// The text is there until the next call of this thread that fails, which may be one of another model.
const char* tw_error_text(void);

#endif  // TW_MODEL_H_
