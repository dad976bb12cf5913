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

// Models of exported libraries (library_test.c).
void test_library_calls(int may_fork);

// Has so many allocations of the core fail, after the first ones; 0, 0: none (allocations.c). Returns how
// many did since it was called last.
int fail_allocations(int first, int count);

#endif  // TW_TESTS_CHECK_H_
