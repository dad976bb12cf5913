// `Heap`: the memory of a device as a Python object.

#include "binding.h"

#include <stdlib.h>

PyTypeObject* tw_heap_type;

enum { SIZES_LIMIT = 1 << 16 };

int tw_heap_check(PyObject* heap) {
  if (heap == Py_None || Py_TYPE(heap) == tw_heap_type) return 1;
  PyErr_SetString(PyExc_TypeError, "heap: expected a Heap or None");
  return 0;
}

tw_heap_t* tw_heap_of(PyObject* heap) {
  return heap == Py_None ? tw_heap_default() : ((tw_heap_object_t*)heap)->heap;
}

// The sizes of what is in use: they tell in the error who holds the memory.
static PyObject* list_sizes(tw_heap_t* heap) {
  size_t* sizes = malloc(SIZES_LIMIT * sizeof(*sizes));
  if (sizes == NULL) return PyErr_NoMemory();
  const size_t count = tw_heap_sizes(heap, SIZES_LIMIT, sizes);
  PyObject* list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list != NULL && i < count; ++i) {
    PyObject* size = PyLong_FromSize_t(sizes[i]);
    if (size == NULL || PyList_SetItem(list, (Py_ssize_t)i, size) < 0) Py_CLEAR(list);
  }
  free(sizes);
  return list;
}

// Imported when something failed: its package is not complete while this module is made. Takes `wanted` over, which is
// NULL where another error came first.
static void raise_refusal(tw_heap_t* heap, PyObject* wanted, const tw_refusal_t* refusal, tw_memory_use_t use) {
  PyObject* module = wanted == NULL ? NULL : PyImport_ImportModule("tilewright.runtime.native.memory_report");
  PyObject* sizes = module == NULL ? NULL : list_sizes(heap);
  PyObject* result = sizes == NULL ? NULL
                                   : PyObject_CallMethod(module, "raise_refusal", "OnniO", wanted,
                                                         (Py_ssize_t)refusal->in_use_bytes,
                                                         (Py_ssize_t)refusal->capacity_bytes, (int)use, sizes);
  Py_XDECREF(result);
  Py_XDECREF(sizes);
  Py_XDECREF(module);
  Py_XDECREF(wanted);
}

// For more than an address space has.
static void refuse_size(tw_heap_t* heap, PyObject* wanted, tw_memory_use_t use) {
  tw_heap_report_t report;
  tw_heap_report(heap, &report);
  tw_refusal_t refusal = {.capacity_bytes = tw_heap_capacity(heap)};
  if (refusal.capacity_bytes == SIZE_MAX) refusal.capacity_bytes = 0;
  for (int i = 0; i < TW_MEMORY_USE_COUNT; ++i) refusal.in_use_bytes += report.in_use_bytes[i];
  raise_refusal(heap, Py_NewRef(wanted), &refusal, use);
}

int tw_lease_take(tw_heap_t* heap, const tw_lease_request_t* request, tw_lease_t* out_lease) {
  tw_refusal_t refusal;
  if (heap == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  if (tw_heap_lease(heap, request, out_lease, &refusal) == TW_STATUS_OK) return 0;
  raise_refusal(heap, PyLong_FromSize_t(refusal.size_bytes), &refusal, request->use);
  return -1;
}

// None: no bound.
static int read_bound(PyObject* object, const char* what, size_t* out_bound) {
  *out_bound = SIZE_MAX;
  if (object == Py_None) return 0;
  *out_bound = PyLong_AsSize_t(object);
  if (!PyErr_Occurred()) return 0;
  PyErr_Format(PyExc_ValueError, "%s: expected a number of bytes, at least 0, or None", what);
  return -1;
}

static PyObject* heap_construct(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static char* names[] = {"capacity_bytes", "kept_bytes", NULL};
  PyObject* capacity = Py_None;
  PyObject* kept = Py_None;
  size_t capacity_bytes = 0;
  size_t kept_bytes = 0;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|OO:Heap", names, &capacity, &kept) ||
      read_bound(capacity, "capacity_bytes", &capacity_bytes) < 0 || read_bound(kept, "kept_bytes", &kept_bytes) < 0) {
    return NULL;
  }
  tw_heap_object_t* self = (tw_heap_object_t*)PyType_GenericAlloc(type, 0);
  if (self == NULL) return NULL;
  if (tw_heap_create(capacity_bytes, kept_bytes, &self->heap) == TW_STATUS_OK) return (PyObject*)self;
  Py_DECREF(self);
  return PyErr_NoMemory();
}

static void heap_dealloc(PyObject* object) {
  tw_heap_destroy(((tw_heap_object_t*)object)->heap);
  tw_object_free(object);
}

static PyObject* heap_lease(PyObject* object, PyObject* arguments) {
  tw_heap_t* heap = ((tw_heap_object_t*)object)->heap;
  PyObject* wanted = NULL;
  int use = TW_MEMORY_TRANSIENT;
  if (!PyArg_ParseTuple(arguments, "O|i:lease", &wanted, &use)) return NULL;
  int overflow = 0;
  const long long size_bytes = PyLong_AsLongLongAndOverflow(wanted, &overflow);
  if (size_bytes == -1 && overflow == 0 && PyErr_Occurred()) return NULL;
  if (size_bytes < 0 && overflow <= 0) {
    return PyErr_Format(PyExc_ValueError, "size_bytes is %S, expected at least 0", wanted);
  }
  if (use < 0 || use >= TW_MEMORY_USE_COUNT) {
    return PyErr_Format(PyExc_ValueError, "use is %d, expected 0 to 2", use);
  }
  if (overflow > 0 || size_bytes > PY_SSIZE_T_MAX) {
    refuse_size(heap, wanted, (tw_memory_use_t)use);
    return NULL;
  }
  const tw_lease_request_t request = {.size_bytes = (size_t)size_bytes, .use = (tw_memory_use_t)use};
  return tw_memory_lease(object, &request);
}

static PyObject* heap_trim(PyObject* object, PyObject* unused) {
  (void)unused;
  Py_BEGIN_ALLOW_THREADS
  tw_heap_trim(((tw_heap_object_t*)object)->heap);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

static PyObject* heap_close(PyObject* object, PyObject* unused) {
  (void)unused;
  Py_BEGIN_ALLOW_THREADS
  tw_heap_close(((tw_heap_object_t*)object)->heap);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

static PyObject* heap_report(PyObject* object, PyObject* unused) {
  (void)unused;
  tw_heap_report_t report;
  tw_heap_report(((tw_heap_object_t*)object)->heap, &report);
  return Py_BuildValue("(KKKKKKKKK)", (unsigned long long)report.in_use_bytes[TW_MEMORY_ARENA],
                       (unsigned long long)report.in_use_bytes[TW_MEMORY_TRANSIENT],
                       (unsigned long long)report.in_use_bytes[TW_MEMORY_SCRATCH],
                       (unsigned long long)report.kept_bytes, (unsigned long long)report.peak_bytes,
                       (unsigned long long)report.lease_count, (unsigned long long)report.reuse_count,
                       (unsigned long long)report.leased_bytes, (unsigned long long)report.live_count);
}

static PyObject* heap_capacity_bytes(PyObject* object, void* unused) {
  (void)unused;
  const size_t capacity_bytes = tw_heap_capacity(((tw_heap_object_t*)object)->heap);
  if (capacity_bytes == SIZE_MAX) Py_RETURN_NONE;
  return PyLong_FromSize_t(capacity_bytes);
}

static PyObject* heap_address(PyObject* object, void* unused) {
  (void)unused;
  return PyLong_FromUnsignedLongLong((uintptr_t)((tw_heap_object_t*)object)->heap);
}

static PyGetSetDef heap_properties[] = {
    {"address", heap_address, NULL, "For code of the C core, as long as the object lives.", NULL},
    {"capacity_bytes", heap_capacity_bytes, NULL, "What may be in use and kept together, or None.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef heap_methods[] = {
    {"lease", heap_lease, METH_VARARGS,
     "lease(size_bytes, use=1) -> Memory: a block with undefined contents, for as long as the object lives."},
    {"trim", heap_trim, METH_NOARGS, "trim(): give what is kept for reuse back to the system."},
    {"close", heap_close, METH_NOARGS, "close(): trim, and keep nothing from here on."},
    {"report", heap_report, METH_NOARGS,
     "report(): bytes in arenas, transients, scratch, kept, at the peak; leases, reuses, bytes leased so far, live."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot heap_slots[] = {
    {Py_tp_new, (void*)heap_construct},
    {Py_tp_dealloc, (void*)heap_dealloc},
    {Py_tp_getset, heap_properties},
    {Py_tp_methods, heap_methods},
    {Py_tp_doc, "Heap(capacity_bytes=None, kept_bytes=None): the memory of a device; blocks are kept for reuse."},
    {0, NULL},
};

static PyType_Spec heap_spec = {
    .name = "tilewright.runtime._native.Heap",
    .basicsize = (int)sizeof(tw_heap_object_t),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = heap_slots,
};

int tw_heap_register(PyObject* module) {
  tw_heap_type = tw_type_add(module, &heap_spec, "Heap");
  return tw_heap_type == NULL ? -1 : 0;
}
