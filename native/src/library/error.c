#include "error.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char last_error[1024];

int tw_error_set(int status, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(last_error, sizeof(last_error), format, arguments);
  va_end(arguments);
  return status;
}

const char* tw_error_text(void) { return last_error; }

void tw_text_add(tw_text_t* text, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const size_t room = sizeof(text->text) - text->length;
  const int length = vsnprintf(text->text + text->length, room, format, arguments);
  va_end(arguments);
  if (length > 0) text->length += (size_t)length < room ? (size_t)length : room - 1;
}
