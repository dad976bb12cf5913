#include "place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"

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

enum { PATH_ROOM = 2304, GROUP_ROOM = 1024 };

// The numbers of a file of a group; returns how many there are, at most two.
static int read_numbers(const char* path, long out_numbers[2]) {
  FILE* file = fopen(path, "re");
  if (file == NULL) return 0;
  const int count = fscanf(file, "%ld %ld", &out_numbers[0], &out_numbers[1]);
  fclose(file);
  return count;
}

// Processors' worth of time, rounded; 0: no limit.
static long cores_of(long quota, long period) {
  if (quota <= 0 || period <= 0) return 0;
  const long cores = (quota + period / 2) / period;
  return cores < 1 ? 1 : cores;
}

// What a group of version 2 grants.
static long read_quota(const char* root, const char* group) {
  char path[PATH_ROOM];
  long numbers[2] = {0, 0};
  snprintf(path, sizeof(path), "%s/sys/fs/cgroup%s/cpu.max", root, group);
  return read_numbers(path, numbers) == 2 ? cores_of(numbers[0], numbers[1]) : 0;
}

// What a group of version 1 grants: two files below the controller's folder.
static long read_quota_of_version_1(const char* root, const char* group) {
  static const char* const mounts[] = {"cpu", "cpu,cpuacct"};
  for (size_t i = 0; i < sizeof(mounts) / sizeof(mounts[0]); ++i) {
    char path[PATH_ROOM];
    long quota[2] = {0, 0};
    long period[2] = {0, 0};
    snprintf(path, sizeof(path), "%s/sys/fs/cgroup/%s%s/cpu.cfs_quota_us", root, mounts[i], group);
    if (read_numbers(path, quota) < 1) continue;
    snprintf(path, sizeof(path), "%s/sys/fs/cgroup/%s%s/cpu.cfs_period_us", root, mounts[i], group);
    read_numbers(path, period);
    return cores_of(quota[0], period[0]);
  }
  return 0;
}

// Whether one of the words between commas is "cpu".
static int has_cpu(const char* controllers) {
  for (const char* word = controllers; word != NULL; word = strchr(word, ',')) {
    if (*word == ',') ++word;
    if (strncmp(word, "cpu", 3) == 0 && (word[3] == ',' || word[3] == '\0')) return 1;
  }
  return 0;
}

// The process's group: of version 2, or of the controller of processors in version 1; empty if there is none.
static void find_group(const char* root, int version, char out_group[GROUP_ROOM]) {
  char line[GROUP_ROOM];
  out_group[0] = '\0';
  snprintf(line, sizeof(line), "%s/proc/self/cgroup", root);
  FILE* file = fopen(line, "re");
  if (file == NULL) return;
  while (fgets(line, sizeof(line), file) != NULL) {  // number:controllers:group
    line[strcspn(line, "\n")] = '\0';
    char* controllers = strchr(line, ':');
    char* group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
    if (group == NULL) continue;
    *group++ = '\0';
    ++controllers;
    if (version == 2 ? *controllers == '\0' : has_cpu(controllers)) snprintf(out_group, GROUP_ROOM, "%s", group);
  }
  fclose(file);
}

// The tightest quota of the process's group and the groups around it (MIRROR QUOTA: `base/host.py`).
static long tightest_quota(const char* root, int version) {
  char group[GROUP_ROOM];
  find_group(root, version, group);
  long limit = 0;
  for (;;) {
    const long quota = version == 2 ? read_quota(root, group) : read_quota_of_version_1(root, group);
    if (quota != 0 && (limit == 0 || quota < limit)) limit = quota;
    char* parent = strrchr(group, '/');
    if (parent == NULL) return limit;
    *parent = '\0';
  }
}

uint32_t tw_place_quota(const char* root) {
  const long newer = tightest_quota(root, 2);
  const long older = tightest_quota(root, 1);
  const long limit = newer != 0 && (older == 0 || newer < older) ? newer : older;
  return limit > TW_THREAD_LIMIT ? TW_THREAD_LIMIT : (uint32_t)limit;
}

static long processor_count(void) {
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0) return CPU_COUNT(&cpus);
  return sysconf(_SC_NPROCESSORS_ONLN);
}

#elif defined(_WIN32)

uint32_t tw_place_quota(const char* root) {
  (void)root;
  return 0;
}

static long processor_count(void) {
  DWORD_PTR own = 0;
  DWORD_PTR all = 0;
  if (!GetProcessAffinityMask(GetCurrentProcess(), &own, &all)) return 1;
  return __builtin_popcountll(own);
}

#else

uint32_t tw_place_quota(const char* root) {
  (void)root;
  return 0;
}

static long processor_count(void) { return sysconf(_SC_NPROCESSORS_ONLN); }

#endif

enum { MOST_DIGITS = 18 };

// Digits with blanks around them, and nothing else (MIRROR COUNT: `base/knobs.py`).
static int read_count(const char* text, long* out_count) {
  static const char blanks[] = " \t\n\v\f\r";
  text += strspn(text, blanks);
  const size_t digits = strspn(text, "0123456789");
  const char* rest = text + digits;
  if (digits < 1 || digits > MOST_DIGITS || rest[strspn(rest, blanks)] != '\0') return 0;
  errno = 0;
  *out_count = strtol(text, NULL, 10);
  return errno == 0 && *out_count <= TW_THREAD_LIMIT;
}

int tw_place_thread_count(uint32_t* out_count) {
  const char* text = getenv("TILEWRIGHT_THREADS");
  long count = 0;
  if (text != NULL && !read_count(text, &count)) {
    return tw_error_set(TW_MODEL_BAD_INPUT, "TILEWRIGHT_THREADS: got '%s', expected a number from 0 to %d"
                                            "\nhint: unset it for a thread per processor", text, TW_THREAD_LIMIT);
  }
  if (count == 0) {
    const long limit = (long)tw_place_quota("");
    count = processor_count();
    if (limit != 0 && limit < count) count = limit;
    if (count < 1) count = 1;
    if (count > TW_THREAD_LIMIT) count = TW_THREAD_LIMIT;
  }
  *out_count = (uint32_t)count;
  return TW_MODEL_OK;
}
