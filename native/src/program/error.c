#include "error.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

// The text of a thread's last error. Not a thread-local array: `fault.c` has a variable that must lie in the static
// block of thread-local memory, all others of the library would with it, and that block has no room for the
// texts of several libraries.
enum { TEXT_BYTES = 1024 };

static pthread_key_t texts;
static atomic_int has_key;

__attribute__((constructor)) static void create_key(void) { has_key = pthread_key_create(&texts, free) == 0; }

// Closed, a library gives its key back: there are few. Not on Windows, where other threads may have been ended within
// a function of keys (see `tw_packed_close`).
#if !defined(_WIN32)
__attribute__((destructor)) static void delete_key(void) {
  if (!atomic_exchange(&has_key, 0)) return;
  free(pthread_getspecific(texts));
  pthread_key_delete(texts);
}
#endif

static char* thread_text(int makes_one) {
  char* text = has_key ? pthread_getspecific(texts) : NULL;
  if (text != NULL || !makes_one || !has_key) return text;
  text = calloc(1, TEXT_BYTES);
  if (text != NULL && pthread_setspecific(texts, text) != 0) {
    free(text);
    return NULL;
  }
  return text;
}

int tw_error_set(int status, const char* format, ...) {
  char* text = thread_text(1);
  if (text == NULL) return status;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, TEXT_BYTES, format, arguments);
  va_end(arguments);
  return status;
}

int tw_error_no_memory(void) { return tw_error_set(TW_MODEL_NO_MEMORY, "out of memory"); }

int tw_error_no_memory_for(size_t size_bytes, const char* what) {
  return tw_error_set(TW_MODEL_NO_MEMORY,
                      "no memory for %zu bytes%s: the system gives no more"
                      "\nhint: hold fewer arrays, or raise the limit of memory of this process",
                      size_bytes, what);
}

const char* tw_error_text(void) {
  const char* text = thread_text(0);
  return text != NULL ? text : "no error, or no memory for its text";
}

void tw_text_add(tw_text_t* text, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const size_t room = sizeof(text->text) - text->length;
  const int length = vsnprintf(text->text + text->length, room, format, arguments);
  va_end(arguments);
  if (length > 0) text->length += (size_t)length < room ? (size_t)length : room - 1;
}
