// Tensors of libraries that hand out a table of C functions: where their elements lie, without a buffer or a capsule.
//
// Source: DLPack 1.3, `DLPackExchangeAPI`.

#include "binding.h"

#include <string.h>

enum { MAJOR_VERSION = 1 };

typedef struct exchange_header_t {
  uint32_t major;
  uint32_t minor;
  const struct exchange_header_t* older;
} exchange_header_t;

// The table's first functions make and take managed tensors, which nothing here needs.
typedef struct exchange_table_t {
  exchange_header_t header;
  void (*unused[3])(void);
  int (*look)(void* object, tw_tensor_view_t* out_view);
} exchange_table_t;

tw_tensor_look_t tw_tensor_look_of(PyObject* type) {
  PyObject* capsule = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
  if (capsule == NULL) return NULL;
  const exchange_header_t* header = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
  Py_DECREF(capsule);  // the table outlives it
  if (header == NULL) return NULL;
  while (header != NULL && header->major != MAJOR_VERSION) header = header->older;
  tw_tensor_look_t look = header == NULL ? NULL : ((const exchange_table_t*)header)->look;
  if (look == NULL) PyErr_Format(PyExc_TypeError, "%R has no tensors that C may look at", type);
  return look;
}

const char* tw_tensor_format(const tw_tensor_view_t* view) {
  static const char* const integers[] = {"b", "h", "i", "q"};
  static const char* const naturals[] = {"B", "H", "I", "Q"};
  static const char* const floats[] = {"", "e", "f", "d"};
  enum { INTEGER, NATURAL, FLOAT, BFLOAT = 4, TRUTH = 6, FIRST_FLOAT8 = 7, LAST_FLOAT8 = 14 };
  if (view->lanes != 1) return "";
  if (view->code == TRUTH) return view->bits == 8 ? "?" : "";
  if (view->code == BFLOAT) return view->bits == 16 ? "H" : "";
  if (view->code >= FIRST_FLOAT8 && view->code <= LAST_FLOAT8) return view->bits == 8 ? "B" : "";
  if (view->code > FLOAT) return "";
  int place = 0;
  while (place < 4 && 8 << place != view->bits) ++place;
  if (place == 4) return "";
  return (view->code == INTEGER ? integers : view->code == NATURAL ? naturals : floats)[place];
}

int tw_tensor_is_dense(const tw_tensor_view_t* view) {
  int64_t dense = 1;
  int is_dense = 1;
  for (int32_t axis = view->rank; axis > 0; --axis) {
    const int64_t extent = view->shape[axis - 1];
    if (extent == 0) return 1;  // of no elements any order is right
    if (extent != 1 && view->strides != NULL && view->strides[axis - 1] != dense) is_dense = 0;
    dense *= extent;
  }
  return is_dense;
}

int tw_tensor_read(tw_tensor_look_t look, PyObject* object, tw_tensor_view_t* out_view) {
  memset(out_view, 0, sizeof(*out_view));
  if (look(object, out_view) != 0) return -1;
  if (out_view->device_type == TW_TENSOR_ON_HOST) return 0;
  PyErr_Format(PyExc_TypeError, "a tensor of device type %d, expected one of the host", (int)out_view->device_type);
  return -1;
}
