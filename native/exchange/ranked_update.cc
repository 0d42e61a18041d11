#include "exchange/ranked_update.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "exchange/owners.h"
#include "exchange/sections.h"
#include "table/update_rows.h"

namespace mxrec {
namespace {

// Where each of a table's gradients goes: numbers of keys or rows, owner after owner.
struct Route {
  std::vector<int32_t> order;
  std::vector<int64_t> starts;  // [ranks + 1], into `order`
};

bool IsReached(const FoldUpdateItem& item, int64_t u) {
  for (const FeatureGradient& gradient : item.gradients) {
    const PositionRange range = PositionsIn(item.plan, *gradient.feature, u);
    if (range.begin != range.end) return true;
  }
  return false;
}

Route RouteOf(const RankedGradients& gradients, int rank, int ranks) {
  const bool has_rows = gradients.rows != nullptr;
  const int64_t n = has_rows ? gradients.count : gradients.item.plan.keys_size;
  const int64_t* handles = has_rows ? gradients.handles : gradients.item.handles;
  std::vector<int16_t> owners(n, -1);
  Route route;
  route.starts.assign(ranks + 1, 0);
  for (int64_t i = 0; i < n; ++i) {
    if ((handles[i] & kFrozen) != 0) continue;  // kNoRow has all bits set
    if (!has_rows && !IsReached(gradients.item, i)) continue;
    // What names no rank goes to the first, whose check of handles says so.
    int owner = OwnerOfHandle(handles[i]) < ranks ? OwnerOfHandle(handles[i]) : 0;
    if (gradients.table->is_replicated()) owner = rank;
    owners[i] = static_cast<int16_t>(owner);
    ++route.starts[owner + 1];
  }
  for (int r = 0; r < ranks; ++r) route.starts[r + 1] += route.starts[r];
  std::vector<int64_t> next(route.starts.begin(), route.starts.end() - 1);
  route.order.resize(route.starts.back());
  for (int64_t i = 0; i < n; ++i) {
    if (owners[i] >= 0) route.order[next[owners[i]]++] = static_cast<int32_t>(i);
  }
  return route;
}

struct Range {
  int64_t from, size;
};
// Which of the gradients, in the route's order, go to rank `to`.
Range PartFor(const RankedGradients& gradients, const Route& route, int rank, int to) {
  const int owner = gradients.table->is_replicated() ? rank : to;
  return {route.starts[owner], route.starts[owner + 1] - route.starts[owner]};
}

// Adds the handles of keys whose rows all ranks have.
Status AddRows(const Table& table, const int64_t* keys, int64_t n, std::vector<int64_t>* handles) {
  const size_t first = handles->size();
  handles->resize(first + n);
  table.ResolveAny(keys, keys, n, handles->data() + first);  // a seal of 0: what stands for hints is not used
  for (int64_t i = 0; i < n; ++i) {
    if ((*handles)[first + i] >= 0) continue;
    return Status::InvalidArgument("table '" + table.config().name + "': another rank has a gradient for key " +
                                   std::to_string(keys[i]) +
                                   ", which has no row here: evict and restore between two steps, on all ranks alike");
  }
  return Status();
}

}  // namespace

Status SendGradients(const std::vector<RankedGradients>& gradients, int rank, int ranks, Nonfinite mode,
                     const ParallelFor& parallel, std::vector<Message>* messages) {
  const int64_t count = static_cast<int64_t>(gradients.size());
  if (mode == Nonfinite::kError) {
    std::vector<FoldUpdateItem> folded;
    for (const RankedGradients& one : gradients) {
      if (one.rows == nullptr) {
        folded.push_back(one.item);
      } else {
        MXREC_RETURN_IF_ERROR(CheckFiniteRows(one.table, one.handles, one.rows, one.count, parallel));
      }
    }
    MXREC_RETURN_IF_ERROR(CheckFiniteSums(folded, parallel));
  }
  std::vector<Route> routes(count);
  parallel.Run(count, 20000, [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) routes[g] = RouteOf(gradients[g], rank, ranks);
  });
  messages->clear();
  struct Copy {
    int64_t gradients;
    float* to;
  };
  std::vector<Copy> copies;                       // of what this rank sums for itself, for the other ranks
  std::vector<std::vector<float*>> slots(count);  // where the gradient of each key or row goes, in `order`
  for (int64_t g = 0; g < count; ++g) slots[g].resize(routes[g].order.size());
  for (int r = 0; r < ranks; ++r) {
    int64_t words = 0;
    for (int64_t g = 0; g < count; ++g) {
      const auto [from, n] = PartFor(gradients[g], routes[g], rank, r);
      words += kSectionWords + n + WordsOfRows(n, gradients[g].table->config().dim);
    }
    messages->emplace_back(words * 8);
    int64_t* at = reinterpret_cast<int64_t*>(messages->back().payload());
    for (int64_t g = 0; g < count; ++g) {
      const RankedGradients& one = gradients[g];
      const int64_t dim = one.table->config().dim;
      const auto [from, n] = PartFor(one, routes[g], rank, r);
      const int64_t* handles = one.rows == nullptr ? one.item.handles : one.handles;
      const SectionHead head = {n, FingerprintOf(*one.table), 0};
      std::memcpy(at, &head, sizeof(head));
      at += kSectionWords;
      for (int64_t i = 0; i < n; ++i) at[i] = HandleOfOwner(handles[routes[g].order[from + i]]);
      if (one.table->is_replicated()) {
        MXREC_RETURN_IF_ERROR(one.table->CheckHandles(at, n));
        for (int64_t i = 0; i < n; ++i) at[i] = one.table->row_keys().Of(at[i]);
      }
      at += n;
      if (one.table->is_replicated() && r != rank) {
        copies.push_back({g, reinterpret_cast<float*>(at)});
      } else {
        for (int64_t i = 0; i < n; ++i) slots[g][from + i] = reinterpret_cast<float*>(at) + i * dim;
      }
      at += WordsOfRows(n, dim);
    }
  }
  for (int64_t g = 0; g < count; ++g) {
    const RankedGradients& one = gradients[g];
    const int64_t dim = one.table->config().dim, n = static_cast<int64_t>(routes[g].order.size());
    parallel.Run(n, 40 + dim, [&](int64_t begin, int64_t end) {
      if (one.rows == nullptr) {
        FoldKeysInto(one.item, routes[g].order.data() + begin, end - begin, slots[g].data() + begin);
      } else {
        for (int64_t i = begin; i < end; ++i) {
          std::copy_n(one.rows + routes[g].order[i] * dim, dim, slots[g][i]);
        }
      }
      for (int64_t i = begin; one.scale != 1 && i < end; ++i) {
        for (int64_t j = 0; j < dim; ++j) slots[g][i][j] *= one.scale;
      }
    });
  }
  for (const Copy& copy : copies) {
    const int64_t n = static_cast<int64_t>(slots[copy.gradients].size());
    if (n > 0) std::copy_n(slots[copy.gradients][0], n * gradients[copy.gradients].table->config().dim, copy.to);
  }
  return Status();
}

Status ApplyGradients(const std::vector<Table*>& tables, const std::vector<Message>& messages, const Rule& rule,
                      const float* hyper, Nonfinite mode, const ParallelFor& parallel) {
  const int ranks = static_cast<int>(messages.size());
  std::vector<Sections> sections;
  for (int r = 0; r < ranks; ++r) sections.emplace_back(messages[r], r);
  std::vector<RepeatedRows> updates;
  for (Table* table : tables) {
    RepeatedRows update{table, {}, {}};
    for (int r = 0; r < ranks; ++r) {
      const int64_t dim = table->config().dim;
      SectionHead head{};
      const int64_t* handles = nullptr;
      const float* rows = nullptr;
      MXREC_RETURN_IF_ERROR(sections[r].Head(*table, &head));
      MXREC_RETURN_IF_ERROR(sections[r].Take(*table, head.count, &handles));
      MXREC_RETURN_IF_ERROR(sections[r].Take(*table, WordsOfRows(head.count, dim), &rows));
      if (table->is_replicated()) {
        MXREC_RETURN_IF_ERROR(AddRows(*table, handles, head.count, &update.handles));
      } else {
        MXREC_RETURN_IF_ERROR(table->CheckHandles(handles, head.count));
        update.handles.insert(update.handles.end(), handles, handles + head.count);
      }
      update.gradients.push_back({rows, dim, dim, head.count});
    }
    updates.push_back(std::move(update));
  }
  return UpdateAllRepeatedRows(updates, rule, hyper, mode, parallel);
}

}  // namespace mxrec
