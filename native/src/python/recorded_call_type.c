// `RecordedCall`: the fast call path of a whole static model.

#include "binding.h"

#include <stdlib.h>
#include <string.h>

PyTypeObject* tw_recorded_call_type;

enum { IDLE_CONTEXT_LIMIT = 8 };

// Sizes of tensors are compared where they lie.
_Static_assert(sizeof(Py_ssize_t) == sizeof(int64_t), "sizes of buffers and of tensors have one type");

// What an input must look like.
typedef struct input_spec_t {
  PyObject* name;     // str
  PyObject* formats;  // str: accepted formats separated by '|'
  const char* format_text;
  Py_ssize_t* shape;
  int rank;
} input_spec_t;

// What one call in flight has for itself: a call of the list, and a lease of the arena that lasts as long.
typedef struct context_t {
  struct context_t* next;
  tw_call_t* call;
  tw_lease_t lease;   // of the arena
  PyObject* arena;    // instead of the lease where a host call may keep what it sees of the arena: a Memory
  PyObject** staged;  // one per input: a Memory for one that is misaligned, else NULL
} context_t;

typedef struct recorded_call_object_t {
  PyObject_HEAD
  tw_command_list_object_t* list;
  PyObject* pool;
  PyObject* heap;       // a Heap or None
  PyObject* outputs;    // tuple of callables
  PyObject* tensors;    // NULL, or a type whose objects calls take and return
  tw_tensor_look_t look;
  PyObject* constants;  // tuple of buffers
  input_spec_t* inputs;
  uint32_t input_count;
  uint32_t output_count;
  uint32_t constant_count;
  tw_lease_request_t arena;  // for the slots behind the constants, one after the other
  context_t* idle;
  uint32_t idle_count;
} recorded_call_object_t;

// ---- contexts ---------------------------------------------------------------------------------------

static void context_destroy(recorded_call_object_t* self, context_t* context) {
  if (context->call != NULL) tw_call_release(self->list, context->call);
  free(context->staged);
  free(context);
}

static int bind_constants(recorded_call_object_t* self, context_t* context) {
  const uint32_t first = self->input_count + self->output_count;
  for (uint32_t i = 0; i < self->constant_count; ++i) {
    PyObject* constant = PyTuple_GetItem(self->constants, (Py_ssize_t)i);
    if (tw_call_bind_object(self->list, context->call, first + i, constant) < 0) return -1;
  }
  return 0;
}

static int is_row(const recorded_call_object_t* self, uint32_t slot) {
  return (tw_command_list_slot(self->list->list, slot)->flags & TW_SLOT_ROW) != 0;
}

// What a slot takes of the arena; rows are in other slots.
static size_t slot_room(const recorded_call_object_t* self, uint32_t slot) {
  if (is_row(self, slot)) return 0;
  return ((size_t)tw_command_list_slot(self->list->list, slot)->size_bytes + TW_MEMORY_ALIGNMENT - 1) &
         ~(size_t)(TW_MEMORY_ALIGNMENT - 1);
}

// The arena of one call: the heap's, until `return_arena`. Usually the block of the call before, where every
// pointer fits already.
static int lease_arena(recorded_call_object_t* self, context_t* context) {
  if (self->arena.size_bytes == 0 && self->arena.beside_bytes == 0) return 0;
  if (self->arena.ends_with_call) {
    if (tw_lease_take(tw_heap_of(self->heap), &self->arena, &context->lease) < 0) return -1;
  } else {
    context->arena = tw_memory_lease(self->heap, &self->arena);
    if (context->arena == NULL) return -1;
  }
  uint8_t* base = context->arena == NULL ? context->lease.base : tw_memory_object_data(context->arena);
  const uint32_t slot_count = tw_command_list_slot_count(self->list->list);
  for (uint32_t slot = self->input_count + self->output_count + self->constant_count; slot < slot_count; ++slot) {
    if (is_row(self, slot)) continue;
    tw_call_bind_address(context->call, slot, base, context->arena);
    base += slot_room(self, slot);
  }
  return 0;
}

static void return_arena(recorded_call_object_t* self, context_t* context) {
  if (self->arena.size_bytes == 0 && self->arena.beside_bytes == 0) return;
  if (self->arena.ends_with_call) {
    tw_heap_return(tw_heap_of(self->heap), &context->lease);
    return;
  }
  const uint32_t slot_count = tw_command_list_slot_count(self->list->list);
  for (uint32_t slot = self->input_count + self->output_count + self->constant_count; slot < slot_count; ++slot) {
    context->call->owners[slot] = NULL;
  }
  Py_CLEAR(context->arena);
}

static context_t* context_acquire(recorded_call_object_t* self) {
  context_t* context = self->idle;
  if (context != NULL) {
    self->idle = context->next;
    --self->idle_count;
    return context;
  }
  context = calloc(1, sizeof(*context));
  if (context != NULL) context->staged = calloc((size_t)self->input_count + 1, sizeof(*context->staged));
  if (context == NULL || context->staged == NULL) {
    free(context);
    PyErr_NoMemory();
    return NULL;
  }
  context->call = tw_call_acquire(self->list);
  if (context->call == NULL || bind_constants(self, context) < 0) {
    context_destroy(self, context);
    return NULL;
  }
  return context;
}

// Lets go of the caller's arrays; constants stay bound.
static void context_release(recorded_call_object_t* self, context_t* context) {
  tw_call_t* call = context->call;
  const uint32_t border_count = self->input_count + self->output_count;
  for (uint32_t slot = 0; slot < border_count; ++slot) {
    if (call->views[slot].obj != NULL) PyBuffer_Release(&call->views[slot]);
    call->owners[slot] = NULL;
  }
  for (uint32_t i = 0; i < self->input_count; ++i) Py_CLEAR(context->staged[i]);
  if (self->idle_count >= IDLE_CONTEXT_LIMIT) {
    context_destroy(self, context);
    return;
  }
  context->next = self->idle;
  self->idle = context;
  ++self->idle_count;
}

// ---- inputs and outputs -----------------------------------------------------------------------------

// True if `format` is one of the alternatives. A byte-order mark that means "native" is skipped.
static int format_matches(const char* format, const char* alternatives) {
  if (format == NULL) format = "B";
  if (*format == '@' || *format == '=' || (*format == '<' && PY_LITTLE_ENDIAN)) ++format;
  const size_t length = strlen(format);
  for (const char* option = alternatives; option != NULL; option = strchr(option, '|')) {
    if (*option == '|') ++option;
    if (strncmp(option, format, length) == 0 && (option[length] == '|' || option[length] == '\0')) return 1;
  }
  return 0;
}

static int shape_matches(const Py_ssize_t* shape, int rank, const input_spec_t* spec) {
  if (rank != spec->rank) return 0;
  for (int axis = 0; axis < spec->rank; ++axis) {
    if (shape[axis] != spec->shape[axis]) return 0;
  }
  return 1;
}

static PyObject* shape_tuple(const Py_ssize_t* shape, int rank) {
  PyObject* tuple = PyTuple_New(rank);
  for (int axis = 0; tuple != NULL && axis < rank; ++axis) {
    PyObject* extent = PyLong_FromSsize_t(shape[axis]);
    if (extent == NULL || PyTuple_SetItem(tuple, axis, extent) < 0) Py_CLEAR(tuple);
  }
  return tuple;
}

static void raise_shape(const Py_ssize_t* shape, int rank, const input_spec_t* spec) {
  PyObject* got = shape_tuple(shape, rank);
  PyObject* expected = shape_tuple(spec->shape, spec->rank);
  if (got != NULL && expected != NULL) {
    PyErr_Format(PyExc_ValueError, "input '%U' has shape %R, expected %R", spec->name, got, expected);
  }
  Py_XDECREF(got);
  Py_XDECREF(expected);
}

static void raise_format(const char* format, const input_spec_t* spec) {
  PyErr_Format(PyExc_TypeError, "input '%U' has format '%s', expected '%U'", spec->name, format == NULL ? "B" : format,
               spec->formats);
}

// Copies a misaligned input to memory of the call's own.
static int stage_input(recorded_call_object_t* self, context_t* context, uint32_t slot, const void* data) {
  const tw_lease_request_t request = {.size_bytes = (size_t)tw_command_list_slot(self->list->list, slot)->size_bytes,
                                      .use = TW_MEMORY_TRANSIENT};
  PyObject* memory = tw_memory_lease(self->heap, &request);
  if (memory == NULL) return -1;
  Py_XDECREF(context->staged[slot]);
  context->staged[slot] = memory;
  if (request.size_bytes != 0) memcpy(tw_memory_object_data(memory), data, request.size_bytes);
  tw_call_bind_address(context->call, slot, tw_memory_object_data(memory), memory);
  return 0;
}

static int is_aligned(const tw_slot_t* info, const void* data) {
  return info->alignment <= 1 || ((uintptr_t)data & (info->alignment - 1)) == 0;
}

static int bind_tensor(recorded_call_object_t* self, context_t* context, uint32_t slot, PyObject* object) {
  const input_spec_t* spec = &self->inputs[slot];
  const tw_slot_t* info = tw_command_list_slot(self->list->list, slot);
  tw_tensor_view_t view;
  if (tw_tensor_read(self->look, object, &view) < 0) return -1;
  if (!format_matches(tw_tensor_format(&view), spec->format_text)) {
    raise_format(tw_tensor_format(&view), spec);
    return -1;
  }
  if (!shape_matches((const Py_ssize_t*)view.shape, view.rank, spec)) {
    raise_shape((const Py_ssize_t*)view.shape, view.rank, spec);
    return -1;
  }
  if (!tw_tensor_is_dense(&view)) {
    PyErr_Format(PyExc_ValueError, "input '%U' is not C-contiguous", spec->name);
    return -1;
  }
  uint8_t* data = (uint8_t*)view.data + view.byte_offset;
  if (!is_aligned(info, data)) return stage_input(self, context, slot, data);
  tw_call_bind_address(context->call, slot, data, object);
  return 0;
}

static int bind_input(recorded_call_object_t* self, context_t* context, uint32_t slot, PyObject* object) {
  if (self->tensors != NULL && (PyObject*)Py_TYPE(object) == self->tensors) return bind_tensor(self, context, slot, object);
  const input_spec_t* spec = &self->inputs[slot];
  const tw_slot_t* info = tw_command_list_slot(self->list->list, slot);
  Py_buffer* view = &context->call->views[slot];
  if (!PyObject_CheckBuffer(object)) {
    PyErr_Format(PyExc_TypeError, "input '%U' is a %R, expected an array with the buffer protocol", spec->name,
                 Py_TYPE(object));
    return -1;
  }
  if (PyObject_GetBuffer(object, view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) < 0) {
    if (tw_is_refusal()) PyErr_Format(PyExc_ValueError, "input '%U' is not C-contiguous", spec->name);
    return -1;
  }
  if (!format_matches(view->format, spec->format_text)) {
    raise_format(view->format, spec);
    return -1;
  }
  if (!shape_matches(view->shape, view->ndim, spec)) {
    raise_shape(view->shape, view->ndim, spec);
    return -1;
  }
  if ((uint64_t)view->len < info->size_bytes) {
    PyErr_Format(PyExc_ValueError, "input '%U' has %zd bytes, but the list reads %llu", spec->name, view->len,
                 (unsigned long long)info->size_bytes);
    return -1;
  }
  if (!is_aligned(info, view->buf)) return stage_input(self, context, slot, view->buf);
  tw_call_bind_address(context->call, slot, view->buf, object);
  return 0;
}

// A tensor that takes an output: dense, and of as many bytes.
static int bind_result(recorded_call_object_t* self, context_t* context, uint32_t slot, PyObject* object) {
  const tw_slot_t* info = tw_command_list_slot(self->list->list, slot);
  tw_tensor_view_t view;
  if (tw_tensor_read(self->look, object, &view) < 0) return -1;
  uint64_t size_bytes = view.bits / 8;
  for (int32_t axis = 0; axis < view.rank; ++axis) size_bytes *= (uint64_t)view.shape[axis];
  uint8_t* data = (uint8_t*)view.data + view.byte_offset;
  if (size_bytes < info->size_bytes || !tw_tensor_is_dense(&view) || !is_aligned(info, data)) {
    PyErr_Format(PyExc_ValueError, "slot %u: expected a dense tensor of at least %llu bytes", slot,
                 (unsigned long long)info->size_bytes);
    return -1;
  }
  tw_call_bind_address(context->call, slot, data, object);
  return 0;
}

static PyObject* make_output(recorded_call_object_t* self, context_t* context, uint32_t index) {
  const uint32_t slot = self->input_count + index;
  PyObject* allocate = PyTuple_GetItem(self->outputs, (Py_ssize_t)index);
  PyObject* output = allocate == NULL ? NULL : PyObject_CallObject(allocate, NULL);
  if (output == NULL) return NULL;
  const int is_tensor = self->tensors != NULL && (PyObject*)Py_TYPE(output) == self->tensors;
  const int bound = is_tensor ? bind_result(self, context, slot, output)
                              : tw_call_bind_object(self->list, context->call, slot, output);
  if (bound < 0) Py_CLEAR(output);
  return output;
}

// ---- the call ---------------------------------------------------------------------------------------

static PyObject* run_in_context(recorded_call_object_t* self, context_t* context, PyObject* arguments) {
  for (uint32_t i = 0; i < self->input_count; ++i) {
    if (bind_input(self, context, i, PyTuple_GetItem(arguments, (Py_ssize_t)i)) < 0) return NULL;
  }
  if (self->output_count == 1) {
    PyObject* output = make_output(self, context, 0);
    if (output != NULL && tw_call_run(self->list, context->call, self->pool, tw_heap_of(self->heap), NULL) < 0) Py_CLEAR(output);
    return output;
  }
  PyObject* outputs = PyTuple_New((Py_ssize_t)self->output_count);
  for (uint32_t i = 0; outputs != NULL && i < self->output_count; ++i) {
    PyObject* output = make_output(self, context, i);
    if (output == NULL || PyTuple_SetItem(outputs, (Py_ssize_t)i, output) < 0) Py_CLEAR(outputs);
  }
  if (outputs != NULL && tw_call_run(self->list, context->call, self->pool, tw_heap_of(self->heap), NULL) < 0) Py_CLEAR(outputs);
  return outputs;
}

static PyObject* recorded_call_call(PyObject* object, PyObject* arguments, PyObject* keywords) {
  recorded_call_object_t* self = (recorded_call_object_t*)object;
  if (keywords != NULL && PyDict_Size(keywords) != 0) {
    PyErr_SetString(PyExc_TypeError, "a recorded call takes positional arguments only");
    return NULL;
  }
  if (PyTuple_Size(arguments) != (Py_ssize_t)self->input_count) {
    return PyErr_Format(PyExc_TypeError, "got %zd inputs, expected %u", PyTuple_Size(arguments), self->input_count);
  }
  if (!tw_pool_check(self->pool)) return NULL;
  context_t* context = context_acquire(self);
  if (context == NULL) return NULL;
  PyObject* result = NULL;
  if (lease_arena(self, context) == 0) {
    result = run_in_context(self, context, arguments);
    return_arena(self, context);
  }
  context_release(self, context);
  return result;
}

// What a call leases; with host calls as an object, which a view of theirs may outlive the call with. What it
// takes beside that matters to a capacity only.
static void size_arena(recorded_call_object_t* self, size_t counted_bytes) {
  const uint32_t slot_count = tw_command_list_slot_count(self->list->list);
  self->arena = (tw_lease_request_t){.use = TW_MEMORY_ARENA};
  if (tw_heap_capacity(tw_heap_of(self->heap)) != SIZE_MAX) self->arena.beside_bytes = counted_bytes;
  self->arena.ends_with_call = PyTuple_Size(self->list->host_calls) == 0;
  for (uint32_t slot = self->input_count + self->output_count + self->constant_count; slot < slot_count; ++slot) {
    const size_t room = slot_room(self, slot);
    const size_t rest = PY_SSIZE_T_MAX - self->arena.size_bytes;
    self->arena.size_bytes += room < rest ? room : rest;  // what is too large is refused as a whole
  }
}

// ---- construction -----------------------------------------------------------------------------------

static int read_shape(PyObject* shape, input_spec_t* spec) {
  PyObject* extents = PySequence_Tuple(shape);
  if (extents == NULL) return -1;
  const Py_ssize_t rank = PyTuple_Size(extents);
  spec->shape = calloc((size_t)rank + 1, sizeof(*spec->shape));
  spec->rank = (int)rank;
  if (spec->shape == NULL) PyErr_NoMemory();
  for (Py_ssize_t axis = 0; spec->shape != NULL && axis < rank && !PyErr_Occurred(); ++axis) {
    spec->shape[axis] = PyLong_AsSsize_t(PyTuple_GetItem(extents, axis));
  }
  Py_DECREF(extents);
  return PyErr_Occurred() ? -1 : 0;
}

static int read_inputs(PyObject* inputs, recorded_call_object_t* self) {
  PyObject* items = PySequence_Tuple(inputs);
  if (items == NULL) return -1;
  const Py_ssize_t count = PyTuple_Size(items);
  self->inputs = calloc((size_t)count + 1, sizeof(*self->inputs));
  if (self->inputs == NULL) PyErr_NoMemory();
  for (Py_ssize_t i = 0; self->inputs != NULL && i < count && !PyErr_Occurred(); ++i) {
    input_spec_t* spec = &self->inputs[i];
    PyObject* shape = NULL;
    PyObject* item = PyTuple_GetItem(items, i);
    if (!PyTuple_Check(item)) {
      PyErr_Format(PyExc_TypeError, "input %zd: expected a tuple (name, formats, shape)", i);
      break;
    }
    if (!PyArg_ParseTuple(item, "UUO", &spec->name, &spec->formats, &shape)) break;
    spec->name = Py_NewRef(spec->name);
    spec->formats = Py_NewRef(spec->formats);
    self->input_count = (uint32_t)i + 1;
    spec->format_text = PyUnicode_AsUTF8AndSize(spec->formats, NULL);
    if (spec->format_text != NULL) read_shape(shape, spec);
  }
  Py_DECREF(items);
  return PyErr_Occurred() ? -1 : 0;
}

static int read_tuple(PyObject* sequence, PyObject** out_tuple, uint32_t* out_count) {
  *out_tuple = sequence == NULL ? PyTuple_New(0) : PySequence_Tuple(sequence);
  if (*out_tuple == NULL) return -1;
  *out_count = (uint32_t)PyTuple_Size(*out_tuple);
  return 0;
}

// Inputs, outputs and constants come first among the slots, and nothing writes to an input.
static int check_slots(recorded_call_object_t* self) {
  const uint64_t named = (uint64_t)self->input_count + self->output_count + self->constant_count;
  const uint32_t slot_count = tw_command_list_slot_count(self->list->list);
  if (named > slot_count) {
    PyErr_Format(PyExc_ValueError, "%llu inputs, outputs and constants, but the list has %u slots",
                 (unsigned long long)named, slot_count);
    return -1;
  }
  for (uint32_t i = 0; i < named; ++i) {
    if (is_row(self, i)) {
      PyErr_Format(PyExc_ValueError, "slot %u is a row of another, expected memory of its own", i);
      return -1;
    }
  }
  for (uint32_t i = 0; i < self->input_count; ++i) {
    if (tw_command_list_slot(self->list->list, i)->flags & TW_SLOT_WRITABLE) {
      PyErr_Format(PyExc_ValueError, "input '%U': the list writes to slot %u", self->inputs[i].name, i);
      return -1;
    }
  }
  return 0;
}

static int set_tensors(recorded_call_object_t* self, PyObject* tensors) {
  if (tensors == Py_None) return 0;
  self->look = tw_tensor_look_of(tensors);
  if (self->look == NULL) return -1;
  self->tensors = Py_NewRef(tensors);
  return 0;
}

static PyObject* recorded_call_construct(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static char* names[] = {"commands", "pool", "inputs", "outputs", "constants", "heap", "counted_bytes", "tensors", NULL};
  PyObject* list = NULL;
  PyObject* pool = NULL;
  PyObject* inputs = NULL;
  PyObject* outputs = NULL;
  PyObject* constants = NULL;
  PyObject* heap = Py_None;
  PyObject* tensors = Py_None;
  Py_ssize_t counted_bytes = 0;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!OOO|OOnO:RecordedCall", names, tw_command_list_type, &list, &pool,
                                   &inputs, &outputs, &constants, &heap, &counted_bytes, &tensors) ||
      !tw_pool_check(pool) || !tw_heap_check(heap)) {
    return NULL;
  }
  if (counted_bytes < 0) return PyErr_Format(PyExc_ValueError, "counted_bytes is %zd", counted_bytes);
  recorded_call_object_t* self = (recorded_call_object_t*)PyType_GenericAlloc(type, 0);
  if (self == NULL) return NULL;
  self->list = (tw_command_list_object_t*)Py_NewRef(list);
  self->pool = Py_NewRef(pool);
  self->heap = Py_NewRef(heap);
  if (read_inputs(inputs, self) < 0 || read_tuple(outputs, &self->outputs, &self->output_count) < 0 ||
      read_tuple(constants, &self->constants, &self->constant_count) < 0 || check_slots(self) < 0 ||
      set_tensors(self, tensors) < 0) {
    Py_DECREF(self);
    return NULL;
  }
  size_arena(self, (size_t)counted_bytes);
  context_t* context = context_acquire(self);  // checks the constants
  if (context == NULL) {
    Py_DECREF(self);
    return NULL;
  }
  context_release(self, context);
  return (PyObject*)self;
}

static int recorded_call_traverse(PyObject* object, visitproc visit, void* arg) {
  recorded_call_object_t* self = (recorded_call_object_t*)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT((PyObject*)self->list);
  Py_VISIT(self->outputs);
  Py_VISIT(self->tensors);
  return 0;
}

// The output callables are what can close a cycle.
static int recorded_call_clear(PyObject* object) {
  recorded_call_object_t* self = (recorded_call_object_t*)object;
  PyObject* outputs = self->outputs;
  self->outputs = PyTuple_New(0);
  if (self->outputs == NULL) PyErr_Clear();
  Py_XDECREF(outputs);
  return 0;
}

static void recorded_call_dealloc(PyObject* object) {
  recorded_call_object_t* self = (recorded_call_object_t*)object;
  PyObject_GC_UnTrack(object);
  while (self->idle != NULL) {
    context_t* context = self->idle;
    self->idle = context->next;
    context_destroy(self, context);
  }
  for (uint32_t i = 0; i < self->input_count; ++i) {
    Py_XDECREF(self->inputs[i].name);
    Py_XDECREF(self->inputs[i].formats);
    free(self->inputs[i].shape);
  }
  free(self->inputs);
  Py_XDECREF(self->outputs);
  Py_XDECREF(self->tensors);
  Py_XDECREF(self->constants);
  Py_XDECREF((PyObject*)self->list);
  Py_XDECREF(self->pool);
  Py_XDECREF(self->heap);
  tw_object_free(object);
}

static PyType_Slot recorded_call_slots[] = {
    {Py_tp_new, (void*)recorded_call_construct},
    {Py_tp_dealloc, (void*)recorded_call_dealloc},
    {Py_tp_traverse, (void*)recorded_call_traverse},
    {Py_tp_clear, (void*)recorded_call_clear},
    {Py_tp_call, (void*)recorded_call_call},
    {Py_tp_doc, "RecordedCall(commands, pool, inputs, outputs, constants=(), heap=None, counted_bytes=0, tensors=None): "
                "call a static model with arrays."},
    {0, NULL},
};

static PyType_Spec recorded_call_spec = {
    .name = "tilewright.runtime._native.RecordedCall",
    .basicsize = (int)sizeof(recorded_call_object_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = recorded_call_slots,
};

int tw_recorded_call_register(PyObject* module) {
  tw_recorded_call_type = tw_type_add(module, &recorded_call_spec, "RecordedCall");
  return tw_recorded_call_type == NULL ? -1 : 0;
}
