#include "batch/plan.h"

#include <algorithm>
#include <cstring>

#include "base/hash.h"

namespace mxrec {
namespace {

constexpr int64_t kMagic = 0x346e616c7043584dLL;  // "MXCplan4"
constexpr int64_t kHeader = 6;
constexpr int64_t kTableWords = 6;
constexpr int64_t kFeatureWords = 5;

uint64_t NameHash(const std::string& name) {
  uint64_t h = name.size();
  for (const char c : name) h = Mix64(h ^ static_cast<uint8_t>(c)) + 0x9e3779b97f4a7c15ULL;
  return h;
}

int64_t HalfWords(int64_t n) { return (n + 1) / 2; }

int64_t SectionWords(const TablePlan& t) {
  const int64_t words = 2 * t.keys_size + t.units();
  if (!t.is_grouped()) return words;
  return words + HalfWords(t.shards + 1) + HalfWords(t.keys_size + 1) + 2 * HalfWords(t.positions_size);
}

Status Broken(const std::string& what) {
  return Status::InvalidArgument("the prepared batch is damaged (" + what +
                                 "): pass the tensor that the insert function added to the batch, unchanged");
}

}  // namespace

Status Plan::Parse(const int64_t* words, int64_t size, Plan* plan) {
  if (size < kHeader || words[0] != kMagic) return Broken("no plan header");
  const int64_t tables = words[1], features = words[2];
  if (words[3] != size) return Broken("cut short");
  // Divided, not multiplied: no product of untrusted numbers can overflow.
  if (tables < 0 || features < 0 || tables > size / kTableWords || features > size / kFeatureWords ||
      kHeader + tables * kTableWords + features * kFeatureWords > size) {
    return Broken("table count");
  }
  plan->tables_.resize(tables);
  plan->names_.resize(tables);
  plan->features_.resize(features);
  for (int64_t t = 0; t < tables; ++t) {
    const int64_t* w = words + kHeader + t * kTableWords;
    TablePlan& table = plan->tables_[t];
    plan->names_[t] = static_cast<uint64_t>(w[0]);
    table.shards = w[1];
    table.positions_size = w[2];
    table.keys_size = w[3];
    if (table.shards < 0 || table.shards > 256 || table.positions_size < 0 || table.positions_size > INT32_MAX ||
        table.keys_size < 0 || table.keys_size > table.positions_size ||
        (!table.is_grouped() && table.keys_size != table.positions_size)) {
      return Broken("table sizes");
    }
    if (w[5] != SectionWords(table) || w[4] < 0 || w[4] > size || w[5] > size - w[4]) {
      return Broken("table sections");
    }
    const int64_t* section = words + w[4];
    table.keys = section;
    table.hints = section + table.keys_size;
    table.seals = section + 2 * table.keys_size;
    if (!table.is_grouped()) continue;
    const int64_t* half = table.seals + table.shards;
    table.shard_starts = reinterpret_cast<const int32_t*>(half);
    half += HalfWords(table.shards + 1);
    table.offsets = reinterpret_cast<const int32_t*>(half);
    half += HalfWords(table.keys_size + 1);
    table.index = reinterpret_cast<const int32_t*>(half);
    half += HalfWords(table.positions_size);
    table.positions = reinterpret_cast<const int32_t*>(half);
  }
  for (int64_t f = 0; f < features; ++f) {
    const int64_t* w = words + kHeader + tables * kTableWords + f * kFeatureWords;
    FeaturePlan& feature = plan->features_[f];
    feature.table = w[0];
    feature.first = w[1];
    feature.size = w[2];
    const int64_t rank = w[3], shape = w[4];
    if (feature.table < 0 || feature.table >= tables) return Broken("feature's table");
    const int64_t n = plan->tables_[feature.table].positions_size;
    if (feature.first < 0 || feature.first > n || feature.size < 0 || feature.size > n - feature.first) {
      return Broken("feature's positions");
    }
    if (rank < 0 || rank > 254 || shape < 0 || shape > size || rank > size - shape) return Broken("feature's shape");
    feature.shape.assign(words + shape, words + shape + rank);
    // A tensor of this shape is filled with `size` rows: they must agree.
    int64_t product = 1;
    for (const int64_t d : feature.shape) {
      if (d < 0 || __builtin_mul_overflow(product, d, &product)) return Broken("feature's shape");
    }
    if (product != feature.size) return Broken("feature's shape");
  }
  const int64_t times = words[4], first_time = words[5];
  if (times < 0 || first_time < 0 || first_time > size || times > size - first_time) return Broken("times");
  plan->times_ = {words + first_time, times};
  return Status();
}

Status Plan::CheckTable(int64_t t, const std::string& name, int64_t shards) const {
  if (t < 0 || t >= static_cast<int64_t>(tables_.size()) || names_[t] != NameHash(name)) {
    return Status::InvalidArgument("table '" + name +
                                   "': the batch was prepared for other tables; pass the batch whose insert function "
                                   "lists this table's FeatureSpec");
  }
  if (tables_[t].is_grouped() && tables_[t].shards != shards) {
    return Status::InvalidArgument("table '" + name + "': the batch was prepared for " +
                                   std::to_string(tables_[t].shards) + " shards, the table has " +
                                   std::to_string(shards) +
                                   "; a cached dataset must be rebuilt when a table's size changes");
  }
  return Status();
}

Status Plan::FindFeature(int64_t number, int64_t t, const FeaturePlan** feature) const {
  if (number < 0 || number >= static_cast<int64_t>(features_.size()) || features_[number].table != t) {
    return Status::InvalidArgument("feature " + std::to_string(number) +
                                   " is not in the prepared batch: pass the batch of the same insert function");
  }
  *feature = &features_[number];
  return Status();
}

PlanWriter::PlanWriter(std::vector<Table> tables, std::vector<FeaturePlan> features, TimeSpan times)
    : tables_(std::move(tables)), features_(std::move(features)), times_(times) {
  words_ = kHeader + static_cast<int64_t>(tables_.size()) * kTableWords +
           static_cast<int64_t>(features_.size()) * kFeatureWords;
  std::vector<int64_t> next(tables_.size(), 0);
  for (FeaturePlan& feature : features_) {
    feature.first = next[feature.table];
    next[feature.table] += feature.size;
    words_ += static_cast<int64_t>(feature.shape.size());
  }
  first_time_ = words_;
  words_ += times_.size;
  for (const Table& table : tables_) {
    sections_.push_back(words_);
    TablePlan sizes;
    if (table.grouping != nullptr) {
      sizes.shards = static_cast<int64_t>(table.grouping->shard_starts().size()) - 1;
      sizes.positions_size = table.grouping->positions_size();
      sizes.keys_size = table.grouping->keys_size();
    } else {
      for (const IdSpan& span : table.ids) sizes.positions_size += span.size;
      sizes.keys_size = sizes.positions_size;
    }
    words_ += SectionWords(sizes);
    sizes_.push_back(sizes);
  }
}

void PlanWriter::Write(int64_t* words) const {
  words[0] = kMagic;
  words[1] = static_cast<int64_t>(tables_.size());
  words[2] = static_cast<int64_t>(features_.size());
  words[3] = words_;
  words[4] = times_.size;
  words[5] = first_time_;
  std::copy_n(times_.data, times_.size, words + first_time_);
  for (size_t t = 0; t < tables_.size(); ++t) {
    const TablePlan& sizes = sizes_[t];
    int64_t* w = words + kHeader + t * kTableWords;
    w[0] = static_cast<int64_t>(NameHash(tables_[t].name));
    w[1] = sizes.shards;
    w[2] = sizes.positions_size;
    w[3] = sizes.keys_size;
    w[4] = sections_[t];
    w[5] = SectionWords(sizes);
    int64_t* section = words + sections_[t];
    if (!sizes.is_grouped()) {
      for (const IdSpan& span : tables_[t].ids) section = std::copy_n(span.data, span.size, section);
      continue;
    }
    const Grouping& g = *tables_[t].grouping;
    std::copy(g.keys().begin(), g.keys().end(), section);
    int64_t* half = section + 2 * sizes.keys_size + sizes.shards;
    for (const std::vector<int32_t>* part : {&g.shard_starts(), &g.offsets(), &g.index(), &g.positions()}) {
      const int64_t length = HalfWords(static_cast<int64_t>(part->size()));
      if (length == 0) continue;
      half[length - 1] = 0;  // the padding of an odd length
      std::memcpy(half, part->data(), part->size() * sizeof(int32_t));
      half += length;
    }
  }
  int64_t shape = kHeader + static_cast<int64_t>(tables_.size()) * kTableWords +
                  static_cast<int64_t>(features_.size()) * kFeatureWords;
  for (size_t f = 0; f < features_.size(); ++f) {
    const FeaturePlan& feature = features_[f];
    int64_t* w = words + kHeader + tables_.size() * kTableWords + f * kFeatureWords;
    w[0] = feature.table;
    w[1] = feature.first;
    w[2] = feature.size;
    w[3] = static_cast<int64_t>(feature.shape.size());
    w[4] = shape;
    for (const int64_t d : feature.shape) words[shape++] = d;
  }
}

}  // namespace mxrec
