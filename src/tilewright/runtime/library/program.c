// The main function of a model that is a program of its own: reads inputs from its arguments, prints the outputs.
//
// Linked with an exported model, which it finds by the symbol `tilewright_model`; the grammar of inputs and
// outputs is that of `tilewright run` (IREE's). `program.h` is written with it: the model's header, whose types it
// calls `model_…`. The program_*.h are parts of this file.
#include "program.h"

#include "program_archive.h"
#include "program_expected.h"
#include "program_outputs.h"

const model_interface* tilewright_model(void);

typedef struct {
  const char** inputs;
  uint32_t input_count;
  const char** outputs;
  uint32_t output_count;  // that were given
  const char** expected;
  uint32_t expected_count;
  tolerance_t tolerance;
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
      "                                  none for zeros), @file.npy, 2x3xf32=@file.bin; +file goes on where the\n"
      "                                  last read of it ended, *file.npy gives all arrays that remain; @file.npz gives\n"
      "                                  all that it holds, by name\n"
      "  --output=[NAME=]WHERE           one per output, in order or by name: - prints, @file.npy, @file.bin, +file goes\n"
      "                                  on at its end, empty for nothing; @file.npz takes all, by name\n"
      "  --expected-output=VALUE         one per output, in order, as for --input; '(ignored)' skips one; a difference is\n"
      "                                  said and ends with 1\n"
      "  --expected-rtol=X               relative tolerance; 0.0001\n"
      "  --expected-atol=X               absolute tolerance; 0.00001\n"
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

static double tolerance_of(const char* text, const char* where) {
  char* end = NULL;
  double value = strtod(text, &end);
  if (end == text || *end || !isfinite(value) || value < 0) fail(where, "expected a finite number from 0 on", NULL);
  return value;
}

// The tensor with the longest name that a value begins with, before an equals sign; `count` where there is none.
static uint32_t find_named(const model_tensor_info* infos, uint32_t count, const char* value) {
  uint32_t found = count;
  for (uint32_t i = 0; i < count; ++i) {
    bool is_longer = found == count || strlen(infos[i].name) > strlen(infos[found].name);
    if (is_longer && value_of(value, infos[i].name)) found = i;
  }
  return found;
}

static uint32_t find_output(const char* value) {
  const model_interface* model = tilewright_model();
  return find_named(model->outputs, model->output_count, value);
}

// Says before the work which --output names nothing.
static void check_outputs(const options_t* options) {
  const model_interface* model = tilewright_model();
  uint32_t plain_count = 0;
  for (uint32_t i = 0; i < options->output_count; ++i) {
    const char* value = options->outputs[i];
    uint32_t index = find_output(value);
    bool is_named = index < model->output_count;
    const char* place = is_named ? value_of(value, model->outputs[index].name) : value;
    if (place[0] && place[0] != '@' && place[0] != '+' && strcmp(place, "-") != 0) {
      fail(value, is_named || !strchr(value, '=') ? "expected -, @file or +file" : "there is no such output", "see --help");
    }
    plain_count += !is_named && !is_archive(value);
  }
  if (plain_count && plain_count != model->output_count) {
    fail("--output", "give one for each output, or none, or their names", "see --help");
  }
}

// The value of an option: behind '=', or the next argument.
static const char* option_of(int argc, char** argv, int* index, const char* name) {
  const char* value = value_of(argv[*index], name);
  if (value || strcmp(argv[*index], name)) return value;
  if (*index + 1 == argc) fail(name, "expected a value behind it", "see --help");
  return argv[++*index];
}

static void parse_arguments(int argc, char** argv, options_t* options) {
  for (int i = 1; i < argc; ++i) {
    const char* value = NULL;
    const char* word = argv[i];
    if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
      print_help(argv[0]);
      exit(0);
    } else if ((value = option_of(argc, argv, &i, "--input"))) {
      options->inputs[options->input_count++] = value;
    } else if ((value = option_of(argc, argv, &i, "--output"))) {
      options->outputs[options->output_count++] = value;
    } else if ((value = option_of(argc, argv, &i, "--expected-output"))) {
      options->expected[options->expected_count++] = value;
    } else if ((value = option_of(argc, argv, &i, "--expected-rtol"))) {
      options->tolerance.relative = tolerance_of(value, word);
    } else if ((value = option_of(argc, argv, &i, "--expected-atol"))) {
      options->tolerance.absolute = tolerance_of(value, word);
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
  check_outputs(options);
  if (options->expected_count && options->expected_count != tilewright_model()->output_count) {
    fail("--expected-output", "give one for each output, or none", "'(ignored)' skips one");
  }
}

// --- the inputs ----------------------------------------------------------------------------------------------------

static uint32_t find_input(const char* value) {
  const model_interface* model = tilewright_model();
  return find_named(model->inputs, model->input_count, value);
}

static uint32_t find_called(const entry_t* entry) {
  const model_interface* model = tilewright_model();
  uint32_t index = 0;
  while (index < model->input_count && !is_called(entry, model->inputs[index].name)) ++index;
  return index;
}

// The place of an input that was not given so far.
static array_t* place_of(array_t* arrays, uint32_t index, const char* where) {
  if (arrays[index].data) fail(where, "this input is given twice", NULL);
  return &arrays[index];
}

// Whether numpy made up all names, as it does for arrays that are saved without: arr_0, arr_1, …
static bool has_made_up_names(const archive_t* archive) {
  static const char* made_up = "arr_";
  size_t length = strlen(made_up);
  for (size_t i = 0; i < archive->count; ++i) {
    const entry_t* entry = &archive->entries[i];
    if (entry->name_length < length || memcmp(entry->name, made_up, length) != 0) return false;
    if (find_called(entry) < tilewright_model()->input_count) return false;
  }
  return true;
}

static void read_all(const char* value, array_t* arrays) {
  uint32_t count = tilewright_model()->input_count;
  archive_t archive = open_archive(value + 1, value);
  bool is_in_order = has_made_up_names(&archive);
  if (is_in_order && archive.count > count) fail(value, "more arrays than the model has inputs", "see --help");
  for (size_t i = 0; i < archive.count; ++i) {
    const entry_t* entry = &archive.entries[i];
    uint32_t index = is_in_order ? (uint32_t)i : find_called(entry);
    if (index == count) refuse(value, entry, "has the name of no input", "see --help");
    read_member(entry, place_of(arrays, index, value), value);
  }
  close_archive(&archive);
}

static void read_called(const char* value, const char* name, array_t* array) {
  archive_t archive = open_archive(value + 1, value);
  size_t i = 0;
  while (i < archive.count && !is_called(&archive.entries[i], name)) ++i;
  if (i == archive.count) {
    char text[TEXT_LIMIT];
    snprintf(text, sizeof(text), "has no array '%s'", name);
    fail(value, text, NULL);
  }
  read_member(&archive.entries[i], array, value);
  close_archive(&archive);
}

// The first input that nothing gave so far.
static array_t* next_place(array_t* arrays, const char* where) {
  uint32_t count = tilewright_model()->input_count, next = 0;
  while (next < count && arrays[next].data) ++next;
  if (next == count) fail(where, "more inputs than the model has", "see --help");
  return &arrays[next];
}

static void read_unnamed(const options_t* options, array_t* arrays) {
  files_t files = {.opened = take((options->input_count + (size_t)1) * sizeof(opened_t))};
  for (uint32_t i = 0; i < options->input_count; ++i) {
    const char* value = options->inputs[i];
    if (is_archive(value) || find_input(value) < tilewright_model()->input_count) continue;
    if (value[0] != '*') {
      read_array(value, next_place(arrays, value), &files);
      continue;
    }
    source_t source = source_of(&files, value, value);
    do read_npy(&source, next_place(arrays, value), value);
    while (has_more(source.file));
  }
  close_files(&files);
  free(files.opened);
}

// What has a name goes to its place; what has none fills the places that are left, in order.
static void read_inputs(const options_t* options, array_t* arrays) {
  const model_interface* model = tilewright_model();
  for (uint32_t i = 0; i < options->input_count; ++i) {
    const char* value = options->inputs[i];
    uint32_t index = find_input(value);
    if (is_archive(value)) {
      read_all(value, arrays);
    } else if (index < model->input_count) {
      const char* name = model->inputs[index].name;
      array_t* place = place_of(arrays, index, value);
      value = value_of(value, name);
      if (is_archive(value)) {
        read_called(value, name, place);
      } else {
        read_alone(value, place);
      }
    }
  }
  read_unnamed(options, arrays);
  for (uint32_t i = 0; i < model->input_count; ++i) {
    if (!arrays[i].data) fail(model->inputs[i].name, "the input is missing", "give one --input for each; see --help");
  }
}

// --- the outputs ---------------------------------------------------------------------------------------------------

static void write_plain(const char* output, uint32_t index, const array_t* array, int64_t limit) {
  if (!strcmp(output, "-")) {
    printf("result[%" PRIu32 "]: hal.buffer_view\n", index);
    print_array(array, limit);
  } else if (output[0]) {
    write_array(output, array);
  }
}

static void write_named(const char* name, const char* output, const array_t* array, int64_t limit) {
  if (is_archive(output)) {
    member_t member = {.name = name};
    write_archive(output, &member, array, 1);
  } else if (!strcmp(output, "-")) {
    printf("%s:\n", name);
    print_array(array, limit);
  } else if (output[0]) {
    write_array(output, array);
  }
}

static void write_all(const char* output, const array_t* arrays) {
  const model_interface* model = tilewright_model();
  member_t* members = take((model->output_count + 1) * sizeof(member_t));
  for (uint32_t i = 0; i < model->output_count; ++i) members[i].name = model->outputs[i].name;
  write_archive(output, members, arrays, model->output_count);
  free(members);
}

// What has a name or is an archive comes first, then what has none, in order.
static void write_outputs(const options_t* options, const array_t* arrays) {
  const model_interface* model = tilewright_model();
  for (uint32_t i = 0; i < options->output_count; ++i) {
    const char* output = options->outputs[i];
    uint32_t index = find_output(output);
    if (is_archive(output)) {
      write_all(output, arrays);
    } else if (index < model->output_count) {
      const char* name = model->outputs[index].name;
      write_named(name, value_of(output, name), &arrays[index], options->limit);
    }
  }
  uint32_t next = 0;
  for (uint32_t i = 0; i < options->output_count; ++i) {
    const char* output = options->outputs[i];
    if (is_archive(output) || find_output(output) < model->output_count) continue;
    write_plain(output, next, &arrays[next], options->limit);
    ++next;
  }
  for (uint32_t i = 0; i < model->output_count && !options->output_count; ++i) {
    write_plain("-", i, &arrays[i], options->limit);
  }
}

// What is expected of each output; where that is nothing there is no data.
static array_t* read_expected(const options_t* options) {
  array_t* expected = take((options->expected_count + (size_t)1) * sizeof(array_t));
  for (uint32_t i = 0; i < options->expected_count; ++i) {
    if (strcmp(options->expected[i], "(ignored)") != 0) read_alone(options->expected[i], &expected[i]);
  }
  return expected;
}

static int compare(const options_t* options, const array_t* arrays, const array_t* expected) {
  bool is_right = true;
  for (uint32_t i = 0; i < options->expected_count; ++i) {
    if (expected[i].data && !is_expected(i, &arrays[i], &expected[i], &options->tolerance)) is_right = false;
  }
  if (is_right && options->expected_count) fputs("all expected outputs match\n", stderr);
  return is_right ? 0 : 1;
}

// --- the call ------------------------------------------------------------------------------------------------------

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
  options_t options = {.limit = 1024, .tolerance = {.relative = 1e-4, .absolute = 1e-5}};
  options.inputs = take(((size_t)argc + 1) * sizeof(char*));
  options.outputs = take(((size_t)argc + 1) * sizeof(char*));
  options.expected = take(((size_t)argc + 1) * sizeof(char*));
  parse_arguments(argc, argv, &options);

  array_t* arrays = take((inputs + outputs + 1) * sizeof(array_t));
  model_tensor* tensors = take((inputs + outputs + 1) * sizeof(model_tensor));
  read_inputs(&options, arrays);
  array_t* expected = read_expected(&options);
  for (uint32_t i = 0; i < inputs; ++i) {
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

  write_outputs(&options, arrays + inputs);
  interface->destroy(model);
  errno = 0;
  if (fflush(stdout) || ferror(stdout)) fail("standard output", errno ? strerror(errno) : "cannot be written", NULL);
  return compare(&options, arrays + inputs, expected);
}
