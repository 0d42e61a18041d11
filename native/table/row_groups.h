// RowGroups: which of many handles are of the same row, as was known when they were given out. Gradients that come back
// with the same handles in the same order need no search for equal ones.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "batch/plan.h"

namespace mxrec {

class RowGroups {
 public:
  // `handles[u]` was given for key u of a grouped plan, whose words are `words`: one handle for each of its positions.
  RowGroups(std::shared_ptr<const int64_t> words, const TablePlan& plan, std::vector<int64_t> handles)
      : words_(std::move(words)), plan_(plan), handles_(std::move(handles)) {}

  // Whether these are the handles that were given, position by position.
  bool Fit(const std::vector<int64_t>& handles) const {
    const int64_t n = static_cast<int64_t>(handles.size());
    if (n != plan_.positions_size) return false;
    int64_t others = 0;
    for (int64_t i = 0; i < n; ++i) others += handles[i] != handles_[plan_.index[i]];
    return others == 0;
  }
  int64_t size() const { return plan_.keys_size; }
  const int64_t* handles() const { return handles_.data(); }    // [size]
  const int32_t* offsets() const { return plan_.offsets; }      // [size + 1], into positions
  const int32_t* positions() const { return plan_.positions; }  // group after group, each ascending

 private:
  std::shared_ptr<const int64_t> words_;
  TablePlan plan_;
  std::vector<int64_t> handles_;
};

}  // namespace mxrec
