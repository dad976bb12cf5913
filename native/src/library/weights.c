#include "weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "place.h"

// FNV-1a. MIRROR WEIGHTS CHECKSUM.
static uint64_t checksum(const uint8_t* data, uint64_t size_bytes) {
  uint64_t value = UINT64_C(0xCBF29CE484222325);
  for (uint64_t i = 0; i < size_bytes; ++i) value = (value ^ data[i]) * UINT64_C(0x100000001B3);
  return value;
}

static int set_path(tw_open_weights_t* weights, const char* folder, const char* name) {
  const size_t room = strlen(folder) + strlen(name) + 1;
  char* path = malloc(room);
  if (path == NULL) return tw_error_no_memory();
  snprintf(path, room, "%s%s", folder, name);
  free(weights->path);
  weights->path = path;
  return TW_MODEL_OK;
}

static int set_place(const tw_weights_t* weights, tw_place_t place, tw_open_weights_t* out_weights) {
  char folder[2048];
  if (!tw_place_folder(place, folder, sizeof(folder))) folder[0] = '\0';
  return set_path(out_weights, folder, weights->file_name);
}

static int map_path(tw_open_weights_t* weights) {
  tw_message_t message = {.text = ""};
  if (tw_file_mapping_create(weights->path, 0, SIZE_MAX, &message, &weights->mapping) == TW_STATUS_OK) {
    return TW_MODEL_OK;
  }
  return tw_error_set(TW_MODEL_BAD_WEIGHTS,
                      "%s: cannot map the file of the weights: %s"
                      "\nhint: put it beside the library, or say where it is: weights_path",
                      weights->path, message.text);
}

// Beside the name that the library was opened by; where that is a link, also beside the file that it leads to.
static int map_beside(const tw_weights_t* weights, tw_open_weights_t* out_weights) {
  int status = set_place(weights, TW_PLACE_OF_NAME, out_weights);
  if (status == TW_MODEL_OK) status = map_path(out_weights);
  if (status == TW_MODEL_OK) return status;
  status = set_place(weights, TW_PLACE_OF_FILE, out_weights);
  return status == TW_MODEL_OK ? map_path(out_weights) : status;
}

static int map_given(const char* path, tw_open_weights_t* out_weights) {
  const int status = set_path(out_weights, "", path);
  return status == TW_MODEL_OK ? map_path(out_weights) : status;
}

static int check_file(const tw_weights_t* weights, const tw_open_weights_t* file) {
  const tw_file_mapping_t* mapping = &file->mapping;
  if (mapping->size_bytes != weights->file_bytes) {
    return tw_error_set(TW_MODEL_BAD_WEIGHTS,
                        "%s: the file of the weights has %zu bytes, expected %" PRIu64
                        "\nhint: it must be the one that was written with the library",
                        file->path, mapping->size_bytes, weights->file_bytes);
  }
  if (checksum(mapping->data, weights->header_bytes) == weights->header_checksum) return tw_weights_check(file);
  return tw_error_set(TW_MODEL_BAD_WEIGHTS,
                      "%s: the header of the file is another one than the library was made with"
                      "\nhint: it must be the one that was written with the library",
                      file->path);
}

static int open_file(const tw_weights_t* weights, const char* path, tw_open_weights_t* out_weights) {
  tw_place_pin();  // mapping installs the handler of reads that fail, which stays behind, also where no model is made
  int status = path == NULL ? map_beside(weights, out_weights) : map_given(path, out_weights);
  if (status == TW_MODEL_OK) status = check_file(weights, out_weights);
  if (status != TW_MODEL_OK) {
    tw_weights_close(out_weights);
    return status;
  }
  out_weights->base = out_weights->mapping.data;
  return TW_MODEL_OK;
}

int tw_weights_open(const tw_weights_t* weights, const char* path, tw_open_weights_t* out_weights) {
  memset(out_weights, 0, sizeof(*out_weights));
  if (weights->file_name != NULL) return open_file(weights, path, out_weights);
  if (path != NULL) {
    return tw_error_set(TW_MODEL_BAD_INPUT, "weights_path is '%s', but the weights are in the library", path);
  }
  out_weights->base = weights->data;
  return TW_MODEL_OK;
}

void tw_weights_close(tw_open_weights_t* weights) {
  if (weights->mapping.map_base != NULL) tw_file_mapping_destroy(&weights->mapping);
  free(weights->path);
  weights->path = NULL;
}

int tw_weights_find_loss(const tw_open_weights_t* weights) {
  tw_message_t name = {.text = ""};
  const tw_file_mapping_t* mapping = &weights->mapping;
  if (!tw_fault_find(mapping->data, mapping->size_bytes, &name)) return TW_MODEL_OK;
  return tw_error_set(TW_MODEL_BAD_WEIGHTS, "%s: the file of the weights was cut, or cannot be read",
                      weights->path);
}
