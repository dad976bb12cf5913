// What went wrong, for the thread that asked. Private to the core.
#ifndef TW_PROGRAM_ERROR_H_
#define TW_PROGRAM_ERROR_H_

#include "tw_model.h"

// Remembers the text for this thread and returns `status`, so that it can stand in a return statement.
__attribute__((format(printf, 2, 3))) int tw_error_set(int status, const char* format, ...);

// The same for memory that the system does not give.
int tw_error_no_memory(void);

// Text that is made piece by piece; what does not fit is cut.
typedef struct tw_text_t {
  char text[512];
  size_t length;
} tw_text_t;

__attribute__((format(printf, 2, 3))) void tw_text_add(tw_text_t* text, const char* format, ...);

#endif  // TW_PROGRAM_ERROR_H_
