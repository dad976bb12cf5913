// The floating-point control word of the calling thread, and its bits that take denormals as zero.
// Where the machine has no such bits, reading gives 0 and writing does nothing.
#ifndef TW_DENORMALS_H_
#define TW_DENORMALS_H_

#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>

enum { FLUSH_DENORMALS = 0x8040 };  // MXCSR: flush to zero, denormals are zero

static inline uint64_t float_control_read(void) { return _mm_getcsr(); }
static inline void float_control_write(uint64_t control) { _mm_setcsr((uint32_t)control); }

#elif defined(__aarch64__)

enum { FLUSH_DENORMALS = 0x1080000 };  // FPCR: FZ, FZ16

static inline uint64_t float_control_read(void) {
  uint64_t control = 0;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  return control;
}
static inline void float_control_write(uint64_t control) { __asm__ volatile("msr fpcr, %0" : : "r"(control)); }

#else

enum { FLUSH_DENORMALS = 0 };

static inline uint64_t float_control_read(void) { return 0; }
static inline void float_control_write(uint64_t control) { (void)control; }

#endif
#endif  // TW_DENORMALS_H_
