// The C interface of the ranks that train together (exchange/world.h). Conventions as in capi.h.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Joins the ranks that MPI has started, by the library at `library`. `warn_seconds`, `error_seconds`: after which an
// exchange that waits for a rank says so, and fails. FailedPrecondition if the process has joined already.
int mxrec_world_join(const char* library, double warn_seconds, double error_seconds, int32_t* rank, int32_t* size);

// Leaves them; `why` is empty for an orderly end. Does nothing if the process has not joined.
void mxrec_world_leave(const char* why);

// The number of exchanges begun so far; 0 if the process has not joined.
int64_t mxrec_world_begun(void);

// Fails, on all ranks, the next exchange of those `streams` in which this rank has begun none since `begun`.
int mxrec_world_fail_since(int64_t begun, const char* const* streams, int32_t count, int32_t code, const char* message);

// Gives every rank `bytes` bytes of `data` and waits for what the ranks give, concatenated in their order into
// `*gathered`, `sizes[r]` bytes of rank r. To be freed by mxrec_world_free.
int mxrec_world_gather(const char* stream, const char* data, int64_t bytes, int64_t* sizes, char** gathered);
void mxrec_world_free(char* gathered);

// facts[0..2] = exchanges, bytes sent to other ranks, microseconds waited.
int mxrec_world_statistics(int64_t* facts);

// What the summed gradients of this rank are multiplied by before they go to the owners of a table's rows.
int mxrec_table_scale_gradients(const char* name, float scale);
// Makes a table one that every rank holds whole. FailedPrecondition if it has rows already.
int mxrec_table_replicate(const char* name);
// The rank, of `ranks`, that has each of `n` keys.
void mxrec_world_owners(const int64_t* keys, int64_t n, int32_t ranks, int32_t* owners);

#ifdef __cplusplus
}
#endif
