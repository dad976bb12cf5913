#include "error.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The text of a thread's last error. Not a thread-local array: `fault.c` has a variable that must lie in the static
// block of thread-local memory, all others of the library would with it, and that block has no room for the
// texts of several libraries.
enum { TEXT_BYTES = 1024 };  // at first: names of a model are as long as a stranger likes

typedef struct error_text_t {
  size_t room;  // with the zero at the end
  char bytes[];
} error_text_t;

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

static error_text_t* thread_text(void) { return has_key ? pthread_getspecific(texts) : NULL; }

static error_text_t* new_text(size_t room) {
  error_text_t* text = has_key ? calloc(1, sizeof(*text) + room) : NULL;
  if (text != NULL) text->room = room;
  return text;
}

// Makes a text this thread's in place of the one before, which is given back.
static void keep_text(error_text_t* text) {
  error_text_t* before = thread_text();
  free(pthread_setspecific(texts, text) == 0 ? before : text);
}

// Always in a new block: what is said may quote the text before.
int tw_error_set(int status, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  error_text_t* text = new_text(length < TEXT_BYTES ? TEXT_BYTES : (size_t)length + 1);
  if (text == NULL) text = new_text(TEXT_BYTES);  // cut is better than nothing
  char last_resort[TEXT_BYTES];
  char* bytes = text != NULL ? text->bytes : last_resort;
  va_start(arguments, format);
  vsnprintf(bytes, text != NULL ? text->room : sizeof(last_resort), format, arguments);
  va_end(arguments);
  if (text != NULL) {
    keep_text(text);
  } else if ((text = thread_text()) != NULL) {
    memcpy(text->bytes, bytes, TEXT_BYTES);  // a block has as many at least
  }
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
  const error_text_t* text = thread_text();
  return text != NULL ? text->bytes : "no error, or no memory for its text";
}

void tw_text_add(tw_text_t* text, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const size_t room = sizeof(text->text) - text->length;
  const int length = vsnprintf(text->text + text->length, room, format, arguments);
  va_end(arguments);
  if (length > 0) text->length += (size_t)length < room ? (size_t)length : room - 1;
}
