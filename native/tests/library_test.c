// What is only in exported libraries: bindings, calls, seats, forks, errors; called by core_test.c.

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "library_model.h"

enum { HANG_SECONDS = 20, HELD = 100 };

static int says(const char* words) { return strstr(tw_error_text(), words) != NULL; }

// ---- sizes ------------------------------------------------------------------------------------------

static void test_questions_about_unknown_sizes_bind_nothing(void) {
  for (uint32_t concurrency = 0; concurrency < 2; ++concurrency) {
    tw_model_t* model = model_of(1, concurrency);
    for (int64_t n = 1; n < 100; ++n) {
      int64_t shape = 0;
      CHECK(tw_model_input_shape(model, &n, 0, &shape) == TW_MODEL_OK && shape == n);
      CHECK(tw_model_output_shape(model, &n, 0, &shape) == TW_MODEL_OK && shape == n);
      size_t bytes = 0;
      CHECK(tw_model_workspace_bytes(model, &n, &bytes) == TW_MODEL_OK && bytes >= (size_t)n * 4);
    }
    CHECK(model->size_count == 0);
    CHECK(concurrency == 0 || model->seats[0].size_bytes == 0);
    const int64_t none = 0;
    int64_t shape = 0;
    CHECK(tw_model_output_shape(model, &none, 0, &shape) == TW_MODEL_BAD_INPUT && says("expected at least 1"));
    CHECK(tw_model_output_shape(model, &none, 1, &shape) == TW_MODEL_BAD_INPUT && says("output 1, expected less"));
    const int64_t huge = INT64_MAX / 5;
    CHECK(tw_model_output_shape(model, &huge, 0, &shape) == TW_MODEL_BAD_INPUT && says("sizes are too large"));
    tw_model_destroy(model);
  }
}

// ---- what does not fit ------------------------------------------------------------------------------

static void test_pointers_are_aligned_to_elements(void) {
  tw_model_t* model = model_of(1, 0);
  _Alignas(64) char room[64];
  memset(room, 0, sizeof(room));
  const int64_t n = 3;
  const void* inputs[] = {room + 1};
  void* outputs[] = {room + 32};
  CHECK(tw_model_run(model, &n, inputs, outputs) == TW_MODEL_BAD_INPUT);
  CHECK(says("input 'x': is at address ") && says(", expected a multiple of 4"));
  inputs[0] = room;
  outputs[0] = room + 34;
  CHECK(tw_model_run(model, &n, inputs, outputs) == TW_MODEL_BAD_INPUT && says("output 'y': is at address "));
  outputs[0] = NULL;
  CHECK(tw_model_run(model, &n, inputs, outputs) == TW_MODEL_BAD_INPUT && says("output 'y': has no data"));
  tw_model_destroy(model);
}

// ---- packed functions -------------------------------------------------------------------------------

static int call_main(tw_packed_model_t* packed, test_tensor_t* x, test_tensor_t* y, tw_any_t* result) {
  const tw_any_t args[] = {any_tensor(x), any_tensor(y)};
  return tw_packed_main(packed, args, y == NULL ? 1 : 2, result);
}

// As when the library goes; what stays for threads that are late goes, too.
static void close_packed(tw_packed_model_t* packed) {
  tw_packed_close(packed);
  CHECK(packed->model == NULL || ((tw_model_t*)packed->model)->is_closed);
  free(packed->model);
}

static test_tensor_t tensor_of(float* data, int64_t* shape) {
  return (test_tensor_t){
      .data = data, .device_type = 1, .rank = 1, .type_code = 2, .type_bits = 32, .type_lanes = 1, .shape = shape};
}

static void test_a_packed_call_checks_what_strangers_hand_it(void) {
  tw_packed_model_t packed = {.library = &test_library};
  int64_t shape[] = {2, 1, 1};
  int64_t strides[] = {1, 1, 1};
  float data[] = {1, 2}, made[2];
  tw_any_t result = {.type_index = 0};
  test_tensor_t x = tensor_of(data, shape), y = tensor_of(made, shape);
  CHECK(call_main(&packed, &x, &y, &result) == 0 && made[0] == 3 && made[1] == 5);
  // Extents whose product leaves 63 bits.
  x.strides = strides;
  x.rank = 3;
  shape[0] = shape[1] = shape[2] = INT64_MAX;
  CHECK(call_main(&packed, &x, &y, &result) == -1 && strcmp(raised_kind, "ValueError") == 0);
  shape[0] = shape[1] = shape[2] = INT64_MIN;
  CHECK(call_main(&packed, &x, &y, &result) == -1 && strcmp(raised_kind, "ValueError") == 0);
  // No data, but an offset.
  x = tensor_of(NULL, shape);
  x.byte_offset = 8;
  shape[0] = 2;
  CHECK(call_main(&packed, &x, &y, &result) == -1 && says("input 'x': has no data"));
  // Axes, but no extents; and fewer axes than none.
  x = tensor_of(data, NULL);
  CHECK(call_main(&packed, &x, &y, &result) == -1 && says("input 'x': has no shape"));
  x = tensor_of(data, shape);
  y = tensor_of(made, NULL);
  CHECK(call_main(&packed, &x, &y, &result) == -1 && says("output 'y': has no shape"));
  x.rank = -1;
  CHECK(call_main(&packed, &x, NULL, &result) == -1 && strcmp(raised_kind, "ValueError") == 0);
  close_packed(&packed);
}

static void test_a_failed_packed_call_leaves_no_result(void) {
  tw_packed_model_t packed = {.library = &test_library};
  int64_t shape[] = {2};
  float data[] = {1, 2};
  test_tensor_t x = tensor_of(data, shape);
  tw_any_t result = {.type_index = 0};
  refuses_tensors = 1;
  CHECK(call_main(&packed, &x, NULL, &result) == -1);
  refuses_tensors = 0;
  CHECK(result.type_index == 0 && result.v_ptr == NULL);
  CHECK(call_main(&packed, &x, NULL, &result) == 0 && result.type_index == 70);
  extern int TVMFFIObjectDecRef(void* object);
  TVMFFIObjectDecRef(result.v_ptr);
  close_packed(&packed);
}

// ---- calls in flight --------------------------------------------------------------------------------

static atomic_int held_count;  // calls that wait
static atomic_int may_go_on;

static void hold(int64_t n) {
  if (n != HELD) return;
  atomic_fetch_add(&held_count, 1);
  while (!atomic_load(&may_go_on)) usleep(200);
}

typedef struct caller_t {
  tw_model_t* model;
  int64_t n;
  int prepares;
  pthread_t thread;
  int status;
} caller_t;

static void* call_once(void* argument) {
  caller_t* caller = argument;
  caller->status =
      caller->prepares ? tw_model_prepare(caller->model, &caller->n) : run_model(caller->model, caller->n);
  return NULL;
}

static void start(caller_t* caller) { CHECK(pthread_create(&caller->thread, NULL, call_once, caller) == 0); }

static void finish(caller_t* caller) {
  CHECK(pthread_join(caller->thread, NULL) == 0);
  CHECK(caller->status == TW_MODEL_OK);
}

static void start_held(caller_t* caller) {
  atomic_store(&may_go_on, 0);
  atomic_store(&held_count, 0);
  start(caller);
  while (atomic_load(&held_count) == 0) usleep(200);
}

static void finish_held(caller_t* caller) {
  atomic_store(&may_go_on, 1);
  finish(caller);
}

static void test_a_library_that_goes_leaves_calls_in_flight_alone(void) {
  tw_packed_model_t packed = {.library = &test_library};
  CHECK(tw_model_create(&test_library, NULL, (tw_model_t**)(void*)&packed.model) == TW_MODEL_OK);
  tw_model_t* model = packed.model;
  atomic_store(&on_call, hold);
  caller_t caller = {.model = model, .n = HELD};
  start_held(&caller);
  tw_packed_close(&packed);
  finish_held(&caller);
  CHECK(run_model(model, 5) == TW_MODEL_OK);
  tw_packed_close(&packed);  // nothing runs: its memory and threads go
  int64_t shape[] = {2};
  float data[] = {1, 2};
  test_tensor_t x = tensor_of(data, shape);
  tw_any_t result = {.type_index = 0};
  CHECK(call_main(&packed, &x, &x, &result) == -1 && says("closed"));
  free(model);
  atomic_store(&on_call, NULL);
}

static void run_again(int64_t n);
static tw_model_t* recursive_model;

static void run_again(int64_t n) {
  if (n != HELD) return;
  CHECK(run_model(recursive_model, 7) == TW_MODEL_FAILED && says("within a call"));
  const int64_t unknown = 5000;
  CHECK(tw_model_prepare(recursive_model, &unknown) == TW_MODEL_FAILED && says("within a call"));
}

static void test_a_call_within_a_call_never_waits_for_itself(void) {
  alarm(HANG_SECONDS);
  recursive_model = model_of(1, 1);
  const int64_t sizes[] = {7, HELD};
  CHECK(tw_model_prepare(recursive_model, &sizes[0]) == TW_MODEL_OK);
  CHECK(tw_model_prepare(recursive_model, &sizes[1]) == TW_MODEL_OK);
  atomic_store(&on_call, run_again);
  CHECK(run_model(recursive_model, HELD) == TW_MODEL_OK);
  atomic_store(&on_call, NULL);
  CHECK(run_model(recursive_model, 7) == TW_MODEL_OK);
  tw_model_destroy(recursive_model);
  alarm(0);
}

// ---- threads ----------------------------------------------------------------------------------------

typedef struct worker_t {
  tw_model_t* model;
  int seed;
  int is_prepared;
} worker_t;

static void* use(void* argument) {
  const worker_t* worker = argument;
  for (int turn = 0; turn < 150; ++turn) {
    const int64_t n = 1 + (turn * 37 + worker->seed * 11) % 61 * 13;
    int64_t shape = 0;
    CHECK(tw_model_output_shape(worker->model, &n, 0, &shape) == TW_MODEL_OK && shape == n);
    if (worker->is_prepared) CHECK(tw_model_prepare(worker->model, &n) == TW_MODEL_OK);
    CHECK(run_model(worker->model, n) == TW_MODEL_OK);
  }
  return NULL;
}

static void test_threads_share_a_model_of_many_sizes(void) {
  for (uint32_t concurrency = 0; concurrency < 3; ++concurrency) {
    tw_model_t* model = model_of(3, concurrency);
    pthread_t threads[4];
    worker_t workers[4];
    for (int i = 0; i < 4; ++i) {
      workers[i] = (worker_t){.model = model, .seed = i, .is_prepared = concurrency != 0};
      CHECK(pthread_create(&threads[i], NULL, use, &workers[i]) == 0);
    }
    for (int i = 0; i < 4; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
    tw_model_destroy(model);
  }
}

static void* make_and_call(void* argument) {
  tw_packed_model_t* packed = argument;
  for (int turn = 0; turn < 20; ++turn) {
    int64_t shape[] = {2};
    float data[] = {1, 2}, made[2] = {0, 0};
    test_tensor_t x = tensor_of(data, shape), y = tensor_of(made, shape);
    tw_any_t result = {.type_index = 0};
    CHECK(call_main(packed, &x, &y, &result) == 0 && made[0] == 3 && made[1] == 5);
  }
  return NULL;
}

static void test_threads_that_come_first_share_one_model(void) {
  for (int round = 0; round < 20; ++round) {
    tw_packed_model_t packed = {.library = &test_library};
    pthread_t threads[4];
    for (int i = 0; i < 4; ++i) CHECK(pthread_create(&threads[i], NULL, make_and_call, &packed) == 0);
    for (int i = 0; i < 4; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
    close_packed(&packed);
  }
}

// ---- forks ------------------------------------------------------------------------------------------

// Forks; the child does its work or is ended. Returns in the parent.
static void check_child(void (*work)(tw_model_t* model), tw_model_t* model) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(HANG_SECONDS);
    work(model);
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void use_in_child(tw_model_t* model) {
  atomic_store(&on_call, NULL);
  atomic_store(&on_kernel, NULL);
  const int64_t sizes[] = {HELD, 7, 3000};
  for (int i = 0; i < 3; ++i) {
    CHECK(tw_model_prepare(model, &sizes[i]) == TW_MODEL_OK);
    CHECK(run_model(model, sizes[i]) == TW_MODEL_OK);
  }
  for (uint32_t i = 0; i < model->seat_count; ++i) CHECK(model->sizes[0]->idle_count == model->seat_count);
  tw_model_destroy(model);
}

// One thread in a call, one that waits for its seat, one that waits to make the seats larger.
static void check_fork_beside_calls(uint32_t concurrency, int is_in_kernel) {
  tw_model_t* model = model_of(2, concurrency);
  const int64_t sizes[] = {HELD, 7};
  for (int i = 0; i < 2; ++i) CHECK(tw_model_prepare(model, &sizes[i]) == TW_MODEL_OK);
  atomic_store(is_in_kernel ? &on_kernel : &on_call, hold);
  caller_t inside = {.model = model, .n = HELD};
  caller_t waiting = {.model = model, .n = 7};
  caller_t preparing = {.model = model, .n = 2000, .prepares = 1};
  start_held(&inside);
  start(&waiting);
  start(&preparing);
  usleep(50000);  // they are where they wait, most likely
  check_child(use_in_child, model);
  finish_held(&inside);
  finish(&waiting);
  finish(&preparing);
  atomic_store(&on_call, NULL);
  atomic_store(&on_kernel, NULL);
  CHECK(run_model(model, 7) == TW_MODEL_OK);
  tw_model_destroy(model);
}

static void test_a_forked_child_has_a_working_model(void) {
  for (uint32_t concurrency = 0; concurrency < 3; ++concurrency) {
    check_fork_beside_calls(concurrency, 0);
    check_fork_beside_calls(concurrency, 1);
  }
}

static pid_t forked_child;

static void fork_once(int64_t n) {
  if (n == HELD) forked_child = fork();
  if (n == HELD && forked_child == 0) alarm(HANG_SECONDS);
}

// The call that forks goes on in both processes.
static void test_a_fork_within_a_call_leaves_two_calls(void) {
  for (uint32_t concurrency = 0; concurrency < 2; ++concurrency) {
    tw_model_t* model = model_of(2, concurrency);
    const int64_t n = HELD;
    CHECK(tw_model_prepare(model, &n) == TW_MODEL_OK);
    atomic_store(&on_call, fork_once);
    CHECK(run_model(model, HELD) == TW_MODEL_OK);
    atomic_store(&on_call, NULL);
    CHECK(run_model(model, HELD) == TW_MODEL_OK);
    if (forked_child == 0) use_in_child(model);
    if (forked_child == 0) _exit(0);
    int status = 0;
    CHECK(waitpid(forked_child, &status, 0) == forked_child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    tw_model_destroy(model);
  }
}

// A child of the sanitizers' may find their allocator locked by a thread that it does not have.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { FORK_COUNT = 0 };
#else
enum { FORK_COUNT = 60 };
#endif

static atomic_int ends;

static void* bind_until_told(void* argument) {
  tw_model_t* model = argument;
  for (int64_t n = 1; !atomic_load(&ends); n = n % 200 + 1) {
    CHECK(tw_model_prepare(model, &n) == TW_MODEL_OK);
    CHECK(run_model(model, n) == TW_MODEL_OK);
  }
  return NULL;
}

static void test_forks_at_any_moment_leave_a_working_model(void) {
  for (uint32_t concurrency = 0; concurrency < 2; ++concurrency) {
    tw_model_t* model = model_of(1, concurrency);
    pthread_t threads[2];
    atomic_store(&ends, 0);
    for (int i = 0; i < 2; ++i) CHECK(pthread_create(&threads[i], NULL, bind_until_told, model) == 0);
    for (int i = 0; i < FORK_COUNT; ++i) check_child(use_in_child, model);
    atomic_store(&ends, 1);
    for (int i = 0; i < 2; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
    tw_model_destroy(model);
  }
}

static void* create_until_told(void* argument) {
  (void)argument;
  while (!atomic_load(&ends)) {
    tw_packed_model_t packed = {.library = &test_library};
    make_and_call(&packed);
    close_packed(&packed);
  }
  return NULL;
}

static void create_in_child(tw_model_t* none) {
  (void)none;
  tw_packed_model_t packed = {.library = &test_library};
  make_and_call(&packed);
  close_packed(&packed);
}

static void test_a_child_makes_its_first_model_while_another_thread_did(void) {
  pthread_t thread;
  atomic_store(&ends, 0);
  CHECK(pthread_create(&thread, NULL, create_until_told, NULL) == 0);
  for (int i = 0; i < FORK_COUNT; ++i) check_child(create_in_child, NULL);
  atomic_store(&ends, 1);
  CHECK(pthread_join(thread, NULL) == 0);
}

// ---- memory that there is not -----------------------------------------------------------------------

#if defined(TW_WRAPPED)

static int is_refused(int status) {
  if (status == TW_MODEL_OK) return 0;
  CHECK(status == TW_MODEL_NO_MEMORY);
  CHECK(says("memory"));
  return 1;
}

// Creates, prepares, calls and destroys while the n-th allocation and those behind it fail. Returns whether any did.
static int use_without(int nth, int count, uint32_t concurrency) {
  static float x[600], y[600];
  const tw_model_options_t options = {.struct_bytes = sizeof(options), .threads = 2, .concurrency = concurrency};
  const int64_t sizes[] = {5, 600};
  const void* inputs[] = {x};
  void* outputs[] = {y};
  tw_model_t* model = NULL;
  fail_allocations(nth, count);
  int refused = is_refused(tw_model_create(&test_library, &options, &model));
  for (int i = 0; !refused && i < 2; ++i) {
    refused = is_refused(tw_model_prepare(model, &sizes[i])) ||
              is_refused(tw_model_run(model, &sizes[i], inputs, outputs));
  }
  const int failed = fail_allocations(0, 0);
  for (int i = 0; model != NULL && i < 2; ++i) {  // what was refused once is had later
    CHECK(tw_model_prepare(model, &sizes[i]) == TW_MODEL_OK);
    CHECK(run_model(model, sizes[i]) == TW_MODEL_OK);
  }
  tw_model_destroy(model);
  return failed != 0;
}

static int call_without(int nth, int count) {
  tw_packed_model_t packed = {.library = &test_library};
  int64_t shape[] = {2};
  float data[] = {1, 2};
  test_tensor_t x = tensor_of(data, shape);
  tw_any_t result = {.type_index = 0};
  fail_allocations(nth, count);
  const int code = call_main(&packed, &x, NULL, &result);
  const int failed = fail_allocations(0, 0);
  extern int TVMFFIObjectDecRef(void* object);
  if (code == 0) {
    TVMFFIObjectDecRef(result.v_ptr);
  } else {
    CHECK(code == -1 && strcmp(raised_kind, "MemoryError") == 0 && result.type_index == 0);
  }
  close_packed(&packed);
  return failed != 0;
}

static void test_every_allocation_may_fail(void) {
  CHECK(tw_model_create(&test_library, &(tw_model_options_t){.threads = 5000}, NULL) == TW_MODEL_BAD_INPUT);  // a text
  for (int count = 1; count < 1000; count += 500) {
    for (uint32_t concurrency = 0; concurrency < 3; ++concurrency) {
      int nth = 0;
      while (use_without(nth, count, concurrency)) ++nth;
      CHECK(nth > 20);
    }
    int nth = 0;
    while (call_without(nth, count)) ++nth;
    CHECK(nth > 20);
  }
}

#endif

void test_library_calls(int may_fork) {
  test_questions_about_unknown_sizes_bind_nothing();
  test_pointers_are_aligned_to_elements();
  test_a_packed_call_checks_what_strangers_hand_it();
  test_a_failed_packed_call_leaves_no_result();
  test_a_call_within_a_call_never_waits_for_itself();
  test_threads_share_a_model_of_many_sizes();
  test_threads_that_come_first_share_one_model();
#if defined(TW_WRAPPED)
  test_every_allocation_may_fail();
#endif
  if (may_fork) {
    test_a_forked_child_has_a_working_model();
    test_a_fork_within_a_call_leaves_two_calls();
    test_forks_at_any_moment_leave_a_working_model();
    test_a_child_makes_its_first_model_while_another_thread_did();
  }
  test_a_library_that_goes_leaves_calls_in_flight_alone();
}
