#include "tw_executable.h"

#include <pthread.h>
#include <string.h>

#if defined(__x86_64__)

#include <cpuid.h>

enum { LEAF_1, LEAF_7, LEAF_7_1, LEAF_EXTENDED, LEAF_COUNT };
enum { EAX, EBX, ECX, EDX };
// What of XCR0 the system must have enabled.
enum { STATE_NONE = 0, STATE_AVX = 0x6, STATE_AVX512 = 0xE6, STATE_AMX = 0x60000 };
enum { NO_BIT = 64 };

// Where cpuid reports a feature, and which bit of word 0 tells a kernel about it, if one does.
typedef struct feature_t {
  const char* name;
  uint8_t leaf;
  uint8_t reg;
  uint8_t bit;
  uint32_t state;
  uint8_t word_bit;
} feature_t;

// Names: LLVM's; those that `base/host.py` observes are among them (MIRROR PROCESSOR FEATURES).
// Source: Intel SDM volume 2A, CPUID; AMD APM volume 3, appendix E; cpu_feature_bits of the executable ABI, x86-64, word 0.
static const feature_t features[] = {
    {"cx8", LEAF_1, EDX, 8, STATE_NONE, NO_BIT},
    {"mmx", LEAF_1, EDX, 23, STATE_NONE, NO_BIT},
    {"fxsr", LEAF_1, EDX, 24, STATE_NONE, NO_BIT},
    {"sse", LEAF_1, EDX, 25, STATE_NONE, NO_BIT},
    {"sse2", LEAF_1, EDX, 26, STATE_NONE, NO_BIT},
    {"sse3", LEAF_1, ECX, 0, STATE_NONE, 0},
    {"ssse3", LEAF_1, ECX, 9, STATE_NONE, 1},
    {"fma", LEAF_1, ECX, 12, STATE_AVX, 11},
    {"cx16", LEAF_1, ECX, 13, STATE_NONE, NO_BIT},
    {"sse4.1", LEAF_1, ECX, 19, STATE_NONE, 2},
    {"sse4.2", LEAF_1, ECX, 20, STATE_NONE, 3},
    {"movbe", LEAF_1, ECX, 22, STATE_NONE, NO_BIT},
    {"popcnt", LEAF_1, ECX, 23, STATE_NONE, NO_BIT},
    {"xsave", LEAF_1, ECX, 27, STATE_NONE, NO_BIT},
    {"avx", LEAF_1, ECX, 28, STATE_AVX, 10},
    {"f16c", LEAF_1, ECX, 29, STATE_AVX, 14},
    {"sahf", LEAF_EXTENDED, ECX, 0, STATE_NONE, NO_BIT},
    {"lzcnt", LEAF_EXTENDED, ECX, 5, STATE_NONE, NO_BIT},
    {"sse4a", LEAF_EXTENDED, ECX, 6, STATE_NONE, 4},
    {"bmi", LEAF_7, EBX, 3, STATE_NONE, NO_BIT},
    {"avx2", LEAF_7, EBX, 5, STATE_AVX, 15},
    {"bmi2", LEAF_7, EBX, 8, STATE_NONE, NO_BIT},
    {"avx512f", LEAF_7, EBX, 16, STATE_AVX512, 20},
    {"avx512dq", LEAF_7, EBX, 17, STATE_AVX512, 23},
    {"avx512ifma", LEAF_7, EBX, 21, STATE_AVX512, 25},
    {"avx512cd", LEAF_7, EBX, 28, STATE_AVX512, 21},
    {"avx512bw", LEAF_7, EBX, 30, STATE_AVX512, 24},
    {"avx512vl", LEAF_7, EBX, 31, STATE_AVX512, 22},
    {"avx512vbmi", LEAF_7, ECX, 1, STATE_AVX512, 26},
    {"avx512vbmi2", LEAF_7, ECX, 6, STATE_AVX512, 29},
    {"gfni", LEAF_7, ECX, 8, STATE_NONE, NO_BIT},
    {"vaes", LEAF_7, ECX, 9, STATE_AVX, NO_BIT},
    {"avx512vnni", LEAF_7, ECX, 11, STATE_AVX512, 28},
    {"avx512bitalg", LEAF_7, ECX, 12, STATE_AVX512, 30},
    {"avx512vpopcntdq", LEAF_7, ECX, 14, STATE_AVX512, 27},
    {"amx-bf16", LEAF_7, EDX, 22, STATE_AMX, 52},
    {"avx512fp16", LEAF_7, EDX, 23, STATE_AVX512, 32},
    {"amx-tile", LEAF_7, EDX, 24, STATE_AMX, 50},
    {"amx-int8", LEAF_7, EDX, 25, STATE_AMX, 51},
    {"avxvnni", LEAF_7_1, EAX, 4, STATE_AVX, NO_BIT},
    {"avx512bf16", LEAF_7_1, EAX, 5, STATE_AVX512, 31},
    {"amx-fp16", LEAF_7_1, EAX, 21, STATE_AMX, NO_BIT},
    {"avxifma", LEAF_7_1, EAX, 23, STATE_AVX, NO_BIT},
    {"avxvnniint8", LEAF_7_1, EDX, 4, STATE_AVX, NO_BIT},
    {"fma4", LEAF_EXTENDED, ECX, 16, STATE_AVX, 12},
    {"xop", LEAF_EXTENDED, ECX, 11, STATE_AVX, 13},
};

typedef struct observed_t {
  uint32_t registers[LEAF_COUNT][4];
  uint64_t states;
} observed_t;

static uint64_t enabled_states(uint32_t leaf_1_ecx) {
  if ((leaf_1_ecx & (1u << 27)) == 0) return 0;  // no OSXSAVE: the system saves no vector state
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return ((uint64_t)high << 32) | low;
}

static observed_t observe(void) {
  observed_t seen = {.states = 0};
  uint32_t(*r)[4] = seen.registers;
  if (!__get_cpuid(1, &r[LEAF_1][EAX], &r[LEAF_1][EBX], &r[LEAF_1][ECX], &r[LEAF_1][EDX])) return seen;
  __get_cpuid_count(7, 0, &r[LEAF_7][EAX], &r[LEAF_7][EBX], &r[LEAF_7][ECX], &r[LEAF_7][EDX]);
  if (r[LEAF_7][EAX] >= 1) {
    __get_cpuid_count(7, 1, &r[LEAF_7_1][EAX], &r[LEAF_7_1][EBX], &r[LEAF_7_1][ECX], &r[LEAF_7_1][EDX]);
  }
  uint32_t* extended = r[LEAF_EXTENDED];
  __get_cpuid(0x80000001u, &extended[EAX], &extended[EBX], &extended[ECX], &extended[EDX]);
  seen.states = enabled_states(r[LEAF_1][ECX]);
  return seen;
}

static int has_row(const observed_t* seen, const feature_t* row) {
  return (seen->states & row->state) == row->state && ((seen->registers[row->leaf][row->reg] >> row->bit) & 1u);
}

static int has_feature(const observed_t* seen, const char* name) {
  for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); ++i) {
    if (strcmp(features[i].name, name) == 0) return has_row(seen, &features[i]);
  }
  return 0;  // a feature that is not known is not relied on
}

void tw_processor_query(uint64_t out_words[TW_PROCESSOR_DATA_COUNT]) {
  const observed_t seen = observe();
  memset(out_words, 0, sizeof(uint64_t) * TW_PROCESSOR_DATA_COUNT);
  for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); ++i) {
    const feature_t* row = &features[i];
    if (row->word_bit != NO_BIT && has_row(&seen, row)) out_words[0] |= UINT64_C(1) << row->word_bit;
  }
}

#elif defined(__aarch64__)

#if defined(__linux__)
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <stdio.h>
#include <sys/sysctl.h>
#endif

// Linux: bits of AT_HWCAP, from 100 on of AT_HWCAP2. macOS: the names of FEAT_…
typedef struct feature_t {
  const char* name;
  const char* apple;
  int bit;
} feature_t;

// Source: Linux, Documentation/arch/arm64/elf_hwcaps.rst; Apple, "Determining Instruction Set Characteristics".
static const feature_t features[] = {
    {"fp-armv8", NULL, 0},       {"neon", NULL, 1},           {"aes", "AES", 3},     {"sha2", "SHA256", 6},
    {"crc", "CRC32", 7},         {"lse", "LSE", 8},           {"fullfp16", "FP16", 9}, {"dotprod", "DotProd", 20},
    {"sve", NULL, 22},           {"fp16fml", "FHM", 23},      {"sve2", NULL, 101},   {"i8mm", "I8MM", 113},
    {"bf16", "BF16", 114},
};

typedef struct observed_t {
  unsigned long words[2];
} observed_t;

#if defined(__linux__)

static observed_t observe(void) { return (observed_t){.words = {getauxval(AT_HWCAP), getauxval(AT_HWCAP2)}}; }

static int has_row(const observed_t* seen, const feature_t* row) {
  return (int)((seen->words[row->bit / 100] >> (row->bit % 100)) & 1u);
}

#elif defined(__APPLE__)

static observed_t observe(void) { return (observed_t){.words = {0}}; }

static int has_row(const observed_t* seen, const feature_t* row) {
  (void)seen;
  if (row->apple == NULL) return row->bit <= 1;
  char name[64];
  int value = 0;
  size_t size = sizeof(value);
  snprintf(name, sizeof(name), "hw.optional.arm.FEAT_%s", row->apple);
  return sysctlbyname(name, &value, &size, NULL, 0) == 0 && value != 0;
}

#else

static observed_t observe(void) { return (observed_t){.words = {0}}; }

static int has_row(const observed_t* seen, const feature_t* row) {
  (void)seen;
  return row->bit <= 1;
}

#endif

static int has_feature(const observed_t* seen, const char* name) {
  for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); ++i) {
    if (strcmp(features[i].name, name) == 0) return has_row(seen, &features[i]);
  }
  return 0;
}

#elif defined(__riscv) && defined(__linux__)

#include <sys/auxv.h>

typedef struct observed_t {
  unsigned long letters;
} observed_t;

static observed_t observe(void) { return (observed_t){.letters = getauxval(AT_HWCAP)}; }

static int has_feature(const observed_t* seen, const char* name) {
  return name[0] >= 'a' && name[0] <= 'z' && name[1] == '\0' && ((seen->letters >> (name[0] - 'a')) & 1u);
}

#else

typedef struct observed_t {
  int none;
} observed_t;

static observed_t observe(void) { return (observed_t){.none = 0}; }

static int has_feature(const observed_t* seen, const char* name) {
  (void)seen;
  (void)name;
  return 0;
}

#endif

#if !defined(__x86_64__)

// Kernels see a plain machine; their code was compiled for the features it needs anyway.
void tw_processor_query(uint64_t out_words[TW_PROCESSOR_DATA_COUNT]) {
  memset(out_words, 0, sizeof(uint64_t) * TW_PROCESSOR_DATA_COUNT);
}

#endif

int tw_processor_has(const char* const* names, const char** out_missing) {
  const observed_t seen = observe();
  for (; *names != NULL; ++names) {
    if (has_feature(&seen, *names)) continue;
    *out_missing = *names;
    return 0;
  }
  return 1;
}

static tw_environment_t default_environment;

static void fill_default_environment(void) { tw_processor_query(default_environment.processor_data); }

const tw_environment_t* tw_environment_default(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, fill_default_environment);
  return &default_environment;
}
