// What the files of the Python binding share: the types, the run of a command list, error helpers.
//
// All functions here need the GIL. Types are created once per process (no sub-interpreters).
#ifndef TW_PYTHON_BINDING_H_
#define TW_PYTHON_BINDING_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "tw_fault.h"
#include "tw_heap.h"
#include "tw_image.h"
#include "tw_memory.h"
#include "tw_command_list.h"
#include "tw_pool.h"

typedef struct tw_memory_object_t tw_memory_object_t;

typedef struct tw_heap_object_t {
  PyObject_HEAD
  tw_heap_t* heap;
} tw_heap_object_t;

typedef struct tw_pool_object_t {
  PyObject_HEAD
  tw_pool_t* pool;
  int closed;
} tw_pool_object_t;

// A frame with the buffers of its run; idle ones are kept at the command list, linked.
typedef struct tw_call_t {
  struct tw_call_t* next;
  tw_frame_t* frame;
  Py_buffer* views;         // one per slot; obj NULL where nothing is held
  PyObject** owners;        // one per slot, borrowed for the run; NULL for raw addresses
} tw_call_t;

typedef struct tw_command_list_object_t {
  PyObject_HEAD
  tw_command_list_t* list;
  PyObject* host_calls;     // tuple of callables
  PyObject* owners;         // tuple of objects to keep alive
  PyObject* names;          // tuple of str: of kernels, by command; may be shorter
  tw_call_t* idle_calls;
  uint32_t idle_count;
} tw_command_list_object_t;

extern PyTypeObject* tw_memory_type;
extern PyTypeObject* tw_heap_type;
extern PyTypeObject* tw_image_type;
extern PyTypeObject* tw_pool_type;
extern PyTypeObject* tw_command_list_type;
extern PyTypeObject* tw_recorded_call_type;

int tw_memory_register(PyObject* module);
int tw_heap_register(PyObject* module);
int tw_image_register(PyObject* module);
int tw_pool_register(PyObject* module);
int tw_command_list_register(PyObject* module);
int tw_recorded_call_register(PyObject* module);
int tw_packed_call_register(PyObject* module);
int tw_flow_program_register(PyObject* module);

// Creates a type from its spec and adds it to the module. NULL with an exception on failure.
PyTypeObject* tw_type_add(PyObject* module, PyType_Spec* spec, const char* name);

// The last lines of every dealloc.
void tw_object_free(PyObject* self);

// Sets the exception a status stands for (not for OK and HOST_FAILED, which has one already).
void tw_status_raise(tw_status_t status, const char* text);

// Whether this is the thread that handles signals: the one Python calls the main thread.
int tw_thread_is_main(void);

// Sets `KernelError`, the Python class that says what became of a run; `names` is a tuple, by command.
void tw_failure_raise(const tw_failure_t* failure, PyObject* names);

// Whether the exception that is set says that an object gives no such buffer. Anything else (an interrupt in the code of a
// user, no memory) is not ours to replace.
int tw_is_refusal(void);

// Sets the error about a mapped file that was cut, or whose disk fails.
void tw_lost_file_raise(const char* path);

// ---- memory ----

PyObject* tw_memory_new(size_t size_bytes);

// A block of a heap, which goes back when the object goes. NULL with DeviceError if there is none.
PyObject* tw_memory_lease(PyObject* heap, const tw_lease_request_t* request);

// True for None or a Heap; otherwise sets an exception.
int tw_heap_check(PyObject* heap);

// The heap of a Heap object; the one without bound for None. Never NULL.
tw_heap_t* tw_heap_of(PyObject* heap);

// Leases with the lock of Python's held, or sets DeviceError and returns -1.
int tw_lease_take(tw_heap_t* heap, const tw_lease_request_t* request, tw_lease_t* out_lease);
void* tw_memory_object_data(PyObject* memory);

// A byte view of `size_bytes` at `data` that keeps `owner`'s buffer held, or a tensor alive (owner may be NULL).
PyObject* tw_memory_borrow(void* data, size_t size_bytes, int readonly, PyObject* owner);

// A capsule `dltensor`, see tensor_capsule.c.
PyObject* tw_tensor_capsule(PyObject* module, PyObject* arguments);

// ---- tensors of other libraries ----

enum { TW_TENSOR_ON_HOST = 1 };  // a device type of DLPack's

// What a library, or we, say of a tensor, as DLPack lays it out; of another's, valid until control is returned to it.
typedef struct tw_tensor_view_t {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t rank;
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
  const int64_t* shape;
  const int64_t* strides;  // in elements; NULL: dense
  uint64_t byte_offset;
} tw_tensor_view_t;

typedef int (*tw_tensor_look_t)(void* object, tw_tensor_view_t* out_view);

// What reads tensors of a type. NULL with an exception where the type has no such function.
tw_tensor_look_t tw_tensor_look_of(PyObject* type);

// Looks at a tensor in the memory of the host. Returns -1 with an exception set.
int tw_tensor_read(tw_tensor_look_t look, PyObject* object, tw_tensor_view_t* out_view);

// The letter of its element type in the buffer protocol, of as many bits where there is none; "" for what is no element of ours.
const char* tw_tensor_format(const tw_tensor_view_t* view);

// Whether its elements lie one after the other, the last axis innermost.
int tw_tensor_is_dense(const tw_tensor_view_t* view);

PyObject* tw_map_file(PyObject* module, PyObject* arguments, PyObject* keywords);

// ---- running command lists ----

// An idle call of the list, or a new one. NULL with an exception on failure.
tw_call_t* tw_call_acquire(tw_command_list_object_t* list);

// Releases the held buffers and puts the call back.
void tw_call_release(tw_command_list_object_t* list, tw_call_t* call);

// Binds a slot to an object's buffer, checking contiguity, length, writability and alignment.
int tw_call_bind_object(tw_command_list_object_t* list, tw_call_t* call, uint32_t slot, PyObject* object);

// Binds a slot to an address; `owner` (borrowed, may be NULL) is what views for host calls keep alive.
void tw_call_bind_address(tw_call_t* call, uint32_t slot, void* base, PyObject* owner);

// Runs with the GIL released. `pool` is a Pool object or None, `heap` may be NULL. Returns -1 with an exception set.
int tw_call_run(tw_command_list_object_t* list, tw_call_t* call, PyObject* pool, tw_heap_t* heap, tw_span_t* spans);

// True for None or an open Pool; otherwise sets an exception.
int tw_pool_check(PyObject* pool);

#endif  // TW_PYTHON_BINDING_H_
