// The extension module `tilewright.runtime._native`: registration and error mapping.

#include "binding.h"
#include "tw_backend.h"
#include "tw_relax.h"

#ifndef TW_SOURCES
#error "define TW_SOURCES as the mark of the sources (tilewright/runtime/native/core_sources.py), as setup.py does"
#endif

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

PyTypeObject* tw_type_add(PyObject* module, PyType_Spec* spec, const char* name) {
  PyObject* type = PyType_FromModuleAndSpec(module, spec, NULL);
  if (type == NULL) return NULL;
  if (PyModule_AddObjectRef(module, name, type) < 0) {
    Py_DECREF(type);
    return NULL;
  }
  return (PyTypeObject*)type;  // the module's globals keep this reference for the life of the process
}

void tw_object_free(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  const freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

void tw_status_raise(tw_status_t status, const char* text) {
  switch (status) {
    case TW_STATUS_OK:
    case TW_STATUS_HOST_FAILED:
    case TW_STATUS_INTERRUPTED:
      return;  // no exception, or the callback has set one
    case TW_STATUS_NO_MEMORY:
      PyErr_NoMemory();
      return;
    case TW_STATUS_SYSTEM:
      PyErr_SetFromErrno(PyExc_OSError);
      return;
    case TW_STATUS_FORKED:
      PyErr_SetString(PyExc_RuntimeError, "the run was cut by a fork; it goes on in the parent only");
      return;
    case TW_STATUS_KERNEL_FAILED:
    case TW_STATUS_NO_SCRATCH:
      PyErr_SetString(PyExc_RuntimeError, text);
      return;
    case TW_STATUS_INVALID:
    default:
      PyErr_SetString(PyExc_ValueError, text);
      return;
  }
}

// ---- the main thread --------------------------------------------------------------------------------

static atomic_uintptr_t main_thread;

int tw_thread_is_main(void) { return atomic_load(&main_thread) == (uintptr_t)pthread_self(); }

// A child's only thread is its main thread, whichever of the parent's it was.
static void fork_child(void) { atomic_store(&main_thread, (uintptr_t)pthread_self()); }

// Asks Python, as the module may be imported anywhere. Identifiers of threads are their handles.
static int find_main_thread(void) {
  PyObject* threading = PyImport_ImportModule("threading");
  PyObject* thread = threading == NULL ? NULL : PyObject_CallMethod(threading, "main_thread", NULL);
  PyObject* identifier = thread == NULL ? NULL : PyObject_GetAttrString(thread, "ident");
  const unsigned long long handle = identifier == NULL ? 0 : PyLong_AsUnsignedLongLong(identifier);
  Py_XDECREF(identifier);
  Py_XDECREF(thread);
  Py_XDECREF(threading);
  if (PyErr_Occurred()) return -1;
  atomic_store(&main_thread, (uintptr_t)handle);
  return pthread_atfork(NULL, NULL, fork_child) == 0 ? 0 : -1;
}

static PyObject* tuple_item_or_empty(PyObject* tuple, Py_ssize_t index) {
  if (index >= PyTuple_Size(tuple)) return PyUnicode_FromString("");
  return Py_NewRef(PyTuple_GetItem(tuple, index));
}

// Imported when something failed: its package is not complete while this module is made.
void tw_failure_raise(const tw_failure_t* failure, PyObject* names) {
  PyObject* name = tuple_item_or_empty(names, (Py_ssize_t)failure->command);
  PyObject* module = PyImport_ImportModule("tilewright.runtime.native.kernel_error");
  PyObject* type = module == NULL ? NULL : PyObject_GetAttrString(module, "KernelError");
  PyObject* error = type == NULL || name == NULL ? NULL
                                 : PyObject_CallFunction(type, "IOiInn", failure->command, name, failure->code,
                                                         failure->scratch_bytes,
                                                         (Py_ssize_t)failure->refusal.in_use_bytes,
                                                         (Py_ssize_t)failure->refusal.capacity_bytes);
  if (error != NULL) PyErr_SetObject(type, error);
  Py_XDECREF(error);
  Py_XDECREF(type);
  Py_XDECREF(module);
  Py_XDECREF(name);
}

void tw_lost_file_raise(const char* path) {
  PyObject* module = PyImport_ImportModule("tilewright.runtime.native.lost_file");
  PyObject* name = module == NULL ? NULL : PyUnicode_DecodeFSDefault(path);
  PyObject* result = name == NULL ? NULL : PyObject_CallMethod(module, "raise_lost_file", "O", name);
  Py_XDECREF(result);
  Py_XDECREF(name);
  Py_XDECREF(module);
}

int tw_is_refusal(void) {
  return PyErr_ExceptionMatches(PyExc_BufferError) || PyErr_ExceptionMatches(PyExc_ValueError) ||
         PyErr_ExceptionMatches(PyExc_TypeError);
}

static PyObject* processor_data(PyObject* module, PyObject* unused) {
  (void)module;
  (void)unused;
  uint64_t words[TW_PROCESSOR_DATA_COUNT];
  tw_processor_query(words);
  PyObject* result = PyTuple_New(TW_PROCESSOR_DATA_COUNT);
  for (Py_ssize_t i = 0; result != NULL && i < TW_PROCESSOR_DATA_COUNT; ++i) {
    PyObject* word = PyLong_FromUnsignedLongLong(words[i]);
    if (word == NULL || PyTuple_SetItem(result, i, word) < 0) Py_CLEAR(result);
  }
  return result;
}

static PyObject* import_thunk(PyObject* module, PyObject* unused) {
  (void)module;
  (void)unused;
  return PyLong_FromUnsignedLongLong((uintptr_t)tw_import_thunk);
}

static PyObject* use_backend_pool(PyObject* module, PyObject* pool) {
  (void)module;
  if (pool == Py_None || !tw_pool_check(pool)) {
    return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "pool: expected a Pool");
  }
  Py_INCREF(pool);  // for the life of the process: threads of others may be in it at any time
  tw_backend_use(((tw_pool_object_t*)pool)->pool);
  Py_RETURN_NONE;
}

static PyObject* backend_function(PyObject* module, PyObject* arguments) {
  (void)module;
  const char* name = NULL;
  int has_barriers = 0;
  if (!PyArg_ParseTuple(arguments, "s|p:backend_function", &name, &has_barriers)) return NULL;
  return PyLong_FromUnsignedLongLong((uintptr_t)tw_backend_find(name, has_barriers));
}

static PyObject* relax_functions(PyObject* module, PyObject* unused) {
  (void)module;
  (void)unused;
  uintptr_t make = 0;
  uintptr_t builtin = 0;
  if (tw_relax_addresses(&make, &builtin) < 0) {
    return PyErr_Format(PyExc_RuntimeError, "tvm-ffi is not loaded, or misses functions of 0.1.15");
  }
  return Py_BuildValue("(KK)", (unsigned long long)make, (unsigned long long)builtin);
}

static PyMethodDef module_methods[] = {
    {"relax_functions", relax_functions, METH_NOARGS,
     "relax_functions() -> (int, int): the addresses of the packed functions `make` and `builtin`."},
    {"use_backend_pool", use_backend_pool, METH_O,
     "use_backend_pool(pool): run parallel loops of code that TVM compiled on these threads."},
    {"backend_function", backend_function, METH_VARARGS,
     "backend_function(name, has_barriers=False) -> int: the address of a function of TVM's runtime, or 0."},
    {"import_thunk", import_thunk, METH_NOARGS, "The address of the function that kernels call imports through."},
    {"processor_data", processor_data, METH_NOARGS, "The eight processor words of the executable environment."},
    {"map_file", (PyCFunction)(void (*)(void))tw_map_file, METH_VARARGS | METH_KEYWORDS,
     "map_file(path, offset=0, length=None) -> Memory: a read-only shared mapping of a file range."},
    {"tensor_capsule", tw_tensor_capsule, METH_VARARGS,
     "tensor_capsule(owner, address, shape, code, bits, lanes) -> a DLPack capsule that keeps the owner alive."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "tilewright.runtime._native",
    .m_doc = "The C core; documented in tilewright.runtime.native.",
    .m_size = -1,
    .m_methods = module_methods,
};

PyMODINIT_FUNC PyInit__native(void) {
  PyObject* module = PyModule_Create(&module_definition);
  if (module == NULL) return NULL;
  if (tw_memory_register(module) < 0 || tw_heap_register(module) < 0 || tw_image_register(module) < 0 || tw_pool_register(module) < 0 ||
      tw_command_list_register(module) < 0 || tw_recorded_call_register(module) < 0 ||
      tw_packed_call_register(module) < 0 || tw_flow_program_register(module) < 0 ||
      PyModule_AddStringConstant(module, "SOURCES", TW_SOURCES) < 0 ||
      find_main_thread() < 0) {
    Py_DECREF(module);
    return NULL;
  }
  return module;
}
