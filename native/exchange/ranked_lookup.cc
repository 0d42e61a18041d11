#include "exchange/ranked_lookup.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "batch/plan_check.h"
#include "exchange/owners.h"
#include "exchange/sections.h"
#include "table/commit.h"
#include "table/embed.h"

namespace mxrec {
namespace {

// Flags of a table's part of a request.
constexpr int64_t kInserts = 1;
constexpr int64_t kCounts = 2;  // each key has a weight and a time
constexpr int64_t kPads = 4;
constexpr int64_t kEnded = 8;

int64_t* WordsOf(Message* message) { return reinterpret_cast<int64_t*>(message->payload()); }

}  // namespace

RankedLookup::RankedLookup(int rank, int ranks, Plan plan, std::vector<std::shared_ptr<Table>> owned,
                           std::vector<LookupTable> tables, std::vector<LookupFeature> features)
    : rank_(rank), ranks_(ranks), has_ended_(false), plan_(std::move(plan)), features_(std::move(features)) {
  AddParts(std::move(owned), tables);
}

RankedLookup::RankedLookup(int rank, int ranks, std::vector<std::shared_ptr<Table>> owned,
                           std::vector<LookupTable> tables)
    : rank_(rank), ranks_(ranks), has_ended_(true) {
  AddParts(std::move(owned), tables);
}

void RankedLookup::AddParts(std::vector<std::shared_ptr<Table>> owned, const std::vector<LookupTable>& tables) {
  part_of_.assign(tables.size(), -1);
  for (size_t t = 0; t < tables.size(); ++t) {
    if (tables[t].table == nullptr) continue;
    part_of_[t] = static_cast<int64_t>(parts_.size());
    parts_.emplace_back();
    parts_.back().lookup = tables[t];
    parts_.back().table = std::move(owned[t]);
    parts_.back().is_counted = tables[t].insert && tables[t].table->history() != nullptr;
  }
}

RankedLookup::Range RankedLookup::AskedOf(const Part& part, int rank) const {
  const bool is_told_all = part.table->is_replicated() && part.lookup.insert;
  if (is_told_all) return {0, PlanOf(part).keys_size};
  return {part.starts[rank], part.starts[rank + 1] - part.starts[rank]};
}

int64_t RankedLookup::AnswersOf(const Part& part, int rank, int64_t asked) const {
  return part.table->is_replicated() && rank != rank_ ? 0 : asked;
}

Status RankedLookup::Ask(const ParallelFor& parallel, std::vector<Message>* requests) {
  if (has_ended_) {
    for (Part& part : parts_) part.starts.assign(ranks_ + 1, 0);
    for (int r = 0; r < ranks_; ++r) {
      requests->emplace_back(static_cast<int64_t>(parts_.size() * sizeof(SectionHead)));
      auto* heads = reinterpret_cast<SectionHead*>(requests->back().payload());
      for (size_t p = 0; p < parts_.size(); ++p) {
        const int64_t flags = kEnded | (parts_[p].lookup.insert ? kInserts : 0) | (parts_[p].is_counted ? kCounts : 0);
        heads[p] = {0, FingerprintOf(*parts_[p].table), flags, 0, parts_[p].table->size()};
      }
    }
    return Status();
  }
  std::vector<PlanRead> reads;
  std::vector<Tally> tallies(parts_.size());
  for (size_t p = 0; p < parts_.size(); ++p) {
    const Part& part = parts_[p];
    const TablePlan& plan = PlanOf(part);
    MXREC_RETURN_IF_ERROR(CheckLookup(part.lookup, plan, true));
    if (part.is_counted) {
      const History& history = *part.table->history();
      const bool needs_time = history.eviction_threshold() != Tracking::kOff;
      MXREC_RETURN_IF_ERROR(Tally::Make(plan_, part.lookup.in_plan, part.table->config().name, history.coefficient(),
                                        needs_time, &tallies[p]));
    }
    reads.push_back({&plan, true});
  }
  MXREC_RETURN_IF_ERROR(CheckContents(reads, parallel));

  parallel.Run(static_cast<int64_t>(parts_.size()), 20000, [&](int64_t begin, int64_t end) {
    std::vector<uint8_t> owners;
    for (int64_t p = begin; p < end; ++p) {
      Part& part = parts_[p];
      const TablePlan& plan = PlanOf(part);
      owners.resize(plan.keys_size);
      part.starts.assign(ranks_ + 1, 0);
      for (int64_t u = 0; u < plan.keys_size; ++u) {
        const int owner = part.table->is_replicated() ? rank_ : OwnerOf(plan.keys[u], ranks_);
        owners[u] = static_cast<uint8_t>(owner);
        ++part.starts[owner + 1];
      }
      for (int r = 0; r < ranks_; ++r) part.starts[r + 1] += part.starts[r];
      std::vector<int64_t> next(part.starts.begin(), part.starts.end() - 1);
      part.order.resize(plan.keys_size);
      for (int64_t u = 0; u < plan.keys_size; ++u) part.order[next[owners[u]]++] = static_cast<int32_t>(u);
    }
  });

  requests->clear();
  for (int r = 0; r < ranks_; ++r) {
    int64_t words = 0;
    for (const Part& part : parts_) {
      words += kSectionWords + AskedOf(part, r).size * (part.is_counted ? 3 : 1);
    }
    requests->emplace_back(words * static_cast<int64_t>(sizeof(int64_t)));
  }
  std::vector<int64_t> rows;  // the same number to all: they must agree on what the table holds
  for (const Part& part : parts_) rows.push_back(part.table->size());
  parallel.Run(ranks_, 20000, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      int64_t* out = WordsOf(&(*requests)[r]);
      for (size_t p = 0; p < parts_.size(); ++p) {
        const Part& part = parts_[p];
        const TablePlan& plan = PlanOf(part);
        const auto [from, n] = AskedOf(part, static_cast<int>(r));
        const int64_t flags =
            (part.lookup.insert ? kInserts : 0) | (part.is_counted ? kCounts : 0) | (part.lookup.pads ? kPads : 0);
        const SectionHead head = {n, FingerprintOf(*part.table), flags, part.is_counted ? tallies[p].latest() : 0,
                                  rows[p]};
        std::memcpy(out, &head, sizeof(head));
        out += kSectionWords;
        for (int64_t i = 0; i < n; ++i) out[i] = plan.keys[part.order[from + i]];
        out += n;
        if (!part.is_counted) continue;
        for (int64_t i = 0; i < n; ++i) {
          out[i] = tallies[p].weight(part.order[from + i]);
          out[n + i] = tallies[p].time(part.order[from + i]);
        }
        out += 2 * n;
      }
    }
  });
  return Status();
}

Status RankedLookup::Answer(std::vector<Message> requests, Preparer* preparer, const ParallelFor& parallel,
                            std::vector<Message>* answers) {
  const size_t count = parts_.size();
  Preparer::Tables tables(count);
  Preparer::Ids ids(count);
  std::vector<FeaturePlan> features;
  std::vector<std::vector<int64_t>> weights(count), times(count);
  std::vector<int64_t> latest(count, 0);
  std::vector<char> shows_padding(count, 0);
  std::vector<Sections> sections;
  bool inserts = false, have_all_ended = true;
  for (int r = 0; r < ranks_; ++r) sections.emplace_back(requests[r], r);
  for (size_t p = 0; p < count; ++p) {
    const Part& part = parts_[p];
    const Table& table = *part.table;
    tables[p] = part.table;
    inserts = inserts || part.lookup.insert;
    int64_t elsewhere = 0;
    for (int r = 0; r < ranks_; ++r) {
      SectionHead head{};
      const int64_t* keys = nullptr;
      MXREC_RETURN_IF_ERROR(sections[r].Head(table, &head));
      const int64_t mine = (part.lookup.insert ? kInserts : 0) | (part.is_counted ? kCounts : 0);
      if ((head.flags & (kInserts | kCounts)) != mine) {
        return Status::FailedPrecondition("table '" + table.config().name + "': rank " + std::to_string(r) +
                                          " trains it in this lookup and rank " + std::to_string(rank_) +
                                          " does not, or the reverse: all ranks must build the same graph");
      }
      if (r != rank_ && !table.is_replicated()) elsewhere += head.rows;
      have_all_ended = have_all_ended && (head.flags & kEnded) != 0;
      MXREC_RETURN_IF_ERROR(sections[r].Take(table, head.count, &keys));
      ids[p].push_back({keys, head.count});
      features.push_back({static_cast<int64_t>(p), 0, head.count, {head.count}});
      latest[p] = std::max(latest[p], head.latest);
      shows_padding[p] |= (head.flags & kPads) != 0;
      if (!part.is_counted) continue;
      const int64_t *weight = nullptr, *time = nullptr;
      MXREC_RETURN_IF_ERROR(sections[r].Take(table, head.count, &weight));
      MXREC_RETURN_IF_ERROR(sections[r].Take(table, head.count, &time));
      weights[p].insert(weights[p].end(), weight, weight + head.count);
      times[p].insert(times[p].end(), time, time + head.count);
    }
    part.table->SetElsewhere(elsewhere);
  }

  if (have_all_ended) return Status::OutOfRange("the data of all ranks have ended");

  // To its owner, what the ranks ask for is one batch, whose positions are their keys, rank after rank.
  std::shared_ptr<int64_t> words;
  Plan plan;
  int64_t size = 0;
  MXREC_RETURN_IF_ERROR(
      preparer->Prepare(tables, ids, std::move(features), TimeSpan(), inserts, parallel, [&](int64_t n) {
        words.reset(new int64_t[n], std::default_delete<int64_t[]>());
        size = n;
        return words.get();
      }));
  MXREC_RETURN_IF_ERROR(Plan::Parse(words.get(), size, &plan));
  std::vector<std::vector<int64_t>> handles(count);
  std::vector<CommitItem> commits;
  for (size_t p = 0; p < count; ++p) {
    const LookupTable& lookup = parts_[p].lookup;
    handles[p].resize(plan.tables()[p].keys_size);
    CommitItem commit{lookup.table, plan.tables()[p], handles[p].data(), lookup.insert, {}, lookup.use};
    commit.skips_padding = lookup.insert && shows_padding[p] == 0 && !lookup.table->config().padding_keys.empty();
    if (parts_[p].is_counted) {
      commit.tally = Tally::Merged(plan.tables()[p], weights[p].data(), times[p].data(), latest[p]);
    }
    commits.push_back(std::move(commit));
  }
  MXREC_RETURN_IF_ERROR(Commit(commits, parallel));
  for (size_t p = 0; p < count; ++p) {
    if (!parts_[p].table->is_replicated()) continue;
    parts_[p].table->row_keys().Note(plan.tables()[p].keys, handles[p].data(), plan.tables()[p].keys_size);
  }

  // Rows go straight into the messages. This rank's own need not travel: Finish finds them by their handles.
  answers->clear();
  std::vector<EmbedItem> embeds;
  std::vector<std::vector<int64_t*>> out(ranks_);
  for (int r = 0; r < ranks_; ++r) {
    int64_t bytes = 0;
    for (size_t p = 0; p < count; ++p) {
      const int64_t n = AnswersOf(parts_[p], r, plan.features()[p * ranks_ + r].size);
      bytes += 8 * (kSectionWords + n + (r == rank_ ? 0 : WordsOfRows(n, parts_[p].table->config().dim)));
    }
    answers->emplace_back(bytes);
    int64_t* at = WordsOf(&answers->back());
    for (size_t p = 0; p < count; ++p) {
      const FeaturePlan& feature = plan.features()[p * ranks_ + r];
      const int64_t dim = parts_[p].table->config().dim;
      const int64_t n = AnswersOf(parts_[p], r, feature.size);
      out[r].push_back(at);
      at += kSectionWords + n;
      if (r == rank_ || n == 0) continue;
      embeds.push_back(
          {parts_[p].table.get(), plan.tables()[p], &feature, handles[p].data(), 1, reinterpret_cast<float*>(at), dim});
      at += WordsOfRows(feature.size, dim);
    }
  }
  Embed(embeds, parallel);
  for (int r = 0; r < ranks_; ++r) {
    for (size_t p = 0; p < count; ++p) {
      const FeaturePlan& feature = plan.features()[p * ranks_ + r];
      const int64_t n = AnswersOf(parts_[p], r, feature.size);
      const SectionHead head = {n, FingerprintOf(*parts_[p].table), 0};
      std::memcpy(out[r][p], &head, sizeof(head));
      int64_t* to = out[r][p] + kSectionWords;
      parallel.Run(n, 2, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          to[i] = HandleAt(rank_, handles[p][plan.tables()[p].key_at(feature.first + i)]);
        }
      });
    }
  }
  for (size_t p = 0; p < count; ++p) {
    if (!parts_[p].lookup.insert || parts_[p].table->is_replicated()) continue;
    parts_[p].table->KeepGroups(std::make_shared<RowGroups>(words, plan.tables()[p], std::move(handles[p])));
  }
  return Status();
}

Status RankedLookup::Finish(std::vector<Message> answers, const ParallelFor& parallel) {
  if (has_ended_) return Status();
  for (Part& part : parts_) part.rows.resize(PlanOf(part).keys_size);
  for (int r = 0; r < ranks_; ++r) {
    Sections sections(answers[r], r);
    for (Part& part : parts_) {
      const int64_t dim = part.table->config().dim, from = part.starts[r], n = part.starts[r + 1] - from;
      SectionHead head{};
      const int64_t* handles = nullptr;
      const float* rows = nullptr;
      MXREC_RETURN_IF_ERROR(sections.Head(*part.table, &head));
      if (head.count != n) {
        return Status::DataLoss("table '" + part.table->config().name + "': rank " + std::to_string(r) + " answered " +
                                std::to_string(head.count) + " keys of " + std::to_string(n));
      }
      MXREC_RETURN_IF_ERROR(sections.Take(*part.table, n, &handles));
      if (r != rank_) MXREC_RETURN_IF_ERROR(sections.Take(*part.table, WordsOfRows(n, dim), &rows));
      parallel.Run(n, 3, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int32_t u = part.order[from + i];
          part.lookup.handles[u] = handles[i];
          if (handles[i] == kNoRow) {
            part.rows[u] = nullptr;
          } else {
            part.rows[u] = rows == nullptr ? part.table->Row(handles[i]) : rows + i * dim;
          }
        }
      });
    }
  }

  std::vector<EmbedItem> embeds;
  for (const LookupFeature& f : features_) {
    const Part& part = parts_[part_of_[f.table]];
    embeds.push_back({part.table.get(), PlanOf(part), f.feature, part.lookup.handles, f.bags.size, f.out, f.stride,
                      part.rows.data()});
  }
  Embed(embeds, parallel);
  for (const LookupFeature& f : features_) {
    const int64_t dim = parts_[part_of_[f.table]].table->config().dim;
    for (int64_t b = 0; f.feature->size == 0 && b < f.bags.count; ++b) std::fill_n(f.out + b * f.stride, dim, 0.0f);
  }
  for (const Part& part : parts_) {
    if (part.lookup.rows == nullptr) continue;
    const int64_t dim = part.table->config().dim;
    parallel.Run(PlanOf(part).keys_size, 20, [&](int64_t begin, int64_t end) {
      for (int64_t u = begin; u < end; ++u) {
        float* to = part.lookup.rows + u * dim;
        part.rows[u] == nullptr ? static_cast<void>(std::fill_n(to, dim, 0.0f))
                                : static_cast<void>(std::copy_n(part.rows[u], dim, to));
      }
    });
  }
  return Status();
}

}  // namespace mxrec
