#include "tw_image.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct tw_image_t {
  uint8_t* base;
  size_t size_bytes;
  size_t page_bytes;
  size_t page_count;
  uint8_t protections[];  // one set of bits per page, applied by seal
};

tw_status_t tw_image_create(uint64_t size_bytes, tw_image_t** out_image) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  if (size_bytes == 0 || size_bytes > SIZE_MAX / 2) return TW_STATUS_INVALID;
  const size_t page_count = ((size_t)size_bytes + page - 1) / page;
  tw_image_t* image = calloc(1, sizeof(*image) + page_count);
  if (image == NULL) return TW_STATUS_NO_MEMORY;
  void* base = mmap(NULL, page_count * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) {
    free(image);
    return TW_STATUS_NO_MEMORY;
  }
  image->base = base;
  image->size_bytes = (size_t)size_bytes;
  image->page_bytes = page;
  image->page_count = page_count;
  *out_image = image;
  return TW_STATUS_OK;
}

void tw_image_destroy(tw_image_t* image) {
  if (image == NULL) return;
  munmap(image->base, image->page_count * image->page_bytes);
  free(image);
}

uint8_t* tw_image_base(const tw_image_t* image) { return image->base; }

size_t tw_image_size(const tw_image_t* image) { return image->size_bytes; }

static int contains(const tw_image_t* image, uint64_t offset, uint64_t size_bytes) {
  return offset <= image->size_bytes && size_bytes <= image->size_bytes - offset;
}

tw_status_t tw_image_write(tw_image_t* image, uint64_t offset, const void* data, size_t size_bytes) {
  if (!contains(image, offset, size_bytes)) return TW_STATUS_INVALID;
  if (size_bytes != 0) memcpy(image->base + offset, data, size_bytes);
  return TW_STATUS_OK;
}

tw_status_t tw_image_relocate(tw_image_t* image, uint64_t offset, uint64_t value, int is_base_relative) {
  const uint64_t word = is_base_relative ? value + (uint64_t)(uintptr_t)image->base : value;
  return tw_image_write(image, offset, &word, sizeof(word));
}

tw_status_t tw_image_protect(tw_image_t* image, uint64_t offset, uint64_t size_bytes, uint32_t protection) {
  const uint32_t both = TW_PROTECT_WRITE | TW_PROTECT_EXECUTE;
  if (!contains(image, offset, size_bytes) || (protection & both) == both || protection > 7) {
    return TW_STATUS_INVALID;
  }
  if (size_bytes == 0) return TW_STATUS_OK;
  const size_t last = (size_t)(offset + size_bytes - 1) / image->page_bytes;
  for (size_t page = (size_t)offset / image->page_bytes; page <= last; ++page) {
    image->protections[page] = (uint8_t)protection;
  }
  return TW_STATUS_OK;
}

static int system_protection(uint8_t protection) {
  int bits = PROT_NONE;
  if (protection & TW_PROTECT_READ) bits |= PROT_READ;
  if (protection & TW_PROTECT_WRITE) bits |= PROT_WRITE;
  if (protection & TW_PROTECT_EXECUTE) bits |= PROT_EXEC;
  return bits;
}

tw_status_t tw_image_seal(tw_image_t* image) {
  char* begin = (char*)image->base;
  __builtin___clear_cache(begin, begin + image->size_bytes);
  for (size_t first = 0; first < image->page_count;) {
    size_t end = first + 1;
    while (end < image->page_count && image->protections[end] == image->protections[first]) ++end;
    uint8_t* address = image->base + first * image->page_bytes;
    if (mprotect(address, (end - first) * image->page_bytes, system_protection(image->protections[first])) != 0) {
      return TW_STATUS_SYSTEM;
    }
    first = end;
  }
  return TW_STATUS_OK;
}

int tw_image_allows(const tw_image_t* image, uint64_t offset, uint64_t size_bytes, uint32_t protection) {
  if (!contains(image, offset, size_bytes)) return 0;
  if (size_bytes == 0) return 1;
  const size_t last = (size_t)(offset + size_bytes - 1) / image->page_bytes;
  for (size_t page = (size_t)offset / image->page_bytes; page <= last; ++page) {
    if ((image->protections[page] & protection) != protection) return 0;
  }
  return 1;
}
