// Stretches of a program whose sizes data decides, recorded for sets of sizes and kept. Private to the core.
#ifndef TW_PROGRAM_RECORDED_H_
#define TW_PROGRAM_RECORDED_H_

#include <pthread.h>

#include "bound.h"

// A stretch for certain sizes; whoever entered it is counted as a user.
typedef struct tw_recorded_t tw_recorded_t;

// The stretches of a model. All zero: none yet. `lock` is the model's, held for a few instructions.
typedef struct tw_recordings_t {
  tw_recorded_t** buckets;
  tw_recorded_t* newest;
  tw_recorded_t* oldest;
  uint32_t bucket_count;
  uint32_t count;
  uint32_t command_count;  // of all that are kept, one more for each
} tw_recordings_t;

const tw_bound_t* tw_recorded_bound(const tw_recorded_t* recorded);

// Whether it is for the sizes of its symbols as they are now.
int tw_recorded_fits(const tw_recorded_t* recorded, const tw_bound_t* now);

// Finds a stretch for the sizes as they are now, or records it, and a frame for one call of it. Without the lock.
int tw_recorded_enter(tw_recordings_t* recordings, pthread_mutex_t* lock, const tw_bound_t* now, uint32_t stretch,
                      tw_recorded_t** out_recorded, tw_frame_t** out_frame);

// Gives both back. Without the lock.
void tw_recorded_leave(pthread_mutex_t* lock, tw_recorded_t* recorded, tw_frame_t* frame);

// Nobody may use any.
void tw_recordings_close(tw_recordings_t* recordings);

#endif  // TW_PROGRAM_RECORDED_H_
