#include "tw_executable.h"

#include <pthread.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

// Where cpuid reports a feature, and which bit of word 0 tells a kernel about it.
typedef struct feature_t {
  uint8_t word_bit;
  uint8_t leaf;   // index into the registers read below
  uint8_t reg;    // 0 eax, 1 ebx, 2 ecx, 3 edx
  uint8_t bit;
  uint64_t state;  // XCR0 bits the system must have enabled
} feature_t;

enum { LEAF_1, LEAF_7, LEAF_7_1, LEAF_EXTENDED, LEAF_COUNT };
enum { STATE_NONE = 0, STATE_AVX = 0x6, STATE_AVX512 = 0xE6, STATE_AMX = 0x60000 };

// Bit positions: cpu_feature_bits of the executable ABI, x86-64, word 0.
static const feature_t features[] = {
    {0, LEAF_1, 2, 0, STATE_NONE},          // sse3
    {1, LEAF_1, 2, 9, STATE_NONE},          // ssse3
    {2, LEAF_1, 2, 19, STATE_NONE},         // sse4.1
    {3, LEAF_1, 2, 20, STATE_NONE},         // sse4.2
    {4, LEAF_EXTENDED, 2, 6, STATE_NONE},   // sse4a
    {10, LEAF_1, 2, 28, STATE_AVX},         // avx
    {11, LEAF_1, 2, 12, STATE_AVX},         // fma
    {12, LEAF_EXTENDED, 2, 16, STATE_AVX},  // fma4
    {13, LEAF_EXTENDED, 2, 11, STATE_AVX},  // xop
    {14, LEAF_1, 2, 29, STATE_AVX},         // f16c
    {15, LEAF_7, 1, 5, STATE_AVX},          // avx2
    {20, LEAF_7, 1, 16, STATE_AVX512},      // avx512f
    {21, LEAF_7, 1, 28, STATE_AVX512},      // avx512cd
    {22, LEAF_7, 1, 31, STATE_AVX512},      // avx512vl
    {23, LEAF_7, 1, 17, STATE_AVX512},      // avx512dq
    {24, LEAF_7, 1, 30, STATE_AVX512},      // avx512bw
    {25, LEAF_7, 1, 21, STATE_AVX512},      // avx512ifma
    {26, LEAF_7, 2, 1, STATE_AVX512},       // avx512vbmi
    {27, LEAF_7, 2, 14, STATE_AVX512},      // avx512vpopcntdq
    {28, LEAF_7, 2, 11, STATE_AVX512},      // avx512vnni
    {29, LEAF_7, 2, 6, STATE_AVX512},       // avx512vbmi2
    {30, LEAF_7, 2, 12, STATE_AVX512},      // avx512bitalg
    {31, LEAF_7_1, 0, 5, STATE_AVX512},     // avx512bf16
    {32, LEAF_7, 3, 23, STATE_AVX512},      // avx512fp16
    {50, LEAF_7, 3, 24, STATE_AMX},         // amx-tile
    {51, LEAF_7, 3, 25, STATE_AMX},         // amx-int8
    {52, LEAF_7, 3, 22, STATE_AMX},         // amx-bf16
};

static uint64_t enabled_states(uint32_t leaf_1_ecx) {
  if ((leaf_1_ecx & (1u << 27)) == 0) return 0;  // no OSXSAVE: the system saves no vector state
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return ((uint64_t)high << 32) | low;
}

void tw_processor_query(uint64_t out_words[TW_PROCESSOR_DATA_COUNT]) {
  memset(out_words, 0, sizeof(uint64_t) * TW_PROCESSOR_DATA_COUNT);
  uint32_t r[LEAF_COUNT][4] = {{0}};
  if (!__get_cpuid(1, &r[LEAF_1][0], &r[LEAF_1][1], &r[LEAF_1][2], &r[LEAF_1][3])) return;
  __get_cpuid_count(7, 0, &r[LEAF_7][0], &r[LEAF_7][1], &r[LEAF_7][2], &r[LEAF_7][3]);
  if (r[LEAF_7][0] >= 1) {
    __get_cpuid_count(7, 1, &r[LEAF_7_1][0], &r[LEAF_7_1][1], &r[LEAF_7_1][2], &r[LEAF_7_1][3]);
  }
  uint32_t* extended = r[LEAF_EXTENDED];
  __get_cpuid(0x80000001u, &extended[0], &extended[1], &extended[2], &extended[3]);
  const uint64_t states = enabled_states(r[LEAF_1][2]);
  for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); ++i) {
    const feature_t* f = &features[i];
    if ((states & f->state) != f->state) continue;
    if ((r[f->leaf][f->reg] >> f->bit) & 1u) out_words[0] |= UINT64_C(1) << f->word_bit;
  }
}

#else

// Kernels see a plain machine; their code was compiled for the features it needs anyway.
void tw_processor_query(uint64_t out_words[TW_PROCESSOR_DATA_COUNT]) {
  memset(out_words, 0, sizeof(uint64_t) * TW_PROCESSOR_DATA_COUNT);
}

#endif

static tw_environment_t default_environment;

static void fill_default_environment(void) { tw_processor_query(default_environment.processor_data); }

const tw_environment_t* tw_environment_default(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, fill_default_environment);
  return &default_environment;
}
