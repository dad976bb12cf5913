// `Pool`: the worker pool as a Python object.

#include "binding.h"

#include <stdlib.h>

PyTypeObject* tw_pool_type;

int tw_pool_check(PyObject* pool) {
  if (pool == Py_None) return 1;
  if (Py_TYPE(pool) != tw_pool_type) {
    PyErr_SetString(PyExc_TypeError, "pool: expected a Pool or None");
    return 0;
  }
  if (((tw_pool_object_t*)pool)->closed) {
    PyErr_SetString(PyExc_ValueError, "the pool is closed");
    return 0;
  }
  return 1;
}

// NULL with an exception, or an array of exactly `count` processor numbers.
static uint32_t* read_cpu_ids(PyObject* sequence, Py_ssize_t count) {
  PyObject* items = PySequence_Tuple(sequence);
  if (items == NULL) return NULL;
  uint32_t* cpu_ids = NULL;
  if (PyTuple_Size(items) != count) {
    PyErr_Format(PyExc_ValueError, "cpu_ids has %zd entries, expected one per thread (%zd)", PyTuple_Size(items),
                 count);
  } else {
    cpu_ids = malloc((size_t)count * sizeof(*cpu_ids));
    if (cpu_ids == NULL) PyErr_NoMemory();
  }
  for (Py_ssize_t i = 0; cpu_ids != NULL && i < count; ++i) {
    const unsigned long long value = PyLong_AsUnsignedLongLong(PyTuple_GetItem(items, i));
    if (!PyErr_Occurred() && value <= UINT32_MAX) {
      cpu_ids[i] = (uint32_t)value;
      continue;
    }
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "cpu_ids: processor number out of range");
    free(cpu_ids);
    cpu_ids = NULL;
  }
  Py_DECREF(items);
  return cpu_ids;
}

static PyObject* pool_construct(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static char* names[] = {"thread_count", "cpu_ids", "spin_us", NULL};
  int thread_count = 0;
  int spin_us = 100;
  PyObject* cpu_ids = Py_None;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "i|Oi:Pool", names, &thread_count, &cpu_ids, &spin_us)) {
    return NULL;
  }
  if (thread_count < 1 || thread_count > 4096 || spin_us < 0) {
    return PyErr_Format(PyExc_ValueError, "thread_count is %d, expected 1 to 4096; spin_us is %d, expected at least 0",
                        thread_count, spin_us);
  }
  uint32_t* ids = NULL;
  if (cpu_ids != Py_None && (ids = read_cpu_ids(cpu_ids, thread_count)) == NULL) return NULL;
  tw_pool_object_t* self = (tw_pool_object_t*)PyType_GenericAlloc(type, 0);
  if (self != NULL) {
    const tw_pool_options_t options = {
        .thread_count = (uint32_t)thread_count, .spin_us = (uint32_t)spin_us, .cpu_ids = ids};
    const tw_status_t status = tw_pool_create(&options, &self->pool);
    if (status != TW_STATUS_OK) {
      tw_status_raise(status, "cpu_ids: processor number out of range");
      Py_CLEAR(self);
    }
  }
  free(ids);
  return (PyObject*)self;
}

static void pool_dealloc(PyObject* object) {
  tw_pool_destroy(((tw_pool_object_t*)object)->pool);
  tw_object_free(object);
}

static PyObject* pool_close(PyObject* object, PyObject* unused) {
  (void)unused;
  tw_pool_object_t* self = (tw_pool_object_t*)object;
  self->closed = 1;
  Py_BEGIN_ALLOW_THREADS
  tw_pool_close(self->pool);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

static PyObject* pool_enter(PyObject* object, PyObject* unused) {
  (void)unused;
  return Py_NewRef(object);
}

static PyObject* pool_exit(PyObject* object, PyObject* arguments) {
  (void)arguments;
  return pool_close(object, NULL);
}

static PyObject* pool_thread_count(PyObject* object, void* unused) {
  (void)unused;
  return PyLong_FromUnsignedLong(tw_pool_thread_count(((tw_pool_object_t*)object)->pool));
}

static PyObject* pool_closed(PyObject* object, void* unused) {
  (void)unused;
  return PyBool_FromLong(((tw_pool_object_t*)object)->closed);
}

static PyGetSetDef pool_properties[] = {
    {"thread_count", pool_thread_count, NULL, "Threads, the caller included.", NULL},
    {"closed", pool_closed, NULL, "True after close().", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef pool_methods[] = {
    {"close", pool_close, METH_NOARGS, "Stops and joins the workers."},
    {"__enter__", pool_enter, METH_NOARGS, NULL},
    {"__exit__", pool_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot pool_slots[] = {
    {Py_tp_new, (void*)pool_construct},
    {Py_tp_dealloc, (void*)pool_dealloc},
    {Py_tp_getset, pool_properties},
    {Py_tp_methods, pool_methods},
    {Py_tp_doc, "Pool(thread_count, cpu_ids=None, spin_us=100): worker threads; the caller takes part."},
    {0, NULL},
};

static PyType_Spec pool_spec = {
    .name = "tilewright.runtime._native.Pool",
    .basicsize = (int)sizeof(tw_pool_object_t),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = pool_slots,
};

int tw_pool_register(PyObject* module) {
  tw_pool_type = tw_type_add(module, &pool_spec, "Pool");
  return tw_pool_type == NULL ? -1 : 0;
}
