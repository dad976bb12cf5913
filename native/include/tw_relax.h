// Relax executables of TVM, run natively: packed functions of tvm-ffi by their addresses.
//
// Who makes programs is relax_machine/native_program.py; what they are stands in src/relax/program.h.
#ifndef TW_RELAX_H_
#define TW_RELAX_H_

#include <stdint.h>

// The addresses of `make` and `builtin`; -1 where tvm-ffi is not in the process.
int tw_relax_addresses(uintptr_t* out_make, uintptr_t* out_builtin);

#endif  // TW_RELAX_H_
