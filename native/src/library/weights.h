// Where a model's constants are: in the library, or in a file that it maps. Private to the library.
#ifndef TW_LIBRARY_WEIGHTS_H_
#define TW_LIBRARY_WEIGHTS_H_

#include "tw_fault.h"
#include "tw_memory.h"
#include "tw_model.h"

typedef struct tw_open_weights_t {
  const uint8_t* base;        // NULL: there are none
  tw_file_mapping_t mapping;  // of the file, if there is one
  char* path;                 // of it
} tw_open_weights_t;

// `path` NULL: the file beside the library. Sets the error text.
int tw_weights_open(const tw_weights_t* weights, const char* path, tw_open_weights_t* out_weights);
void tw_weights_close(tw_open_weights_t* weights);

// Whether the file was cut while it was mapped; sets the error text. The question behind every call.
int tw_weights_find_loss(const tw_open_weights_t* weights);
static inline int tw_weights_check(const tw_open_weights_t* weights) {
  return weights->mapping.map_base != NULL && tw_fault_any() ? tw_weights_find_loss(weights) : TW_MODEL_OK;
}

#endif  // TW_LIBRARY_WEIGHTS_H_
