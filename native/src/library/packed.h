// The model as packed functions of tvm-ffi, and the packed functions that a model calls. Private to the library.
//
// Nothing of tvm-ffi is linked: its functions are found in the process, and only those that are needed; a library
// loads where it is not. Layouts: apache-tvm-ffi 0.1, `include/tvm/ffi/c_api.h` and DLPack 1.1.
#ifndef TW_LIBRARY_PACKED_H_
#define TW_LIBRARY_PACKED_H_

#include "bound.h"
#include "tw_packed.h"

// Calls the function of a step with its tensors; sets the error text.
int tw_packed_call_step(const tw_bound_t* bound, const tw_step_t* step, void* const* addresses);

#endif  // TW_LIBRARY_PACKED_H_
