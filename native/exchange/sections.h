// Sections: how the payload of a message is read and written, table after table, in whole words of eight bytes.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "exchange/message.h"
#include "table/table.h"

namespace mxrec {

// What stands before a table's part of a message.
struct SectionHead {
  int64_t count;   // of keys or rows
  uint64_t table;  // FingerprintOf
  int64_t flags;
  int64_t latest = 0;  // the latest time of the batch; 0: not known
  int64_t rows = 0;    // of the table on the sender, before the batch
};
constexpr int64_t kSectionWords = sizeof(SectionHead) / sizeof(int64_t);

// Two ranks' tables fit together only if their fingerprints are equal.
inline uint64_t FingerprintOf(const Table& table) {
  const TableConfig& config = table.config();
  uint64_t hash = Mix64(static_cast<uint64_t>(config.dim) * 1024 + table.layout().slots().size());
  for (const char c : config.name) hash = Mix64(hash ^ static_cast<unsigned char>(c));
  return Mix64(hash + (table.history() == nullptr ? 0 : 1) + (table.is_replicated() ? 2 : 0));
}

// The words that `count` rows of `dim` floats take.
inline int64_t WordsOfRows(int64_t count, int64_t dim) { return (count * dim + 1) / 2; }

// Walks over the words of a message, and never beyond its end.
class Sections {
 public:
  Sections(const Message& message, int from)
      : at_(reinterpret_cast<const int64_t*>(message.payload())), left_(message.payload_bytes() / 8), from_(from) {}

  // Reads the head of this rank's `table`; what follows it has `words_each` words for each of the head's count.
  Status Head(const Table& table, SectionHead* head) {
    const std::string who = "table '" + table.config().name + "': ";
    if (left_ < kSectionWords) return Damaged(who);
    *head = *reinterpret_cast<const SectionHead*>(at_);
    at_ += kSectionWords;
    left_ -= kSectionWords;
    if (head->table != FingerprintOf(table)) {
      return Status::FailedPrecondition(
          who + "rank " + std::to_string(from_) +
          " looks up another table here, or one of another dimension, optimizer or admission than this rank, or only "
          "one of them holds it whole (is_dp): all ranks "
          "must build the same graph with the same tables");
    }
    return head->count < 0 || head->count > left_ ? Damaged(who) : Status();
  }
  // Steps over `words` words and gives where they begin.
  template <typename T>
  Status Take(const Table& table, int64_t words, const T** begin) {
    if (words < 0 || words > left_) return Damaged("table '" + table.config().name + "': ");
    *begin = reinterpret_cast<const T*>(at_);
    at_ += words;
    left_ -= words;
    return Status();
  }

 private:
  Status Damaged(const std::string& who) const {
    return Status::DataLoss(who + "the message of rank " + std::to_string(from_) + " is cut short");
  }

  const int64_t* at_;
  int64_t left_;
  int from_;
};

}  // namespace mxrec
