#include "tw_executable.h"

typedef int (*import_t)(void* params, void* context, void* reserved);

int tw_import_thunk(void* function, void* params, void* context, void* reserved) {
  return ((import_t)function)(params, context, reserved);
}
