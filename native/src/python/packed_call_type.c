// `PackedCall`: a packed function of tvm-ffi, called with tensors whose types are known before.
//
// What is known of the tensors is worked out once; a call adds the addresses. A tensor keeps its buffer, should the
// function keep the tensor. The function runs without the GIL.

#include "binding.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// ---- what tvm-ffi's C interface says (tvm/ffi/c_api.h, dlpack.h 1.x) ---------------------------------------------

enum { FFI_NONE = 0, FFI_FIRST_OBJECT = 64, FFI_TENSOR = 70, DEVICE_CPU = 1 };

typedef struct ffi_any_t {
  int32_t type_index;
  uint32_t padding;
  void* pointer;
} ffi_any_t;

typedef int (*ffi_function_t)(void* handle, const ffi_any_t* arguments, int32_t count, ffi_any_t* result);

typedef struct ffi_function_object_t {
  uint64_t reference_count;
  int32_t type_index;
  uint32_t padding;
  void* deleter;
  ffi_function_t call;
} ffi_function_object_t;

typedef struct ffi_tensor_t {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t rank;
  uint8_t type_code;
  uint8_t type_bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} ffi_tensor_t;

typedef struct ffi_managed_tensor_t {
  uint32_t version[2];
  void* context;
  void (*deleter)(struct ffi_managed_tensor_t* self);
  uint64_t flags;
  ffi_tensor_t tensor;
} ffi_managed_tensor_t;

typedef int (*ffi_make_tensor_t)(ffi_managed_tensor_t* from, int32_t alignment, int32_t contiguous, void** out_tensor);
typedef int (*ffi_release_t)(void* object);

// ---- the object ------------------------------------------------------------------------------------------------

typedef struct packed_call_t {
  PyObject_HEAD
  ffi_function_object_t* function;
  PyObject* owner;  // keeps the function
  PyObject* raise;  // called without arguments after a failure
  Py_ssize_t count;
  ffi_tensor_t* tensors;
  uint64_t* sizes;    // bytes of each
  int64_t* extents;   // shapes and strides
} packed_call_t;

// Functions of tvm-ffi's library, which is loaded for all to see where there is a function to call.
static ffi_make_tensor_t make_tensor;
static ffi_release_t release_object;

enum { LOCAL_TENSORS = 16, TENSOR_LIMIT = 4096, RANK_LIMIT = 64 };

// Of the thread's last call that failed: what tvm-ffi's own callers would have seen.
static _Thread_local int last_status;

// A packed function that fails as the last one did: tvm-ffi turns what is pending into an exception.
static int fail_again(void* handle, const ffi_any_t* arguments, int32_t count, ffi_any_t* result) {
  (void)handle;
  (void)arguments;
  (void)count;
  (void)result;
  return last_status;
}

// Reads one (code, bits, itemsize, shape); returns the bytes, or -1 with an exception.
static int64_t read_tensor(PyObject* row, ffi_tensor_t* tensor, int64_t* extents) {
  int code = 0, bits = 0;
  long long size = 0;
  PyObject* shape = NULL;
  if (!PyTuple_Check(row) || !PyArg_ParseTuple(row, "iiLO!:PackedCall", &code, &bits, &size, &PyTuple_Type, &shape)) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "tensors: expected (code, bits, itemsize, shape)");
    return -1;
  }
  const Py_ssize_t rank = PyTuple_Size(shape);
  int fits = code >= 0 && code <= UINT8_MAX && bits > 0 && bits <= UINT8_MAX && size > 0 && size <= 64;
  fits = fits && rank <= RANK_LIMIT;
  for (Py_ssize_t i = 0; fits && i < rank; ++i) {
    extents[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
    if (PyErr_Occurred()) return -1;
    fits = extents[i] >= 0;
  }
  int64_t stride = 1;  // dense; of a tensor without elements, too, which has no bytes but strides
  for (Py_ssize_t i = rank; fits && i-- > 0;) {
    extents[rank + i] = stride;
    fits = !__builtin_mul_overflow(size, extents[i], &size) &&
           (i == 0 || !__builtin_mul_overflow(stride, extents[i] > 0 ? extents[i] : 1, &stride));
  }
  if (!fits) {
    PyErr_SetString(PyExc_ValueError, "tensors: a type, a rank or a size is out of range");
    return -1;
  }
  *tensor = (ffi_tensor_t){.device_type = DEVICE_CPU, .rank = (int32_t)rank, .type_code = (uint8_t)code,
                           .type_bits = (uint8_t)bits, .lanes = 1, .shape = extents, .strides = extents + rank};
  return size;
}

static int read_tensors(packed_call_t* self, PyObject* rows) {
  self->count = PyTuple_Size(rows);
  if (self->count > TENSOR_LIMIT) {
    PyErr_SetString(PyExc_ValueError, "tensors: too many");
    return -1;
  }
  const size_t count = (size_t)self->count;
  self->tensors = calloc(count + 1, sizeof(*self->tensors));
  self->sizes = calloc(count + 1, sizeof(*self->sizes));
  self->extents = calloc(count + 1, 2 * RANK_LIMIT * sizeof(*self->extents));
  if (self->tensors == NULL || self->sizes == NULL || self->extents == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  for (size_t i = 0; i < count; ++i) {
    PyObject* row = PyTuple_GetItem(rows, (Py_ssize_t)i);
    const int64_t size = read_tensor(row, &self->tensors[i], self->extents + 2 * RANK_LIMIT * i);
    if (size < 0) return -1;
    self->sizes[i] = (uint64_t)size;
  }
  return 0;
}

static int find_library(void) {
  if (make_tensor != NULL) return 0;
  release_object = (ffi_release_t)(uintptr_t)dlsym(RTLD_DEFAULT, "TVMFFIObjectDecRef");
  make_tensor = (ffi_make_tensor_t)(uintptr_t)dlsym(RTLD_DEFAULT, "TVMFFITensorFromDLPackVersioned");
  if (release_object != NULL && make_tensor != NULL) return 0;
  make_tensor = NULL;
  PyErr_SetString(PyExc_ImportError, "the library of tvm-ffi is not loaded");
  return -1;
}

static PyObject* packed_call_construct(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static char* names[] = {"function", "tensors", "owner", "fail", NULL};
  unsigned long long function = 0;
  PyObject *rows = NULL, *owner = NULL, *fail = NULL;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "KO!OO:PackedCall", names, &function, &PyTuple_Type, &rows,
                                   &owner, &fail)) {
    return NULL;
  }
  if (function == 0) {
    PyErr_SetString(PyExc_ValueError, "function: no address");
    return NULL;
  }
  if (find_library() < 0) return NULL;
  packed_call_t* self = (packed_call_t*)PyType_GenericAlloc(type, 0);
  if (self == NULL) return NULL;
  self->function = (ffi_function_object_t*)(uintptr_t)function;
  self->owner = Py_NewRef(owner);
  self->raise = Py_NewRef(fail);
  if (read_tensors(self, rows) < 0) Py_CLEAR(self);
  return (PyObject*)self;
}

static int packed_call_traverse(PyObject* object, visitproc visit, void* arg) {
  packed_call_t* self = (packed_call_t*)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->owner);
  Py_VISIT(self->raise);
  return 0;
}

static void packed_call_dealloc(PyObject* object) {
  packed_call_t* self = (packed_call_t*)object;
  PyObject_GC_UnTrack(object);
  Py_XDECREF(self->owner);
  Py_XDECREF(self->raise);
  free(self->tensors);
  free(self->sizes);
  free(self->extents);
  tw_object_free(object);
}

// ---- calls -----------------------------------------------------------------------------------------------------

// A tensor that was handed out, and what it keeps: the buffer, and the shape in the call's object.
typedef struct held_tensor_t {
  ffi_managed_tensor_t managed;
  Py_buffer view;
  PyObject* call;
} held_tensor_t;

// Called where the last reference goes: on any thread, with or without the GIL.
static void held_tensor_delete(ffi_managed_tensor_t* managed) {
  held_tensor_t* held = (held_tensor_t*)managed;
  if (!Py_IsInitialized()) return;  // the process ends, and with it the buffer
  const PyGILState_STATE state = PyGILState_Ensure();
  PyBuffer_Release(&held->view);
  Py_DECREF(held->call);
  free(held);
  PyGILState_Release(state);
}

// A new tensor over a buffer, which is to have exactly its bytes. Returns -1 with an exception.
static int hold_tensor(packed_call_t* self, Py_ssize_t i, PyObject* buffer, ffi_any_t* out_argument) {
  held_tensor_t* held = calloc(1, sizeof(*held));
  if (held == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  if (PyObject_GetBuffer(buffer, &held->view, PyBUF_SIMPLE) < 0) {
    free(held);
    return -1;
  }
  held->managed = (ffi_managed_tensor_t){.version = {1, 0}, .deleter = held_tensor_delete, .tensor = self->tensors[i]};
  held->managed.tensor.data = held->view.buf;
  held->call = Py_NewRef((PyObject*)self);
  *out_argument = (ffi_any_t){.type_index = FFI_TENSOR};
  int fits = (uint64_t)held->view.len == self->sizes[i];
  if (!fits) {
    PyErr_Format(PyExc_ValueError, "tensor %zd: buffer of %zd bytes, expected %llu", i, held->view.len,
                 (unsigned long long)self->sizes[i]);
  } else if (make_tensor(&held->managed, 0, 0, &out_argument->pointer) != 0) {
    PyErr_SetString(PyExc_RuntimeError, "tvm-ffi does not take the tensor");
    fits = 0;
  }
  if (!fits) held_tensor_delete(&held->managed);
  return fits ? 0 : -1;
}

// Calls the function; nothing of Python is touched while it runs.
static int run_function(packed_call_t* self, const ffi_any_t* arguments) {
  ffi_any_t result = {.type_index = FFI_NONE};
  int status;
  Py_BEGIN_ALLOW_THREADS
  status = self->function->call(self->function, arguments, (int32_t)self->count, &result);
  if (status == 0 && result.type_index >= FFI_FIRST_OBJECT) release_object(result.pointer);
  Py_END_ALLOW_THREADS
  if (status == 0) return 0;
  last_status = status;
  PyObject* raised = PyObject_CallNoArgs(self->raise);
  Py_XDECREF(raised);
  if (raised != NULL) PyErr_SetString(PyExc_RuntimeError, "a packed function failed and left no error");
  return -1;
}

static PyObject* call_with(packed_call_t* self, ffi_any_t* arguments, PyObject* buffers) {
  Py_ssize_t made = 0;
  int result = 0;
  while (result == 0 && made < self->count) {
    result = hold_tensor(self, made, PyTuple_GetItem(buffers, made), &arguments[made]);
    made += result == 0;
  }
  if (result == 0) result = run_function(self, arguments);
  while (made-- > 0) release_object(arguments[made].pointer);
  return result == 0 ? Py_NewRef(Py_None) : NULL;
}

static PyObject* packed_call_call(PyObject* object, PyObject* buffers, PyObject* keywords) {
  packed_call_t* self = (packed_call_t*)object;
  if (PyTuple_Size(buffers) != self->count || (keywords != NULL && PyDict_Size(keywords) > 0)) {
    PyErr_Format(PyExc_TypeError, "got %zd buffers, expected %zd", PyTuple_Size(buffers), self->count);
    return NULL;
  }
  ffi_any_t local[LOCAL_TENSORS];
  if (self->count <= LOCAL_TENSORS) return call_with(self, local, buffers);
  ffi_any_t* arguments = calloc((size_t)self->count, sizeof(*arguments));
  PyObject* result = arguments == NULL ? PyErr_NoMemory() : call_with(self, arguments, buffers);
  free(arguments);
  return result;
}

static PyObject* packed_call_fail_again(PyObject* type, PyObject* unused) {
  (void)type;
  (void)unused;
  return PyLong_FromUnsignedLongLong((uintptr_t)fail_again);
}

static PyMethodDef packed_call_methods[] = {
    {"fail_again", packed_call_fail_again, METH_NOARGS | METH_STATIC,
     "The address of a packed function that fails as the thread's last call did."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot packed_call_slots[] = {
    {Py_tp_new, (void*)packed_call_construct},
    {Py_tp_dealloc, (void*)packed_call_dealloc},
    {Py_tp_traverse, (void*)packed_call_traverse},
    {Py_tp_call, (void*)packed_call_call},
    {Py_tp_methods, packed_call_methods},
    {Py_tp_doc, "PackedCall(function, tensors, owner, fail): a packed function on buffers of known types."},
    {0, NULL},
};

static PyType_Spec packed_call_spec = {
    .name = "tilewright.runtime._native.PackedCall",
    .basicsize = (int)sizeof(packed_call_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = packed_call_slots,
};

int tw_packed_call_register(PyObject* module) {
  return tw_type_add(module, &packed_call_spec, "PackedCall") == NULL ? -1 : 0;
}
