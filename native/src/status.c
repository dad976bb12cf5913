#include "tw_status.h"

#include <stdarg.h>
#include <stdio.h>

tw_status_t tw_message_write(tw_message_t* message, tw_status_t status, const char* format, ...) {
  if (message == NULL) return status;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message->text, sizeof(message->text), format, arguments);
  va_end(arguments);
  return status;
}
