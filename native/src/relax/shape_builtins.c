// Built-ins that look at values and their sizes.
//
// Source: TVM 0.27, `src/runtime/vm/builtin.cc`, for arguments, order of checks and kinds of errors.
#include "arguments.h"
#include "builtins.h"

// ORDER as TVM's MatchShapeCode and MakeShapeCode.
enum { ASSERT_EQUAL = 0, STORE = 1, NOTHING = 2, ASSERT_EQUAL_TO_STORED = 3 };
enum { USE_NUMBER = 0, LOAD = 1 };

// ---- checks ----------------------------------------------------------------------------------------

int tw_builtin_check_tensor_info(tw_relax_t* program, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  (void)program;
  (void)result;
  context_t context;
  const ffi_any_t* place = &args[count - 1];
  const ffi_tensor_t* tensor = ffi_tensor(&args[0]);
  int64_t rank = 0;
  if (tensor == NULL) return tw_fail_expected("a tensor", &args[0], place);
  const int code = tw_read_integer(&args[1], &rank);
  if (code != 0) return code;
  if (rank != -1 && rank != tensor->rank) {
    return tw_error_keep(VALUE_ERROR, "expected a tensor of rank %lld, got rank %d%s", (long long)rank, tensor->rank,
                         tw_context_text(place, &context));
  }
  if (count < 4 || args[2].type_index != FFI_DTYPE) return 0;
  const ffi_dtype_t expected = args[2].v_dtype;  // of no bits: any
  const ffi_dtype_t got = tensor->dtype;
  if (expected.bits == 0 ||
      (got.code == expected.code && got.bits == expected.bits && got.lanes == expected.lanes)) {
    return 0;
  }
  dtype_text_t expected_text;
  dtype_text_t got_text;
  return tw_error_keep(VALUE_ERROR, "expected a tensor of type %s, got %s%s", tw_dtype_text(expected, &expected_text),
                       tw_dtype_text(got, &got_text), tw_context_text(place, &context));
}

int tw_builtin_check_shape_info(tw_relax_t* program, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  (void)program;
  (void)count;
  (void)result;
  context_t context;
  int64_t rank = 0;
  const ffi_sizes_t* shape = ffi_shape(&args[0]);
  if (shape == NULL) return tw_fail_expected("a shape", &args[0], &args[2]);
  const int code = tw_read_integer(&args[1], &rank);
  if (code != 0 || rank == -1 || rank == (int64_t)shape->size) return code;
  return tw_error_keep(VALUE_ERROR, "expected a shape of rank %lld, got rank %zu%s", (long long)rank, shape->size,
                       tw_context_text(&args[2], &context));
}

int tw_builtin_check_prim_value_info(tw_relax_t* program, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  (void)program;
  (void)count;
  (void)result;
  context_t context;
  dtype_text_t text;
  ffi_dtype_t expected = {0};
  const int code = tw_read_dtype(&args[1], &expected);
  if (code != 0) return code;
  const int counts = expected.code == FFI_CODE_INT || expected.code == FFI_CODE_UINT || expected.code == FFI_CODE_BOOL;
  if (counts && ffi_is_integer(&args[0])) return 0;
  if (expected.code == FFI_CODE_FLOAT && (args[0].type_index == FFI_FLOAT || ffi_is_integer(&args[0]))) return 0;
  if (expected.code == FFI_CODE_HANDLE && expected.bits != 0) return 0;
  return tw_error_keep(TYPE_ERROR, "expected a number of type %s, got %s%s", tw_dtype_text(expected, &text),
                       ffi_kind(&args[0]), tw_context_text(&args[2], &context));
}

int tw_builtin_check_tuple_info(tw_relax_t* program, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  (void)program;
  (void)count;
  (void)result;
  context_t context;
  int64_t expected = 0;
  int64_t size = 0;
  if (args[0].type_index != FFI_ARRAY) return tw_fail_expected("a tuple", &args[0], &args[2]);
  int code = tw_read_integer(&args[1], &expected);
  if (code == 0) code = tw_size_of_array(&args[0], &size);
  if (code != 0 || size == expected) return code;
  return tw_error_keep(VALUE_ERROR, "expected a tuple of %lld, got one of %lld%s", (long long)expected,
                       (long long)size, tw_context_text(&args[2], &context));
}

int tw_builtin_check_func_info(tw_relax_t* program, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  (void)program;
  (void)count;
  (void)result;
  return args[0].type_index == FFI_FUNCTION ? 0 : tw_fail_expected("a function", &args[0], &args[1]);
}

// ---- shapes ----------------------------------------------------------------------------------------

static int fail_mismatch(int64_t size, int64_t expected, int64_t axis, const ffi_any_t* place) {
  context_t context;
  return tw_error_keep(MATCH_ERROR, "size %lld on axis %lld, expected %lld%s", (long long)size, (long long)axis,
                       (long long)expected, tw_context_text(place, &context));
}

// Compares a size, or stores it, as its code says.
static int match_size(int64_t size, const ffi_any_t* heap, const ffi_any_t* pair, int64_t axis,
                      const ffi_any_t* place) {
  int64_t what = 0;
  int64_t number = 0;
  int64_t* word = NULL;
  int code = tw_read_integer(&pair[0], &what);
  if (code == 0) code = tw_read_integer(&pair[1], &number);
  if (code != 0 || what == NOTHING) return code;
  if (what == ASSERT_EQUAL) return size == number ? 0 : fail_mismatch(size, number, axis, place);
  if (what != STORE && what != ASSERT_EQUAL_TO_STORED) {
    return tw_error_keep(INPUT_ERROR, "unknown code %lld of a size", (long long)what);
  }
  code = tw_find_word(heap, number, &word);
  if (code != 0) return code;
  if (what == STORE) *word = size;
  return *word == size ? 0 : fail_mismatch(size, *word, axis, place);
}

// Arguments: a tensor or shape, the heap, its rank, a code and a number per axis, a text about the place.
int tw_builtin_match_shape(tw_relax_t* program, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  (void)program;
  (void)result;
  context_t context;
  int64_t rank = 0;
  ffi_sizes_t sizes = {NULL, 0};
  int code = tw_read_count(&args[2], (count - 4) / 2, &rank);
  if (code != 0) return code;
  const ffi_any_t* place = &args[3 + 2 * rank];
  code = tw_read_sizes(&args[0], place, &sizes);
  if (code != 0) return code;
  if ((int64_t)sizes.size != rank) {
    return tw_error_keep(MATCH_ERROR, "rank %zu, expected %lld%s", sizes.size, (long long)rank,
                         tw_context_text(place, &context));
  }
  for (int64_t i = 0; i < rank && code == 0; ++i) {
    code = match_size(sizes.data[i], &args[1], &args[3 + 2 * i], i, place);
  }
  return code;
}

// Arguments: an integer, the heap, a code and a number, a text about the place.
int tw_builtin_match_prim_value(tw_relax_t* program, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  (void)program;
  (void)count;
  (void)result;
  int64_t number = 0;
  const int code = tw_read_integer(&args[0], &number);
  return code != 0 ? code : match_size(number, &args[1], &args[2], 0, &args[4]);
}

static int load_size(const ffi_any_t* heap, const ffi_any_t* pair, int64_t* out_size) {
  int64_t what = 0;
  int64_t number = 0;
  int64_t* word = NULL;
  int code = tw_read_integer(&pair[0], &what);
  if (code == 0) code = tw_read_integer(&pair[1], &number);
  if (code != 0) return code;
  if (what != USE_NUMBER && what != LOAD) {
    return tw_error_keep(INPUT_ERROR, "unknown code %lld of a size", (long long)what);
  }
  if (what == LOAD) code = tw_find_word(heap, number, &word);
  if (code == 0) *out_size = what == LOAD ? *word : number;
  return code;
}

// Arguments: the heap, the rank, a code and a number per axis.
int tw_builtin_make_shape(tw_relax_t* program, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  (void)program;
  int64_t sizes[FFI_SIZES_LIMIT];
  int64_t rank = 0;
  int code = tw_read_count(&args[1], (count - 2) / 2, &rank);
  if (code == 0 && rank > FFI_SIZES_LIMIT) {
    return tw_error_keep(VALUE_ERROR, "a shape of rank %lld, at most %d", (long long)rank, (int)FFI_SIZES_LIMIT);
  }
  for (int64_t i = 0; i < rank && code == 0; ++i) code = load_size(&args[0], &args[2 + 2 * i], &sizes[i]);
  return code != 0 ? code : tw_value_shape(sizes, (size_t)rank, result);
}

// Arguments: the heap, a code and a number.
int tw_builtin_make_prim_value(tw_relax_t* program, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  (void)program;
  (void)count;
  int64_t number = 0;
  const int code = load_size(&args[0], &args[1], &number);
  if (code == 0) *result = ffi_int(number);
  return code;
}

// Arguments: the machine, the number of words.
int tw_builtin_alloc_shape_heap(tw_relax_t* program, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  (void)count;
  const ffi_dtype_t int64 = {.code = FFI_CODE_INT, .bits = 64, .lanes = 1};
  int64_t size = 0;
  const int code = tw_read_integer(&args[1], &size);
  return code != 0 ? code : tw_value_tensor(&program->heap, &size, 1, int64, result);
}

int tw_builtin_shape_of(tw_relax_t* program, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  (void)program;
  (void)count;
  const ffi_tensor_t* tensor = ffi_tensor(&args[0]);
  if (tensor == NULL) return tw_fail_expected("a tensor", &args[0], NULL);
  return tw_value_shape(tensor->shape, (size_t)tensor->rank, result);
}

// The elements of a vector of integers, as a shape.
int tw_builtin_tensor_to_shape(tw_relax_t* program, const ffi_any_t* args, int32_t count, ffi_any_t* result) {
  (void)program;
  (void)count;
  int64_t sizes[FFI_SIZES_LIMIT];
  const ffi_tensor_t* tensor = ffi_tensor(&args[0]);
  if (tensor == NULL) return tw_fail_expected("a tensor", &args[0], NULL);
  const ffi_dtype_t dtype = tensor->dtype;
  const int is_integer = dtype.code == FFI_CODE_INT && dtype.lanes == 1 &&
                         (dtype.bits == 16 || dtype.bits == 32 || dtype.bits == 64);
  if (!tw_is_on_host(tensor) || tensor->rank != 1 || !is_integer || tensor->shape[0] > FFI_SIZES_LIMIT) {
    dtype_text_t text;
    return tw_error_keep(VALUE_ERROR, "expected a vector of at most %d int16, int32 or int64, got rank %d of %s",
                         (int)FFI_SIZES_LIMIT, tensor->rank, tw_dtype_text(dtype, &text));
  }
  const int64_t stride = tensor->strides == NULL ? 1 : tensor->strides[0];
  for (int64_t i = 0; i < tensor->shape[0]; ++i) sizes[i] = tw_read_element(tensor, i * stride);
  return tw_value_shape(sizes, (size_t)tensor->shape[0], result);
}
