// The C interface of the core, for Python's ctypes: everything that happens outside a TensorFlow graph. Conventions:
//
//   1. Functions that can fail return a Status::Code (0 = ok); mxrec_last_error() then holds the message, per thread.
//   2. Tables are named, never pointed to: a name cannot dangle.
//   3. Arrays belong to the caller and are C-contiguous.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The message of this thread's last failure.
const char* mxrec_last_error(void);

// What a table is made from (table/table.h: TableConfig). The core keeps none of the pointers.
typedef struct {
  const char* name;
  int32_t dim;
  int64_t max_rows;
  int64_t expected_rows;
  int32_t initializer;  // table/initializer.h: InitializerSpec::Kind; the next four are its numbers
  float a;
  float b;
  float scale;
  uint64_t seed;
  const float* pool;  // [pool_rows, dim], or null
  int64_t pool_rows;
  const int64_t* padding_keys;
  int64_t padding_count;
  int64_t memory_rows;  // > 0: rows beyond these are on disk, in the directories `paths` (table/tier.h)
  int64_t disk_rows;
  const char* const* paths;
  int32_t path_count;
} mxrec_table_config;

// Finds or creates a table (table/registry.h).
int mxrec_table_create(const mxrec_table_config* config);

// Slots of the optimizer that trains the table.
int mxrec_table_set_slots(const char* name, int32_t count, const char* const* slot_names, const float* initial_values);

// Copies the name of slot `slot` to out[capacity], zero-terminated. NotFound past the last slot.
int mxrec_table_slot_name(const char* name, int32_t slot, char* out, int64_t capacity);

// facts[0..11] = rows, capacity, bytes, inserted, erased, shards, seen, refused, candidates, mutations, nonfinite,
// rows on other ranks
int mxrec_table_facts(const char* name, int64_t* facts);

// What its disk tier has done so far: facts[0..7] = rows in memory, rows on disk, bytes on disk, hits, promotions,
// demotions, rows written again to free space, nanoseconds that steps waited for rows. NotFound if it has none.
int mxrec_table_tier(const char* name, int64_t* facts);

// Makes the table track its keys (table.h: Track). tracking[0..3] = access threshold, eviction threshold, coefficient,
// bytes of the filter.
int mxrec_table_track(const char* name, const int64_t* tracking);
// What it tracks now: tracking[0..5] as above, then the clock and the number of training steps. NotFound if nothing.
int mxrec_table_tracking(const char* name, int64_t* tracking);
// Sets the access and eviction threshold, the coefficient and the number of steps, as a checkpoint holds them.
// Whether mxrec_table_restore_tracking would take these numbers.
int mxrec_table_check_tracking(const char* name, int64_t access, int64_t eviction, int64_t coefficient, int64_t step);
int mxrec_table_restore_tracking(const char* name, int64_t access, int64_t eviction, int64_t coefficient, int64_t step);
// What the table knows of keys, with a row or without: count, time, step [n]; zeros if it knows nothing.
int mxrec_table_history(const char* name, const int64_t* keys, int64_t n, int64_t* counts, int64_t* times,
                        int64_t* steps);

// A pass of eviction (table/eviction.h). `keep` < 0: by threshold. The pass must be ended.
typedef struct mxrec_eviction mxrec_eviction;
int mxrec_eviction_begin(const char* name, int32_t score, double threshold, int64_t keep, mxrec_eviction** eviction);
// *done receives whether the pass is complete, *evicted how many rows it has evicted so far.
int mxrec_eviction_run(mxrec_eviction* eviction, int64_t rows, int32_t* done, int64_t* evicted);
void mxrec_eviction_end(mxrec_eviction* eviction);

// The rows of `keys`: out [n, dim * (1 + slots)], found [n] 0 or 1. Rows not found are zeros. Changes nothing.
int mxrec_table_read(const char* name, const int64_t* keys, int64_t n, float* out, uint8_t* found);

// Adds or replaces rows: values [n, dim * (1 + slots)].
int mxrec_table_write(const char* name, const int64_t* keys, int64_t n, const float* values);

// Gives keys, none of them twice, the embeddings [n, dim] (assign_embeddings.h).
int mxrec_table_assign(const char* name, const int64_t* keys, int64_t n, const float* embeddings);

// All keys, in the table's own order: out [capacity]; *n receives the number of keys, which may exceed capacity (then
// only the first are written).
int mxrec_table_keys(const char* name, int64_t* out, int64_t capacity, int64_t* n);

// Some keys that have a row, as good as a random sample: out [capacity]; *n receives their number, less than capacity
// if there are no more. Takes as long for a large table as for a small one.
int mxrec_table_some_keys(const char* name, int64_t* out, int64_t capacity, int64_t* n);

int mxrec_table_erase(const char* name, const int64_t* keys, int64_t n, int64_t* erased);
// Removes everything and sets the table's clock back.
int mxrec_table_clear(const char* name);

// See base/heap.h.
void mxrec_keep_freed_memory(void);

// Forgets all tables.
void mxrec_registry_clear(void);

#ifdef __cplusplus
}
#endif
