#include "table/assign_embeddings.h"

#include <algorithm>
#include <vector>

namespace mxrec {

Status AssignEmbeddings(Table* table, const int64_t* keys, int64_t n, const float* embeddings) {
  const int64_t dim = table->config().dim;
  std::vector<int64_t> places(n);
  table->HintAny(keys, n, places.data());
  const int64_t fresh = std::count(places.begin(), places.end(), int64_t{-1});
  MXREC_RETURN_IF_ERROR(table->Claim(fresh));
  table->Release(fresh);  // Assign claims its own; nobody else does meanwhile

  std::vector<float> before((n - fresh) * dim), row(table->layout().stride());
  float* old = before.data();
  for (int64_t i = 0; i < n; ++i) {
    if (places[i] < 0) continue;
    bool is_found;
    MXREC_RETURN_IF_ERROR(table->Read(keys[i], row.data(), &is_found));
    old = std::copy_n(row.data(), dim, old);
  }

  std::vector<const float*> parts(1 + table->layout().slots().size(), nullptr);
  for (int64_t i = 0; i < n; ++i) {
    parts[0] = embeddings + i * dim;
    Status status = table->Assign(keys[i], parts.data());
    if (status.ok() && places[i] < 0 && table->history() != nullptr) {
      RowFacts facts = table->Facts(keys[i]);
      facts.step = table->history()->step();
      status = table->SetFacts(keys[i], facts);
    }
    if (status.ok()) continue;
    old = before.data();
    for (int64_t j = 0; j <= i; ++j) {
      if (places[j] < 0) {
        table->Erase(keys + j, 1);
      } else {
        parts[0] = old;
        (void)table->Assign(keys[j], parts.data());  // as far as the disk lets it
        old += dim;
      }
    }
    return status;
  }
  return Status();
}

}  // namespace mxrec
