// What the kernels that tests launch compute, by name; a kernel that is not here computes nothing.
#include <string.h>

#include "standin.h"

typedef struct {
  const Launch* launch;
  CUresult error;
} Arguments;

static CUdeviceptr pointer(const Arguments* arguments, int index) {
  CUdeviceptr value;
  memcpy(&value, arguments->launch->parameters + 8 * index, sizeof(value));
  return value;
}

// Constants follow `pointers` pointers.
static int32_t constant(const Arguments* arguments, int pointers, int index) {
  int32_t value;
  memcpy(&value, arguments->launch->parameters + 8 * pointers + 4 * index, sizeof(value));
  return value;
}

static void* range(Arguments* arguments, int index, size_t bytes) {
  if (bytes == 0) return NULL;
  void* place = standin_resolve(pointer(arguments, index), bytes, arguments->launch->function->name);
  if (place == NULL) arguments->error = CUDA_ERROR_ILLEGAL_ADDRESS;
  return place;
}

// y[i] = x[i] * k, one element per workgroup
static void run_scale(Arguments* a) {
  size_t count = a->launch->grid[0];
  const uint32_t* x = range(a, 0, 4 * count);
  uint32_t* y = range(a, 1, 4 * count);
  uint32_t k = (uint32_t)constant(a, 2, 0);
  if (a->error) return;
  for (size_t i = 0; i < count; ++i) y[i] = x[i] * k;
}

// y[0] = sum of x[0 .. n)
static void run_total(Arguments* a) {
  size_t count = (uint32_t)constant(a, 2, 0);
  const uint32_t* x = range(a, 0, 4 * count);
  uint32_t* y = range(a, 1, 4);
  uint32_t sum = 0;
  if (a->error) return;
  for (size_t i = 0; i < count; ++i) sum += x[i];
  y[0] = sum;
}

// y[i] = 1 + x + 10 y + 100 z of workgroup i
static void run_grid(Arguments* a) {
  const unsigned int* grid = a->launch->grid;
  size_t count = (size_t)grid[0] * grid[1] * grid[2];
  uint32_t* out = range(a, 0, 4 * count);
  if (a->error) return;
  for (size_t i = 0; i < count; ++i) {
    size_t x = i % grid[0], y = i / grid[0] % grid[1], z = i / grid[0] / grid[1];
    out[i] = (uint32_t)(1 + x + 10 * y + 100 * z);
  }
}

static void run_fail(Arguments* a) { a->error = CUDA_ERROR_LAUNCH_FAILED; }

// The first constant is how many elements there are.
static void run_add(Arguments* a) {
  size_t count = (uint32_t)constant(a, 3, 0);
  const float* x = range(a, 0, 4 * count);
  const float* y = range(a, 1, 4 * count);
  float* z = range(a, 2, 4 * count);
  if (a->error) return;
  for (size_t i = 0; i < count; ++i) z[i] = x[i] + y[i];
}

static void run_mul(Arguments* a) {
  size_t count = (uint32_t)constant(a, 3, 0);
  const float* x = range(a, 0, 4 * count);
  const float* y = range(a, 1, 4 * count);
  float* z = range(a, 2, 4 * count);
  if (a->error) return;
  for (size_t i = 0; i < count; ++i) z[i] = x[i] * y[i];
}

// c [m, n] = a [m, k] b [k, n]
static void run_matmul(Arguments* args) {
  size_t m = (uint32_t)constant(args, 3, 0), n = (uint32_t)constant(args, 3, 1);
  size_t k = (uint32_t)constant(args, 3, 2);
  const float* a = range(args, 0, 4 * m * k);
  const float* b = range(args, 1, 4 * k * n);
  float* c = range(args, 2, 4 * m * n);
  if (args->error) return;
  for (size_t i = 0; i < m * n; ++i) {
    float sum = 0;
    for (size_t j = 0; j < k; ++j) sum += a[i / n * k + j] * b[j * n + i % n];
    c[i] = sum;
  }
}

static const struct {
  const char* name;
  void (*run)(Arguments*);
} g_kernels[] = {
    {"scale", run_scale}, {"total", run_total}, {"grid", run_grid},     {"fail", run_fail},
    {"add", run_add},     {"mul", run_mul},     {"matmul", run_matmul},
};

CUresult standin_run_kernel(const Launch* launch) {
  Arguments arguments = {launch, CUDA_SUCCESS};
  for (size_t i = 0; i < sizeof(g_kernels) / sizeof(*g_kernels); ++i) {
    if (strcmp(g_kernels[i].name, launch->function->name) == 0) g_kernels[i].run(&arguments);
  }
  return arguments.error;
}
