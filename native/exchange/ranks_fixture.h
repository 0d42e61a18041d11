// What the tests of ranks share: ranks that are threads, each with tables of its own, and a step of a model on one.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "exchange/local_transport.h"
#include "exchange/owners.h"
#include "exchange/ranked_lookup.h"
#include "exchange/ranked_update.h"
#include "exchange/world.h"
#include "table/plan_fixture.h"

namespace mxrec {
namespace ranks_fixture {

using plan_fixture::Ids;
using plan_fixture::Prepared;
using table_fixture::Floats;
using table_fixture::kDim;

// Exchanges and waits for the messages of all ranks.
inline Status ExchangeNow(World* world, const std::string& stream, std::vector<Message>* messages) {
  std::promise<Status> ended;
  world->Exchange(stream, std::move(*messages), [&](const Status& status, std::vector<Message> got) {
    *messages = std::move(got);
    ended.set_value(status);
  });
  return ended.get_future().get();
}

struct Rank {
  std::unique_ptr<World> world;
  Preparer::Tables tables;
  Preparer local{false}, owner{false};  // as in the ops

  // What a step has looked up.
  struct Looked {
    std::unique_ptr<Prepared> prepared;
    std::vector<table_fixture::Keys> handles;  // of each table
    std::vector<Floats> rows;
    std::vector<Floats> embeddings;  // of each feature
  };

  Status LookUp(const std::vector<Ids>& batch, bool insert, Looked* looked, bool pooled = false) {
    const SerialFor parallel;
    looked->prepared = std::make_unique<Prepared>(&local, tables, batch);
    const Plan& plan = looked->prepared->plan;
    std::vector<LookupTable> lookups(tables.size());
    looked->handles.resize(tables.size());
    looked->rows.resize(tables.size());
    for (size_t t = 0; t < tables.size(); ++t) {
      const int64_t keys = plan.tables()[t].keys_size;
      looked->handles[t].assign(keys, -99);
      looked->rows[t].assign(keys * kDim, -99.0f);
      lookups[t] = {tables[t].get(), static_cast<int64_t>(t), insert};
      lookups[t].handles = looked->handles[t].data();
      lookups[t].rows = looked->rows[t].data();
    }
    std::vector<LookupFeature> features;
    looked->embeddings.resize(batch.size());
    for (size_t f = 0; f < batch.size(); ++f) {
      const FeaturePlan& feature = plan.features()[f];
      Bags bags;
      MXREC_RETURN_IF_ERROR(BagsOf(feature, pooled ? Pooling::kSum : Pooling::kNone, &bags));
      looked->embeddings[f].assign(bags.count * kDim, -99.0f);
      features.push_back({feature.table, &feature, bags, looked->embeddings[f].data(), kDim});
    }
    RankedLookup lookup(world->rank(), world->size(), plan, tables, lookups, features);
    std::vector<Message> messages;
    Status status = lookup.Ask(parallel, &messages);
    if (!status.ok()) world->Fail("keys", status);
    MXREC_RETURN_IF_ERROR(status);
    MXREC_RETURN_IF_ERROR(ExchangeNow(world.get(), "keys", &messages));
    std::vector<Message> answers;
    status = lookup.Answer(std::move(messages), &owner, parallel, &answers);
    if (!status.ok()) world->Fail("rows", status);
    MXREC_RETURN_IF_ERROR(status);
    MXREC_RETURN_IF_ERROR(ExchangeNow(world.get(), "rows", &answers));
    return lookup.Finish(std::move(answers), parallel);
  }

  // Updates with `gradients`, of each feature's embeddings.
  Status Update(const Looked& looked, const std::vector<Floats>& gradients, const char* rule, const Floats& hyper,
                Nonfinite mode = Nonfinite::kError) {
    EXPECT_EQ(hyper.size(), FindRule(rule)->hyper.size());  // it reads as many
    const SerialFor parallel;
    const Plan& plan = looked.prepared->plan;
    std::vector<RankedGradients> all;
    std::vector<Table*> owned;
    for (size_t t = 0; t < tables.size(); ++t) {
      RankedGradients one{tables[t].get()};
      one.item = {tables[t].get(), plan.tables()[t], looked.handles[t].data(), {}};
      for (size_t f = 0; f < gradients.size(); ++f) {
        const FeaturePlan& feature = plan.features()[f];
        if (feature.table != static_cast<int64_t>(t)) continue;
        const int64_t rows = static_cast<int64_t>(gradients[f].size()) / kDim;
        one.item.gradients.push_back(
            {&feature, gradients[f].data(), kDim, Divider(static_cast<uint32_t>(rows == 0 ? 1 : feature.size / rows))});
      }
      all.push_back(std::move(one));
      owned.push_back(tables[t].get());
    }
    std::vector<Message> messages;
    const Status status = SendGradients(all, world->rank(), world->size(), mode, parallel, &messages);
    if (!status.ok()) world->Fail("gradients", status);
    MXREC_RETURN_IF_ERROR(status);
    MXREC_RETURN_IF_ERROR(ExchangeNow(world.get(), "gradients", &messages));
    return ApplyGradients(owned, messages, *FindRule(rule), hyper.data(), mode, parallel);
  }
};

class Ranks {
 public:
  Ranks(int size, const std::function<Preparer::Tables()>& make_tables) : ranks_(size) {
    auto transports = LocalTransports(size);
    for (int r = 0; r < size; ++r) {
      ranks_[r].world = std::make_unique<World>(std::move(transports[r]));
      ranks_[r].tables = make_tables();
    }
  }
  int size() const { return static_cast<int>(ranks_.size()); }
  Rank& operator[](int r) { return ranks_[r]; }

  // Runs fn(rank number, rank) on all ranks at once.
  void Run(const std::function<void(int, Rank&)>& fn) {
    std::vector<std::thread> threads;
    for (int r = 0; r < size(); ++r) threads.emplace_back([&, r] { fn(r, ranks_[r]); });
    for (std::thread& thread : threads) thread.join();
  }

  // The row of a key, from whichever rank has it; fails the test if several do.
  bool Find(size_t table, int64_t key, Floats* row) {
    int found = 0;
    for (Rank& rank : ranks_) {
      Floats values(table_fixture::RowFloats(*rank.tables[table]));
      if (!table_fixture::ReadInto(*rank.tables[table], key, values.data())) continue;
      *row = values;
      ++found;
    }
    EXPECT_LE(found, 1) << "key " << key << " lives on several ranks";
    return found > 0;
  }

 private:
  std::vector<Rank> ranks_;
};

}  // namespace ranks_fixture
}  // namespace mxrec
