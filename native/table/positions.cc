#include "table/positions.h"

#include <algorithm>

#include "batch/plan_check.h"
#include "table/table.h"

namespace mxrec {
namespace {

Status CheckOneHandlePerKey(const TablePlan& table, int64_t handles) {
  if (handles == table.keys_size) return Status();
  return Status::InvalidArgument("one handle per key is needed: " + std::to_string(table.keys_size) + ", got " +
                                 std::to_string(handles));
}

}  // namespace

Status HasRow(const TablePlan& table, const FeaturePlan& feature, const int64_t* handles, int64_t n, bool* out) {
  MXREC_RETURN_IF_ERROR(CheckOneHandlePerKey(table, n));
  for (int64_t i = 0; i < feature.size; ++i) out[i] = handles[table.key_at(feature.first + i)] != kNoRow;
  return Status();
}

void IsPadding(const TablePlan& table, const FeaturePlan& feature, const std::vector<int64_t>& keys, bool* out) {
  for (int64_t i = 0; i < feature.size; ++i) {
    out[i] = std::binary_search(keys.begin(), keys.end(), table.keys[table.key_at(feature.first + i)]);
  }
}

Status Touched(const Plan& plan, int64_t table, const std::vector<int64_t>& features, const int64_t* handles, int64_t n,
               const ParallelFor& parallel, int64_t* out) {
  std::fill_n(out, n, kNoRow);
  if (table < 0 || table >= static_cast<int64_t>(plan.tables().size())) {
    return Status::InvalidArgument("`table` is out of range");
  }
  const TablePlan& part = plan.tables()[table];
  MXREC_RETURN_IF_ERROR(CheckContents({{&part, false}}, parallel));
  for (const int64_t number : features) {
    const FeaturePlan* feature = nullptr;
    MXREC_RETURN_IF_ERROR(plan.FindFeature(number, table, &feature));
    MXREC_RETURN_IF_ERROR(CheckOneHandlePerKey(part, n));
    for (int64_t i = 0; i < feature->size; ++i) {
      const int64_t key = part.key_at(feature->first + i);
      out[key] = handles[key];
    }
  }
  return Status();
}

}  // namespace mxrec
