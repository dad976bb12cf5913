// Where this library lies, and what it may use of the machine. Private to the library.
#ifndef TW_LIBRARY_PLACE_H_
#define TW_LIBRARY_PLACE_H_

#include <stddef.h>
#include <stdint.h>

#include "tw_names.h"

// A library may be opened by the name of a link: beside the link, or beside the file that it leads to.
typedef enum tw_place { TW_PLACE_OF_NAME, TW_PLACE_OF_FILE } tw_place_t;

// The folder of the library (or the program that it is part of), with the separator at its end; 0: nobody knows.
int tw_place_folder(tw_place_t place, char* out_folder, size_t room_bytes);

// The library stays in memory until the process ends, even if it is closed.
void tw_place_pin(void);

// The same where threads cannot be waited for when a library is closed: on Windows.
void tw_place_stay(void);

// The most threads that a model may have. ORDER base/knobs.py
enum { TW_THREAD_LIMIT = 4096 };

// TILEWRIGHT_THREADS, or, where it is 0 or not set, the processors that this process may keep busy: affinity and quota.
// Fails with its words for what is no number up to the limit.
int tw_place_thread_count(uint32_t* out_count);

// Processors' worth of time that the tightest control group grants, rounded, at least 1; 0: no limit. `root` is
// what stands before /proc and /sys: empty but in tests.
uint32_t tw_place_quota(const char* root);

#endif  // TW_LIBRARY_PLACE_H_
