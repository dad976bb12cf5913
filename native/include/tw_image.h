// Code images: one address range that is written first and protected afterwards.
//
// Not here: ELF. Whoever parsed the file says what goes where. A page is never writable and executable
// at once. Ownership: the caller destroys the image when no code in it can run any more.
#ifndef TW_IMAGE_H_
#define TW_IMAGE_H_

#include <stddef.h>
#include <stdint.h>

#include "tw_executable.h"
#include "tw_status.h"

enum { TW_PROTECT_READ = 1, TW_PROTECT_WRITE = 2, TW_PROTECT_EXECUTE = 4 };

typedef struct tw_image_t tw_image_t;

// Reserves zeroed, writable, not executable pages.
tw_status_t tw_image_create(uint64_t size_bytes, tw_image_t** out_image);
void tw_image_destroy(tw_image_t* image);

uint8_t* tw_image_base(const tw_image_t* image);
size_t tw_image_size(const tw_image_t* image);

// The three steps before sealing. A range outside the image or W+X is TW_STATUS_INVALID.
tw_status_t tw_image_write(tw_image_t* image, uint64_t offset, const void* data, size_t size_bytes);
tw_status_t tw_image_relocate(tw_image_t* image, uint64_t offset, uint64_t value, int is_base_relative);
tw_status_t tw_image_protect(tw_image_t* image, uint64_t offset, uint64_t size_bytes, uint32_t protection);

// Applies the protections (pages never named become inaccessible) and flushes the instruction cache.
tw_status_t tw_image_seal(tw_image_t* image);

// True if every page of the range has all bits of `protection`.
int tw_image_allows(const tw_image_t* image, uint64_t offset, uint64_t size_bytes, uint32_t protection);

#endif  // TW_IMAGE_H_
