#include "expected.h"

#include <stdlib.h>

#include "bound.h"

static size_t count_numbers(const tw_signature_t* rows, uint32_t count) {
  size_t numbers = 0;
  for (uint32_t i = 0; i < count; ++i) numbers += 2 * (size_t)rows[i].rank;
  return numbers;
}

// Fills a row from numbers of its own; returns where they end.
static int64_t* fill_row(const tw_signature_t* signature, const int64_t* sizes, int64_t* numbers,
                         tw_expected_t* out_row) {
  int64_t* shape = numbers;
  int64_t* strides = numbers + signature->rank;
  uint64_t elements = 1;
  for (uint32_t axis = signature->rank; axis-- > 0;) {
    shape[axis] = tw_number_value(signature->shape[axis], sizes);
    strides[axis] = (int64_t)elements;
    elements *= (uint64_t)shape[axis];
  }
  *out_row = (tw_expected_t){
      .shape = shape,
      .strides = strides,
      .misaligned = signature->type->item_bytes - 1u,
      .rank = elements == 0 ? -1 : (int32_t)signature->rank,
      .type_code = signature->type->code,
      .type_bits = signature->type->bits,
  };
  return strides + signature->rank;
}

tw_expected_t* tw_expected_create(const tw_program_t* program, const int64_t* sizes) {
  const size_t row_count = (size_t)program->input_count + program->output_count;
  const size_t number_count =
      count_numbers(program->inputs, program->input_count) + count_numbers(program->outputs, program->output_count);
  tw_expected_t* rows = calloc(1, row_count * sizeof(*rows) + number_count * sizeof(int64_t) + 1);
  if (rows == NULL) return NULL;
  int64_t* numbers = (int64_t*)(void*)(rows + row_count);
  for (uint32_t i = 0; i < program->input_count; ++i) numbers = fill_row(&program->inputs[i], sizes, numbers, &rows[i]);
  for (uint32_t i = 0; i < program->output_count; ++i) {
    numbers = fill_row(&program->outputs[i], sizes, numbers, &rows[program->input_count + i]);
  }
  return rows;
}
