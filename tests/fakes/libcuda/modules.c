// Modules read from PTX text, and launches: checked, recorded, and run where the kernel is known.
#define _GNU_SOURCE
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin.h"

#define STATIC_SHARED_LIMIT 49152u
#define OPT_IN_SHARED_LIMIT 166912u
#define COMPUTE_CAPABILITY 80
#define MAX_RECORDS 65536

typedef struct {
  char name[128];
  unsigned int grid[3], block[3], shared_bytes, parameter_bytes, in_graph;
  unsigned char parameters[MAX_PARAMETERS * 8];
} Record;

static Record* g_records;
static int g_record_count;

// --- PTX ---------------------------------------------------------------------------------------

static size_t type_bytes(const char* type) {
  static const struct {
    const char* name;
    size_t bytes;
  } types[] = {{"64", 8}, {"32", 4}, {"16", 2}, {"8", 1}};
  for (size_t i = 0; i < 4; ++i) {
    if (strncmp(type + 1, types[i].name, strlen(types[i].name)) == 0) return types[i].bytes;
  }
  return 0;
}

// `.param .u64 .ptr .global .align 16 name,` or `.param .align 8 .b8 name[16]`
static bool parse_parameter(const char* text, const char* end, CUfunction function) {
  int index = function->parameter_count;
  size_t bytes = 0, count = 1;
  for (const char* p = text; p < end; ++p) {
    if (*p == '[') count = strtoul(p + 1, NULL, 10);
    if (*p == '.' && strchr("usbf", p[1]) && isdigit((unsigned char)p[2]) && bytes == 0) {
      bytes = type_bytes(p + 1);
    }
  }
  if (bytes == 0 || index == MAX_PARAMETERS) return false;
  size_t offset = (function->parameter_bytes + bytes - 1) / bytes * bytes;
  function->parameter_offsets[index] = offset;
  function->parameter_sizes[index] = bytes * count;
  function->parameter_bytes = offset + bytes * count;
  function->parameter_count = index + 1;
  return true;
}

static const char* parse_parameters(const char* text, CUfunction function) {
  const char* close = strchr(text, ')');
  while (close && text < close) {
    const char* start = strstr(text, ".param");
    if (start == NULL || start > close) break;
    const char* end = strpbrk(start, ",)");
    if (!parse_parameter(start + 6, end, function)) return NULL;
    text = end + 1;
  }
  return close;
}

static void parse_limits(const char* text, CUfunction function) {
  const char* body = strchr(text, '{');
  const char* limits = strstr(text, ".maxntid");
  if (limits == NULL || body == NULL || limits > body) return;
  sscanf(limits, ".maxntid %u, %u, %u", &function->max_threads[0], &function->max_threads[1],
         &function->max_threads[2]);
}

static const char* parse_entry(const char* text, CUmodule module) {
  CUfunction function = calloc(1, sizeof(struct Function));
  int used = 0;
  if (sscanf(text, ".entry %127[^ (\n\t]%n", function->name, &used) != 1) return NULL;
  text += used;
  while (isspace((unsigned char)*text)) ++text;
  if (*text == '(') text = parse_parameters(text, function);
  if (text == NULL) return NULL;
  function->module = module;
  function->max_dynamic_shared = STATIC_SHARED_LIMIT;
  function->next = module->functions;
  parse_limits(text, function);
  module->functions = function;
  return text;
}

static CUresult parse_ptx(const char* image, CUmodule module, const char** problem) {
  const char* target = strstr(image, ".target sm_");
  *problem = "ptxas application ptx input, line 1; fatal   : Missing .version directive";
  if (strstr(image, ".version") == NULL || target == NULL) return CUDA_ERROR_INVALID_PTX;
  *problem = "ptxas fatal   : SM version of the input is newer than the device";
  if (atoi(target + 11) > COMPUTE_CAPABILITY) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  *problem = "ptxas application ptx input; error   : Parsing error near '.entry'";
  const char* place = image;
  while ((place = strstr(place, ".entry")) != NULL) {
    place = parse_entry(place, module);
    if (place == NULL) return CUDA_ERROR_INVALID_PTX;
  }
  return CUDA_SUCCESS;
}

// --- modules -----------------------------------------------------------------------------------

static void write_log(const char* text, unsigned int count, int* options, void** values) {
  char* buffer = NULL;
  size_t size = 0;
  for (unsigned int i = 0; i < count; ++i) {
    if (options[i] == 5) buffer = values[i];
    if (options[i] == 6) size = (size_t)(uintptr_t)values[i];
  }
  if (buffer && size) snprintf(buffer, size, "%s", text);
}

CUresult cuModuleLoadDataEx(CUmodule* out_module, const void* image, unsigned int option_count,
                            int* options, void** values) {
  ENTER(cuModuleLoadDataEx);
  CURRENT(context);
  if (memcmp(image, "\x7f" "ELF", 4) == 0) return CUDA_ERROR_INVALID_IMAGE;
  struct Module parsed = {0};
  const char* problem = "";
  CUresult result = parse_ptx(image, &parsed, &problem);
  if (result != CUDA_SUCCESS) {
    write_log(problem, option_count, options, values);
    return result;
  }
  CUmodule module = standin_create(KIND_MODULE, sizeof(struct Module), context);
  module->functions = parsed.functions;
  for (CUfunction f = module->functions; f; f = f->next) f->module = module;
  *out_module = module;
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
  ENTER(cuModuleUnload);
  CURRENT(context);
  CHECK(module, KIND_MODULE);
  standin_destroy(module);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* out_function, CUmodule module, const char* name) {
  ENTER(cuModuleGetFunction);
  CURRENT(context);
  CHECK(module, KIND_MODULE);
  for (CUfunction function = module->functions; function; function = function->next) {
    if (strcmp(function->name, name) != 0) continue;
    *out_function = function;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  ENTER(cuFuncSetAttribute);
  CURRENT(context);
  CHECK(function->module, KIND_MODULE);
  if (attribute != 8 || value < 0 || (unsigned)value > OPT_IN_SHARED_LIMIT) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  function->max_dynamic_shared = (unsigned)value;
  return CUDA_SUCCESS;
}

// --- launches ----------------------------------------------------------------------------------

static bool is_launchable(const CUDA_KERNEL_NODE_PARAMS* p) {
  const struct Function* f = p->func;
  uint64_t threads = (uint64_t)p->blockDimX * p->blockDimY * p->blockDimZ;
  bool fits = p->gridDimX && p->gridDimY && p->gridDimZ && threads && threads <= 1024;
  fits = fits && p->gridDimX <= 0x7FFFFFFF && p->gridDimY <= 65535 && p->gridDimZ <= 65535;
  if (f->max_threads[0]) {
    unsigned int y = f->max_threads[1] ? f->max_threads[1] : 1;
    unsigned int z = f->max_threads[2] ? f->max_threads[2] : 1;
    fits = fits && threads <= (uint64_t)f->max_threads[0] * y * z;
  }
  return fits && p->sharedMemBytes <= f->max_dynamic_shared;
}

CUresult standin_prepare_launch(Launch* launch, const CUDA_KERNEL_NODE_PARAMS* params) {
  CUfunction function = params->func;
  if (function == NULL) return CUDA_ERROR_INVALID_HANDLE;
  CHECK(function->module, KIND_MODULE);
  if (!is_launchable(params)) return CUDA_ERROR_INVALID_VALUE;
  if (params->extra || (function->parameter_count && !params->kernelParams)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *launch = (Launch){
      .function = function,
      .grid = {params->gridDimX, params->gridDimY, params->gridDimZ},
      .block = {params->blockDimX, params->blockDimY, params->blockDimZ},
      .shared_bytes = params->sharedMemBytes,
      .parameter_bytes = function->parameter_bytes,
  };
  for (int i = 0; i < function->parameter_count; ++i) {
    memcpy(launch->parameters + function->parameter_offsets[i], params->kernelParams[i],
           function->parameter_sizes[i]);
  }
  return CUDA_SUCCESS;
}

static void record(const Launch* launch, bool in_graph) {
  LOCK();
  if (g_records == NULL) g_records = calloc(MAX_RECORDS, sizeof(Record));
  if (g_record_count < MAX_RECORDS) {
    Record* to = &g_records[g_record_count++];
    snprintf(to->name, sizeof(to->name), "%s", launch->function->name);
    memcpy(to->grid, launch->grid, sizeof(to->grid));
    memcpy(to->block, launch->block, sizeof(to->block));
    to->shared_bytes = launch->shared_bytes;
    to->parameter_bytes = (unsigned int)launch->parameter_bytes;
    to->in_graph = in_graph;
    memcpy(to->parameters, launch->parameters, sizeof(to->parameters));
  }
  UNLOCK();
}

CUresult standin_run_launch(const Launch* launch, CUstream stream, bool in_graph) {
  (void)stream;
  LOCK();
  bool alive = launch->function->module->handle.alive;
  if (!alive) standin_misuse("kernel '%s' runs after its module", launch->function->name);
  UNLOCK();
  if (!alive) return CUDA_ERROR_LAUNCH_FAILED;
  record(launch, in_graph);
  return standin_run_kernel(launch);
}

typedef struct {
  Operation base;
  Launch launch;
} LaunchOperation;

static CUresult run_launch(Operation* operation) {
  return standin_run_launch(&((LaunchOperation*)operation)->launch, operation->stream, false);
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void** parameters, void** extra) {
  ENTER(cuLaunchKernel);
  CURRENT(context);
  CHECK(stream, KIND_STREAM);
  CUDA_KERNEL_NODE_PARAMS params = {function, grid_x,  grid_y,       grid_z,     block_x,
                                    block_y,  block_z, shared_bytes, parameters, extra};
  LaunchOperation* operation = calloc(1, sizeof(*operation));
  CUresult result = standin_prepare_launch(&operation->launch, &params);
  if (result != CUDA_SUCCESS) {
    free(operation);
    return result;
  }
  return standin_enqueue(stream, &operation->base, "kernel", run_launch);
}

// --- for the tests -----------------------------------------------------------------------------

int standin_launches(void) {
  LOCK();
  int count = g_record_count;
  UNLOCK();
  return count;
}

int standin_launch(int index, Record* out_record) {
  LOCK();
  int valid = index >= 0 && index < g_record_count;
  if (valid) *out_record = g_records[index];
  UNLOCK();
  return valid;
}

void standin_forget_launches(void) {
  LOCK();
  g_record_count = 0;
  UNLOCK();
}
