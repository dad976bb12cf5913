// `FlowProgram`: a plan whose sizes data decides, walked without Python (`program/flow.h`).

#include "binding.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "flow.h"
#include "system.h"
#include "tables.h"

static PyTypeObject* flow_program_type;

typedef struct flow_program_object_t {
  PyObject_HEAD
  tw_tables_t* tables;
  PyObject* owners;      // tuple: what the addresses of kernels need
  PyObject* heap;        // a Heap or None
  Py_buffer* constants;  // held as long as the object lives
  const void** addresses;
  size_t* sizes_bytes;
  uint32_t held_count;
  tw_recordings_t recordings;
  tw_flow_shared_t shared;
} flow_program_object_t;

// Of the recordings of all programs: held for a few instructions, and free in a forked child.
static pthread_mutex_t recordings_lock = PTHREAD_MUTEX_INITIALIZER;

static void fork_prepare(void) { pthread_mutex_lock(&recordings_lock); }
static void fork_done(void) { pthread_mutex_unlock(&recordings_lock); }

// ---- a call -----------------------------------------------------------------------------------------

typedef struct flow_run_t {
  flow_program_object_t* program;
  PyThreadState* thread;
  PyObject* allocate;
  Py_buffer* inputs;
  Py_buffer* outputs;
} flow_run_t;

static int on_poll(void* context) {
  flow_run_t* run = context;
  PyEval_RestoreThread(run->thread);
  const int result = PyErr_CheckSignals();
  run->thread = PyEval_SaveThread();
  return result;
}

static PyObject* extents_of(const int64_t* shape, uint32_t rank) {
  PyObject* tuple = PyTuple_New((Py_ssize_t)rank);
  for (uint32_t axis = 0; tuple != NULL && axis < rank; ++axis) {
    PyObject* extent = PyLong_FromLongLong(shape[axis]);
    if (extent == NULL || PyTuple_SetItem(tuple, (Py_ssize_t)axis, extent) < 0) Py_CLEAR(tuple);
  }
  return tuple;
}

static int take_output(flow_run_t* run, uint32_t output, const int64_t* shape, size_t size_bytes, void** out_data) {
  const tw_program_t* program = tw_tables_program(run->program->tables);
  PyObject* extents = extents_of(shape, program->outputs[output].rank);
  if (extents == NULL) return -1;
  PyObject* array = PyObject_CallFunction(run->allocate, "IN", output, extents);
  if (array == NULL) return -1;
  Py_buffer* view = &run->outputs[output];
  if (view->obj != NULL) PyBuffer_Release(view);
  const int taken = PyObject_GetBuffer(array, view, PyBUF_WRITABLE);
  Py_DECREF(array);
  if (taken < 0) return -1;
  *out_data = view->buf;
  if ((uint64_t)view->len >= size_bytes) return 0;
  PyErr_Format(PyExc_ValueError, "output %u: buffer of %zd bytes, expected at least %zu", output, view->len, size_bytes);
  return -1;
}

static int on_allocate(void* context, uint32_t output, const int64_t* shape, size_t size_bytes, void** out_data) {
  flow_run_t* run = context;
  PyEval_RestoreThread(run->thread);
  const int taken = take_output(run, output, shape, size_bytes, out_data);
  run->thread = PyEval_SaveThread();
  return taken == 0 ? TW_MODEL_OK : tw_error_set(TW_MODEL_FAILED, "an output has no memory");
}

// Whether a file was cut that the call read of; sets the exception.
static int is_lost(const Py_buffer* views, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    tw_message_t name;
    if (!tw_fault_find(views[i].buf, (size_t)views[i].len, &name)) continue;
    tw_lost_file_raise(name.text);
    return 1;
  }
  return 0;
}

static int has_lost_files(const flow_run_t* run) {
  const tw_program_t* program = tw_tables_program(run->program->tables);
  if (!tw_fault_any()) return 0;
  return is_lost(run->inputs, program->input_count) || is_lost(run->program->constants, program->constant_storage_count);
}

// Imported when something failed, as the class of failed kernels is.
static void raise_status(int status) {
  if (PyErr_Occurred()) return;
  PyObject* module = PyImport_ImportModule("tilewright.runtime.native.flow_error");
  const char* text = tw_error_text();  // perhaps cut within a character
  PyObject* message = module == NULL ? NULL : PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
  PyObject* result = message == NULL ? NULL : PyObject_CallMethod(module, "raise_flow_error", "iO", status, message);
  Py_XDECREF(result);
  Py_XDECREF(message);
  Py_XDECREF(module);
}

static int bind_inputs(const flow_run_t* run, tw_flow_call_t* flow) {
  const uint32_t count = tw_tables_program(run->program->tables)->input_count;
  for (uint32_t i = 0; i < count; ++i) {
    const int64_t size_bytes = tw_flow_slot_bytes(flow, i);
    if (size_bytes < 0 || run->inputs[i].len < size_bytes) {
      PyErr_Format(PyExc_ValueError, "input %u: buffer of %zd bytes, expected at least %lld", i, run->inputs[i].len,
                   (long long)size_bytes);
      return -1;
    }
    tw_flow_bind(flow, i, run->inputs[i].buf);
  }
  return 0;
}

// From the sizes that the inputs decide to the end. The status is that of the first function that failed; OK with an
// exception where Python did.
static int run_flow(flow_run_t* run, PyObject* pool, const int64_t* dims) {
  const tw_flow_caller_t caller = {
      .runner = {.pool = pool == Py_None ? NULL : ((tw_pool_object_t*)pool)->pool,
                 .heap = run->program->shared.heap,
                 .poll = tw_thread_is_main() ? on_poll : NULL,
                 .context = run},
      .allocate = on_allocate,
  };
  tw_flow_call_t* flow = NULL;
  int status = tw_flow_create(&run->program->shared, dims, &flow);
  if (status != TW_MODEL_OK) return status;
  if (bind_inputs(run, flow) == 0) {
    run->thread = PyEval_SaveThread();
    status = tw_flow_run(flow, &caller);
    PyEval_RestoreThread(run->thread);
  }
  tw_flow_destroy(flow);
  return status;
}

static void release_views(Py_buffer* views, uint32_t count) {
  for (uint32_t i = 0; views != NULL && i < count; ++i) {
    if (views[i].obj != NULL) PyBuffer_Release(&views[i]);
  }
  free(views);
}

static int hold_inputs(flow_run_t* run, PyObject* inputs) {
  const uint32_t count = tw_tables_program(run->program->tables)->input_count;
  if (PyTuple_Size(inputs) != (Py_ssize_t)count) {
    PyErr_Format(PyExc_ValueError, "got %zd inputs, expected %u", PyTuple_Size(inputs), count);
    return -1;
  }
  for (uint32_t i = 0; i < count; ++i) {
    if (PyObject_GetBuffer(PyTuple_GetItem(inputs, (Py_ssize_t)i), &run->inputs[i], PyBUF_SIMPLE) < 0) return -1;
  }
  return 0;
}

static int read_dims(const tw_program_t* program, PyObject* dims, int64_t* out_dims) {
  if (PyTuple_Size(dims) != (Py_ssize_t)program->dim_count) {
    PyErr_Format(PyExc_ValueError, "got %zd dimensions, expected %u", PyTuple_Size(dims), program->dim_count);
    return -1;
  }
  for (uint32_t i = 0; i < program->dim_count; ++i) {
    out_dims[i] = PyLong_AsLongLong(PyTuple_GetItem(dims, (Py_ssize_t)i));
    if (out_dims[i] == -1 && PyErr_Occurred()) return -1;
  }
  return 0;
}

static PyObject* flow_program_run(PyObject* object, PyObject* arguments) {
  flow_program_object_t* self = (flow_program_object_t*)object;
  const tw_program_t* program = tw_tables_program(self->tables);
  PyObject *pool = NULL, *dims = NULL, *inputs = NULL, *allocate = NULL;
  if (!PyArg_ParseTuple(arguments, "OO!O!O:run", &pool, &PyTuple_Type, &dims, &PyTuple_Type, &inputs, &allocate)) {
    return NULL;
  }
  if (!tw_pool_check(pool)) return NULL;
  flow_run_t run = {.program = self, .allocate = allocate};
  int64_t* numbers = calloc((size_t)program->dim_count + 1, sizeof(*numbers));
  run.inputs = calloc((size_t)program->input_count + 1, sizeof(*run.inputs));
  run.outputs = calloc((size_t)program->output_count + 1, sizeof(*run.outputs));
  int status = TW_MODEL_OK;
  if (numbers == NULL || run.inputs == NULL || run.outputs == NULL) {
    PyErr_NoMemory();
  } else if (read_dims(program, dims, numbers) == 0 && hold_inputs(&run, inputs) == 0) {
    status = run_flow(&run, pool, numbers);
    // What a cut file leaves behind reads as zeros, which may be why the call failed.
    const int is_lost_call = !PyErr_Occurred() && has_lost_files(&run);
    if (status != TW_MODEL_OK && !is_lost_call) raise_status(status);
  }
  release_views(run.inputs, program->input_count);
  release_views(run.outputs, program->output_count);
  free(numbers);
  if (PyErr_Occurred()) return NULL;
  Py_RETURN_NONE;
}

// ---- construction -----------------------------------------------------------------------------------

// The numbers of all tables, in memory that is aligned; NULL with an exception.
static int64_t* copy_table(PyObject* bytes, size_t* out_count) {
  Py_buffer view;
  if (PyObject_GetBuffer(bytes, &view, PyBUF_SIMPLE) < 0) return NULL;
  *out_count = (size_t)view.len / sizeof(int64_t);
  int64_t* numbers = malloc((size_t)view.len + 1);
  if (numbers == NULL) {
    PyErr_NoMemory();
  } else if (view.len != 0) {
    memcpy(numbers, view.buf, (size_t)view.len);
  }
  PyBuffer_Release(&view);
  return numbers;
}

static int read_tables(flow_program_object_t* self, PyObject* tables, const char* texts, Py_ssize_t text_bytes) {
  if (PyTuple_Size(tables) != TW_TABLE_COUNT) {
    PyErr_Format(PyExc_ValueError, "got %zd tables, expected %d", PyTuple_Size(tables), (int)TW_TABLE_COUNT);
    return -1;
  }
  int64_t* copies[TW_TABLE_COUNT] = {NULL};
  tw_rows_t rows[TW_TABLE_COUNT];
  int fits = 1;
  for (Py_ssize_t i = 0; fits && i < TW_TABLE_COUNT; ++i) {
    copies[i] = copy_table(PyTuple_GetItem(tables, i), &rows[i].count);
    rows[i].numbers = copies[i];
    fits = copies[i] != NULL;
  }
  if (fits) {
    const int status = tw_tables_create(rows, texts, (size_t)text_bytes, &self->tables);
    if (status != TW_MODEL_OK) raise_status(status);
  }
  for (size_t i = 0; i < TW_TABLE_COUNT; ++i) free(copies[i]);
  return self->tables == NULL ? -1 : 0;
}

static int hold_constants(flow_program_object_t* self, PyObject* constants) {
  const uint32_t count = tw_tables_program(self->tables)->constant_storage_count;
  if (PyTuple_Size(constants) != (Py_ssize_t)count) {
    PyErr_Format(PyExc_ValueError, "got %zd constants, expected %u", PyTuple_Size(constants), count);
    return -1;
  }
  self->constants = calloc((size_t)count + 1, sizeof(*self->constants));
  self->addresses = calloc((size_t)count + 1, sizeof(*self->addresses));
  self->sizes_bytes = calloc((size_t)count + 1, sizeof(*self->sizes_bytes));
  if (self->constants == NULL || self->addresses == NULL || self->sizes_bytes == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  for (; self->held_count < count; ++self->held_count) {
    Py_buffer* view = &self->constants[self->held_count];
    if (PyObject_GetBuffer(PyTuple_GetItem(constants, (Py_ssize_t)self->held_count), view, PyBUF_SIMPLE) < 0) return -1;
    self->addresses[self->held_count] = view->buf;
    self->sizes_bytes[self->held_count] = (size_t)view->len;
  }
  return 0;
}

static PyObject* flow_program_construct(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static char* names[] = {"tables", "texts", "constants", "owners", "heap", NULL};
  PyObject *tables = NULL, *constants = NULL, *owners = NULL, *heap = Py_None;
  const char* texts = NULL;
  Py_ssize_t text_bytes = 0;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!y#O!O!|O:FlowProgram", names, &PyTuple_Type, &tables, &texts,
                                   &text_bytes, &PyTuple_Type, &constants, &PyTuple_Type, &owners, &heap)) {
    return NULL;
  }
  if (!tw_heap_check(heap)) return NULL;
  flow_program_object_t* self = (flow_program_object_t*)PyType_GenericAlloc(type, 0);
  if (self == NULL) return NULL;
  self->owners = Py_NewRef(owners);
  self->heap = Py_NewRef(heap);
  if (read_tables(self, tables, texts, text_bytes) < 0 || hold_constants(self, constants) < 0) {
    Py_DECREF(self);
    return NULL;
  }
  self->shared = (tw_flow_shared_t){.program = tw_tables_program(self->tables),
                                    .constants = self->addresses,
                                    .constant_bytes = self->sizes_bytes,
                                    .heap = tw_heap_of(heap),
                                    .recordings = &self->recordings,
                                    .lock = &recordings_lock};
  return (PyObject*)self;
}

static void flow_program_dealloc(PyObject* object) {
  flow_program_object_t* self = (flow_program_object_t*)object;
  tw_recordings_close(&self->recordings);
  tw_tables_destroy(self->tables);
  release_views(self->constants, self->held_count);
  free(self->addresses);
  free(self->sizes_bytes);
  Py_XDECREF(self->owners);
  Py_XDECREF(self->heap);
  tw_object_free(object);
}

static PyMethodDef flow_program_methods[] = {
    {"run", flow_program_run, METH_VARARGS,
     "run(pool, dims, inputs, allocate): one call; allocate(output, shape) gives the memory of a result."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot flow_program_slots[] = {
    {Py_tp_new, (void*)flow_program_construct},
    {Py_tp_dealloc, (void*)flow_program_dealloc},
    {Py_tp_methods, flow_program_methods},
    {Py_tp_doc, "FlowProgram(tables, texts, constants, owners, heap=None): a plan whose sizes data decides."},
    {0, NULL},
};

static PyType_Spec flow_program_spec = {
    .name = "tilewright.runtime._native.FlowProgram",
    .basicsize = (int)sizeof(flow_program_object_t),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = flow_program_slots,
};

static void register_fork_handlers(void) { tw_system_on_fork(fork_prepare, fork_done, fork_done); }

int tw_flow_program_register(PyObject* module) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, register_fork_handlers);
  flow_program_type = tw_type_add(module, &flow_program_spec, "FlowProgram");
  return flow_program_type == NULL ? -1 : 0;
}
