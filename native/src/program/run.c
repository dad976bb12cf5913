#include "run.h"

#include "error.h"

// A run under way.
typedef struct run_t {
  const tw_runner_t* runner;
  const tw_bound_t* bound;
  tw_frame_t* frame;
  int status;  // of a host call
} run_t;

static int call_step(run_t* run, uint32_t command, const tw_step_t* step) {
  const tw_bound_t* bound = run->bound;
  const tw_command_t* record = tw_command_list_command(bound->list, command);
  void* addresses[UINT8_MAX];
  if (run->runner->call_step == NULL) return tw_bound_fail_inconsistent("nobody calls functions here");
  for (uint32_t i = 0; i < record->binding_count; ++i) {
    const tw_binding_t* binding = tw_command_list_binding(bound->list, record->binding_first + i);
    addresses[i] = (uint8_t*)tw_frame_slot_base(run->frame, binding->slot) + binding->offset;
  }
  return run->runner->call_step(run->runner->context, bound, step, addresses);
}

// Looks at checks, and runs steps that call packed functions.
static int host_call(void* context, uint32_t command) {
  run_t* run = context;
  const tw_bound_t* bound = run->bound;
  const uint32_t index = bound->command_steps[command];
  if (index == bound->program->step_count) {
    const uint8_t* base = tw_frame_slot_base(run->frame, bound->check_slot);
    run->status = tw_bound_report(bound, base + bound->check_place);
  } else if (index > bound->program->step_count) {
    run->status = tw_bound_fail_late(bound, command);
  } else {
    run->status = call_step(run, command, &bound->program->steps[index]);
  }
  return run->status;
}

static int poll(void* context) {
  const run_t* run = context;
  return run->runner->poll(run->runner->context);
}

// The words of `runtime/native/kernel_error.py`.
static int fail_scratch(const char* name, const tw_failure_t* failure) {
  const tw_refusal_t* refusal = &failure->refusal;
  tw_text_t text = {.length = 0};
  tw_text_add(&text, "kernel '%s': no memory for %u bytes of workgroup memory", name, failure->scratch_bytes);
  if (refusal->capacity_bytes != 0) {
    tw_text_add(&text, ": %zu of %zu bytes are in use", refusal->in_use_bytes, refusal->capacity_bytes);
  }
  return tw_error_set(TW_MODEL_NO_MEMORY, "%s\nhint: every thread that runs kernels needs as much: use fewer threads, "
                                          "or %s", text.text,
                      refusal->capacity_bytes != 0 ? TW_HINT_MORE : "raise the limit of memory of this process");
}

static int fail_run(const run_t* run, tw_status_t status, const tw_failure_t* failure) {
  const tw_bound_t* bound = run->bound;
  const char* name = "";
  if (status == TW_STATUS_KERNEL_FAILED || status == TW_STATUS_NO_SCRATCH) {
    name = bound->program->kernels[bound->program->steps[bound->command_steps[failure->command]].target].name;
  }
  switch (status) {
    case TW_STATUS_HOST_FAILED:
      return run->status;
    case TW_STATUS_INTERRUPTED:
      return tw_error_set(TW_MODEL_INTERRUPTED, "the call was interrupted");
    case TW_STATUS_KERNEL_FAILED:
      return tw_error_set(TW_MODEL_FAILED, "kernel '%s': the kernel returned %d", name, failure->code);
    case TW_STATUS_NO_SCRATCH:
      return fail_scratch(name, failure);
    case TW_STATUS_FORKED:
      return tw_error_set(TW_MODEL_FAILED, "the process was forked during the call, and this is the child");
    case TW_STATUS_NO_MEMORY:
      return tw_error_no_memory();
    case TW_STATUS_OK:
    case TW_STATUS_INVALID:
    case TW_STATUS_SYSTEM:
      break;
  }
  return tw_error_set(TW_MODEL_FAILED, "the call ended with status %d of the core", (int)status);
}

int tw_run_list(const tw_runner_t* runner, const tw_bound_t* bound, tw_frame_t* frame, void* scratch) {
  run_t run = {.runner = runner, .bound = bound, .frame = frame};
  const tw_run_options_t options = {
      .pool = runner->pool,
      .heap = runner->heap,
      .scratch = scratch,
      .host_call = host_call,
      .poll = runner->poll == NULL ? NULL : poll,
      .context = &run,
  };
  tw_failure_t failure = {.command = 0};
  const tw_status_t ran = tw_frame_run(frame, &options, &failure);
  return ran == TW_STATUS_OK ? TW_MODEL_OK : fail_run(&run, ran, &failure);
}
