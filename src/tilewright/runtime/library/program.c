// The main function of a model that is a program of its own: reads inputs from its arguments, prints the outputs.
//
// Linked with an exported model, which it finds by the symbol `tilewright_model`; the grammar of inputs and
// outputs is that of `tilewright run` (IREE's). `program.h` is written with it: the model's header, whose types it
// calls `model_…`.
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

const model_interface* tilewright_model(void);

enum { RANK_LIMIT = 64, TEXT_LIMIT = 1024 };

typedef struct {
  const char* type;
  int64_t shape[RANK_LIMIT];
  int32_t rank;
  uint8_t* data;
  size_t bytes;
} array_t;

static _Noreturn void fail(const char* where, const char* what, const char* hint) {
  fprintf(stderr, "error: %s%s%s\n", where ? where : "", where ? ": " : "", what);
  if (hint) fprintf(stderr, "hint: %s\n", hint);
  exit(1);
}

static void* take(size_t bytes) {
  void* memory = calloc(bytes ? bytes : 1, 1);
  if (!memory) fail(NULL, "out of memory", NULL);
  return memory;
}

// --- types ---------------------------------------------------------------------------------------------------------

typedef enum { KIND_INT, KIND_UINT, KIND_FLOAT, KIND_BOOL } number_kind_t;

typedef struct {
  const char* name;
  const char* numpy;  // NULL: numpy has no such type
  size_t bytes;
  number_kind_t kind;
  int exponent_bits;  // of floats that C has no type for
  int mantissa_bits;
} type_t;

static const type_t types[] = {
    {"f32", "<f4", 4, KIND_FLOAT, 8, 23},  {"f64", "<f8", 8, KIND_FLOAT, 11, 52}, {"f16", "<f2", 2, KIND_FLOAT, 5, 10},
    {"bf16", NULL, 2, KIND_FLOAT, 8, 7},   {"i8", "|i1", 1, KIND_INT, 0, 0},      {"i16", "<i2", 2, KIND_INT, 0, 0},
    {"i32", "<i4", 4, KIND_INT, 0, 0},     {"i64", "<i8", 8, KIND_INT, 0, 0},     {"u8", "|u1", 1, KIND_UINT, 0, 0},
    {"u16", "<u2", 2, KIND_UINT, 0, 0},    {"u32", "<u4", 4, KIND_UINT, 0, 0},    {"u64", "<u8", 8, KIND_UINT, 0, 0},
    {"bool", "|b1", 1, KIND_BOOL, 0, 0},   {"i1", "|b1", 1, KIND_BOOL, 0, 0},     {"si8", "|i1", 1, KIND_INT, 0, 0},
    {"si16", "<i2", 2, KIND_INT, 0, 0},    {"si32", "<i4", 4, KIND_INT, 0, 0},    {"si64", "<i8", 8, KIND_INT, 0, 0},
    {"ui8", "|u1", 1, KIND_UINT, 0, 0},    {"ui16", "<u2", 2, KIND_UINT, 0, 0},   {"ui32", "<u4", 4, KIND_UINT, 0, 0},
    {"ui64", "<u8", 8, KIND_UINT, 0, 0},
};

static const type_t* find_type(const char* name, size_t length) {
  for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); ++i) {
    if (strlen(types[i].name) == length && !strncmp(types[i].name, name, length)) return &types[i];
  }
  return NULL;
}

static const type_t* type_of(const char* name, const char* where) {
  const type_t* type = find_type(name, strlen(name));
  if (!type) fail(where, "numbers of this type are neither read nor printed", "give the bytes: SHAPExTYPE=@file.bin");
  return type;
}

// A float of the given fields as a double, and the nearest one (ties to even) back.
static double widen(uint32_t bits, const type_t* type) {
  int m = type->mantissa_bits, e = type->exponent_bits;
  int exponent = (int)((bits >> m) & ((1u << e) - 1));
  int bias = (1 << (e - 1)) - 1;
  double fraction = (double)(bits & ((1u << m) - 1));
  double sign = bits >> (m + e) & 1 ? -1.0 : 1.0;
  if (exponent == (1 << e) - 1) return fraction != 0 ? (double)NAN : sign * (double)INFINITY;
  if (exponent == 0) return sign * ldexp(fraction, 1 - bias - m);
  return sign * ldexp(1.0 + ldexp(fraction, -m), exponent - bias);
}

static uint32_t narrow(double value, const type_t* type) {
  int m = type->mantissa_bits, e = type->exponent_bits;
  int bias = (1 << (e - 1)) - 1;
  uint32_t sign = signbit(value) ? 1u << (m + e) : 0;
  uint32_t infinity = ((1u << e) - 1) << m;
  if (isnan(value)) return sign | infinity | 1u << (m - 1);
  if (isinf(value)) return sign | infinity;
  int exponent = 0;
  frexp(value, &exponent);
  if (exponent < 2 - bias) exponent = 2 - bias;  // what has no exponent of its own shares the smallest
  double steps = rint(ldexp(fabs(value), m + 1 - exponent));
  double units = steps + ldexp((double)(exponent - 2 + bias), m);
  return sign | (units >= (double)infinity ? infinity : (uint32_t)units);
}

static void write_number(const char* word, uint8_t* place, const type_t* type, const char* where) {
  char* end = NULL;
  errno = 0;
  bool is_word = !strcmp(word, "true") || !strcmp(word, "false");
  if (type->kind == KIND_FLOAT && !is_word) {
    double value = strtod(word, &end);
    if (end == word || *end) fail(where, "bad value: expected numbers", NULL);
    float single = (float)value;
    uint16_t half = 0;
    if (type->bytes == 2) half = (uint16_t)narrow(value, type);
    const void* source = type->bytes == 8 ? (const void*)&value : type->bytes == 4 ? (const void*)&single : &half;
    memcpy(place, source, type->bytes);
    return;
  }
  bool is_unsigned = type->kind == KIND_UINT && word[0] != '-';
  uint64_t bits = 0;
  if (is_word) {
    bits = word[0] == 't';
  } else if (is_unsigned) {
    bits = strtoull(word, &end, 0);
  } else {
    bits = (uint64_t)strtoll(word, &end, 0);
  }
  if (!is_word && (end == word || *end)) fail(where, "bad value: expected whole numbers", NULL);
  int64_t wide = (int64_t)bits;
  int shift = (int)(64 - 8 * type->bytes);
  bool fits = !errno && (type->kind == KIND_UINT ? (is_unsigned || !wide) && bits << shift >> shift == bits
                                                  : wide == (int64_t)(bits << shift) >> shift);
  if (!fits) fail(where, "bad value: out of range for the type", NULL);
  if (type->kind == KIND_BOOL) bits = bits != 0;
  memcpy(place, &bits, type->bytes);  // little-endian, as all machines that code is made for
}

static void print_number(const uint8_t* place, const type_t* type) {
  if (type->kind == KIND_FLOAT) {
    double value = 0;
    float single = 0;
    uint16_t half = 0;
    if (type->bytes == 8) memcpy(&value, place, 8);
    if (type->bytes == 4) value = (memcpy(&single, place, 4), (double)single);
    if (type->bytes == 2) value = (memcpy(&half, place, 2), widen(half, type));
    if (isnan(value)) {
      fputs("NAN", stdout);
    } else {
      printf("%.6G", value);
    }
    return;
  }
  uint64_t bits = 0;
  memcpy(&bits, place, type->bytes);
  int shift = (int)(64 - 8 * type->bytes);
  if (type->kind == KIND_INT) {
    printf("%" PRId64, (int64_t)(bits << shift) >> shift);
  } else {
    printf("%" PRIu64, bits);
  }
}

// --- inputs --------------------------------------------------------------------------------------------------------

static size_t elements_of(const int64_t* shape, int32_t rank, const char* where) {
  uint64_t count = 1;
  bool is_empty = false;
  for (int32_t i = 0; i < rank; ++i) {
    if (shape[i] == 0) is_empty = true;
  }
  for (int32_t i = 0; i < rank && !is_empty; ++i) {
    if (shape[i] < 0 || count > (UINT64_C(1) << 48) / (uint64_t)shape[i]) fail(where, "too many elements", NULL);
    count *= (uint64_t)shape[i];
  }
  return is_empty ? 0 : (size_t)count;
}

static void allocate(array_t* array, const type_t* type, const char* where) {
  array->type = type->name[0] == 's' || (type->name[0] == 'u' && type->name[1] == 'i') ? type->name + 1 : type->name;
  if (!strcmp(type->name, "i1")) array->type = "bool";
  if (type->name[0] == 'u' && type->name[1] == 'i') {
    array->type = type->bytes == 1 ? "u8" : type->bytes == 2 ? "u16" : type->bytes == 4 ? "u32" : "u64";
  }
  array->bytes = elements_of(array->shape, array->rank, where) * type->bytes;
  array->data = take(array->bytes);
}

static FILE* open_file(const char* path, const char* mode, const char* where) {
  FILE* file = fopen(path, mode);
  if (!file) {
    char text[TEXT_LIMIT];
    snprintf(text, sizeof(text), "cannot open '%s': %s", path, strerror(errno));
    fail(where, text, NULL);
  }
  return file;
}

static void read_bytes(FILE* file, array_t* array, const char* where) {
  if (fread(array->data, 1, array->bytes, file) != array->bytes) fail(where, "the file is too short", NULL);
}

// What stands behind a key of the header of a .npy file: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
static const char* member(const char* header, const char* key, const char* where) {
  const char* found = strstr(header, key);
  if (!found) fail(where, "not a .npy file", NULL);
  found = strchr(found, ':');
  if (!found) fail(where, "not a .npy file", NULL);
  ++found;
  while (*found == ' ') ++found;
  return found;
}

static void read_npy(const char* path, array_t* array, const char* where) {
  FILE* file = open_file(path, "rb", where);
  unsigned char head[12];
  if (fread(head, 1, 10, file) != 10 || memcmp(head, "\x93NUMPY", 6) != 0) fail(where, "not a .npy file", NULL);
  size_t length = (size_t)head[8] | (size_t)head[9] << 8;
  if (head[6] > 1) {
    if (fread(head + 10, 1, 2, file) != 2) fail(where, "not a .npy file", NULL);
    length |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
  }
  if (length > 1 << 20) fail(where, "not a .npy file", NULL);
  char* header = take(length + 1);
  if (fread(header, 1, length, file) != length) fail(where, "not a .npy file", NULL);
  const char* descr = member(header, "'descr'", where);
  const type_t* type = NULL;
  for (size_t i = 0; i < sizeof(types) / sizeof(types[0]) && !type; ++i) {
    const char* numpy = types[i].numpy;
    if (numpy && descr[0] == '\'' && !strncmp(descr + 1, numpy, strlen(numpy)) && descr[1 + strlen(numpy)] == '\'') {
      type = &types[i];
    }
  }
  if (!type) fail(where, "arrays of this type are not read", "give the bytes: SHAPExTYPE=@file.bin");
  if (!strncmp(member(header, "'fortran_order'", where), "True", 4)) {
    fail(where, "the array is in column-major order", "save it with numpy.ascontiguousarray");
  }
  const char* at = member(header, "'shape'", where);
  if (*at++ != '(') fail(where, "not a .npy file", NULL);
  while (*at && *at != ')') {
    char* end = NULL;
    int64_t extent = strtoll(at, &end, 10);
    if (end == at || array->rank == RANK_LIMIT) fail(where, "not a .npy file", NULL);
    array->shape[array->rank++] = extent;
    at = end;
    while (*at == ',' || *at == ' ') ++at;
  }
  allocate(array, type, where);
  read_bytes(file, array, where);
  free(header);
  fclose(file);
}

static void read_literal(const char* text, array_t* array, const type_t* type, const char* where) {
  allocate(array, type, where);
  size_t wanted = array->bytes / type->bytes, count = 0;
  char* copy = take(strlen(text) + 1);
  strcpy(copy, text);
  static const char* separators = " \t\n,[]";
  for (char* word = strtok(copy, separators); word; word = strtok(NULL, separators), ++count) {
    if (count == 0 && wanted == 0) continue;  // one value for no element
    if (count < wanted) write_number(word, array->data + count * type->bytes, type, where);
  }
  if (count > 1 ? count != wanted : false) {
    char message[TEXT_LIMIT];
    snprintf(message, sizeof(message), "got %zu values, expected %zu (or 1 for all)", count, wanted);
    fail(where, message, NULL);
  }
  for (size_t i = 1; count == 1 && i < wanted; ++i) memcpy(array->data + i * type->bytes, array->data, type->bytes);
  free(copy);
}

static void read_array(const char* value, array_t* array) {
  static const char* grammar = "write 2x3xf32=1 2 3 4 5 6, f32=1.5, @file.npy or 2x3xf32=@file.bin";
  memset(array, 0, sizeof(*array));
  if (value[0] == '@') {
    read_npy(value + 1, array, value);
    return;
  }
  const char* equals = strchr(value, '=');
  const char* end = equals ? equals : value + strlen(value);
  const char* at = value;
  if (!value[strspn(value, " ")]) fail("--input", "the value is empty", grammar);
  while (at < end && *at >= '0' && *at <= '9') {
    char* next = NULL;
    int64_t extent = strtoll(at, &next, 10);
    if (*next != 'x' || array->rank == RANK_LIMIT) break;
    array->shape[array->rank++] = extent;
    at = next + 1;
  }
  const type_t* type = find_type(at, (size_t)(end - at));
  if (!type && !equals) {  // a bare number
    array->rank = 0;
    type = find_type(value[strcspn(value, ".eEnN")] ? "f32" : "i32", 3);
    read_literal(value, array, type, value);
    return;
  }
  if (!type) fail(value, "not a tensor", grammar);
  if (equals && equals[1] == '@') {
    allocate(array, type, value);
    FILE* file = open_file(equals + 2, "rb", value);
    read_bytes(file, array, value);
    fclose(file);
    return;
  }
  read_literal(equals ? equals + 1 : "", array, type, value);
}

// --- outputs -------------------------------------------------------------------------------------------------------

static void print_elements(const array_t* array, const type_t* type, int32_t axis, size_t* at, int64_t* budget) {
  int64_t extent = array->shape[axis];
  if (axis == array->rank - 1) {
    for (int64_t i = 0; i < extent; ++i, ++*at) {
      if (i >= *budget) continue;
      if (i) putchar(' ');
      print_number(array->data + *at * type->bytes, type);
    }
    if (extent > (*budget > 0 ? *budget : 0)) fputs("...", stdout);
    *budget -= extent;
    return;
  }
  for (int64_t i = 0; i < extent; ++i) {
    if (*budget <= 0) {
      fputs("...", stdout);
      return;
    }
    putchar('[');
    print_elements(array, type, axis + 1, at, budget);
    putchar(']');
  }
}

static void print_array(const array_t* array, int64_t limit) {
  const type_t* type = type_of(array->type, NULL);
  for (int32_t i = 0; i < array->rank; ++i) printf("%" PRId64 "x", array->shape[i]);
  printf("%s=", type->kind == KIND_BOOL ? "i1" : type->name);
  size_t at = 0;
  if (array->rank) {
    print_elements(array, type, 0, &at, &limit);
  } else {
    print_number(array->data, type);
  }
  putchar('\n');
}

static void write_npy_head(FILE* file, const array_t* array, const char* where) {
  const type_t* type = type_of(array->type, where);
  if (!type->numpy) fail(where, "numpy has no such type", "write the bytes: @file.bin");
  char header[RANK_LIMIT * 24 + 128];
  int length = snprintf(header, sizeof(header), "{'descr': '%s', 'fortran_order': False, 'shape': (", type->numpy);
  for (int32_t i = 0; i < array->rank; ++i) {
    const char* separator = i ? ", " : "";
    length += snprintf(header + length, sizeof(header) - (size_t)length, "%s%" PRId64, separator, array->shape[i]);
  }
  length += snprintf(header + length, sizeof(header) - (size_t)length, "%s), }", array->rank == 1 ? "," : "");
  while ((10 + length + 1) % 64) header[length++] = ' ';
  header[length++] = '\n';
  fwrite("\x93NUMPY\x01\x00", 1, 8, file);
  fputc(length & 0xFF, file);
  fputc(length >> 8 & 0xFF, file);
  fwrite(header, 1, (size_t)length, file);
}

static void write_array(const char* output, const array_t* array) {
  const char* path = output + 1;
  size_t length = strlen(path);
  FILE* file = open_file(path, "wb", output);
  if (length > 4 && !strcmp(path + length - 4, ".npy")) write_npy_head(file, array, output);
  bool is_whole = fwrite(array->data, 1, array->bytes, file) == array->bytes;
  if (fclose(file) || !is_whole) fail(output, "cannot write the file", NULL);
}

// --- the program ---------------------------------------------------------------------------------------------------

typedef struct {
  const char** inputs;  // one per input of the model, NULL where none was given
  const char** outputs;
  uint32_t output_count;  // that were given
  const char* weights;
  const char* level;
  uint32_t threads;
  int64_t limit;
} options_t;

static void print_signature(FILE* file, const char* what, const model_tensor_info* info) {
  fprintf(file, "  %s %s: ", what, info->name);
  for (int32_t i = 0; i < info->rank; ++i) {
    if (info->shape[i] < 0) {
      fputs("?x", file);
    } else {
      fprintf(file, "%" PRId64 "x", info->shape[i]);
    }
  }
  fprintf(file, "%s\n", info->type_name);
}

static void print_help(const char* program) {
  const model_interface* model = tilewright_model();
  printf("usage: %s --input=[NAME=]VALUE ... [options]\n\nRuns the model '%s', made by %s.\n\n", program, model->name,
         model->compiler);
  for (uint32_t i = 0; i < model->input_count; ++i) print_signature(stdout, "input ", &model->inputs[i]);
  for (uint32_t i = 0; i < model->output_count; ++i) print_signature(stdout, "output", &model->outputs[i]);
  puts(
      "\n"
      "  --input=[NAME=]VALUE            one per input, in order or by name: 2x3xf32=1 2 3 4 5 6 (one value for all,\n"
      "                                  none for zeros), @file.npy, 2x3xf32=@file.bin\n"
      "  --output=WHERE                  one per output, in order: - prints, @file.npy, @file.bin, empty for nothing\n"
      "  --output-max-element-count=N    longer results are cut when they are printed; 1024\n"
      "  --threads=N                     threads that work; all that there are\n"
      "  --level=NAME                    code for this level of CPUs; the best that runs here\n"
      "  --weights=FILE                  where the weights are, if not inside or beside the program\n"
      "  --help                          this text");
}

static const char* value_of(const char* argument, const char* name) {
  size_t length = strlen(name);
  return !strncmp(argument, name, length) && argument[length] == '=' ? argument + length + 1 : NULL;
}

static int64_t number_of(const char* text, const char* where, int64_t most) {
  char* end = NULL;
  int64_t value = strtoll(text, &end, 10);
  if (end == text || *end || value < 0 || value > most) {
    char message[TEXT_LIMIT];
    snprintf(message, sizeof(message), "got '%.100s', expected a number from 0 to %" PRId64, text, most);
    fail(where, message, NULL);
  }
  return value;
}

static void take_input(options_t* options, const char* value) {
  const model_interface* model = tilewright_model();
  uint32_t index = model->input_count, next = 0;
  size_t longest = 0;
  for (uint32_t i = 0; i < model->input_count; ++i) {
    size_t length = strlen(model->inputs[i].name);
    if (value_of(value, model->inputs[i].name) && length >= longest) {
      index = i;
      longest = length;
    }
  }
  if (index < model->input_count) {
    if (options->inputs[index]) fail(value, "this input is given twice", NULL);
    options->inputs[index] = value + longest + 1;
    return;
  }
  while (next < model->input_count && options->inputs[next]) ++next;
  if (next == model->input_count) fail(value, "more inputs than the model has", "see --help");
  options->inputs[next] = value;
}

// The value of an option: behind '=', or the next argument.
static const char* option_of(int argc, char** argv, int* index, const char* name) {
  const char* value = value_of(argv[*index], name);
  if (value || strcmp(argv[*index], name)) return value;
  if (*index + 1 == argc) fail(name, "expected a value behind it", "see --help");
  return argv[++*index];
}

static void parse_arguments(int argc, char** argv, options_t* options) {
  const model_interface* model = tilewright_model();
  for (int i = 1; i < argc; ++i) {
    const char* value = NULL;
    const char* word = argv[i];
    if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
      print_help(argv[0]);
      exit(0);
    } else if ((value = option_of(argc, argv, &i, "--input"))) {
      take_input(options, value);
    } else if ((value = option_of(argc, argv, &i, "--output"))) {
      if (value[0] && value[0] != '@' && strcmp(value, "-")) fail(word, "expected -, @file.npy or @file.bin", NULL);
      if (options->output_count == model->output_count) fail(word, "more outputs than the model has", "see --help");
      options->outputs[options->output_count++] = value;
    } else if ((value = option_of(argc, argv, &i, "--output-max-element-count"))) {
      options->limit = number_of(value, word, INT64_MAX);
    } else if ((value = option_of(argc, argv, &i, "--threads"))) {
      options->threads = (uint32_t)number_of(value, word, 4096);
    } else if ((value = option_of(argc, argv, &i, "--weights"))) {
      options->weights = value;
    } else if ((value = option_of(argc, argv, &i, "--level"))) {
      options->level = value;
    } else {
      fail(word, "no such option", "see --help");
    }
  }
  for (uint32_t i = 0; i < model->input_count; ++i) {
    if (!options->inputs[i]) fail(model->inputs[i].name, "the input is missing", "give one --input for each; see --help");
  }
  if (options->output_count && options->output_count != model->output_count) {
    fail("--output", "give one for each output, or none", "see --help");
  }
}

static void check(int status) {
  if (status) {
    fprintf(stderr, "error: %s\n", tilewright_model()->error());
    exit(1);
  }
}

static model_tensor describe(const array_t* array, const model_tensor_info* info) {
  model_tensor tensor = {0};
  tensor.data = array->data;
  tensor.shape = array->shape;
  tensor.rank = array->rank;
  tensor.type_code = info->type_code;
  tensor.type_bits = info->type_bits;
  return tensor;
}

static void check_type(const array_t* array, const model_tensor_info* info) {
  if (!strcmp(array->type, info->type_name)) return;
  char text[TEXT_LIMIT];
  snprintf(text, sizeof(text), "input '%s' has the type %s, expected %s", info->name, array->type, info->type_name);
  fail(NULL, text, NULL);
}

int main(int argc, char** argv) {
  const model_interface* interface = tilewright_model();
  uint32_t inputs = interface->input_count, outputs = interface->output_count;
  options_t options = {.limit = 1024};
  options.inputs = take((inputs + 1) * sizeof(char*));
  options.outputs = take((outputs + 1) * sizeof(char*));
  parse_arguments(argc, argv, &options);

  array_t* arrays = take((inputs + outputs + 1) * sizeof(array_t));
  model_tensor* tensors = take((inputs + outputs + 1) * sizeof(model_tensor));
  for (uint32_t i = 0; i < inputs; ++i) {
    read_array(options.inputs[i], &arrays[i]);
    check_type(&arrays[i], &interface->inputs[i]);
    tensors[i] = describe(&arrays[i], &interface->inputs[i]);
  }
  int64_t* dims = take((interface->dim_count + 1) * sizeof(int64_t));
  for (uint32_t i = 0; i < interface->dim_count; ++i) {
    const model_dim_info* dim = &interface->dims[i];
    if ((int32_t)dim->axis < arrays[dim->input].rank) dims[i] = arrays[dim->input].shape[dim->axis];
  }

  model_options given = {.threads = options.threads, .weights_path = options.weights, .level = options.level};
  model* model = NULL;
  check(interface->create(&given, &model));
  for (uint32_t i = 0; i < outputs; ++i) {
    array_t* array = &arrays[inputs + i];
    const model_tensor_info* info = &interface->outputs[i];
    array->rank = info->rank;
    array->type = info->type_name;
    check(interface->output_shape(model, dims, i, array->shape));
    array->bytes = elements_of(array->shape, array->rank, info->name) * info->item_bytes;
    array->data = take(array->bytes);
    tensors[inputs + i] = describe(array, info);
  }
  check(interface->run_tensors(model, tensors, tensors + inputs));

  for (uint32_t i = 0; i < outputs; ++i) {
    const char* output = options.output_count ? options.outputs[i] : "-";
    if (!strcmp(output, "-")) {
      printf("result[%" PRIu32 "]: hal.buffer_view\n", i);
      print_array(&arrays[inputs + i], options.limit);
    } else if (output[0]) {
      write_array(output, &arrays[inputs + i]);
    }
  }
  interface->destroy(model);
  errno = 0;
  if (fflush(stdout) || ferror(stdout)) fail("standard output", errno ? strerror(errno) : "cannot be written", NULL);
  return 0;
}
