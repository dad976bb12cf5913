// What code that TVM compiled asks its runtime for: threads, scratch memory, and registers in memory.
//
// Such a library has a variable per function (`__TVMBackendParallelLaunch`, ...), which whoever loads it fills, or
// imports the function by name (`TVMBackendAnyList...`). All functions are found by `tw_backend_find`.
// Thread-safety: any thread may call any of them.
#ifndef TW_BACKEND_H_
#define TW_BACKEND_H_

#include "tw_pool.h"

// The threads that parallel loops run on from here on. The pool must live as long as the process. NULL: the caller's.
void tw_backend_use(tw_pool_t* pool);

// The address of a function by its name (`TVMBackendAllocWorkspace`), or NULL. Code with barriers between the parts
// of a loop gets a launch that runs one part.
void* tw_backend_find(const char* name, int has_barriers);

#endif  // TW_BACKEND_H_
