// What went wrong, for the thread that asked. Private to the core.
#ifndef TW_PROGRAM_ERROR_H_
#define TW_PROGRAM_ERROR_H_

#include "tw_model.h"

// Remembers the text for this thread and returns `status`, so that it can stand in a return statement.
__attribute__((format(printf, 2, 3))) int tw_error_set(int status, const char* format, ...);

// The same for memory that the system does not give.
int tw_error_no_memory(void);

// The same, with how much and what for: " for intermediate tensors".
int tw_error_no_memory_for(size_t size_bytes, const char* what);

// What helps where a device has no more memory. The words of `runtime/native/memory_report.py`.
#define TW_HINT_MORE "give the device more with ?memory="

// Text that is made piece by piece; what does not fit is cut.
typedef struct tw_text_t {
  char text[4096];
  size_t length;
} tw_text_t;

__attribute__((format(printf, 2, 3))) void tw_text_add(tw_text_t* text, const char* format, ...);

#endif  // TW_PROGRAM_ERROR_H_
