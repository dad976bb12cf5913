// `Memory`: a block of bytes with the buffer protocol: allocated, mapped from a file, borrowed, or of a heap.

#include "binding.h"

#include <errno.h>
#include <string.h>

PyTypeObject* tw_memory_type;

typedef enum kind_t { KIND_ALLOCATED, KIND_MAPPED, KIND_BORROWED, KIND_LEASED } kind_t;

struct tw_memory_object_t {
  PyObject_HEAD
  void* data;
  size_t size_bytes;
  kind_t kind;
  int readonly;
  tw_file_mapping_t mapping;  // KIND_MAPPED
  Py_buffer owner;            // KIND_BORROWED; obj may be NULL
  PyObject* heap;             // KIND_LEASED: a Heap or None
  tw_lease_t lease;
};

static tw_memory_object_t* memory_create(kind_t kind) {
  tw_memory_object_t* self = (tw_memory_object_t*)PyType_GenericAlloc(tw_memory_type, 0);
  if (self != NULL) self->kind = kind;
  return self;
}

PyObject* tw_memory_new(size_t size_bytes) {
  tw_memory_object_t* self = memory_create(KIND_ALLOCATED);
  if (self == NULL) return NULL;
  if (tw_memory_allocate(size_bytes, &self->data) != TW_STATUS_OK) {
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  self->size_bytes = size_bytes;
  return (PyObject*)self;
}

PyObject* tw_memory_lease(PyObject* heap, const tw_lease_request_t* request) {
  tw_memory_object_t* self = memory_create(KIND_LEASED);
  if (self == NULL) return NULL;
  if (tw_lease_take(tw_heap_of(heap), request, &self->lease) < 0) {
    Py_DECREF(self);
    return NULL;
  }
  self->heap = Py_NewRef(heap);
  self->data = self->lease.base;
  self->size_bytes = request->size_bytes;
  return (PyObject*)self;
}

void* tw_memory_object_data(PyObject* memory) { return ((tw_memory_object_t*)memory)->data; }

PyObject* tw_memory_borrow(void* data, size_t size_bytes, int readonly, PyObject* owner) {
  tw_memory_object_t* self = memory_create(KIND_BORROWED);
  if (self == NULL) return NULL;
  self->data = data;
  self->size_bytes = size_bytes;
  self->readonly = readonly;
  if (owner != NULL && !PyObject_CheckBuffer(owner)) {
    self->owner.obj = Py_NewRef(owner);  // a tensor, which lives as long; letting a buffer go lets go of it
  } else if (owner != NULL && PyObject_GetBuffer(owner, &self->owner, PyBUF_SIMPLE) < 0) {
    Py_DECREF(self);
    return NULL;
  }
  return (PyObject*)self;
}

static PyObject* memory_construct(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static char* names[] = {"size_bytes", NULL};
  Py_ssize_t size_bytes = 0;
  (void)type;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "n:Memory", names, &size_bytes)) return NULL;
  if (size_bytes < 0) {
    PyErr_Format(PyExc_ValueError, "size_bytes is %zd, expected at least 0", size_bytes);
    return NULL;
  }
  return tw_memory_new((size_t)size_bytes);
}

static void memory_dealloc(PyObject* object) {
  tw_memory_object_t* self = (tw_memory_object_t*)object;
  if (self->kind == KIND_ALLOCATED) tw_memory_free(self->data, self->size_bytes);
  if (self->kind == KIND_MAPPED) tw_file_mapping_destroy(&self->mapping);
  if (self->kind == KIND_LEASED && self->heap != NULL) {
    tw_heap_return(tw_heap_of(self->heap), &self->lease);
    Py_DECREF(self->heap);
  }
  if (self->kind == KIND_BORROWED && self->owner.obj != NULL) PyBuffer_Release(&self->owner);
  tw_object_free(object);
}

static int memory_get_buffer(PyObject* object, Py_buffer* view, int flags) {
  const tw_memory_object_t* self = (tw_memory_object_t*)object;
  return PyBuffer_FillInfo(view, object, self->data, (Py_ssize_t)self->size_bytes, self->readonly, flags);
}

static Py_ssize_t memory_length(PyObject* object) { return (Py_ssize_t)((tw_memory_object_t*)object)->size_bytes; }

static PyObject* memory_address(PyObject* object, void* unused) {
  (void)unused;
  return PyLong_FromVoidPtr(((tw_memory_object_t*)object)->data);
}

static PyObject* memory_size_bytes(PyObject* object, void* unused) {
  (void)unused;
  return PyLong_FromSize_t(((tw_memory_object_t*)object)->size_bytes);
}

static PyObject* memory_check(PyObject* object, PyObject* unused) {
  (void)unused;
  const tw_memory_object_t* self = (tw_memory_object_t*)object;
  tw_message_t name;
  if (tw_fault_any() && tw_fault_find(self->data, self->size_bytes, &name)) {
    tw_lost_file_raise(name.text);
    return NULL;
  }
  Py_RETURN_NONE;
}

static PyObject* memory_readonly(PyObject* object, void* unused) {
  (void)unused;
  return PyBool_FromLong(((tw_memory_object_t*)object)->readonly);
}

PyObject* tw_map_file(PyObject* module, PyObject* arguments, PyObject* keywords) {
  static char* names[] = {"path", "offset", "length", NULL};
  PyObject* path = NULL;
  unsigned long long offset = 0;
  PyObject* length = Py_None;
  (void)module;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O&|KO:map_file", names, PyUnicode_FSConverter, &path, &offset,
                                   &length)) {
    return NULL;
  }
  size_t size_bytes = SIZE_MAX;
  tw_memory_object_t* self = NULL;
  if (length != Py_None) size_bytes = PyLong_AsSize_t(length);
  if (length != Py_None && PyErr_Occurred()) goto done;
  self = memory_create(KIND_MAPPED);
  if (self == NULL) goto done;
  self->readonly = 1;
  tw_message_t message;
  const tw_status_t status =
      tw_file_mapping_create(PyBytes_AsString(path), offset, size_bytes, &message, &self->mapping);
  if (status != TW_STATUS_OK) {
    if (status == TW_STATUS_SYSTEM) {
      PyErr_SetFromErrnoWithFilename(PyExc_OSError, PyBytes_AsString(path));
    } else {
      tw_status_raise(status, message.text);
    }
    Py_CLEAR(self);
    goto done;
  }
  self->data = (void*)(uintptr_t)self->mapping.data;
  self->size_bytes = self->mapping.size_bytes;
done:
  Py_DECREF(path);
  return (PyObject*)self;
}

static PyGetSetDef memory_properties[] = {
    {"address", memory_address, NULL, "Address of the first byte.", NULL},
    {"size_bytes", memory_size_bytes, NULL, "Length in bytes.", NULL},
    {"readonly", memory_readonly, NULL, "True for file mappings.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef memory_methods[] = {
    {"check", memory_check, METH_NOARGS, "check(): ArchiveError if part of the mapped file is no longer there."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot memory_slots[] = {
    {Py_tp_new, (void*)memory_construct},
    {Py_tp_dealloc, (void*)memory_dealloc},
    {Py_tp_getset, memory_properties},
    {Py_tp_methods, memory_methods},
    {Py_bf_getbuffer, (void*)memory_get_buffer},
    {Py_sq_length, (void*)memory_length},
    {Py_tp_doc, "Memory(size_bytes): a zeroed block of 64-byte aligned memory."},
    {0, NULL},
};

static PyType_Spec memory_spec = {
    .name = "tilewright.runtime._native.Memory",
    .basicsize = (int)sizeof(tw_memory_object_t),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = memory_slots,
};

int tw_memory_register(PyObject* module) {
  tw_memory_type = tw_type_add(module, &memory_spec, "Memory");
  return tw_memory_type == NULL ? -1 : 0;
}
