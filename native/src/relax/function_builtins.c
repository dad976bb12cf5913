// Built-ins that call functions and make them.
//
// Source: TVM 0.27, `src/runtime/vm/builtin.cc`, for arguments, order of checks and kinds of errors.
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "builtins.h"

enum { LOCAL_ARGUMENTS = 32 };

// Calls a function with arguments in two parts.
static int call_with(const ffi_any_t* function, const ffi_any_t* first, size_t first_count, const ffi_any_t* second,
                     size_t second_count, ffi_any_t* result) {
  ffi_any_t local[LOCAL_ARGUMENTS];
  local[0] = ffi_none();
  const size_t count = first_count + second_count;
  ffi_any_t* all = count <= LOCAL_ARGUMENTS ? local : malloc(count * sizeof(*all));
  if (all == NULL || count > INT32_MAX) return tw_error_keep("MemoryError", "out of memory");
  if (first_count > 0) memcpy(all, first, first_count * sizeof(*all));
  if (second_count > 0) memcpy(all + first_count, second, second_count * sizeof(*all));
  const int code = tw_ffi.call(function->v_ptr, all, (int32_t)count, result);
  if (all != local) free(all);
  return code;
}

typedef struct closure_t {
  ffi_any_t function;
  size_t count;
  ffi_any_t saved[];
} closure_t;

static void delete_closure(void* self) {
  closure_t* closure = self;
  ffi_drop(&closure->function);
  ffi_drop_all(closure->saved, closure->count);
  free(closure);
}

static int call_closure(void* self, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  const closure_t* closure = self;
  const int code = call_with(&closure->function, args, (size_t)count, closure->saved, closure->count, result);
  return code == TW_RAISED_HERE ? tw_error_raise("%s", "") : code;
}

// Arguments: a function, values for its last parameters.
int tw_builtin_make_closure(tw_relax_t* program, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  (void)program;
  if (args[0].type_index != FFI_FUNCTION) return tw_fail_expected("a function", &args[0], NULL);
  const size_t saved = (size_t)count - 1;
  closure_t* closure = malloc(sizeof(*closure) + saved * sizeof(ffi_any_t));
  if (closure == NULL) return tw_error_keep("MemoryError", "out of memory");
  closure->function = ffi_copy(&args[0]);
  closure->count = saved;
  for (size_t i = 0; i < saved; ++i) closure->saved[i] = ffi_copy(&args[1 + i]);
  void* function = NULL;
  if (tw_ffi.create_function(closure, call_closure, delete_closure, &function) != 0) {
    delete_closure(closure);
    return TW_RAISED;
  }
  *result = ffi_object(FFI_FUNCTION, function);
  return 0;
}

// Arguments: the machine, a function or a closure, its arguments.
int tw_builtin_invoke_closure(tw_relax_t* program, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  (void)program;
  if (args[1].type_index != FFI_FUNCTION) return tw_fail_expected("a function", &args[1], NULL);
  return tw_ffi.call(args[1].v_ptr, args + 2, count - 2, result);
}

// Arguments: a kernel, its tensors, a shape whose sizes follow them one by one.
int tw_builtin_call_tir_dyn(tw_relax_t* program, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  (void)program;
  ffi_any_t numbers[FFI_SIZES_LIMIT];
  ffi_sizes_t sizes = {NULL, 0};
  if (args[0].type_index != FFI_FUNCTION) return tw_fail_expected("a function", &args[0], NULL);
  const int code = tw_read_shape(&args[count - 1], &sizes);
  if (code != 0) return code;
  if (sizes.size > FFI_SIZES_LIMIT) return tw_error_keep(VALUE_ERROR, "%zu sizes for a kernel", sizes.size);
  for (size_t i = 0; i < sizes.size; ++i) numbers[i] = ffi_int(sizes.data[i]);
  return call_with(&args[0], args + 1, (size_t)count - 2, numbers, sizes.size, result);
}
