// `CodeImage`: a code image as a Python object.

#include "binding.h"

PyTypeObject* tw_image_type;

typedef struct image_object_t {
  PyObject_HEAD
  tw_image_t* image;
} image_object_t;

// Calls `visit` with each entry of a sequence; entries are tuples checked by their own formats.
static int for_each(PyObject* sequence, const char* what, int (*visit)(tw_image_t*, PyObject*), tw_image_t* image) {
  PyObject* items = PySequence_Tuple(sequence);
  if (items == NULL) return -1;
  int result = 0;
  for (Py_ssize_t i = 0; result == 0 && i < PyTuple_Size(items); ++i) {
    PyObject* item = PyTuple_GetItem(items, i);
    if (!PyTuple_Check(item)) {
      PyErr_Format(PyExc_TypeError, "%s %zd: expected a tuple", what, i);
      result = -1;
    } else if (visit(image, item) < 0) {
      if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError, "%s %zd: outside the image of %zu bytes, or writable and executable", what, i,
                     tw_image_size(image));
      }
      result = -1;
    }
  }
  Py_DECREF(items);
  return result;
}

static int visit_segment(tw_image_t* image, PyObject* item) {
  unsigned long long offset = 0;
  Py_buffer data;
  if (!PyArg_ParseTuple(item, "Ky*", &offset, &data)) return -1;
  const tw_status_t status = tw_image_write(image, offset, data.buf, (size_t)data.len);
  PyBuffer_Release(&data);
  return status == TW_STATUS_OK ? 0 : -1;
}

static int visit_relocation(tw_image_t* image, PyObject* item) {
  unsigned long long offset = 0;
  unsigned long long value = 0;
  int is_base_relative = 0;
  if (!PyArg_ParseTuple(item, "KKp", &offset, &value, &is_base_relative)) return -1;
  return tw_image_relocate(image, offset, value, is_base_relative) == TW_STATUS_OK ? 0 : -1;
}

static int visit_protection(tw_image_t* image, PyObject* item) {
  unsigned long long offset = 0;
  unsigned long long length = 0;
  unsigned int protection = 0;
  if (!PyArg_ParseTuple(item, "KKI", &offset, &length, &protection)) return -1;
  return tw_image_protect(image, offset, length, protection) == TW_STATUS_OK ? 0 : -1;
}

static PyObject* image_construct(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static char* names[] = {"size_bytes", "segments", "relocations", "protections", NULL};
  unsigned long long size_bytes = 0;
  PyObject* segments = NULL;
  PyObject* relocations = NULL;
  PyObject* protections = NULL;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "KOOO:CodeImage", names, &size_bytes, &segments, &relocations,
                                   &protections)) {
    return NULL;
  }
  image_object_t* self = (image_object_t*)PyType_GenericAlloc(type, 0);
  if (self == NULL) return NULL;
  const tw_status_t created = tw_image_create(size_bytes, &self->image);
  if (created != TW_STATUS_OK) {
    tw_status_raise(created, "size_bytes is out of range");
    Py_DECREF(self);
    return NULL;
  }
  if (for_each(segments, "segment", visit_segment, self->image) < 0 ||
      for_each(relocations, "relocation", visit_relocation, self->image) < 0 ||
      for_each(protections, "protection", visit_protection, self->image) < 0) {
    Py_DECREF(self);
    return NULL;
  }
  const tw_status_t sealed = tw_image_seal(self->image);
  if (sealed != TW_STATUS_OK) {
    tw_status_raise(sealed, "");
    Py_DECREF(self);
    return NULL;
  }
  return (PyObject*)self;
}

static void image_dealloc(PyObject* object) {
  tw_image_destroy(((image_object_t*)object)->image);
  tw_object_free(object);
}

static PyObject* image_base(PyObject* object, void* unused) {
  (void)unused;
  return PyLong_FromVoidPtr(tw_image_base(((image_object_t*)object)->image));
}

static PyObject* image_size_bytes(PyObject* object, void* unused) {
  (void)unused;
  return PyLong_FromSize_t(tw_image_size(((image_object_t*)object)->image));
}

static PyObject* image_address(PyObject* object, PyObject* argument) {
  const tw_image_t* image = ((image_object_t*)object)->image;
  const unsigned long long offset = PyLong_AsUnsignedLongLong(argument);
  if (PyErr_Occurred()) return NULL;
  if (offset >= tw_image_size(image)) {
    return PyErr_Format(PyExc_IndexError, "offset %llu is outside the image of %zu bytes", offset,
                        tw_image_size(image));
  }
  return PyLong_FromVoidPtr(tw_image_base(image) + offset);
}

static PyObject* image_read(PyObject* object, PyObject* arguments) {
  const tw_image_t* image = ((image_object_t*)object)->image;
  unsigned long long address = 0;
  unsigned long long length = 0;
  if (!PyArg_ParseTuple(arguments, "KK:read", &address, &length)) return NULL;
  const uint64_t base = (uint64_t)(uintptr_t)tw_image_base(image);
  if (address < base || !tw_image_allows(image, address - base, length, TW_PROTECT_READ)) {
    return PyErr_Format(PyExc_IndexError, "%llu bytes at address 0x%llx are not readable image memory", length,
                        address);
  }
  return PyBytes_FromStringAndSize((const char*)tw_image_base(image) + (address - base), (Py_ssize_t)length);
}

static PyObject* image_holds_code(PyObject* object, PyObject* argument) {
  const tw_image_t* image = ((image_object_t*)object)->image;
  const unsigned long long address = PyLong_AsUnsignedLongLong(argument);
  if (PyErr_Occurred()) return NULL;
  const uint64_t base = (uint64_t)(uintptr_t)tw_image_base(image);
  return PyBool_FromLong(address >= base && tw_image_allows(image, address - base, 1, TW_PROTECT_EXECUTE));
}

static PyObject* image_call_query(PyObject* object, PyObject* arguments) {
  const tw_image_t* image = ((image_object_t*)object)->image;
  unsigned long long offset = 0;
  unsigned int version = 0;
  unsigned long long environment = 0;
  if (!PyArg_ParseTuple(arguments, "KIK:call_query", &offset, &version, &environment)) return NULL;
  if (!tw_image_allows(image, offset, 1, TW_PROTECT_EXECUTE)) {
    return PyErr_Format(PyExc_ValueError, "offset %llu is not executable image memory", offset);
  }
  const tw_library_query_t query = (tw_library_query_t)(uintptr_t)(tw_image_base(image) + offset);
  const tw_environment_t* used =
      environment == 0 ? tw_environment_default() : (const tw_environment_t*)(uintptr_t)environment;
  return PyLong_FromUnsignedLongLong((uint64_t)(uintptr_t)query(version, used));
}

static PyGetSetDef image_properties[] = {
    {"base", image_base, NULL, "Address of offset 0.", NULL},
    {"size_bytes", image_size_bytes, NULL, "Length in bytes.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef image_methods[] = {
    {"address", image_address, METH_O, "address(offset) -> int"},
    {"read", image_read, METH_VARARGS, "read(address, length) -> bytes, bounds-checked"},
    {"holds_code", image_holds_code, METH_O, "holds_code(address) -> whether it may be called"},
    {"call_query", image_call_query, METH_VARARGS, "call_query(offset, version, environment_address) -> int"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot image_slots[] = {
    {Py_tp_new, (void*)image_construct},
    {Py_tp_dealloc, (void*)image_dealloc},
    {Py_tp_getset, image_properties},
    {Py_tp_methods, image_methods},
    {Py_tp_doc, "CodeImage(size_bytes, segments, relocations, protections): protected code in memory."},
    {0, NULL},
};

static PyType_Spec image_spec = {
    .name = "tilewright.runtime._native.CodeImage",
    .basicsize = (int)sizeof(image_object_t),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = image_slots,
};

int tw_image_register(PyObject* module) {
  tw_image_type = tw_type_add(module, &image_spec, "CodeImage");
  return tw_image_type == NULL ? -1 : 0;
}
