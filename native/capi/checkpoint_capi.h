// The C interface to checkpoints (native/checkpoint), with the conventions of capi.h.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Room for a slot name of 255 bytes and "/slice.attribute".
#define MXREC_FILE_NAME_BYTES 272

typedef struct {
  char name[MXREC_FILE_NAME_BYTES];  // relative to the table's directory, zero-terminated
  int64_t bytes;
  uint32_t crc32c;
} mxrec_checkpoint_file;

// Writes the table into the new directory `directory`; *rows receives the number of rows, files[0, *count) what was
// written. InvalidArgument if there is no room for 12 files and 2 for each slot.
int mxrec_checkpoint_save(const char* table, const char* directory, int64_t* rows, mxrec_checkpoint_file* files,
                          int32_t capacity, int32_t* count);

// Whether `directory` can be loaded into the table (reader.h: Verify); changes nothing. `expected` [count] may be
// empty.
int mxrec_checkpoint_verify(const char* table, const char* directory, const mxrec_checkpoint_file* expected,
                            int32_t count);

// Replaces the table's rows by those in `directory`; *rows receives their number.
int mxrec_checkpoint_load(const char* table, const char* directory, int64_t* rows);

// base/crc32c.h
uint32_t mxrec_crc32c(uint32_t crc, const void* data, int64_t n);

#ifdef __cplusplus
}
#endif
