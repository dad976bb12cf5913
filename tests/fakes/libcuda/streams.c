// Streams, each a thread with a list of operations, and events.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "standin.h"

struct Stream {
  Handle handle;
  CUstream next;  // all streams that were ever made
  pthread_t thread;
  Operation *first, *last;
  uint64_t enqueued, finished;
  bool ending;
};

static CUstream g_streams;

typedef struct {
  Operation base;
  CUevent event;
  uint64_t generation;
} EventOperation;

static double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

// --- running -----------------------------------------------------------------------------------

static Operation* take(CUstream stream) {
  LOCK();
  while (stream->first == NULL && !stream->ending) pthread_cond_wait(&g_changed, &g_lock);
  Operation* operation = stream->first;
  if (operation != NULL) {
    stream->first = operation->next;
    if (stream->first == NULL) stream->last = NULL;
  }
  UNLOCK();
  return operation;
}

static CUresult perform(Operation* operation) {
  CUresult result = standin_operation_error(operation->what);
  return result == CUDA_SUCCESS ? operation->run(operation) : result;
}

// Work of a context that has failed is skipped; events still complete, so that nobody hangs.
static void run_operation(Operation* operation) {
  standin_pause();
  LOCK();
  bool skip = operation->context->error != CUDA_SUCCESS && strcmp(operation->what, "record") != 0;
  UNLOCK();
  CUresult result = skip ? CUDA_SUCCESS : perform(operation);
  LOCK();
  if (result != CUDA_SUCCESS && operation->context->error == CUDA_SUCCESS) {
    operation->context->error = result;
  }
  operation->stream->finished++;
  pthread_cond_broadcast(&g_changed);
  UNLOCK();
  free(operation);
}

static void* serve(void* argument) {
  CUstream stream = argument;
  for (Operation* operation; (operation = take(stream)) != NULL;) run_operation(operation);
  return NULL;
}

CUresult standin_enqueue(CUstream stream, Operation* operation, const char* what,
                         CUresult (*run)(Operation*)) {
  operation->what = what;
  operation->run = run;
  operation->context = stream->handle.context;
  operation->stream = stream;
  operation->next = NULL;
  LOCK();
  if (stream->last) {
    stream->last->next = operation;
  } else {
    stream->first = operation;
  }
  stream->last = operation;
  stream->enqueued++;
  pthread_cond_broadcast(&g_changed);
  UNLOCK();
  return CUDA_SUCCESS;
}

void standin_drain(CUstream stream) {
  LOCK();
  uint64_t target = stream->enqueued;
  while (stream->finished < target) pthread_cond_wait(&g_changed, &g_lock);
  UNLOCK();
}

void standin_drain_context(CUcontext context) {
  LOCK();
  CUstream stream = g_streams;
  UNLOCK();
  for (; stream != NULL; stream = stream->next) {
    if (stream->handle.context == context) standin_drain(stream);
  }
}

// --- streams -----------------------------------------------------------------------------------

CUresult cuStreamCreate(CUstream* out_stream, unsigned int flags) {
  ENTER(cuStreamCreate);
  CURRENT(context);
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  CUstream stream = standin_create(KIND_STREAM, sizeof(struct Stream), context);
  LOCK();
  stream->next = g_streams;
  g_streams = stream;
  UNLOCK();
  pthread_create(&stream->thread, NULL, serve, stream);
  pthread_detach(stream->thread);
  *out_stream = stream;
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream) {
  ENTER(cuStreamDestroy);
  CURRENT(context);
  CHECK(stream, KIND_STREAM);
  LOCK();
  stream->ending = true;
  pthread_cond_broadcast(&g_changed);
  UNLOCK();
  standin_destroy(stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
  ENTER(cuStreamSynchronize);
  CURRENT(context);
  CHECK(stream, KIND_STREAM);
  standin_drain(stream);
  return context->error;
}

// --- events ------------------------------------------------------------------------------------

CUresult cuEventCreate(CUevent* out_event, unsigned int flags) {
  ENTER(cuEventCreate);
  CURRENT(context);
  if (flags > 3) return CUDA_ERROR_INVALID_VALUE;
  CUevent event = standin_create(KIND_EVENT, sizeof(struct Event), context);
  event->has_timing = (flags & 2) == 0;
  *out_event = event;
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
  ENTER(cuEventDestroy);
  CURRENT(context);
  CHECK(event, KIND_EVENT);
  standin_destroy(event);
  return CUDA_SUCCESS;
}

static CUresult run_record(Operation* operation) {
  EventOperation* record = (EventOperation*)operation;
  LOCK();
  if (record->event->completed < record->generation) {
    record->event->completed = record->generation;
    record->event->time_ms = now_ms();
  }
  UNLOCK();
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  ENTER(cuEventRecord);
  CURRENT(context);
  CHECK(event, KIND_EVENT);
  CHECK(stream, KIND_STREAM);
  EventOperation* record = calloc(1, sizeof(*record));
  LOCK();
  record->event = event;
  record->generation = ++event->recorded;
  UNLOCK();
  return standin_enqueue(stream, &record->base, "record", run_record);
}

static void wait_for(CUevent event, uint64_t generation) {
  LOCK();
  while (event->completed < generation) pthread_cond_wait(&g_changed, &g_lock);
  UNLOCK();
}

static CUresult run_wait(Operation* operation) {
  EventOperation* wait = (EventOperation*)operation;
  wait_for(wait->event, wait->generation);
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
  ENTER(cuStreamWaitEvent);
  (void)flags;
  CURRENT(context);
  CHECK(stream, KIND_STREAM);
  LOCK();
  bool alive = event != NULL && event->handle.kind == KIND_EVENT && event->handle.alive;
  if (!alive) standin_misuse("cuStreamWaitEvent: no such event");
  UNLOCK();
  if (!alive) return CUDA_ERROR_INVALID_HANDLE;
  EventOperation* wait = calloc(1, sizeof(*wait));
  LOCK();
  wait->event = event;
  wait->generation = event->recorded;
  UNLOCK();
  return standin_enqueue(stream, &wait->base, "wait", run_wait);
}

CUresult cuEventSynchronize(CUevent event) {
  ENTER(cuEventSynchronize);
  CURRENT(context);
  CHECK(event, KIND_EVENT);
  LOCK();
  uint64_t generation = event->recorded;
  UNLOCK();
  wait_for(event, generation);
  LOCK();
  CUresult error = context->error;
  UNLOCK();
  return error;
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  ENTER(cuEventElapsedTime);
  CURRENT(context);
  CHECK(start, KIND_EVENT);
  CHECK(end, KIND_EVENT);
  if (!start->has_timing || !end->has_timing) return CUDA_ERROR_INVALID_HANDLE;
  if (start->recorded == 0 || end->recorded == 0) return CUDA_ERROR_INVALID_HANDLE;
  LOCK();
  bool ready = start->completed == start->recorded && end->completed == end->recorded;
  *milliseconds = (float)(end->time_ms - start->time_ms);
  UNLOCK();
  return ready ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
