// `CommandList`: recorded commands as a Python object, and the run that `CommandList` and `RecordedCall` share.

#include "binding.h"

#include <stdlib.h>
#include <string.h>

PyTypeObject* tw_command_list_type;

enum { IDLE_CALL_LIMIT = 8 };

// ---- calls ------------------------------------------------------------------------------------------

static void call_destroy(tw_call_t* call) {
  tw_frame_destroy(call->frame);
  free(call->views);
  free(call->owners);
  free(call);
}

tw_call_t* tw_call_acquire(tw_command_list_object_t* list) {
  tw_call_t* call = list->idle_calls;
  if (call != NULL) {
    list->idle_calls = call->next;
    --list->idle_count;
    return call;
  }
  const size_t slot_count = tw_command_list_slot_count(list->list);
  call = calloc(1, sizeof(*call));
  if (call != NULL) {
    call->views = calloc(slot_count + 1, sizeof(*call->views));
    call->owners = calloc(slot_count + 1, sizeof(*call->owners));
  }
  if (call == NULL || call->views == NULL || call->owners == NULL ||
      tw_frame_create(list->list, &call->frame) != TW_STATUS_OK) {
    if (call != NULL) call_destroy(call);
    PyErr_NoMemory();
    return NULL;
  }
  return call;
}

void tw_call_release(tw_command_list_object_t* list, tw_call_t* call) {
  const uint32_t slot_count = tw_command_list_slot_count(list->list);
  for (uint32_t slot = 0; slot < slot_count; ++slot) {
    if (call->views[slot].obj != NULL) PyBuffer_Release(&call->views[slot]);
    call->owners[slot] = NULL;
  }
  if (list->idle_count >= IDLE_CALL_LIMIT) {
    call_destroy(call);
    return;
  }
  call->next = list->idle_calls;
  list->idle_calls = call;
  ++list->idle_count;
}

void tw_call_bind_address(tw_call_t* call, uint32_t slot, void* base, PyObject* owner) {
  call->owners[slot] = owner;
  tw_frame_bind(call->frame, slot, base);
}

static int check_alignment(const tw_slot_t* info, uint32_t slot, const void* base) {
  if (info->alignment <= 1 || ((uintptr_t)base & (info->alignment - 1)) == 0) return 0;
  PyErr_Format(PyExc_ValueError, "slot %u: address %p, expected a multiple of %u", slot, base, info->alignment);
  return -1;
}

int tw_call_bind_object(tw_command_list_object_t* list, tw_call_t* call, uint32_t slot, PyObject* object) {
  const tw_slot_t* info = tw_command_list_slot(list->list, slot);
  if (info->flags & TW_SLOT_ROW) {
    if (object == Py_None) return 0;
    PyErr_Format(PyExc_ValueError, "slot %u: got %R, expected None for a row of another slot", slot, Py_TYPE(object));
    return -1;
  }
  if (object == Py_None && info->size_bytes == 0) {
    tw_call_bind_address(call, slot, NULL, NULL);
    return 0;
  }
  if (PyLong_Check(object)) {
    void* base = PyLong_AsVoidPtr(object);
    if (base == NULL && PyErr_Occurred()) return -1;
    tw_call_bind_address(call, slot, base, NULL);
    return check_alignment(info, slot, base);
  }
  Py_buffer* view = &call->views[slot];
  const int writable = (info->flags & TW_SLOT_WRITABLE) != 0;
  if (!PyObject_CheckBuffer(object) ||
      PyObject_GetBuffer(object, view, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) < 0) {
    if (PyErr_Occurred() && !tw_is_refusal()) return -1;
    PyErr_Format(PyExc_ValueError, "slot %u: got %R, expected a C-contiguous%s buffer", slot, Py_TYPE(object),
                 writable ? " writable" : "");
    return -1;
  }
  if ((uint64_t)view->len < info->size_bytes) {
    PyErr_Format(PyExc_ValueError, "slot %u: buffer of %zd bytes, expected at least %llu", slot, view->len,
                 (unsigned long long)info->size_bytes);
    return -1;
  }
  tw_call_bind_address(call, slot, view->buf, object);
  return check_alignment(info, slot, view->buf);
}

// ---- running ----------------------------------------------------------------------------------------

typedef struct run_context_t {
  tw_command_list_object_t* list;
  tw_call_t* call;
  PyThreadState* thread;
} run_context_t;

static PyObject* binding_view(const run_context_t* run, uint32_t ordinal) {
  const tw_binding_t* binding = tw_command_list_binding(run->list->list, ordinal);
  const uintptr_t base = (uintptr_t)tw_frame_slot_base(run->call->frame, binding->slot);
  PyObject* memory = tw_memory_borrow((void*)(base + (uintptr_t)binding->offset), (size_t)binding->length,
                                      !(binding->flags & TW_BINDING_WRITABLE), run->call->owners[binding->slot]);
  if (memory == NULL) return NULL;
  PyObject* view = PyMemoryView_FromObject(memory);
  Py_DECREF(memory);
  return view;
}

static int call_host(const run_context_t* run, const tw_command_t* command) {
  PyObject* arguments = PyTuple_New((Py_ssize_t)command->binding_count);
  for (uint32_t i = 0; arguments != NULL && i < command->binding_count; ++i) {
    PyObject* view = binding_view(run, command->binding_first + i);
    if (view == NULL || PyTuple_SetItem(arguments, (Py_ssize_t)i, view) < 0) Py_CLEAR(arguments);
  }
  if (arguments == NULL) return -1;
  PyObject* host_calls = run->list->host_calls;  // emptied only if the collector broke a cycle
  PyObject* function = host_calls == NULL ? NULL : PyTuple_GetItem(host_calls, (Py_ssize_t)command->function);
  PyObject* result = function == NULL ? NULL : PyObject_CallObject(function, arguments);
  Py_DECREF(arguments);
  Py_XDECREF(result);
  return result == NULL ? -1 : 0;
}

static int on_host_call(void* context, uint32_t command) {
  run_context_t* run = context;
  PyEval_RestoreThread(run->thread);
  const int result = call_host(run, tw_command_list_command(run->list->list, command));
  run->thread = PyEval_SaveThread();
  return result;
}

// On the main thread only. When the interpreter ends, restoring the state of any other thread ends that
// thread on the spot: here, in the middle of a job whose units the workers are running, that job is on its
// stack. Between jobs and after the last one nothing of the thread's is in use.
static int on_poll(void* context) {
  run_context_t* run = context;
  PyEval_RestoreThread(run->thread);
  const int result = PyErr_CheckSignals();
  run->thread = PyEval_SaveThread();
  return result;
}

// Whether the run read of a file what is no longer there; sets the exception.
static int has_lost_files(const tw_call_t* call, const tw_command_list_t* list) {
  if (!tw_fault_any()) return 0;
  const uint32_t slot_count = tw_command_list_slot_count(list);
  for (uint32_t slot = 0; slot < slot_count; ++slot) {
    tw_message_t name;
    const size_t size_bytes = (size_t)tw_command_list_slot(list, slot)->size_bytes;
    if (!tw_fault_find(tw_frame_slot_base(call->frame, slot), size_bytes, &name)) continue;
    tw_lost_file_raise(name.text);
    return 1;
  }
  return 0;
}

int tw_call_run(tw_command_list_object_t* list, tw_call_t* call, PyObject* pool, tw_heap_t* heap, tw_span_t* spans) {
  run_context_t context = {.list = list, .call = call};
  const tw_run_options_t options = {
      .pool = pool == Py_None ? NULL : ((tw_pool_object_t*)pool)->pool,
      .heap = heap,
      .host_call = on_host_call,
      .poll = tw_thread_is_main() ? on_poll : NULL,
      .context = &context,
      .spans = spans,
  };
  tw_failure_t failure;
  context.thread = PyEval_SaveThread();
  const tw_status_t status = tw_frame_run(call->frame, &options, &failure);
  PyEval_RestoreThread(context.thread);
  if (status == TW_STATUS_OK) return has_lost_files(call, list->list) ? -1 : 0;
  if (status == TW_STATUS_KERNEL_FAILED || status == TW_STATUS_NO_SCRATCH) {
    tw_failure_raise(&failure, list->names);
  } else {
    tw_status_raise(status, "the run failed");
  }
  return -1;
}

static int run_buffers(tw_command_list_object_t* list, PyObject* pool, PyObject* heap, PyObject* buffers,
                       tw_span_t* spans) {
  const uint32_t slot_count = tw_command_list_slot_count(list->list);
  if (PyTuple_Size(buffers) != (Py_ssize_t)slot_count) {
    PyErr_Format(PyExc_ValueError, "got %zd buffers, expected one per slot (%u)", PyTuple_Size(buffers), slot_count);
    return -1;
  }
  tw_call_t* call = tw_call_acquire(list);
  if (call == NULL) return -1;
  int result = 0;
  for (uint32_t slot = 0; result == 0 && slot < slot_count; ++slot) {
    result = tw_call_bind_object(list, call, slot, PyTuple_GetItem(buffers, (Py_ssize_t)slot));
  }
  if (result == 0) result = tw_call_run(list, call, pool, tw_heap_of(heap), spans);
  tw_call_release(list, call);
  return result;
}

static int run_arguments(PyObject* self, PyObject* const* arguments, Py_ssize_t count, tw_span_t* spans) {
  if (count != 2 && count != 3) {
    PyErr_Format(PyExc_TypeError, "got %zd arguments, expected (pool, buffers) or (pool, buffers, heap)", count);
    return -1;
  }
  PyObject* heap = count == 3 ? arguments[2] : Py_None;
  if (!tw_pool_check(arguments[0]) || !tw_heap_check(heap)) return -1;
  // A tuple of our own: nobody can drop a buffer while the run uses it.
  PyObject* buffers = PySequence_Tuple(arguments[1]);
  if (buffers == NULL) return -1;
  const int result = run_buffers((tw_command_list_object_t*)self, arguments[0], heap, buffers, spans);
  Py_DECREF(buffers);
  return result;
}

static PyObject* command_list_run(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  if (run_arguments(self, arguments, count, NULL) < 0) return NULL;
  Py_RETURN_NONE;
}

// (begin, end, ((thread, begin, end), ...)) of one command; threads that ran none of it are left out.
static PyObject* command_times(const tw_span_t* spans, uint32_t thread_count) {
  PyObject* threads = PyList_New(0);
  for (uint32_t i = 0; threads != NULL && i < thread_count; ++i) {
    const tw_span_t* span = &spans[i + 1];
    if (span->begin_ns == 0) continue;
    PyObject* row = Py_BuildValue("(IKK)", i, (unsigned long long)span->begin_ns, (unsigned long long)span->end_ns);
    if (row == NULL || PyList_Append(threads, row) < 0) Py_CLEAR(threads);
    Py_XDECREF(row);
  }
  PyObject* rows = threads == NULL ? NULL : PyList_AsTuple(threads);
  Py_XDECREF(threads);
  if (rows == NULL) return NULL;
  return Py_BuildValue("(KKN)", (unsigned long long)spans->begin_ns, (unsigned long long)spans->end_ns, rows);
}

static uint32_t thread_count_of(PyObject* pool) {
  return pool == Py_None ? 1 : tw_pool_thread_count(((tw_pool_object_t*)pool)->pool);
}

static PyObject* command_list_run_timed(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  if (count != 0 && !tw_pool_check(arguments[0])) return NULL;
  const uint32_t command_count = tw_command_list_command_count(((tw_command_list_object_t*)self)->list);
  const size_t stride = (count == 0 ? 1 : thread_count_of(arguments[0])) + (size_t)1;
  tw_span_t* spans = calloc(command_count * stride + 1, sizeof(*spans));
  if (spans == NULL) return PyErr_NoMemory();
  PyObject* result = NULL;
  if (run_arguments(self, arguments, count, spans) == 0) result = PyList_New((Py_ssize_t)command_count);
  for (uint32_t i = 0; result != NULL && i < command_count; ++i) {
    PyObject* times = command_times(spans + i * stride, (uint32_t)stride - 1);
    if (times == NULL || PyList_SetItem(result, (Py_ssize_t)i, times) < 0) Py_CLEAR(result);
  }
  free(spans);
  return result;
}

// ---- construction -----------------------------------------------------------------------------------

// The records of a buffer in memory of our own, which is aligned; `bytes` itself need not be.
static void* copy_records(const Py_buffer* view, size_t record_bytes, const char* what, uint32_t* out_count) {
  const size_t size_bytes = (size_t)view->len;
  if (size_bytes % record_bytes != 0 || size_bytes / record_bytes > INT32_MAX) {
    PyErr_Format(PyExc_ValueError, "%s: %zu bytes, expected whole records of %zu", what, size_bytes, record_bytes);
    return NULL;
  }
  void* records = malloc(size_bytes + 1);
  if (records == NULL) return PyErr_NoMemory();
  if (size_bytes != 0) memcpy(records, view->buf, size_bytes);
  *out_count = (uint32_t)(size_bytes / record_bytes);
  return records;
}

static tw_command_list_t* create_command_list(const Py_buffer views[4], Py_ssize_t host_call_count) {
  tw_command_list_layout_t layout = {.host_call_count = (uint32_t)host_call_count};
  void* commands = copy_records(&views[0], sizeof(tw_command_t), "commands", &layout.command_count);
  void* bindings = commands == NULL
                       ? NULL
                       : copy_records(&views[1], sizeof(tw_binding_t), "bindings", &layout.binding_count);
  void* slots =
      bindings == NULL ? NULL : copy_records(&views[2], sizeof(tw_slot_t), "slots", &layout.slot_count);
  void* constants =
      slots == NULL ? NULL : copy_records(&views[3], sizeof(uint32_t), "constants", &layout.constant_count);
  layout.commands = commands;
  layout.bindings = bindings;
  layout.slots = slots;
  layout.constants = constants;
  tw_command_list_t* list = NULL;
  if (constants != NULL) {
    tw_message_t message = {{0}};
    const tw_status_t status = tw_command_list_create(&layout, &message, &list);
    if (status != TW_STATUS_OK) tw_status_raise(status, message.text);
  }
  free(commands);
  free(bindings);
  free(slots);
  free(constants);
  return list;
}

static PyObject* command_list_construct(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static char* names[] = {"commands", "bindings", "slots", "constants", "host_calls", "owners", "names", NULL};
  Py_buffer views[4];
  PyObject* host_calls = NULL;
  PyObject* owners = NULL;
  PyObject* kernel_names = NULL;
  memset(views, 0, sizeof(views));
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "y*y*y*y*|OOO:CommandList", names, &views[0], &views[1], &views[2],
                                   &views[3], &host_calls, &owners, &kernel_names)) {
    return NULL;
  }
  tw_command_list_object_t* self = (tw_command_list_object_t*)PyType_GenericAlloc(type, 0);
  if (self != NULL) {
    self->host_calls = host_calls == NULL ? PyTuple_New(0) : PySequence_Tuple(host_calls);
    self->owners = owners == NULL ? PyTuple_New(0) : PySequence_Tuple(owners);
    self->names = kernel_names == NULL ? PyTuple_New(0) : PySequence_Tuple(kernel_names);
    if (self->host_calls != NULL && self->owners != NULL && self->names != NULL) {
      self->list = create_command_list(views, PyTuple_Size(self->host_calls));
    }
    if (self->list == NULL) Py_CLEAR(self);
  }
  for (int i = 0; i < 4; ++i) PyBuffer_Release(&views[i]);
  return (PyObject*)self;
}

static int command_list_traverse(PyObject* object, visitproc visit, void* arg) {
  tw_command_list_object_t* self = (tw_command_list_object_t*)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->host_calls);
  Py_VISIT(self->owners);
  return 0;
}

// Only the host calls can close a cycle; the owners must live as long as the list can run.
static int command_list_clear(PyObject* object) {
  tw_command_list_object_t* self = (tw_command_list_object_t*)object;
  PyObject* host_calls = self->host_calls;
  self->host_calls = PyTuple_New(0);
  if (self->host_calls == NULL) PyErr_Clear();
  Py_XDECREF(host_calls);
  return 0;
}

static void command_list_dealloc(PyObject* object) {
  tw_command_list_object_t* self = (tw_command_list_object_t*)object;
  PyObject_GC_UnTrack(object);
  while (self->idle_calls != NULL) {
    tw_call_t* call = self->idle_calls;
    self->idle_calls = call->next;
    call_destroy(call);
  }
  tw_command_list_destroy(self->list);
  Py_XDECREF(self->host_calls);
  Py_XDECREF(self->owners);
  Py_XDECREF(self->names);
  tw_object_free(object);
}

static PyObject* command_list_command_count(PyObject* object, void* unused) {
  (void)unused;
  return PyLong_FromUnsignedLong(tw_command_list_command_count(((tw_command_list_object_t*)object)->list));
}

static PyObject* command_list_slot_count(PyObject* object, void* unused) {
  (void)unused;
  return PyLong_FromUnsignedLong(tw_command_list_slot_count(((tw_command_list_object_t*)object)->list));
}

static PyGetSetDef command_list_properties[] = {
    {"command_count", command_list_command_count, NULL, "Number of commands.", NULL},
    {"slot_count", command_list_slot_count, NULL, "Number of buffers a run takes.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef command_list_methods[] = {
    {"run", (PyCFunction)(void (*)(void))command_list_run, METH_FASTCALL, "run(pool, buffers, heap=None) -> None"},
    {"run_timed", (PyCFunction)(void (*)(void))command_list_run_timed, METH_FASTCALL,
     "run_timed(pool, buffers, heap=None) -> list of (begin_ns, end_ns, ((thread, begin_ns, end_ns), ...)) per command"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot command_list_slots[] = {
    {Py_tp_new, (void*)command_list_construct},
    {Py_tp_dealloc, (void*)command_list_dealloc},
    {Py_tp_traverse, (void*)command_list_traverse},
    {Py_tp_clear, (void*)command_list_clear},
    {Py_tp_getset, command_list_properties},
    {Py_tp_methods, command_list_methods},
    {Py_tp_doc, "CommandList(commands, bindings, slots, constants, host_calls=(), owners=(), names=()): recorded "
                "commands."},
    {0, NULL},
};

static PyType_Spec command_list_spec = {
    .name = "tilewright.runtime._native.CommandList",
    .basicsize = (int)sizeof(tw_command_list_object_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = command_list_slots,
};

int tw_command_list_register(PyObject* module) {
  tw_command_list_type = tw_type_add(module, &command_list_spec, "CommandList");
  return tw_command_list_type == NULL ? -1 : 0;
}
