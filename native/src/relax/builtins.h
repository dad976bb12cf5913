// The built-ins of Relax that the C core has. Private to `relax/`.
#ifndef TW_RELAX_BUILTINS_H_
#define TW_RELAX_BUILTINS_H_

#include "program.h"

#define BUILTIN(name) \
  int tw_builtin_##name(tw_relax_t* program, const ffi_any_t* args, int32_t count, ffi_any_t* result)

BUILTIN(alloc_shape_heap);
BUILTIN(alloc_storage);
BUILTIN(alloc_tensor);
BUILTIN(call_tir_dyn);
BUILTIN(check_func_info);
BUILTIN(check_prim_value_info);
BUILTIN(check_shape_info);
BUILTIN(check_tensor_info);
BUILTIN(check_tuple_info);
BUILTIN(copy);
BUILTIN(invoke_closure);
BUILTIN(make_closure);
BUILTIN(make_prim_value);
BUILTIN(make_shape);
BUILTIN(make_tuple);
BUILTIN(match_prim_value);
BUILTIN(match_shape);
BUILTIN(null_value);
BUILTIN(read_if_cond);
BUILTIN(reshape);
BUILTIN(shape_of);
BUILTIN(tensor_to_shape);
BUILTIN(tuple_getitem);
BUILTIN(tuple_reset_item);

#undef BUILTIN

#endif  // TW_RELAX_BUILTINS_H_
