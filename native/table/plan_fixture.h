// What the tests share that need the plan of a batch: features with ids, prepared as in an input pipeline.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "table/preparer.h"
#include "table/table_fixture.h"

namespace mxrec {
namespace plan_fixture {

using table_fixture::Keys;

struct Ids {
  int64_t table;
  Keys ids;
  Keys shape;
};

class Prepared {
 public:
  Prepared(Preparer* preparer, const Preparer::Tables& tables, const std::vector<Ids>& batch, bool grouped = true,
           const ParallelFor& parallel = SerialFor()) {
    Preparer::Ids ids(tables.size());
    std::vector<FeaturePlan> features;
    for (const Ids& f : batch) {
      const int64_t size = static_cast<int64_t>(f.ids.size());
      ids[f.table].push_back({f.ids.data(), size});
      features.push_back({f.table, 0, size, f.shape});
    }
    const Status status = preparer->Prepare(tables, ids, features, TimeSpan(), grouped, parallel, [&](int64_t n) {
      words.assign(n, 0);
      return words.data();
    });
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(Plan::Parse(words.data(), static_cast<int64_t>(words.size()), &plan).ok());
  }
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;

  Keys words;
  Plan plan;
};

}  // namespace plan_fixture
}  // namespace mxrec
