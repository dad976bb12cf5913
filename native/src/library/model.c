#include "model.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "place.h"
#include "system.h"

enum { SPIN_US = 100, CONCURRENCY_LIMIT = 1024, SEAT_ALIGNMENT = 64 };

const tw_program_t* tw_model_program(const tw_model_t* model) { return model->program; }

const void* tw_model_constant(const tw_model_t* model, uint32_t index) {
  if (model == NULL || index >= model->program->constant_storage_count) return NULL;
  return model->constants[index];
}

// ---- arguments --------------------------------------------------------------------------------------

// Memory that is taken beforehand has a size that is known beforehand.
static int fail_late(const char* what) {
  return tw_error_set(TW_MODEL_BAD_INPUT, "%s: the model has sizes that data decides, so a call takes its memory when "
                                          "it knows them", what);
}

static int fail_missing(const char* name) { return tw_error_set(TW_MODEL_BAD_INPUT, "%s is NULL", name); }

int tw_model_check_dims(const tw_model_t* model, const int64_t* dims) {
  if (model == NULL) return fail_missing("model");
  return dims == NULL && model->program->dim_count != 0 ? fail_missing("dims") : TW_MODEL_OK;
}

int tw_model_check_arrays(const tw_model_t* model, const void* inputs, const void* outputs) {
  if (model == NULL) return fail_missing("model");
  if (inputs == NULL && model->program->input_count != 0) return fail_missing("inputs");
  return outputs == NULL && model->program->output_count != 0 ? fail_missing("outputs") : TW_MODEL_OK;
}

static int check_question(const tw_model_t* model, const int64_t* dims, const void* out) {
  return out == NULL ? fail_missing("the place for the answer") : tw_model_check_dims(model, dims);
}

// ---- questions --------------------------------------------------------------------------------------

// Of sizes that nobody prepared nothing is kept: to ask is not to call.
static int shape_of(tw_model_t* model, const int64_t* dims, const tw_signature_t* row, int64_t* out_shape) {
  tw_sized_t* sized = tw_sized_find(model, dims);
  if (sized != NULL) {
    tw_bound_shape(sized->bound, row, out_shape);  // all of them have numbers: binding looked
    tw_sized_leave(model, sized);
    return TW_MODEL_OK;
  }
  tw_bound_t* bound = NULL;
  const tw_program_t* program = model->program;
  const int status = program->flow == NULL ? tw_bound_create(program, dims, &bound)
                                           : tw_bound_create_sizes(program, dims, &bound);
  if (status != TW_MODEL_OK) return status;
  const int is_known = tw_bound_shape(bound, row, out_shape);
  tw_bound_destroy(bound);
  if (is_known) return TW_MODEL_OK;
  return tw_error_set(TW_MODEL_BAD_INPUT, "output '%s': data decides its shape, %s, which is known when a call runs",
                      row->name, row->text);
}

int tw_model_input_shape(tw_model_t* model, const int64_t* dims, uint32_t index, int64_t* out_shape) {
  const int status = check_question(model, dims, out_shape);
  if (status != TW_MODEL_OK) return status;
  const tw_program_t* program = model->program;
  if (index < program->input_count) return shape_of(model, dims, &program->inputs[index], out_shape);
  return tw_error_set(TW_MODEL_BAD_INPUT, "got input %u, expected less than %u", index, program->input_count);
}

int tw_model_output_shape(tw_model_t* model, const int64_t* dims, uint32_t index, int64_t* out_shape) {
  const int status = check_question(model, dims, out_shape);
  if (status != TW_MODEL_OK) return status;
  const tw_program_t* program = model->program;
  if (index < program->output_count) return shape_of(model, dims, &program->outputs[index], out_shape);
  return tw_error_set(TW_MODEL_BAD_INPUT, "got output %u, expected less than %u", index, program->output_count);
}

int tw_model_workspace_bytes(tw_model_t* model, const int64_t* dims, size_t* out_bytes) {
  tw_bound_t* bound = NULL;
  int status = check_question(model, dims, out_bytes);
  if (status == TW_MODEL_OK && model->program->flow != NULL) return fail_late("a workspace");
  if (status == TW_MODEL_OK) status = tw_bound_create(model->program, dims, &bound);
  if (status != TW_MODEL_OK) return status;
  *out_bytes = tw_model_bound_bytes(model, bound);
  tw_bound_destroy(bound);
  return TW_MODEL_OK;
}

// ---- creation ---------------------------------------------------------------------------------------

// What of the options the caller knows of.
static int read_options(const tw_model_options_t* given, tw_model_options_t* out_options) {
  memset(out_options, 0, sizeof(*out_options));
  if (given == NULL) return TW_MODEL_OK;
  const size_t given_bytes = given->struct_bytes == 0 ? sizeof(*given) : given->struct_bytes;
  memcpy(out_options, given, given_bytes < sizeof(*given) ? given_bytes : sizeof(*given));
  if (out_options->threads > TW_THREAD_LIMIT) {
    return tw_error_set(TW_MODEL_BAD_INPUT, "threads is %u, expected at most %d", out_options->threads,
                        TW_THREAD_LIMIT);
  }
  if (out_options->concurrency > CONCURRENCY_LIMIT) {
    return tw_error_set(TW_MODEL_BAD_INPUT, "concurrency is %u, expected at most %d", out_options->concurrency,
                        CONCURRENCY_LIMIT);
  }
  if (out_options->workspace == NULL) return TW_MODEL_OK;
  if ((uintptr_t)out_options->workspace % SEAT_ALIGNMENT != 0) {
    return tw_error_set(TW_MODEL_BAD_INPUT, "the workspace is at address %p, expected a multiple of %d",
                        out_options->workspace, SEAT_ALIGNMENT);
  }
  if (out_options->concurrency > 1) {
    return tw_error_set(TW_MODEL_BAD_INPUT, "concurrency is %u, but a workspace serves one call at a time",
                        out_options->concurrency);
  }
  out_options->concurrency = 1;
  return TW_MODEL_OK;
}

static void add_levels(tw_text_t* text, const tw_library_t* library) {
  for (uint32_t i = 0; i < library->program_count; ++i) {
    tw_text_add(text, "%s'%s'", i == 0 ? "" : ", ", library->programs[i]->level);
  }
}

static int choose_program(const tw_library_t* library, const char* level, const tw_program_t** out_program) {
  const char* missing = NULL;
  const char* lacks = NULL;
  int is_known = level == NULL;
  for (uint32_t i = 0; i < library->program_count; ++i) {
    const tw_program_t* program = library->programs[i];
    if (level != NULL && strcmp(level, program->level) != 0) continue;
    is_known = 1;
    if (tw_processor_has(program->features, &missing)) {
      *out_program = program;
      return TW_MODEL_OK;
    }
    lacks = missing;
  }
  tw_text_t levels = {.length = 0};
  add_levels(&levels, library);
  if (!is_known) return tw_error_set(TW_MODEL_BAD_INPUT, "no level '%s', expected one of %s", level, levels.text);
  return tw_error_set(TW_MODEL_NO_CODE, "%s: no code for this processor; the library has %s; missing here: %s",
                      library->name, levels.text, lacks == NULL ? "" : lacks);
}

static int create_seats(tw_model_t* model, const tw_model_options_t* options) {
  if (options->concurrency == 0) return TW_MODEL_OK;
  if (model->program->flow != NULL) return fail_late(options->workspace == NULL ? "concurrency" : "a workspace");
  model->seats = calloc(options->concurrency, sizeof(*model->seats));
  if (model->seats == NULL) return tw_error_no_memory();
  model->seat_count = options->concurrency;
  model->owns_seats = options->workspace == NULL;
  if (model->owns_seats) return TW_MODEL_OK;
  model->seats[0] = (tw_model_seat_t){.memory = options->workspace, .size_bytes = options->workspace_bytes};
  return TW_MODEL_OK;
}

// Has the workers started now, so that no call does.
static void start_workers(tw_model_t* model) {
  if (model->pool != NULL) tw_pool_leave(tw_pool_enter(model->pool));
}

// Takes the threads that others made, or makes them for others, where the library says so.
static int share_pool(tw_model_t* model, tw_model_workers_t* workers, const tw_pool_options_t* options) {
  model->pool = atomic_load(&workers->pool);
  if (model->pool != NULL) return TW_MODEL_OK;
  tw_pool_t* made = NULL;
  if (tw_pool_create(options, &made) != TW_STATUS_OK) return tw_error_no_memory();
  if (atomic_compare_exchange_strong(&workers->pool, &model->pool, made)) {
    model->pool = made;
  } else {
    tw_pool_destroy(made);  // somebody else was faster
  }
  return TW_MODEL_OK;
}

static int create_pool(tw_model_t* model, const tw_model_options_t* options) {
  tw_model_workers_t* workers = model->library->workers;
  tw_pool_options_t pool = {.thread_count = options->threads, .spin_us = SPIN_US};
  const int status = options->threads == 0 ? tw_place_thread_count(&pool.thread_count) : TW_MODEL_OK;
  if (status != TW_MODEL_OK) return status;
  if (workers != NULL) {
    model->shares_pool = 1;
    if (atomic_fetch_add(&workers->users, 1) >= 0) return share_pool(model, workers, &pool);
    atomic_fetch_sub(&workers->users, 1);  // they are closed
    model->shares_pool = 0;
  }
  if (pool.thread_count > 1 && tw_pool_create(&pool, &model->pool) != TW_STATUS_OK) return tw_error_no_memory();
  return TW_MODEL_OK;
}

static void leave_pool(tw_model_t* model) {
  if (model->shares_pool) {
    atomic_fetch_sub(&model->library->workers->users, 1);
  } else {
    tw_pool_destroy(model->pool);
  }
}

void tw_model_workers_close(tw_model_workers_t* workers) {
  int32_t none = 0;
  if (atomic_compare_exchange_strong(&workers->users, &none, INT32_MIN / 2)) tw_pool_destroy(workers->pool);
}

static int find_constants(tw_model_t* model) {
  const tw_program_t* program = model->program;
  model->constants = calloc((size_t)program->constant_storage_count + 1, sizeof(*model->constants));
  if (model->constants == NULL) return tw_error_no_memory();
  for (uint32_t i = 0; i < program->constant_storage_count; ++i) {
    model->constants[i] = model->weights.base + program->weight_offsets[i];
  }
  model->flow = (tw_flow_shared_t){.program = program,
                                   .constants = model->constants,
                                   .heap = model->heap,
                                   .recordings = &model->recordings,
                                   .lock = &model->lock};
  return TW_MODEL_OK;
}

static int create_parts(tw_model_t* model, const tw_model_options_t* options) {
  int status = choose_program(model->library, options->level, &model->program);
  if (status == TW_MODEL_OK) status = create_pool(model, options);
  if (status != TW_MODEL_OK) return status;
  if (tw_heap_create(SIZE_MAX, SIZE_MAX, &model->heap) != TW_STATUS_OK) return tw_error_no_memory();
  status = tw_weights_open(model->library->weights, options->weights_path, &model->weights);
  if (status == TW_MODEL_OK) status = find_constants(model);
  if (status == TW_MODEL_OK) status = create_seats(model, options);
  if (status == TW_MODEL_OK && model->program->dim_count == 0) status = tw_model_prepare(model, NULL);
  if (status == TW_MODEL_OK && model->seats != NULL) start_workers(model);
  return status;
}

// ---- live models ------------------------------------------------------------------------------------

static pthread_mutex_t models_lock = PTHREAD_MUTEX_INITIALIZER;
static tw_model_t* models = NULL;

static void fork_prepare(void) {
  pthread_mutex_lock(&models_lock);
  for (tw_model_t* model = models; model != NULL; model = model->next) pthread_mutex_lock(&model->lock);
}

static void fork_parent(void) {
  for (tw_model_t* model = models; model != NULL; model = model->next) pthread_mutex_unlock(&model->lock);
  pthread_mutex_unlock(&models_lock);
}

// Only the forking thread lives on: a call that it is within goes on, those of others do not.
static void fork_child(void) {
  for (tw_model_t* model = models; model != NULL; model = model->next) tw_model_forget_others(model);
  fork_parent();
}

static void register_fork_handlers(void) {
  tw_wait_survive_fork();
  tw_system_on_fork(fork_prepare, fork_parent, fork_child);
}

static void enlist(tw_model_t* model) {
  pthread_mutex_lock(&models_lock);
  model->next = models;
  models = model;
  pthread_mutex_unlock(&models_lock);
}

static void unlist(const tw_model_t* model) {
  pthread_mutex_lock(&models_lock);
  for (tw_model_t** link = &models; *link != NULL; link = &(*link)->next) {
    if (*link != model) continue;
    *link = model->next;
    break;
  }
  pthread_mutex_unlock(&models_lock);
}

// ---- from create to destroy -------------------------------------------------------------------------

int tw_model_create(const tw_library_t* library, const tw_model_options_t* options, tw_model_t** out_model) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  tw_model_options_t known;
  int status = out_model == NULL ? fail_missing("the place for the model") : read_options(options, &known);
  if (status != TW_MODEL_OK) return status;
  pthread_once(&once, register_fork_handlers);
  tw_model_t* model = calloc(1, sizeof(*model));
  if (model == NULL) return tw_error_no_memory();
  model->library = library;
  pthread_mutex_init(&model->lock, NULL);
  enlist(model);
  status = create_parts(model, &known);
  if (status != TW_MODEL_OK) {
    tw_model_destroy(model);
    return status;
  }
  *out_model = model;
  return TW_MODEL_OK;
}

static void destroy_parts(tw_model_t* model) {
  unlist(model);
  tw_model_close_calls(model);
  for (uint32_t i = 0; model->owns_seats && i < model->seat_count; ++i) {
    if (model->seats[i].memory != NULL) tw_memory_free(model->seats[i].memory, model->seats[i].size_bytes);
  }
  free(model->seats);
  free(model->constants);
  tw_weights_close(&model->weights);
  tw_heap_destroy(model->heap);
  leave_pool(model);
}

int tw_model_close(tw_model_t* model) {
  if (!tw_model_close_to_calls(model)) return 0;
  destroy_parts(model);
  return 1;
}

void tw_model_destroy(tw_model_t* model) {
  if (model == NULL) return;
  destroy_parts(model);
  pthread_mutex_destroy(&model->lock);
  free(model);
}
