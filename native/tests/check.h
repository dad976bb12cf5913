// What the files of the core's tests share.
#ifndef TW_TESTS_CHECK_H_
#define TW_TESTS_CHECK_H_

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)

// Blocks, mapped files and heaps (memory_test.c).
void test_memory(int may_fork);

#endif  // TW_TESTS_CHECK_H_
