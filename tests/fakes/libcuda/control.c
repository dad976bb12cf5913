// What tests ask of the stand-in: failures on demand, counts, complaints.
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "standin.h"

#define MAX_FUNCTIONS 96
#define COMPLAINT_BYTES 8192

typedef struct {
  char name[48];
  int calls;        // since the last reset
  int failing_call; // counts down; the call that makes it 0 fails
  CUresult result;
  bool hidden;
} Entry;

static Entry g_entries[MAX_FUNCTIONS];
static Entry g_operations[8];
static char g_complaints[COMPLAINT_BYTES];
static int g_complaint_count;
static int g_jitter_us;
static bool g_managed = true, g_pools = true;
static unsigned g_seed = 1;
static int g_version = 12040;

static Entry* find_in(Entry* entries, int count, const char* name) {
  for (int i = 0; i < count; ++i) {
    if (entries[i].name[0] == 0) snprintf(entries[i].name, sizeof(entries[i].name), "%s", name);
    if (strcmp(entries[i].name, name) == 0) return &entries[i];
  }
  abort();  // the tables are too small
}

static Entry* find(const char* name) { return find_in(g_entries, MAX_FUNCTIONS, name); }

static CUresult count_call(Entry* entry) {
  entry->calls++;
  if (entry->failing_call > 0 && --entry->failing_call == 0) return entry->result;
  return CUDA_SUCCESS;
}

CUresult standin_enter(const char* name) {
  LOCK();
  CUresult result = count_call(find(name));
  UNLOCK();
  return result;
}

CUresult standin_operation_error(const char* what) {
  LOCK();
  CUresult result = count_call(find_in(g_operations, 8, what));
  UNLOCK();
  return result;
}

void standin_misuse(const char* format, ...) {
  size_t used = strlen(g_complaints);
  g_complaint_count++;
  va_list arguments;
  va_start(arguments, format);
  int written = vsnprintf(g_complaints + used, sizeof(g_complaints) - used, format, arguments);
  va_end(arguments);
  used += written < 0 ? 0 : (size_t)written;
  if (used + 2 < sizeof(g_complaints)) memcpy(g_complaints + used, "\n", 2);
}

unsigned standin_random(void) {
  g_seed = g_seed * 1664525u + 1013904223u;
  return g_seed >> 8;
}

void standin_pause(void) {
  LOCK();
  long delay_us = g_jitter_us ? (long)(standin_random() % (unsigned)g_jitter_us) : 0;
  UNLOCK();
  if (delay_us == 0) return;
  struct timespec delay = {0, delay_us * 1000};
  nanosleep(&delay, NULL);
}

bool standin_managed_supported(void) { return g_managed; }
bool standin_pools_supported(void) { return g_pools; }

// --- for the tests ---------------------------------------------------------------------------

void standin_fail(const char* name, int nth_call, int result) {
  LOCK();
  Entry* entry = find(name);
  entry->failing_call = nth_call;
  entry->result = result;
  UNLOCK();
}

void standin_fail_operation(const char* what, int nth, int result) {
  LOCK();
  Entry* entry = find_in(g_operations, 8, what);
  entry->failing_call = nth;
  entry->result = result;
  UNLOCK();
}

void standin_hide(const char* name) {
  LOCK();
  find(name)->hidden = true;
  UNLOCK();
}

int standin_calls(const char* name) {
  LOCK();
  int calls = find(name)->calls;
  UNLOCK();
  return calls;
}

int standin_complaints(char* text, size_t size) {
  LOCK();
  snprintf(text, size, "%s", g_complaints);
  int count = g_complaint_count;
  UNLOCK();
  return count;
}

void standin_configure(int jitter_us, int managed, int pools, int version, unsigned seed) {
  LOCK();
  g_jitter_us = jitter_us;
  g_managed = managed != 0;
  g_pools = pools != 0;
  g_version = version;
  g_seed = seed;
  UNLOCK();
}

void standin_reset(void) {
  LOCK();
  memset(g_entries, 0, sizeof(g_entries));
  memset(g_operations, 0, sizeof(g_operations));
  g_complaints[0] = 0;
  g_complaint_count = 0;
  UNLOCK();
  standin_configure(0, 1, 1, 12040, 1);
}

// --- the interface's own questions -------------------------------------------------------------

typedef struct {
  CUresult result;
  const char* name;
  const char* text;
} ErrorText;

static const ErrorText g_errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static CUresult error_text(CUresult error, const char** text, bool name) {
  for (size_t i = 0; i < sizeof(g_errors) / sizeof(*g_errors); ++i) {
    if (g_errors[i].result != error) continue;
    *text = name ? g_errors[i].name : g_errors[i].text;
    return CUDA_SUCCESS;
  }
  *text = NULL;
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult error, const char** text) {
  return error_text(error, text, true);
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  return error_text(error, text, false);
}

CUresult cuDriverGetVersion(int* version) {
  ENTER(cuDriverGetVersion);
  *version = g_version;
  return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char* symbol, void** pfn, int version, uint64_t flags) {
  ENTER(cuGetProcAddress);
  (void)flags;
  *pfn = NULL;
  LOCK();
  bool hidden = find(symbol)->hidden;
  UNLOCK();
  if (hidden) return CUDA_ERROR_NOT_FOUND;
#define LOOK_UP(name, since) \
  if (strcmp(symbol, #name) == 0 && version >= (since)) *pfn = (void*)(uintptr_t)name;
  STANDIN_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
  return *pfn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
