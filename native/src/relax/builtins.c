// The functions `vm.builtin.*` by name, and as functions of tvm-ffi for compiled code.
#include "builtins.h"

#include <string.h>

#include "arguments.h"

#define PREFIX "vm.builtin."
#define ROW(function, least) {PREFIX #function, least, tw_builtin_##function}

// With the least number of arguments.
static const tw_builtin_t builtins[] = {
    ROW(alloc_shape_heap, 2),
    ROW(alloc_storage, 5),
    ROW(alloc_tensor, 4),
    ROW(call_tir_dyn, 2),
    ROW(check_func_info, 2),
    ROW(check_prim_value_info, 3),
    ROW(check_shape_info, 3),
    ROW(check_tensor_info, 3),
    ROW(check_tuple_info, 3),
    ROW(copy, 1),
    ROW(invoke_closure, 2),
    ROW(make_closure, 1),
    ROW(make_prim_value, 3),
    ROW(make_shape, 2),
    ROW(make_tuple, 0),
    ROW(match_prim_value, 5),
    ROW(match_shape, 4),
    ROW(null_value, 0),
    ROW(read_if_cond, 1),
    ROW(reshape, 2),
    ROW(shape_of, 1),
    ROW(tensor_to_shape, 1),
    ROW(tuple_getitem, 2),
    ROW(tuple_reset_item, 2),
    {PREFIX "ensure_zero_offset", 1, tw_builtin_copy},  // tensors of the host have their offset in their address
};

const tw_builtin_t* tw_builtin_find(const char* name, size_t size) {
  for (size_t i = 0; i < sizeof(builtins) / sizeof(builtins[0]); ++i) {
    if (strlen(builtins[i].name) == size && memcmp(builtins[i].name, name, size) == 0) return &builtins[i];
  }
  return NULL;
}

static int call_builtin(void* self, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  const tw_builtin_t* builtin = self;
  const tw_relax_function_t* function = NULL;
  tw_relax_t* program = tw_relax_current(&function);
  *result = ffi_none();
  int code = 0;
  if (count < builtin->least) {
    code = tw_error_keep(TYPE_ERROR, "got %d arguments, expected at least %d", count, builtin->least);
  } else if (program == NULL) {
    code = tw_error_keep(INPUT_ERROR, "no virtual machine runs on this thread");
  } else {
    code = builtin->call(program, args, count, result);
  }
  if (code != TW_RAISED_HERE) return code;
  if (function == NULL) return tw_error_raise("'%s': ", builtin->name);
  return tw_error_raise("%s: function '%s' ('%s'): ", program->location, function->name, builtin->name);
}

int tw_builtin_function(const tw_builtin_t* builtin, ffi_any_t* out) {
  void* function = NULL;
  if (tw_ffi.create_function((void*)(uintptr_t)builtin, call_builtin, NULL, &function) != 0) return TW_RAISED;
  *out = ffi_object(FFI_FUNCTION, function);
  return 0;
}
