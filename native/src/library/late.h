// Calls of a model whose sizes data decides (`program/flow.h`). Private to the library.
#ifndef TW_LIBRARY_LATE_H_
#define TW_LIBRARY_LATE_H_

#include "flow.h"
#include "tw_model.h"

typedef struct tw_call_t tw_call_t;

// What such a call has besides: tensors that take outputs, which are checked when their shapes are known.
typedef struct tw_late_t {
  tw_flow_call_t* flow;
  tw_tensor_t* given;
  uint8_t* is_given;
} tw_late_t;

int tw_late_begin(tw_call_t* call, const int64_t* dims);
int tw_late_take(tw_call_t* call, uint32_t slot, const tw_tensor_t* tensor);
int tw_late_run(tw_call_t* call);
void tw_late_end(tw_call_t* call);

#endif  // TW_LIBRARY_LATE_H_
