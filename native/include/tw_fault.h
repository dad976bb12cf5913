// Reads of mapped files that the system cannot satisfy: the file was cut, or its disk fails.
//
// Such a read raises SIGBUS on the thread that does it, in the middle of a kernel. For mappings that were
// registered the handler puts zero pages in the place of all that follows and marks the mapping as lost;
// the reader goes on, and whoever ran it asks afterwards. Every other SIGBUS goes to the handler that was there
// before (faulthandler's, a crash reporter's). What it costs while nothing is lost is one load per question.
// Thread-safety: all functions may be called from any thread.
#ifndef TW_FAULT_H_
#define TW_FAULT_H_

#include <stddef.h>

#include "tw_status.h"

// Guards a mapping of whole pages under the name of its file. More than a few thousand at a time are left
// unguarded.
void tw_fault_guard(void* base, size_t size_bytes, const char* name);

// Before it is unmapped.
void tw_fault_release(void* base);

// Whether any guarded mapping has been lost so far; does not go back to 0.
int tw_fault_any(void);

// Whether a byte of the range lies in a lost mapping, and in which.
int tw_fault_find(const void* data, size_t size_bytes, tw_message_t* out_name);

#endif  // TW_FAULT_H_
