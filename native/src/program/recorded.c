// A hash table by stretch and sizes, and a list by last use. What nobody used for the longest time goes when there are
// too many commands: a loop whose sizes grow leaves a recording behind in every trip.
#include "recorded.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"

enum { COMMAND_LIMIT = 1 << 15, IDLE_LIMIT = 8, FIRST_BUCKETS = 64 };  // some 20 MB at most

struct tw_recorded_t {
  tw_recorded_t* next_alike;
  tw_recorded_t* newer;
  tw_recorded_t* older;
  tw_bound_t* bound;
  tw_frame_t* idle[IDLE_LIMIT];
  uint64_t hash;
  uint32_t idle_count;
  uint32_t users;
  uint32_t stretch;
  int is_dropped;  // the last user destroys it
};

const tw_bound_t* tw_recorded_bound(const tw_recorded_t* recorded) { return recorded->bound; }

static const uint32_t* symbols_of(const tw_bound_t* now, uint32_t stretch, uint32_t* out_count) {
  const tw_flow_t* flow = now->program->flow;
  *out_count = flow->stretches[stretch].symbol_count;
  return flow->lists + flow->stretches[stretch].symbol_first;
}

int tw_recorded_fits(const tw_recorded_t* recorded, const tw_bound_t* now) {
  uint32_t count = 0;
  const uint32_t* symbols = symbols_of(now, recorded->stretch, &count);
  for (uint32_t i = 0; i < count; ++i) {
    if (recorded->bound->dims[symbols[i]] != now->dims[symbols[i]]) return 0;
  }
  return 1;
}

static uint64_t hash_of(const tw_bound_t* now, uint32_t stretch) {
  uint32_t count = 0;
  const uint32_t* symbols = symbols_of(now, stretch, &count);
  uint64_t hash = UINT64_C(0x9E3779B97F4A7C15) * (stretch + UINT64_C(1));
  for (uint32_t i = 0; i < count; ++i) {
    hash = (hash ^ (uint64_t)now->dims[symbols[i]]) * UINT64_C(0xBF58476D1CE4E5B9);
    hash ^= hash >> 29;
  }
  return hash;
}

static void destroy(tw_recorded_t* recorded) {
  if (recorded == NULL) return;
  for (uint32_t i = 0; i < recorded->idle_count; ++i) tw_frame_destroy(recorded->idle[i]);
  tw_bound_destroy(recorded->bound);
  free(recorded);
}

static uint32_t weight_of(const tw_recorded_t* recorded) {
  // Each has a copy of all sizes, too: 16 of them take about as much as a command.
  return tw_command_list_command_count(recorded->bound->list) + 1 + recorded->bound->program->size_count / 16;
}

// ---- the table; only with the lock ------------------------------------------------------------------

static tw_recorded_t** bucket_of(const tw_recordings_t* recordings, uint64_t hash) {
  return &recordings->buckets[hash & (recordings->bucket_count - 1)];
}

static void unlink_by_use(tw_recordings_t* recordings, tw_recorded_t* recorded) {
  *(recorded->newer == NULL ? &recordings->newest : &recorded->newer->older) = recorded->older;
  *(recorded->older == NULL ? &recordings->oldest : &recorded->older->newer) = recorded->newer;
}

static void link_newest(tw_recordings_t* recordings, tw_recorded_t* recorded) {
  recorded->newer = NULL;
  recorded->older = recordings->newest;
  *(recordings->newest == NULL ? &recordings->oldest : &recordings->newest->newer) = recorded;
  recordings->newest = recorded;
}

static tw_recorded_t* find(tw_recordings_t* recordings, const tw_bound_t* now, uint32_t stretch, uint64_t hash) {
  if (recordings->bucket_count == 0) return NULL;
  tw_recorded_t* recorded = *bucket_of(recordings, hash);
  while (recorded != NULL &&
         !(recorded->hash == hash && recorded->stretch == stretch && tw_recorded_fits(recorded, now))) {
    recorded = recorded->next_alike;
  }
  if (recorded == NULL) return NULL;
  ++recorded->users;
  unlink_by_use(recordings, recorded);
  link_newest(recordings, recorded);
  return recorded;
}

static int reserve(tw_recordings_t* recordings) {
  if (recordings->count < recordings->bucket_count) return 1;
  const uint32_t wanted = recordings->bucket_count == 0 ? FIRST_BUCKETS : recordings->bucket_count * 2;
  tw_recorded_t** buckets = calloc(wanted, sizeof(*buckets));
  if (buckets == NULL) return recordings->bucket_count != 0;  // longer chains do
  free(recordings->buckets);
  recordings->buckets = buckets;
  recordings->bucket_count = wanted;
  for (tw_recorded_t* one = recordings->newest; one != NULL; one = one->older) {
    tw_recorded_t** bucket = bucket_of(recordings, one->hash);
    one->next_alike = *bucket;
    *bucket = one;
  }
  return 1;
}

static void take_out(tw_recordings_t* recordings, tw_recorded_t* recorded) {
  tw_recorded_t** link = bucket_of(recordings, recorded->hash);
  while (*link != recorded) link = &(*link)->next_alike;
  *link = recorded->next_alike;
  unlink_by_use(recordings, recorded);
  --recordings->count;
  recordings->command_count -= weight_of(recorded);
  recorded->is_dropped = 1;
}

// Takes out what was used longest ago, if there are too many; those without users come back, by `next_alike`.
static tw_recorded_t* drop_oldest(tw_recordings_t* recordings) {
  tw_recorded_t* dropped = NULL;
  while (recordings->command_count > COMMAND_LIMIT && recordings->count > 1) {
    tw_recorded_t* recorded = recordings->oldest;
    take_out(recordings, recorded);
    if (recorded->users != 0) continue;
    recorded->next_alike = dropped;
    dropped = recorded;
  }
  return dropped;
}

static void insert(tw_recordings_t* recordings, tw_recorded_t* recorded) {
  tw_recorded_t** bucket = bucket_of(recordings, recorded->hash);
  recorded->next_alike = *bucket;
  *bucket = recorded;
  link_newest(recordings, recorded);
  ++recordings->count;
  recordings->command_count += weight_of(recorded);
}

static tw_frame_t* take_idle(tw_recorded_t* recorded) {
  return recorded->idle_count == 0 ? NULL : recorded->idle[--recorded->idle_count];
}

// ---- without the lock -------------------------------------------------------------------------------

static int make(const tw_bound_t* now, uint32_t stretch, uint64_t hash, tw_recorded_t** out_recorded) {
  tw_recorded_t* recorded = calloc(1, sizeof(*recorded));
  if (recorded == NULL) return tw_error_no_memory();
  recorded->hash = hash;
  recorded->stretch = stretch;
  recorded->users = 1;
  const int status = tw_bound_create_stretch(now, stretch, &recorded->bound);
  if (status != TW_MODEL_OK) {
    free(recorded);
    return status;
  }
  *out_recorded = recorded;
  return TW_MODEL_OK;
}

static void destroy_chain(tw_recorded_t* recorded) {
  while (recorded != NULL) {
    tw_recorded_t* next = recorded->next_alike;
    destroy(recorded);
    recorded = next;
  }
}

// Keeps what was just made, unless another thread made the same meanwhile; that is taken then.
static int keep(tw_recordings_t* recordings, pthread_mutex_t* lock, const tw_bound_t* now, tw_recorded_t** recorded,
                tw_frame_t** out_frame) {
  tw_recorded_t* surplus = NULL;
  pthread_mutex_lock(lock);
  tw_recorded_t* found = find(recordings, now, (*recorded)->stretch, (*recorded)->hash);
  const int fits = found != NULL || reserve(recordings);
  if (found != NULL) {
    *out_frame = take_idle(found);
  } else if (fits) {
    insert(recordings, *recorded);
    surplus = drop_oldest(recordings);
  }
  pthread_mutex_unlock(lock);
  destroy_chain(surplus);
  if (found != NULL || !fits) destroy(*recorded);
  if (found != NULL) *recorded = found;
  return fits ? TW_MODEL_OK : tw_error_no_memory();
}

int tw_recorded_enter(tw_recordings_t* recordings, pthread_mutex_t* lock, const tw_bound_t* now, uint32_t stretch,
                      tw_recorded_t** out_recorded, tw_frame_t** out_frame) {
  const uint64_t hash = hash_of(now, stretch);
  tw_frame_t* frame = NULL;
  pthread_mutex_lock(lock);
  tw_recorded_t* recorded = find(recordings, now, stretch, hash);
  if (recorded != NULL) frame = take_idle(recorded);
  pthread_mutex_unlock(lock);
  if (recorded == NULL) {
    int status = make(now, stretch, hash, &recorded);
    if (status == TW_MODEL_OK) status = keep(recordings, lock, now, &recorded, &frame);
    if (status != TW_MODEL_OK) return status;
  }
  if (frame == NULL && tw_frame_create(recorded->bound->list, &frame) != TW_STATUS_OK) {
    tw_recorded_leave(lock, recorded, NULL);
    return tw_error_no_memory();
  }
  *out_recorded = recorded;
  *out_frame = frame;
  return TW_MODEL_OK;
}

void tw_recorded_leave(pthread_mutex_t* lock, tw_recorded_t* recorded, tw_frame_t* frame) {
  pthread_mutex_lock(lock);
  const int is_last = --recorded->users == 0 && recorded->is_dropped;
  if (frame != NULL && recorded->idle_count < IDLE_LIMIT) {
    recorded->idle[recorded->idle_count++] = frame;
    frame = NULL;
  }
  pthread_mutex_unlock(lock);
  tw_frame_destroy(frame);
  if (is_last) destroy(recorded);
}

void tw_recordings_close(tw_recordings_t* recordings) {
  for (tw_recorded_t* recorded = recordings->newest; recorded != NULL;) {
    tw_recorded_t* older = recorded->older;
    destroy(recorded);
    recorded = older;
  }
  free(recordings->buckets);
  *recordings = (tw_recordings_t){.buckets = NULL};
}
