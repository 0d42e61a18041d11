// AssignEmbeddings: gives many keys their embeddings, all of them or none.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "table/table.h"

namespace mxrec {

// Gives `n` keys, none of them twice, the embeddings [n, dim]. Rows that are there keep their slots and what is known
// of them; new ones have initial slots, and count as used in the table's present step. If the table, the memory or a
// disk is full, that is an error and every key stays as it was, as far as that disk lets it.
// REQUIRES: no step is running.
Status AssignEmbeddings(Table* table, const int64_t* keys, int64_t n, const float* embeddings);

}  // namespace mxrec
