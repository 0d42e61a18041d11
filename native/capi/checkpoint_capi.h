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

// The table as it is now (table/snapshot.h), all of it, or what has changed since the moment `base`; facts[0..1]
// receive the moment of the snapshot and the number of the table's rows. The snapshot must be ended.
typedef struct mxrec_snapshot mxrec_snapshot;
int mxrec_snapshot_take(const char* table, int64_t base, int32_t all, mxrec_snapshot** snapshot, int64_t* facts);
// numbers[0..4] = rows, refused keys, cells of the filter, deleted keys, the clock (SnapshotNumbers).
int mxrec_snapshot_count(mxrec_snapshot* snapshot, int64_t* numbers);
// Writes it into the new directory `directory`, once; *rows receives the number of rows, files[0, *count) what was
// written. InvalidArgument if there is no room for 14 files and 2 for each slot. Where several ranks write the
// directory together, `before` are the numbers of the ranks before this one, summed up, and `all` those of all ranks,
// with the latest clock; NULL if this process writes alone.
int mxrec_snapshot_write(mxrec_snapshot* snapshot, const char* directory, const int64_t* before, const int64_t* all,
                         int32_t is_first, int64_t* rows, mxrec_checkpoint_file* files, int32_t capacity,
                         int32_t* count);
void mxrec_snapshot_end(mxrec_snapshot* snapshot);

// See Table::FollowChanges, Moment and KnowsSince.
int mxrec_table_follow_changes(const char* table, int32_t keys);
int mxrec_table_moment(const char* table, int64_t* moment);
int mxrec_table_knows_since(const char* table, int64_t moment, int32_t* known);

// The files of a table in `directory`, all opened, and kept until the reader is closed (reader.h). `rows_only`: keys
// and embeddings alone. `rank`, `ranks`: only what that rank owns is loaded. `joins`: the directory has a part of what
// is loaded, and the table another one. `expected` [count]: what was written, or nothing if that is not known.
typedef struct mxrec_reader mxrec_reader;
int mxrec_reader_open(const char* table, const char* directory, int32_t is_delta, int32_t rows_only, int32_t rank,
                      int32_t ranks, int32_t joins, const mxrec_checkpoint_file* expected, int32_t count,
                      mxrec_reader** reader);
// Whether they can be loaded into the table; without `contents`, as far as sizes tell; *rows receives the number of
// rows. Changes nothing.
int mxrec_reader_verify(mxrec_reader* reader, int32_t contents, int64_t* rows);
// Replaces the table's rows by those of the files, or adds those of a delta; *rows receives their number. Checks
// contents unless that was done.
int mxrec_reader_load(mxrec_reader* reader, int64_t* rows);
void mxrec_reader_close(mxrec_reader* reader);

// base/crc32c.h
uint32_t mxrec_crc32c(uint32_t crc, const void* data, int64_t n);
uint32_t mxrec_crc32c_combine(uint32_t a, uint32_t b, int64_t length);

#ifdef __cplusplus
}
#endif
