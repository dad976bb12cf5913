// Status codes and messages shared by the whole core.
//
// Not here: exceptions. The Python binding turns a status into one; exported libraries turn it into theirs.
#ifndef TW_STATUS_H_
#define TW_STATUS_H_

#include <stddef.h>
#include <stdint.h>

#include "tw_names.h"

typedef enum tw_status_t {
  TW_STATUS_OK = 0,
  TW_STATUS_INVALID,        // an argument is out of range; the message says which
  TW_STATUS_NO_MEMORY,      // an allocation failed
  TW_STATUS_SYSTEM,         // a system call failed; errno says why
  TW_STATUS_KERNEL_FAILED,  // a kernel returned non-zero
  TW_STATUS_NO_SCRATCH,     // a thread got no memory for the workgroup memory of a kernel
  TW_STATUS_HOST_FAILED,    // a host call reported failure
  TW_STATUS_INTERRUPTED,    // the poll callback asked to stop
  TW_STATUS_FORKED,         // this is a forked child, and the parent's threads had taken part of the work
} tw_status_t;

// Where a fallible function explains itself. Left untouched on success.
typedef struct tw_message_t {
  char text[200];
} tw_message_t;

// Formats `message` (may be NULL) and returns `status`, so that it can stand in a return statement.
#if defined(__GNUC__) || defined(__clang__)
__attribute__((format(printf, 3, 4)))
#endif
tw_status_t tw_message_write(tw_message_t* message, tw_status_t status, const char* format, ...);

#endif  // TW_STATUS_H_
