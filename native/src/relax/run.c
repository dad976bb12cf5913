// Runs functions: frames of bytecode on a stack of their own, compiled code on the thread's.
#include <stdlib.h>
#include <string.h>

#include "program.h"

// What a call may take before it is an endless recursion: registers and frames of bytecode. Where compiled code or
// closures lie between, calls take the thread's stack: up to an eighth, which is left for kernels.
enum { REGISTER_LIMIT = 1 << 22, FRAME_LIMIT = 1 << 19, STACK_SHARE = 8, LEAST_STACK_BYTES = 1 << 17 };
enum { LOCAL_REGISTERS = 96, LOCAL_FRAMES = 4, LOCAL_ARGUMENTS = 32, STEPS_PER_LOOK = 256, FRAMES_SHOWN = 20 };

typedef struct frame_t {
  const tw_relax_function_t* function;
  const int64_t* next;    // the instruction that runs next
  const int64_t* now;     // the one that runs
  size_t base;            // of its registers
} frame_t;

typedef struct run_t {
  tw_relax_t* program;
  frame_t* frames;
  size_t frame_count;
  size_t frame_room;
  ffi_any_t* registers;
  size_t register_count;
  size_t register_room;
  ffi_any_t* args;  // of the call that is made
  ffi_any_t instrument;
  uint32_t steps;
  frame_t local_frames[LOCAL_FRAMES];
  ffi_any_t local_registers[LOCAL_REGISTERS];
  ffi_any_t local_args[LOCAL_ARGUMENTS];
} run_t;

// ---- the thread -------------------------------------------------------------------------------------

typedef struct thread_t {
  tw_relax_t* program;
  const tw_relax_function_t* compiled;  // NULL: a function of bytecode runs
  uintptr_t stack;                      // where the outermost call began; 0: none runs
} thread_t;

static _Thread_local thread_t thread;

tw_relax_t* tw_relax_current(const tw_relax_function_t** out_function) {
  *out_function = thread.compiled;
  return thread.program;
}

// The bounds of the thread's stack; none where the system does not say.
static void find_stack(uintptr_t* out_lowest, size_t* out_bytes) {
  *out_lowest = 0;
  *out_bytes = 0;
#if defined(__linux__)
  pthread_attr_t attributes;
  void* lowest = NULL;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
  if (pthread_attr_getstack(&attributes, &lowest, out_bytes) == 0) *out_lowest = (uintptr_t)lowest;
  pthread_attr_destroy(&attributes);
#elif defined(__APPLE__)
  *out_bytes = pthread_get_stacksize_np(pthread_self());
  *out_lowest = (uintptr_t)pthread_get_stackaddr_np(pthread_self()) - *out_bytes;
#endif
}

// Whether a call within another has little stack left.
static int is_too_deep(const thread_t* before, uintptr_t here) {
  static _Thread_local uintptr_t lowest;
  static _Thread_local size_t bytes;
  static _Thread_local int is_known;
  if (before->stack == 0) return 0;
  if (!is_known) find_stack(&lowest, &bytes);
  is_known = 1;
  const uintptr_t used = before->stack > here ? before->stack - here : here - before->stack;
  if (used < LEAST_STACK_BYTES / 2) return 0;
  if (here < lowest || here - lowest >= bytes) return 1;  // a stack of somebody else's making
  const size_t reserve = bytes / STACK_SHARE > LEAST_STACK_BYTES ? bytes / STACK_SHARE : LEAST_STACK_BYTES;
  return here - lowest < reserve;
}

static int fail_too_deep(void) {
  return tw_error_keep("InputError", "calls are nested too deeply"
                                     "\nhint: a loop in Relax is a function that calls itself: run it in pieces");
}

// ---- frames -----------------------------------------------------------------------------------------

// Room for `count` items; what was in local memory moves.
static int grow(void** items, size_t* room, const void* local, size_t used, size_t count, size_t item_bytes) {
  if (count <= *room) return 0;
  const size_t wanted = 2 * count;
  void* grown = *items == local ? malloc(wanted * item_bytes) : realloc(*items, wanted * item_bytes);
  if (grown == NULL) return tw_error_keep("MemoryError", "out of memory");
  if (*items == local) memcpy(grown, local, used * item_bytes);
  *items = grown;
  *room = wanted;
  return 0;
}

// A frame whose first registers are the arguments.
static int push(run_t* run, int64_t index, const ffi_any_t* args) {
  const tw_relax_function_t* function = &run->program->functions[index];
  const size_t needed = run->register_count + (size_t)function->register_count;
  if (needed > REGISTER_LIMIT || run->frame_count >= FRAME_LIMIT) return fail_too_deep();
  void* frames = run->frames;
  void* registers = run->registers;
  int code = grow(&frames, &run->frame_room, run->local_frames, run->frame_count, run->frame_count + 1,
                  sizeof(frame_t));
  run->frames = frames;
  if (code == 0) {
    code = grow(&registers, &run->register_room, run->local_registers, run->register_count, needed,
                sizeof(ffi_any_t));
  }
  run->registers = registers;
  if (code != 0) return code;
  ffi_any_t* base = run->registers + run->register_count;
  const size_t given = (size_t)function->argument_count;
  for (size_t i = 0; i < given; ++i) base[i] = ffi_copy(&args[i]);
  for (size_t i = given; i < (size_t)function->register_count; ++i) base[i] = ffi_none();
  const int64_t* first = run->program->code + function->first;
  run->frames[run->frame_count++] =
      (frame_t){.function = function, .next = first, .now = first, .base = run->register_count};
  run->register_count = needed;
  return 0;
}

static void pop(run_t* run) {
  const frame_t* frame = &run->frames[--run->frame_count];
  ffi_drop_all(run->registers + frame->base, run->register_count - frame->base);
  run->register_count = frame->base;
}

static ffi_any_t read_argument(const run_t* run, size_t base, int64_t kind, int64_t value) {
  switch (kind) {
    case TW_RELAX_REGISTER:
      return run->registers[base + (size_t)value];
    case TW_RELAX_NUMBER:
      return ffi_int(value);
    case TW_RELAX_CONSTANT:
      return run->program->constants[value];
    case TW_RELAX_FUNCTION:
      return run->program->values[value];
    default:
      return ffi_none();
  }
}

static void store(run_t* run, size_t base, int64_t target, ffi_any_t value) {
  if (target < 0) {
    ffi_drop(&value);
    return;
  }
  ffi_any_t old = run->registers[base + (size_t)target];
  run->registers[base + (size_t)target] = value;
  ffi_drop(&old);
}

// ---- calls ------------------------------------------------------------------------------------------

static int run_compiled(tw_relax_t* program, const tw_relax_function_t* function, const ffi_any_t* args,
                        ffi_any_t* result) {
  ffi_any_t local[LOCAL_REGISTERS];
  const size_t count = (size_t)function->register_count;
  const size_t given = (size_t)function->argument_count;
  ffi_any_t* registers = count <= LOCAL_REGISTERS ? local : malloc(count * sizeof(*registers));
  if (registers == NULL) return tw_error_keep("MemoryError", "out of memory");
  for (size_t i = 0; i < given; ++i) registers[i] = ffi_copy(&args[i]);
  for (size_t i = given; i < count; ++i) registers[i] = ffi_none();
  const ffi_any_t parts[] = {ffi_pointer(NULL), ffi_pointer(registers), ffi_pointer(program->constants),
                             ffi_pointer(program->values)};
  const tw_relax_function_t* outer = thread.compiled;
  thread.compiled = function;
  ffi_any_t nothing = ffi_none();
  const int code = tw_ffi.call(function->callee.v_ptr, parts, 4, &nothing);
  thread.compiled = outer;
  ffi_drop(&nothing);
  if (code == 0) {
    *result = registers[given];  // where such code leaves its result
    registers[given] = ffi_none();
  }
  ffi_drop_all(registers, count);
  if (registers != local) free(registers);
  return code;
}

// Python hears of signals between the steps of a long call.
static int look_for_signals(run_t* run) {
  if (++run->steps % STEPS_PER_LOOK != 0 || tw_ffi.check_signals() == 0) return 0;
  return TW_RAISED_IN_PYTHON;
}

static int call_packed(run_t* run, const tw_relax_function_t* function, int32_t count, ffi_any_t* result) {
  if (function->builtin == NULL) return tw_ffi.call(function->callee.v_ptr, run->args, count, result);
  if (count >= function->builtin->least) return function->builtin->call(run->program, run->args, count, result);
  return tw_error_keep("ArgumentTypeError", "got %d arguments, expected at least %d", count, function->builtin->least);
}

// ORDER as `InstrumentResult` in packed/machine_module.py.
enum { NO_OP = 0, SKIP_RUN = 1, TOLD_BEFORE = 4 };

// `instrument(function, symbol, before, result, arguments...)`.
static int tell(const run_t* run, int64_t index, int before, const ffi_any_t* result, int32_t count,
                int64_t* out_answer) {
  ffi_any_t* told = malloc(((size_t)count + TOLD_BEFORE) * sizeof(*told));
  ffi_any_t answer = ffi_none();
  if (told == NULL) return tw_error_keep("MemoryError", "out of memory");
  told[0] = run->program->values[index];
  told[1] = (ffi_any_t){.type_index = FFI_RAW_TEXT, .v_ptr = run->program->functions[index].name};
  told[2] = (ffi_any_t){.type_index = FFI_BOOL, .v_int64 = before};
  told[3] = *result;
  for (int32_t i = 0; i < count; ++i) told[TOLD_BEFORE + i] = run->args[i];
  const int code = tw_ffi.call(run->instrument.v_ptr, told, count + TOLD_BEFORE, &answer);
  free(told);
  *out_answer = answer.type_index == FFI_INT ? answer.v_int64 : NO_OP;
  ffi_drop(&answer);
  return code;
}

static int call_told(run_t* run, int64_t index, int32_t count, ffi_any_t* result) {
  int64_t answer = NO_OP;
  int code = tell(run, index, 1, result, count, &answer);
  if (code != 0 || answer == SKIP_RUN) return code;
  code = call_packed(run, &run->program->functions[index], count, result);
  return code != 0 ? code : tell(run, index, 0, result, count, &answer);
}

static int call_function(run_t* run, const int64_t* words) {
  const tw_relax_function_t* function = &run->program->functions[words[3]];
  const int32_t count = (int32_t)words[4];
  const size_t base = run->frames[run->frame_count - 1].base;
  for (int32_t i = 0; i < count; ++i) {
    run->args[i] = read_argument(run, base, words[TW_RELAX_CALL_WORDS + 2 * i], words[TW_RELAX_CALL_WORDS + 2 * i + 1]);
  }
  if (function->kind == TW_RELAX_BYTECODE) return push(run, words[3], run->args);
  ffi_any_t result = ffi_none();
  int code = 0;
  if (function->kind == TW_RELAX_COMPILED) {
    code = run_compiled(run->program, function, run->args, &result);
  } else if (run->instrument.type_index == FFI_FUNCTION) {
    code = call_told(run, words[3], count, &result);
  } else {
    code = call_packed(run, function, count, &result);
  }
  if (code == 0) {
    store(run, base, words[2], result);
  } else {
    ffi_drop(&result);
  }
  return code;
}

static int is_true(const ffi_any_t* value, int* out_truth) {
  *out_truth = value->type_index != FFI_NONE && value->v_int64 != 0;
  if (value->type_index == FFI_NONE || ffi_is_integer(value)) return 0;
  return tw_error_keep("ArgumentTypeError", "expected a truth value, got %s", ffi_kind(value));
}

static int branch(run_t* run, frame_t* frame, const int64_t* words) {
  int truth = 0;
  const ffi_any_t condition = read_argument(run, frame->base, words[2], words[3]);
  const int code = is_true(&condition, &truth);
  frame->next = truth ? words + 5 : run->program->code + words[4];
  return code;
}

// Leaves the innermost frame; the result goes to the register that its call names, or is the run's.
static void leave(run_t* run, const int64_t* words, ffi_any_t* result) {
  const frame_t* frame = &run->frames[run->frame_count - 1];
  const ffi_any_t value = read_argument(run, frame->base, words[2], words[3]);
  const ffi_any_t kept = ffi_copy(&value);
  pop(run);
  if (run->frame_count == 0) {
    *result = kept;
    return;
  }
  frame = &run->frames[run->frame_count - 1];
  store(run, frame->base, frame->now[2], kept);
}

// Runs frames until the outermost one is left.
static int run_frames(run_t* run, ffi_any_t* result) {
  int code = 0;
  while (code == 0 && run->frame_count > 0) {
    frame_t* frame = &run->frames[run->frame_count - 1];
    const int64_t* words = frame->next;
    frame->now = words;
    switch (words[0]) {
      case TW_RELAX_CALL:
        frame->next = words + TW_RELAX_CALL_WORDS + 2 * words[4];
        code = look_for_signals(run);
        if (code == 0) code = call_function(run, words);  // may move the frames
        break;
      case TW_RELAX_RETURN:
        leave(run, words, result);
        break;
      case TW_RELAX_GOTO:
        frame->next = run->program->code + words[2];
        code = look_for_signals(run);
        break;
      default:
        code = branch(run, frame, words);
        break;
    }
  }
  return code;
}

// ---- errors -----------------------------------------------------------------------------------------

static const char* callee_name(const tw_relax_t* program, const int64_t* words) {
  return words[0] == TW_RELAX_CALL ? program->functions[words[3]].name : "";
}

// The error with its place: before the text of our own, as lines of the backtrace for what others raised.
static int locate(const run_t* run, int code) {
  if (code == TW_RAISED_IN_PYTHON || run->frame_count == 0) return code;
  const tw_relax_t* program = run->program;
  const frame_t* frame = &run->frames[run->frame_count - 1];
  if (code == TW_RAISED_HERE) {
    const char* name = callee_name(program, frame->now);
    return tw_error_raise(name[0] == '\0' ? "%s: function '%s': instruction %lld%s: "
                                          : "%s: function '%s': instruction %lld ('%s'): ",
                          program->location, frame->function->name, (long long)frame->now[1], name);
  }
  for (size_t i = 0; i < run->frame_count && i < FRAMES_SHOWN; ++i) {
    frame = &run->frames[run->frame_count - 1 - i];
    tw_error_add_frame(program->location, (long long)frame->now[1], frame->function->name);
  }
  return code;
}

// ---- the outermost call -----------------------------------------------------------------------------

static int run_bytecode(tw_relax_t* program, int64_t index, const ffi_any_t* args, ffi_any_t* result) {
  run_t run;
  run.program = program;
  run.frames = run.local_frames;
  run.frame_count = 0;
  run.frame_room = LOCAL_FRAMES;
  run.registers = run.local_registers;
  run.register_count = 0;
  run.register_room = LOCAL_REGISTERS;
  run.args = run.local_args;
  run.steps = 0;
  if (program->argument_limit > LOCAL_ARGUMENTS) {
    run.args = malloc((size_t)program->argument_limit * sizeof(*run.args));
    if (run.args == NULL) return tw_error_keep("MemoryError", "out of memory");
  }
  run.instrument = tw_relax_instrument(program);
  int code = push(&run, index, args);
  if (code == 0) code = locate(&run, run_frames(&run, result));
  while (run.frame_count > 0) pop(&run);
  ffi_drop(&run.instrument);
  if (run.frames != run.local_frames) free(run.frames);
  if (run.registers != run.local_registers) free(run.registers);
  if (run.args != run.local_args) free(run.args);
  return code;
}

static int run_with(tw_relax_t* program, int64_t index, ffi_any_t* args, const ffi_any_t* given, ffi_any_t* result) {
  const tw_relax_function_t* function = &program->functions[index];
  int64_t taken = 0;
  int code = 0;
  while (taken < function->argument_count && code == 0) {
    args[taken] = ffi_none();
    code = tw_value_take(&program->heap, &given[taken], &args[taken]);
    if (code == 0) ++taken;
  }
  if (code == 0) {
    code = function->kind == TW_RELAX_COMPILED ? run_compiled(program, function, args, result)
                                               : run_bytecode(program, index, args, result);
  }
  ffi_drop_all(args, (size_t)taken);
  if (code == TW_RAISED_HERE) return tw_error_raise("%s: function '%s': ", program->location, function->name);
  if (code == TW_RAISED && function->kind == TW_RELAX_COMPILED) {
    tw_error_add_frame(program->location, 0, function->name);
  }
  return code;
}

int tw_relax_run(tw_relax_t* program, int64_t index, const ffi_any_t* given, ffi_any_t* result) {
  ffi_any_t local[LOCAL_ARGUMENTS];
  const tw_relax_function_t* function = &program->functions[index];
  const thread_t before = thread;
  const uintptr_t here = (uintptr_t)local;
  if (is_too_deep(&before, here)) {
    fail_too_deep();
    return tw_error_raise("%s: function '%s': ", program->location, function->name);
  }
  const size_t count = (size_t)function->argument_count;
  ffi_any_t* args = count <= LOCAL_ARGUMENTS ? local : malloc(count * sizeof(*args));
  if (args == NULL) {
    tw_ffi.raise_text("MemoryError", "out of memory");
    return TW_RAISED;
  }
  thread = (thread_t){.program = program, .stack = before.stack == 0 ? here : before.stack};
  const int code = run_with(program, index, args, given, result);
  thread = before;
  if (args != local) free(args);
  return code;
}
