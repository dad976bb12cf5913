#include "program.h"

#include <stdlib.h>
#include <string.h>

#include "tw_relax.h"

// ---- lifetime ---------------------------------------------------------------------------------------

static void release_link(tw_relax_link_t* link) {
  if (atomic_fetch_sub(&link->count, 1) != 1) return;
  pthread_mutex_destroy(&link->lock);
  free(link);
}

static void free_program(tw_relax_t* program) {
  ffi_drop(&program->instrument);
  for (int64_t i = 0; program->functions != NULL && i < program->function_count; ++i) {
    tw_relax_function_t* function = &program->functions[i];
    ffi_drop(&function->callee);
    free(function->name);
    free(function->parameters);
  }
  if (program->values != NULL) ffi_drop_all(program->values, (size_t)program->function_count);
  if (program->constants != NULL) ffi_drop_all(program->constants, (size_t)program->constant_count);
  ffi_drop(&program->heap.owner);
  free(program->functions);
  free(program->values);
  free(program->constants);
  free(program->code);
  free(program->location);
  release_link(program->link);
  free(program);
}

// The program of a link, kept; NULL once it is gone.
static tw_relax_t* retain_linked(tw_relax_link_t* link) {
  pthread_mutex_lock(&link->lock);
  tw_relax_t* program = link->program;
  if (program != NULL) ++program->count;
  pthread_mutex_unlock(&link->lock);
  return program;
}

static void release_program(tw_relax_t* program) {
  pthread_mutex_lock(&program->link->lock);
  const int is_last = --program->count == 0;
  if (is_last) program->link->program = NULL;
  pthread_mutex_unlock(&program->link->lock);
  if (is_last) free_program(program);
}

// ---- functions that others call ---------------------------------------------------------------------

typedef struct handle_t {
  tw_relax_t* program;    // of an entry: kept
  tw_relax_link_t* link;  // of a value
  int64_t index;
} handle_t;

static int check_count(const tw_relax_t* program, int64_t index, int32_t count) {
  const tw_relax_function_t* function = &program->functions[index];
  if (count == function->argument_count) return 0;
  tw_error_keep("ArgumentTypeError", "got %d arguments, expected %lld%s%s", count,
                (long long)function->argument_count, function->parameters[0] == '\0' ? "" : " ", function->parameters);
  return tw_error_raise("%s: function '%s': ", program->location, function->name);
}

static int call_checked(tw_relax_t* program, int64_t index, const ffi_any_t* args, int32_t count,
                        ffi_any_t* result) {
  const int code = check_count(program, index, count);
  return code != 0 ? code : tw_relax_run(program, index, args, result);
}

static int call_entry(void* self, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  const handle_t* handle = self;
  *result = ffi_none();
  return call_checked(handle->program, handle->index, args, count, result);
}

static int call_value(void* self, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  const handle_t* handle = self;
  *result = ffi_none();
  tw_relax_t* program = retain_linked(handle->link);
  if (program == NULL) {
    tw_ffi.raise_text("InputError", "the virtual machine of this function is gone, keep it as long");
    return TW_RAISED;
  }
  const int code = call_checked(program, handle->index, args, count, result);
  release_program(program);
  return code;
}

static void delete_handle(void* self) {
  handle_t* handle = self;
  if (handle->program != NULL) release_program(handle->program);
  if (handle->link != NULL) release_link(handle->link);
  free(handle);
}

static int make_function(handle_t from, ffi_call_t call, ffi_any_t* out) {
  handle_t* handle = malloc(sizeof(*handle));
  void* function = NULL;
  if (handle == NULL) return tw_error_keep("MemoryError", "out of memory");
  *handle = from;
  if (tw_ffi.create_function(handle, call, delete_handle, &function) != 0) {
    free(handle);
    return TW_RAISED;
  }
  if (from.program != NULL) retain_linked(from.program->link);
  if (from.link != NULL) atomic_fetch_add(&from.link->count, 1);
  *out = ffi_object(FFI_FUNCTION, function);
  return 0;
}

// `set_instrument(function or none)`: who hears of calls from here on.
static int call_set_instrument(void* self, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  tw_relax_t* program = ((const handle_t*)self)->program;
  *result = ffi_none();
  const int is_function = count == 1 && args[0].type_index == FFI_FUNCTION;
  ffi_any_t chosen = is_function ? ffi_copy(&args[0]) : ffi_none();
  pthread_mutex_lock(&program->link->lock);
  ffi_any_t old = program->instrument;
  program->instrument = chosen;
  atomic_store_explicit(&program->is_instrumented, is_function, memory_order_release);
  pthread_mutex_unlock(&program->link->lock);
  ffi_drop(&old);
  return 0;
}

ffi_any_t tw_relax_instrument(tw_relax_t* program) {
  if (!atomic_load_explicit(&program->is_instrumented, memory_order_acquire)) return ffi_none();
  pthread_mutex_lock(&program->link->lock);
  const ffi_any_t found = ffi_copy(&program->instrument);
  pthread_mutex_unlock(&program->link->lock);
  return found;
}

// ---- making one -------------------------------------------------------------------------------------

static int item_of(const ffi_any_t* array, int64_t index, ffi_any_t* out) {
  const ffi_any_t args[] = {*array, ffi_int(index)};
  *out = ffi_none();
  return tw_ffi.call(tw_ffi.array_item, args, 2, out) == 0 ? 0 : TW_RAISED;
}

static int text_at(const ffi_any_t* array, int64_t index, char** out_text) {
  ffi_any_t item;
  const int code = item_of(array, index, &item);
  if (code != 0) return code;
  const ffi_bytes_t bytes = ffi_text(&item);
  *out_text = strndup(bytes.data, bytes.size);
  ffi_drop(&item);
  return *out_text == NULL ? tw_error_keep("MemoryError", "out of memory") : 0;
}

enum { LOCATION, WORDS, NAMES, PARAMETERS, CALLEES, CONSTANTS, HEAP, OWNER, MAKE_ARGUMENTS };
enum { HEAD_WORDS = 3, ROW_WORDS = 4 };  // ORDER as `encode` in native_program.py

// A row of the table: kind, arguments, registers, first word; its texts and its callee.
static int read_function(tw_relax_t* program, const ffi_any_t* args, const int64_t* row, int64_t index) {
  tw_relax_function_t* function = &program->functions[index];
  function->kind = (tw_relax_kind_t)row[0];
  function->argument_count = row[1];
  function->register_count = row[2];
  function->first = row[3];
  int code = text_at(&args[NAMES], index, &function->name);
  if (code == 0) code = text_at(&args[PARAMETERS], index, &function->parameters);
  if (code == 0) code = item_of(&args[CALLEES], index, &function->callee);
  if (code != 0) return code;
  if (function->kind != TW_RELAX_BYTECODE && function->callee.type_index != FFI_FUNCTION) {
    function->builtin = tw_builtin_find(function->name, strlen(function->name));
    if (function->builtin == NULL) return tw_error_keep("InputError", "'%s' has no function", function->name);
  }
  if (function->kind != TW_RELAX_PACKED) {
    code = make_function((handle_t){.link = program->link, .index = index}, call_value, &program->values[index]);
  } else if (function->builtin != NULL) {
    code = tw_builtin_function(function->builtin, &program->values[index]);
  } else {
    program->values[index] = ffi_copy(&function->callee);
  }
  return code;
}

static int read_tables(tw_relax_t* program, const ffi_any_t* args, const ffi_sizes_t* words) {
  program->function_count = words->data[0];
  program->constant_count = words->data[1];
  program->argument_limit = words->data[2];
  const int64_t head = HEAD_WORDS + ROW_WORDS * program->function_count;
  const size_t code_words = words->size - (size_t)head;
  const ffi_bytes_t location = ffi_text(&args[LOCATION]);
  program->functions = calloc((size_t)program->function_count + 1, sizeof(*program->functions));
  program->values = calloc((size_t)program->function_count + 1, sizeof(*program->values));
  program->constants = calloc((size_t)program->constant_count + 1, sizeof(*program->constants));
  program->code = malloc((code_words + 1) * sizeof(*program->code));
  program->location = strndup(location.data, location.size);
  const int is_complete = program->functions != NULL && program->values != NULL && program->constants != NULL &&
                          program->code != NULL && program->location != NULL;
  if (!is_complete) {
    program->function_count = 0;
    program->constant_count = 0;
    return tw_error_keep("MemoryError", "out of memory");
  }
  memcpy(program->code, words->data + head, code_words * sizeof(*program->code));
  int code = 0;
  for (int64_t i = 0; i < program->constant_count && code == 0; ++i) {
    code = item_of(&args[CONSTANTS], i, &program->constants[i]);
  }
  for (int64_t i = 0; i < program->function_count && code == 0; ++i) {
    code = read_function(program, args, words->data + HEAD_WORDS + ROW_WORDS * i, i);
  }
  return code;
}

static int create_program(const ffi_any_t* args, tw_relax_t** out_program) {
  tw_relax_t* program = calloc(1, sizeof(*program));
  tw_relax_link_t* link = calloc(1, sizeof(*link));
  if (program == NULL || link == NULL) {
    free(program);
    free(link);
    return tw_error_keep("MemoryError", "out of memory");
  }
  pthread_mutex_init(&link->lock, NULL);
  atomic_store(&link->count, 1);
  link->program = program;
  program->link = link;
  program->count = 1;
  program->heap.heap = (tw_heap_t*)(uintptr_t)args[HEAP].v_int64;
  program->heap.owner = ffi_copy(&args[OWNER]);
  *out_program = program;
  return read_tables(program, args, ffi_shape(&args[WORDS]));
}

// The functions of the program in an array: `set_instrument`, then per row of the table an entry, or none, then per
// row the function as a value.
static int make_entries(tw_relax_t* program, ffi_any_t* result) {
  const size_t rows = (size_t)program->function_count;
  const size_t count = 1 + 2 * rows;
  ffi_any_t* entries = calloc(count, sizeof(*entries));
  if (entries == NULL) return tw_error_keep("MemoryError", "out of memory");
  int code = make_function((handle_t){.program = program}, call_set_instrument, &entries[0]);
  for (size_t i = 0; i < rows && code == 0; ++i) {
    entries[1 + rows + i] = ffi_copy(&program->values[i]);
    if (program->functions[i].kind == TW_RELAX_PACKED) continue;
    code = make_function((handle_t){.program = program, .index = (int64_t)i}, call_entry, &entries[1 + i]);
  }
  if (code == 0 && tw_ffi.call(tw_ffi.make_array, entries, (int32_t)count, result) != 0) code = TW_RAISED;
  ffi_drop_all(entries, count);
  free(entries);
  return code;
}

int tw_relax_make(void* self, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  (void)self;
  tw_relax_t* program = NULL;
  if (count != MAKE_ARGUMENTS || ffi_shape(&args[WORDS]) == NULL || ffi_shape(&args[WORDS])->size < HEAD_WORDS) {
    tw_ffi.raise_text("TypeError", "not the arguments of a program");
    return TW_RAISED;
  }
  *result = ffi_none();
  int code = create_program(args, &program);
  if (code == 0) code = make_entries(program, result);
  if (program != NULL) release_program(program);
  return code == TW_RAISED_HERE ? tw_error_raise("%s", "") : code;
}

int tw_relax_find_builtin(void* self, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  (void)self;
  const ffi_bytes_t name = count == 1 ? ffi_text(&args[0]) : (ffi_bytes_t){"", 0};
  const tw_builtin_t* builtin = tw_builtin_find(name.data, name.size);
  *result = ffi_none();
  const int code = builtin == NULL ? 0 : tw_builtin_function(builtin, result);
  return code == TW_RAISED_HERE ? tw_error_raise("%s", "") : code;
}

int tw_relax_addresses(uintptr_t* out_make, uintptr_t* out_builtin) {
  if (tw_ffi_bind() != 0) return -1;
  *out_make = (uintptr_t)tw_relax_make;
  *out_builtin = (uintptr_t)tw_relax_find_builtin;
  return 0;
}
