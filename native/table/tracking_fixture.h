// What the tests of tables that track their keys share: a step over several tables, prepared as the input pipeline does
// it and committed as a lookup does it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "table/commit.h"
#include "table/embed.h"
#include "table/table_fixture.h"

namespace mxrec {
namespace tracking_fixture {

using table_fixture::Floats;
using table_fixture::kDim;
using table_fixture::Keys;
using Tables = std::vector<std::shared_ptr<Table>>;

inline std::shared_ptr<Table> MakeTracked(const Tracking& tracking, const TableConfig& config = table_fixture::Config(),
                                          const std::vector<SlotSpec>& slots = {}) {
  std::shared_ptr<Table> table = table_fixture::Make(config, slots);
  const Status status = table->Track(tracking);
  EXPECT_TRUE(status.ok()) << status.message();
  return table;
}

class Step {
 public:
  // Prepares: `ids` for each table, and no time, one, or one for each sample, of which there are so many that the ids
  // can be divided by them.
  Step(Tables tables, std::vector<Keys> ids, Keys times = {})
      : tables_(std::move(tables)), ids_(std::move(ids)), times_(std::move(times)) {
    std::vector<Grouping> groupings(tables_.size());
    std::vector<PlanWriter::Table> parts;
    std::vector<FeaturePlan> features;
    for (size_t t = 0; t < tables_.size(); ++t) {
      const int64_t n = static_cast<int64_t>(ids_[t].size());
      groupings[t].Build({{ids_[t].data(), n}}, tables_[t]->shard_bits());
      parts.push_back({tables_[t]->config().name, &groupings[t]});
      features.push_back({static_cast<int64_t>(t), 0, n, {n}});
      keys_.push_back(groupings[t].keys());
      handles_.emplace_back(keys_[t].size(), -99);
      embeddings_.emplace_back(n * tables_[t]->config().dim, -99.0f);
    }
    const PlanWriter writer(std::move(parts), std::move(features),
                            {times_.data(), static_cast<int64_t>(times_.size())});
    words_.assign(writer.words(), -1);
    writer.Write(words_.data());
    for (size_t t = 0; t < tables_.size(); ++t) {
      const std::vector<int32_t>& starts = groupings[t].shard_starts();
      for (int s = 0; s < tables_[t]->shards(); ++s) {
        writer.seals(words_.data(), t)[s] = tables_[t]->Hint(s, keys_[t].data() + starts[s], starts[s + 1] - starts[s],
                                                             writer.hints(words_.data(), t) + starts[s]);
      }
    }
  }

  Step(Step&&) = default;
  ~Step() { End(); }

  // Makes the hints anything: rows of others, of nobody, no rows at all.
  void SpoilHints(uint64_t seed) {
    std::mt19937_64 random(seed);
    Plan plan;
    ASSERT_TRUE(Plan::Parse(words_.data(), words_.size(), &plan).ok());
    for (const TablePlan& table : plan.tables()) {
      int64_t* hints = words_.data() + (table.hints - words_.data());
      for (int64_t u = 0; u < table.keys_size; ++u) {
        hints[u] = static_cast<int64_t>(random() % 2 == 0 ? random() : random() % 2000);
      }
    }
  }

  Status Train(const ParallelFor& parallel = SerialFor()) { return Run(true, parallel); }
  Status Evaluate(const ParallelFor& parallel = SerialFor()) { return Run(false, parallel); }

  // The handles are no longer needed; the step's end does this, too.
  void End() {
    for (size_t t = 0; t < uses_.size(); ++t) tables_[t]->EndUse(uses_[t]);
    uses_.clear();
  }

  const Keys& ids(size_t t) const { return ids_[t]; }
  const Keys& times() const { return times_; }
  const Keys& keys(size_t t) const { return keys_[t]; }
  const Keys& handles(size_t t) const { return handles_[t]; }
  // What the lookup gives for an id.
  Floats embedding(size_t t, int64_t i) const {
    const int64_t dim = tables_[t]->config().dim;
    return Floats(embeddings_[t].begin() + i * dim, embeddings_[t].begin() + (i + 1) * dim);
  }

 private:
  Status Run(bool insert, const ParallelFor& parallel) {
    Plan plan;
    MXREC_RETURN_IF_ERROR(Plan::Parse(words_.data(), words_.size(), &plan));
    std::vector<CommitItem> items;
    End();
    for (const auto& table : tables_) uses_.push_back(table->BeginUse());
    for (size_t t = 0; t < tables_.size(); ++t) {
      CommitItem item{tables_[t].get(), plan.tables()[t], handles_[t].data(), insert, {}, uses_[t]};
      const History* history = tables_[t]->history();
      if (insert && history != nullptr) {
        const bool needs_time = history->eviction_threshold() != Tracking::kOff;
        MXREC_RETURN_IF_ERROR(
            Tally::Make(plan, t, tables_[t]->config().name, history->coefficient(), needs_time, &item.tally));
      }
      items.push_back(std::move(item));
    }
    MXREC_RETURN_IF_ERROR(Commit(items, parallel));
    std::vector<EmbedItem> embeds;
    for (size_t t = 0; t < tables_.size(); ++t) {
      embeds.push_back({tables_[t].get(), plan.tables()[t], &plan.features()[t], handles_[t].data(), 1,
                        embeddings_[t].data(), tables_[t]->config().dim});
    }
    Embed(embeds, parallel);
    return Status();
  }

  Tables tables_;
  std::vector<Keys> ids_;
  Keys times_;
  std::vector<Keys> keys_;
  Keys words_;
  Keys uses_;
  std::vector<Keys> handles_;
  std::vector<Floats> embeddings_;
};

inline void MustTrain(const std::shared_ptr<Table>& table, Keys ids, Keys times = {}) {
  const Status status = Step({table}, {std::move(ids)}, std::move(times)).Train();
  ASSERT_TRUE(status.ok()) << status.message();
}

inline bool HasRow(const Table& table, int64_t key) {
  Floats row(table_fixture::RowFloats(table));
  return table_fixture::ReadInto(table, key, row.data());
}

inline void ExpectFacts(const Table& table, int64_t key, uint32_t count, int64_t time, uint32_t step) {
  const RowFacts facts = table.Facts(key);
  EXPECT_EQ(facts.count, count) << "of key " << key;
  EXPECT_EQ(facts.time, time) << "of key " << key;
  EXPECT_EQ(facts.step, step) << "of key " << key;
}

// The identities of lives, which hold for every table at any time.
inline void ExpectLivesAddUp(const Table& table) {
  const Table::Lives lives = table.lives();
  EXPECT_EQ(lives.seen, table.inserted() + lives.refused);
  EXPECT_EQ(table.inserted(), table.size() + table.erased());
  EXPECT_LE(lives.candidates, lives.refused);
  EXPECT_GE(lives.candidates, 0);
}

inline void ExpectLives(const Table& table, int64_t seen, int64_t refused, int64_t candidates) {
  EXPECT_EQ(table.lives().seen, seen);
  EXPECT_EQ(table.lives().refused, refused);
  EXPECT_EQ(table.lives().candidates, candidates);
  ExpectLivesAddUp(table);
}

}  // namespace tracking_fixture
}  // namespace mxrec
