// The sentence embedding of a list of token ids, computed by an exported model: no Python, no runtime to install.
//
//   tilewright compile all-MiniLM-L6-v2.onnx -o libminilm.so --header minilm.h
//   cc -std=c11 embed.c -L. -lminilm -Wl,-rpath,'$ORIGIN' -o embed
//   ./embed 101 7592 2088 102
#include <stdio.h>
#include <stdlib.h>

#include "minilm.h"

static int fail(const char* what) {
  fprintf(stderr, "embed: %s\n", what);
  return EXIT_FAILURE;
}

int main(int argc, char** argv) {
  const int64_t tokens = argc - 1;
  int64_t* ids = calloc((size_t)tokens + 1, sizeof(*ids));
  int64_t* mask = calloc((size_t)tokens + 1, sizeof(*mask));
  minilm* model = NULL;
  if (ids == NULL || mask == NULL) return fail("out of memory");
  for (int64_t i = 0; i < tokens; ++i) {
    char* end = NULL;
    ids[i] = strtoll(argv[i + 1], &end, 10);
    if (end == argv[i + 1] || *end != '\0') return fail("expected token ids, which are whole numbers");
    mask[i] = 1;
  }

  // Memory for one call at a time is made here; the calls then take none.
  const minilm_options options = {.threads = 1, .concurrency = 1};
  const int64_t dims[MINILM_DIM_COUNT] = {[MINILM_DIM_BATCH] = 1, [MINILM_DIM_SEQUENCE] = tokens};
  if (minilm_create(&options, &model) != MINILM_OK) return fail(minilm_error());
  if (minilm_prepare(model, dims) != MINILM_OK) return fail(minilm_error());

  int64_t shape[MINILM_OUTPUT_LAST_HIDDEN_STATE_RANK];
  if (minilm_output_shape(model, dims, MINILM_OUTPUT_LAST_HIDDEN_STATE, shape) != MINILM_OK) return fail(minilm_error());
  const size_t width = (size_t)shape[2];
  float* embedding = calloc(width, sizeof(float));
  float* states = calloc((size_t)tokens * width, sizeof(float));
  if (embedding == NULL || states == NULL) return fail("out of memory");

  const void* inputs[] = {[MINILM_INPUT_INPUT_IDS] = ids, [MINILM_INPUT_ATTENTION_MASK] = mask};
  void* outputs[] = {[MINILM_OUTPUT_SENTENCE_EMBEDDING] = embedding, [MINILM_OUTPUT_LAST_HIDDEN_STATE] = states};
  if (minilm_run_dims(model, dims, inputs, outputs) != MINILM_OK) return fail(minilm_error());
  for (size_t i = 0; i < width; ++i) printf("%.9g\n", (double)embedding[i]);

  minilm_destroy(model);
  free(states);
  free(embedding);
  free(mask);
  free(ids);
  return EXIT_SUCCESS;
}
