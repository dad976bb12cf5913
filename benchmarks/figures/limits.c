/* The machine's two limits, measured by threads pinned by the caller's affinity mask:
 *   tw_limit_fma   f32 multiply-add, registers only, in operations per second over all threads
 *   tw_limit_tile  the same in a matrix product's innermost loop: a register tile whose operands come
 *                  from the first level cache.  The mean over the time, not the best moment: on a
 *                  machine that others share it shows how much of the peak there is to be had now
 *   tw_limit_read  streaming read of a buffer, in bytes per second over all threads
 * Built by limits.py with the system compiler, -O3 -march=native. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif
#define LANES (VECTOR_BYTES / 4)
#define MAX_THREADS 64
#if defined(__AVX512F__)
#define TILE_ROWS 12
#define TILE_VECTORS 2
#else
#define TILE_ROWS 4
#define TILE_VECTORS 3
#endif

typedef float vector_t __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t bits_t __attribute__((vector_size(VECTOR_BYTES)));

#if defined(__x86_64__)
#define IN_REGISTER(value) __asm__("" : "+x"(value)) /* loaded once, for all rows */
#else
#define IN_REGISTER(value) (void)(value)
#endif

typedef enum { FMA, TILE, READ } limit_t;

typedef struct {
  limit_t limit;
  double seconds;          /* how long to repeat */
  const char *data;        /* this thread's share, null for the FMA limit */
  size_t bytes;
  pthread_barrier_t *start;
  double best;             /* best rate of one repetition */
  double mean;             /* of all repetitions */
  volatile uint32_t sink;  /* keeps the results alive */
} job_t;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Twelve chains hide a latency of four cycles at two (ymm) or one (zmm) per cycle and still leave
 * registers for the two factors on a machine with sixteen. */
static double fma_once(job_t *job) {
  enum { ROUNDS = 100000 };
  volatile float seed = 1.0f + (float)job->sink * 1e-30f;
  vector_t x = (vector_t){0} + seed * 0.999999f, y = (vector_t){0} + seed * 1e-7f;
  vector_t a = x, b = x * 2, c = x * 3, d = x * 4, e = x * 5, f = x * 6;
  vector_t g = x * 7, h = x * 8, i = x * 9, j = x * 10, k = x * 11, l = x * 12;
  double begin = now();
  for (int round = 0; round < ROUNDS; ++round) {
    a = a * x + y, b = b * x + y, c = c * x + y, d = d * x + y;
    e = e * x + y, f = f * x + y, g = g * x + y, h = h * x + y;
    i = i * x + y, j = j * x + y, k = k * x + y, l = l * x + y;
  }
  vector_t total = a + b + c + d + e + f + g + h + i + j + k + l;
  float sum = 0;
  for (int lane = 0; lane < LANES; ++lane) sum += total[lane];
  job->sink = sum > 0;
  double seconds = now() - begin;
  return 2.0 * 12 * LANES * ROUNDS / seconds;
}

/* Sums of 256 products, as many as the registers hold: rows of one factor against columns of the other. */
static double tile_once(job_t *job) {
  enum { DEPTH = 256, ROW = DEPTH + 16, ROUNDS = 200 };
  static _Thread_local float left[TILE_ROWS * ROW];
  static _Thread_local vector_t right[DEPTH * TILE_VECTORS];
  uint32_t sum = 0;
  double begin = now();
  for (int round = 0; round < ROUNDS; ++round) {
    vector_t total[TILE_ROWS][TILE_VECTORS] = {0};
    for (int k = 0; k < DEPTH; ++k) {
      vector_t columns[TILE_VECTORS];
#pragma GCC unroll 4
      for (int v = 0; v < TILE_VECTORS; ++v) {
        columns[v] = right[k * TILE_VECTORS + v];
        IN_REGISTER(columns[v]);
      }
#pragma GCC unroll 16
      for (int row = 0; row < TILE_ROWS; ++row) {
        vector_t factor = left[row * ROW + k] - (vector_t){0};
#pragma GCC unroll 4
        for (int v = 0; v < TILE_VECTORS; ++v) total[row][v] += factor * columns[v];
      }
    }
    vector_t all = {0};
#pragma GCC unroll 16
    for (int row = 0; row < TILE_ROWS; ++row) {
#pragma GCC unroll 4
      for (int v = 0; v < TILE_VECTORS; ++v) all += total[row][v];
    }
    sum += all[0] > 0;
    left[round % ROW] = (float)sum;  /* the compiler may take neither factor for constant */
    right[round % DEPTH][round % LANES] = (float)sum;
  }
  job->sink = sum;
  return 2.0 * TILE_ROWS * TILE_VECTORS * LANES * DEPTH * ROUNDS / (now() - begin);
}

/* Adds integers: the order of floating-point sums must be kept, that of integer sums need not. */
static double read_once(job_t *job) {
  const bits_t *data = (const bits_t *)job->data;
  size_t count = job->bytes / VECTOR_BYTES / 8 * 8;
  bits_t s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0}, s4 = {0}, s5 = {0}, s6 = {0}, s7 = {0};
  double begin = now();
  for (size_t at = 0; at < count; at += 8) {
    s0 += data[at], s1 += data[at + 1], s2 += data[at + 2], s3 += data[at + 3];
    s4 += data[at + 4], s5 += data[at + 5], s6 += data[at + 6], s7 += data[at + 7];
  }
  bits_t total = s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7;
  uint32_t sum = 0;
  for (int lane = 0; lane < LANES; ++lane) sum += total[lane];
  job->sink = sum;
  double seconds = now() - begin;
  return (double)(count * VECTOR_BYTES) / seconds;
}

static void *work(void *argument) {
  job_t *job = argument;
  pthread_barrier_wait(job->start);
  double begin = now();
  double inverse = 0;
  int count = 0;
  do {
    double rate = job->limit == READ ? read_once(job) : job->limit == TILE ? tile_once(job) : fma_once(job);
    if (rate > job->best) job->best = rate;
    inverse += 1 / rate;
    ++count;
  } while (now() - begin < job->seconds);
  job->mean = count / inverse;
  return NULL;
}

static double run(limit_t limit, int threads, double seconds, const char *data, size_t bytes) {
  if (threads < 1 || threads > MAX_THREADS) return -1;
  pthread_t handles[MAX_THREADS];
  job_t jobs[MAX_THREADS];
  pthread_barrier_t start;
  pthread_barrier_init(&start, NULL, (unsigned)threads);
  size_t share = bytes / (size_t)threads / 4096 * 4096;
  for (int t = 0; t < threads; ++t) {
    jobs[t] = (job_t){.limit = limit, .seconds = seconds, .bytes = share, .start = &start};
    if (data) jobs[t].data = data + (size_t)t * share;
    pthread_create(&handles[t], NULL, work, &jobs[t]);
  }
  double total = 0;
  for (int t = 0; t < threads; ++t) {
    pthread_join(handles[t], NULL);
    total += limit == TILE ? jobs[t].mean : jobs[t].best;
  }
  pthread_barrier_destroy(&start);
  return total;
}

double tw_limit_fma(int threads, double seconds) { return run(FMA, threads, seconds, NULL, 0); }

double tw_limit_tile(int threads, double seconds) { return run(TILE, threads, seconds, NULL, 0); }

double tw_limit_read(int threads, double seconds, const void *data, size_t bytes) {
  return run(READ, threads, seconds, data, bytes);
}
