// Memory for so many calls at a time, and who waits for it.
//
// Whoever waits sleeps on a word that changes, not on a condition variable: a forked child could neither use nor destroy
// one that threads of its parent slept on.
#include "error.h"
#include "model.h"

void tw_model_wait(tw_model_t* model) {
  const uint32_t seen = atomic_load(&model->changes);
  ++model->waiter_count;
  pthread_mutex_unlock(&model->lock);
  tw_word_wait(&model->changes, seen);
  pthread_mutex_lock(&model->lock);
  --model->waiter_count;
}

void tw_model_tell(tw_model_t* model) {
  if (model->waiter_count == 0) return;
  atomic_fetch_add(&model->changes, 1);
  tw_word_wake(&model->changes, UINT32_MAX);  // somebody may wait for this seat, others for any
}

static int fail_within_a_call(void) {
  return tw_error_set(TW_MODEL_FAILED, "a function that the model calls uses the model, whose memory is taken by the "
                                       "calls that it is within a call of"
                                       "\nhint: create the model with more concurrency, or prepare all sizes before");
}

tw_model_seat_t* tw_seat_take(tw_model_t* model) {
  const uintptr_t self = (uintptr_t)pthread_self();
  for (;;) {
    uint32_t own_count = 0;
    for (uint32_t i = 0; i < model->seat_count; ++i) {
      tw_model_seat_t* seat = &model->seats[i];
      if (seat->thread == 0) {
        seat->thread = self;
        return seat;
      }
      own_count += seat->thread == self;
    }
    if (own_count == model->seat_count) {
      fail_within_a_call();
      return NULL;
    }
    tw_model_wait(model);
  }
}

void tw_seat_give_back(tw_model_t* model, tw_model_seat_t* seat) {
  seat->thread = 0;
  seat->context = NULL;
  tw_model_tell(model);
}

// Of a seat that this thread has.
static int grow_seat(tw_model_t* model, tw_model_seat_t* seat, size_t size_bytes) {
  if (seat->size_bytes >= size_bytes) return TW_MODEL_OK;
  if (!model->owns_seats) {
    return tw_error_set(TW_MODEL_BAD_INPUT, "the workspace has %zu bytes, expected at least %zu for these sizes",
                        seat->size_bytes, size_bytes);
  }
  void* memory = NULL;
  if (tw_memory_allocate(size_bytes, &memory) != TW_STATUS_OK) return tw_error_no_memory();
  const tw_model_seat_t before = *seat;
  pthread_mutex_lock(&model->lock);  // a child that is forked now finds the old memory or the new, whole
  seat->memory = memory;
  seat->size_bytes = size_bytes;
  pthread_mutex_unlock(&model->lock);
  tw_memory_free(before.memory, before.size_bytes);
  return TW_MODEL_OK;
}

// Waits for one seat and takes it.
static int take_this(tw_model_t* model, tw_model_seat_t* seat) {
  const uintptr_t self = (uintptr_t)pthread_self();
  pthread_mutex_lock(&model->lock);
  while (seat->thread != 0 && seat->thread != self) tw_model_wait(model);
  const int is_free = seat->thread == 0;
  if (is_free) seat->thread = self;
  pthread_mutex_unlock(&model->lock);
  return is_free ? TW_MODEL_OK : fail_within_a_call();
}

int tw_seats_grow(tw_model_t* model, size_t size_bytes) {
  int status = TW_MODEL_OK;
  for (uint32_t i = 0; status == TW_MODEL_OK && i < model->seat_count; ++i) {
    tw_model_seat_t* seat = &model->seats[i];
    status = take_this(model, seat);
    if (status != TW_MODEL_OK) return status;
    status = grow_seat(model, seat, size_bytes);
    pthread_mutex_lock(&model->lock);
    tw_seat_give_back(model, seat);
    pthread_mutex_unlock(&model->lock);
  }
  return status;
}
