#include "place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#else
#include <dlfcn.h>
#include <unistd.h>
#endif
#if defined(__linux__)
#include <sched.h>
#endif

enum { THREAD_LIMIT = 1024 };

// ---- the library's file -----------------------------------------------------------------------------

// Leaves the folder of a path; 0 if it has none.
static int cut_name(char* path) {
  char* end = NULL;
  for (char* c = path; *c != '\0'; ++c) {
    if (*c == '/' || *c == '\\') end = c;
  }
  if (end == NULL) return 0;
  end[1] = '\0';
  return 1;
}

#if defined(_WIN32)

static HMODULE own_module(DWORD flags) {
  HMODULE module = NULL;
  flags |= GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS;
  return GetModuleHandleExA(flags, (LPCSTR)(uintptr_t)&own_module, &module) ? module : NULL;
}

int tw_place_folder(tw_place_t place, char* out_folder, size_t room_bytes) {
  (void)place;  // what a link leads to is not looked for here
  const DWORD length =
      GetModuleFileNameA(own_module(GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT), out_folder, (DWORD)room_bytes);
  return length != 0 && length < room_bytes && cut_name(out_folder);
}

void tw_place_pin(void) { own_module(GET_MODULE_HANDLE_EX_FLAG_PIN); }

void tw_place_stay(void) { tw_place_pin(); }

#else

static const char own_address = 0;

static int folder_of(const char* path, char* out_folder, size_t room_bytes) {
  const int length = snprintf(out_folder, room_bytes, "%s", path);
  return length > 0 && (size_t)length < room_bytes && cut_name(out_folder);
}

int tw_place_folder(tw_place_t place, char* out_folder, size_t room_bytes) {
  Dl_info info = {.dli_fname = NULL};
  if (dladdr(&own_address, &info) != 0 && info.dli_fname != NULL) {
    const int has_folder = strchr(info.dli_fname, '/') != NULL;  // else it was found by $PATH
    char* real = place == TW_PLACE_OF_FILE && has_folder ? realpath(info.dli_fname, NULL) : NULL;
    const int is_found = folder_of(real == NULL ? info.dli_fname : real, out_folder, room_bytes);
    free(real);
    if (is_found) return 1;
  }
  const ssize_t length = readlink("/proc/self/exe", out_folder, room_bytes - 1);  // a program found by $PATH
  if (length <= 0) return 0;
  out_folder[length] = '\0';
  return cut_name(out_folder);
}

void tw_place_pin(void) {
#if defined(RTLD_NODELETE)
  Dl_info info = {.dli_fname = NULL};
  if (dladdr(&own_address, &info) != 0 && info.dli_fname != NULL) {
    dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  }
#endif
}

void tw_place_stay(void) {}

#endif

// ---- threads ----------------------------------------------------------------------------------------

#if defined(__linux__)

// Processors' worth of time that a group grants, rounded; 0: no limit.
static long read_quota(const char* group) {
  char path[1280];
  long quota = 0;
  long period = 0;
  snprintf(path, sizeof(path), "/sys/fs/cgroup%s/cpu.max", group);
  FILE* file = fopen(path, "re");
  if (file == NULL) return 0;
  const int count = fscanf(file, "%ld %ld", &quota, &period);
  fclose(file);
  if (count != 2 || quota <= 0 || period <= 0) return 0;
  const long cores = (quota + period / 2) / period;
  return cores < 1 ? 1 : cores;
}

// The tightest quota of the process's group and the groups around it.
static long cgroup_limit(void) {
  char group[1024] = "";
  FILE* file = fopen("/proc/self/cgroup", "re");
  if (file != NULL) {
    if (fscanf(file, "0::%1023[^\n]", group) != 1) group[0] = '\0';
    fclose(file);
  }
  long limit = 0;
  for (;;) {
    const long quota = read_quota(group);
    if (quota != 0 && (limit == 0 || quota < limit)) limit = quota;
    char* parent = strrchr(group, '/');
    if (parent == NULL) return limit;
    *parent = '\0';
  }
}

static long processor_count(void) {
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0) return CPU_COUNT(&cpus);
  return sysconf(_SC_NPROCESSORS_ONLN);
}

#elif defined(_WIN32)

static long cgroup_limit(void) { return 0; }

static long processor_count(void) {
  DWORD_PTR own = 0;
  DWORD_PTR all = 0;
  if (!GetProcessAffinityMask(GetCurrentProcess(), &own, &all)) return 1;
  return __builtin_popcountll(own);
}

#else

static long cgroup_limit(void) { return 0; }

static long processor_count(void) { return sysconf(_SC_NPROCESSORS_ONLN); }

#endif

uint32_t tw_place_thread_count(void) {
  const char* text = getenv("TILEWRIGHT_THREADS");
  long count = text == NULL ? 0 : strtol(text, NULL, 10);
  if (count <= 0) {
    const long limit = cgroup_limit();
    count = processor_count();
    if (limit != 0 && limit < count) count = limit;
  }
  if (count < 1) return 1;
  return count > THREAD_LIMIT ? THREAD_LIMIT : (uint32_t)count;
}
