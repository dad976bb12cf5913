// `tensor_capsule`: memory that a Python object owns, as a DLPack tensor that keeps the object alive.
//
// Source: DLPack 1.0, `DLManagedTensor`; its layout is the same since 0.2.

#include "binding.h"

#include <stdlib.h>

enum { RANK_LIMIT = 64 };

typedef struct tw_dlpack_t {
  tw_tensor_view_t view;
  void* owner;
  void (*deleter)(struct tw_dlpack_t*);
  int64_t sizes[];  // shape, then strides
} tw_dlpack_t;

// Whoever took the tensor may let it go on any thread, with or without the lock of Python's.
static void tensor_delete(tw_dlpack_t* tensor) {
  if (Py_IsInitialized()) {
    const PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF((PyObject*)tensor->owner);
    PyGILState_Release(state);
  }
  free(tensor);
}

// Nobody took it.
static void capsule_destroy(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, "dltensor")) return;
  tw_dlpack_t* tensor = (tw_dlpack_t*)PyCapsule_GetPointer(capsule, "dltensor");
  tensor->deleter(tensor);
}

static int fill_sizes(tw_dlpack_t* tensor, PyObject* shape) {
  const int32_t rank = tensor->view.rank;
  int64_t* extents = tensor->sizes;
  int64_t* strides = extents + rank;
  for (Py_ssize_t i = 0; i < rank; ++i) {
    extents[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
    if (extents[i] < 0) {
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "shape: a size is below 0");
      return -1;
    }
  }
  uint64_t stride = 1;  // may wrap where the product of an empty tensor's sizes does; nobody reads it then
  for (int32_t i = rank; i > 0; --i) {
    strides[i - 1] = (int64_t)stride;
    stride *= (uint64_t)extents[i - 1];
  }
  return 0;
}

PyObject* tw_tensor_capsule(PyObject* module, PyObject* arguments) {
  (void)module;
  PyObject* owner = NULL;
  PyObject* shape = NULL;
  unsigned long long address = 0;
  unsigned char code = 0;
  unsigned char bits = 0;
  unsigned short lanes = 0;
  if (!PyArg_ParseTuple(arguments, "OKO!BBH:tensor_capsule", &owner, &address, &PyTuple_Type, &shape, &code, &bits,
                        &lanes)) {
    return NULL;
  }
  const Py_ssize_t rank = PyTuple_Size(shape);
  if (rank > RANK_LIMIT) return PyErr_Format(PyExc_ValueError, "shape: rank %zd, at most %d", rank, (int)RANK_LIMIT);
  tw_dlpack_t* tensor = malloc(sizeof(*tensor) + 2 * (size_t)rank * sizeof(int64_t));
  if (tensor == NULL) return PyErr_NoMemory();
  *tensor = (tw_dlpack_t){.view = {.data = (void*)(uintptr_t)address,
                                   .device_type = TW_TENSOR_ON_HOST,
                                   .rank = (int32_t)rank,
                                   .code = code,
                                   .bits = bits,
                                   .lanes = lanes,
                                   .shape = tensor->sizes,
                                   .strides = tensor->sizes + rank},
                          .owner = owner,
                          .deleter = tensor_delete};
  PyObject* capsule = fill_sizes(tensor, shape) < 0 ? NULL : PyCapsule_New(tensor, "dltensor", capsule_destroy);
  if (capsule == NULL) {
    free(tensor);
    return NULL;
  }
  Py_INCREF(owner);
  return capsule;
}
