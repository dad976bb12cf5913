/* @NAME@.h: the C interface of '@MODEL@', compiled by Tilewright @VERSION@. Generated; do not edit.
 *
@SIGNATURE@
 *
 * Tensors are dense, in row-major order, aligned to their elements, and belong to the caller; outputs overlap
 * nothing. Functions return @UPPER@_OK or another status; @NAME@_error() then says more to the thread that got it.
 * Calls of one model from several threads are independent. An argument that is NULL and may not be is told; memory that
 * is too small for its tensor, or given back, and a model that was destroyed are not: nobody can see that of an address.
 */
#ifndef TILEWRIGHT_@UPPER@_H_
#define TILEWRIGHT_@UPPER@_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef @UPPER@_API
#define @UPPER@_API
#endif

#define @UPPER@_INPUT_COUNT @INPUT_COUNT@
#define @UPPER@_OUTPUT_COUNT @OUTPUT_COUNT@
#define @UPPER@_DIM_COUNT @DIM_COUNT@ /* sizes that a call decides */
@TENSORS@
/* Status codes. */
enum {
  @UPPER@_OK = 0,
  @UPPER@_BAD_INPUT = 1,   /* a tensor, a size, an index or an option that does not fit */
  @UPPER@_NO_MEMORY = 2,
  @UPPER@_NO_CODE = 3,     /* the library has none for this processor */
  @UPPER@_BAD_WEIGHTS = 4, /* the file of the weights is missing, foreign or damaged */
  @UPPER@_FAILED = 5,      /* a kernel failed */
  @UPPER@_INTERRUPTED = 6,
  @UPPER@_CALLEE_FAILED = 7 /* a packed function that the model calls */
};

/* A model that is loaded. */
typedef struct @NAME@ @NAME@;

/* How to load it; all zero (or NULL instead of it) is fine. */
typedef struct @NAME@_options {
  size_t struct_bytes;      /* sizeof(@NAME@_options), so that options of older programs are understood; 0: all of it */
  uint32_t threads;         /* 0: one per processor that this process may use */
  uint32_t concurrency;     /* @CONCURRENCY@ */
  const char* weights_path; /* NULL: in the library, or the file beside it */
  const char* level;        /* NULL: the best code that the processor can run; else one of @LEVELS@ */
  void* workspace;          /* @WORKSPACE@ */
  size_t workspace_bytes;   /* @WORKSPACE_BYTES@ */
} @NAME@_options;

/* A tensor with its type and shape, for @NAME@_run_tensors. */
typedef struct @NAME@_tensor {
  void* data;
  const int64_t* shape;
  int32_t rank;
  uint8_t type_code; /* as DLPack has them: 0 int, 1 uint, 2 float, 4 bfloat, 6 bool */
  uint8_t type_bits;
  uint16_t reserved; /* 0 */
} @NAME@_tensor;

/* Gives memory for an output, `size_bytes` of it, aligned to its elements; called by the thread of the call, once for each
 * output, as soon as its shape is known. NULL ends the call, unless there are no bytes. */
typedef void* (*@NAME@_allocate)(void* context, uint32_t output, const int64_t* shape, int32_t rank, size_t size_bytes);

/* What is known of a tensor before any call. */
typedef struct @NAME@_tensor_info {
  const char* name;
  const char* type_name; /* "f32" */
  const int64_t* shape;  /* -1: the extent depends on the call */
  int64_t size_bytes;    /* -1: depends on the call */
  int32_t rank;
  uint8_t type_code;
  uint8_t type_bits;
  uint16_t item_bytes;
} @NAME@_tensor_info;

typedef struct @NAME@_dim_info {
  const char* name;
  uint32_t input; /* it is the extent of this axis of this input */
  uint32_t axis;
  int64_t minimum;
  int64_t maximum; /* -1: any */
} @NAME@_dim_info;

/* All of the above by address. A shared library's function `tilewright_model` returns it, too, so that any model can
 * be used without its header: the struct is the same for all, but for their names. It only grows; `struct_bytes`
 * says how far it goes. */
typedef struct @NAME@_interface {
  uint32_t struct_bytes;
  uint32_t interface_version; /* 1 */
  const char* name;
  const char* compiler; /* "tilewright @VERSION@" */
  const @NAME@_tensor_info* inputs;
  const @NAME@_tensor_info* outputs;
  const @NAME@_dim_info* dims;
  const char* const* levels; /* best first, up to NULL */
  uint32_t input_count;
  uint32_t output_count;
  uint32_t dim_count;
  uint32_t level_count;
  int (*create)(const @NAME@_options* options, @NAME@** out_model);
  void (*destroy)(@NAME@* model);
  int (*run)(@NAME@* model, const int64_t* dims, const void* const* inputs, void* const* outputs);
  int (*run_tensors)(@NAME@* model, const @NAME@_tensor* inputs, const @NAME@_tensor* outputs);
  int (*prepare)(@NAME@* model, const int64_t* dims);
  int (*input_shape)(@NAME@* model, const int64_t* dims, uint32_t input, int64_t* out_shape);
  int (*output_shape)(@NAME@* model, const int64_t* dims, uint32_t output, int64_t* out_shape);
  int (*workspace_bytes)(@NAME@* model, const int64_t* dims, size_t* out_bytes);
  const char* (*level)(const @NAME@* model);
  const char* (*graph_json)(const @NAME@* model); /* the plan in TVM's graph JSON; NULL: left out */
  const char* (*error)(void);
  /* The bytes of a weight, by its place among the constants of the plan; NULL: there are not so many. */
  const void* (*constant)(const @NAME@* model, uint32_t index);
  int (*run_allocating)(@NAME@* model, const @NAME@_tensor* inputs, @NAME@_allocate allocate, void* context);
  /* For each output 1 where data decides its shape: `output_shape` does not know it, `run` does not take it. */
  const uint8_t* late_outputs;
} @NAME@_interface;

@UPPER@_API const @NAME@_interface* @NAME@_get_interface(void);

/* Loads the model: chooses the code for this processor, maps weights that lie beside the library. Where it returns another
 * status than @UPPER@_OK, `*out_model` is NULL, and there is nothing to destroy. */
@UPPER@_API int @NAME@_create(const @NAME@_options* options, @NAME@** out_model);

/* Once for each model, when no call of it runs any more; the address is nothing from here on. NULL is fine. */
@UPPER@_API void @NAME@_destroy(@NAME@* model);

@RUN@

/* The same, where types and shapes are checked@AND_DIMS@. */
@UPPER@_API int @NAME@_run_tensors(@NAME@* model, const @NAME@_tensor inputs[], const @NAME@_tensor outputs[]);

/* The same, where the caller learns the shapes of the outputs in the call and gives their memory then@LATE@. */
@UPPER@_API int @NAME@_run_allocating(@NAME@* model, const @NAME@_tensor inputs[], @NAME@_allocate allocate,
                                      void* context);
@SHAPES@
/* The code that was chosen: one of @LEVELS@; of NULL it is NULL. */
@UPPER@_API const char* @NAME@_level(const @NAME@* model);

/* What went wrong in this thread's last call that did not return @UPPER@_OK. The text is there until this thread's next
 * call that fails: copy what is to be kept. */
@UPPER@_API const char* @NAME@_error(void);

#ifdef __cplusplus
}
#endif
#endif /* TILEWRIGHT_@UPPER@_H_ */
