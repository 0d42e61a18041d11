// How a table lies on disk. Names, sizes and order are those of the original SDK, so that checkpoints can be exchanged
// with it: never change them.
//
//   <table>/key/slice.data              n int64
//          /key/slice.attribute         2 int64: n, 8
//          /embedding/slice.data        n × dim float32
//          /embedding/slice.attribute   3 int64: n, dim, 4
//          /<slot>/slice.data           as embedding, for every optimizer slot
//          /<slot>/slice.attribute
//
// and of a table that tracks its keys (table/history.h):
//
//          /table_2_threshold/slice.data       3 int32: access and eviction threshold (-1: off), 1
//          /history_record/slice.data          int64: the table's clock; then n × (key, count, last time), n int64 × 3,
//                                              of the keys with a row and of those refused, in any order
//          /last_step/slice.data               n int64, for the rows: not in the original's
//          /admission_filter/slice.data        n uint16, if there is one: not in the original's
//
// each with an attribute: n and the sizes of what they hold.
//
// A delta holds the rows and refused keys that have changed since another checkpoint, and
//
//          /deleted/slice.data                 n int64: the keys that lost their rows, or were forgotten, since; some
//                                              have rows again
//
// Row i is the same in all columns. Numbers have the machine's byte order.
#pragma once

#include <cstdint>
#include <string>

namespace mxrec {

// A written file: what tells whether it is still the same.
struct CheckpointFile {
  std::string name;  // relative to the table's directory: "key/slice.data"
  int64_t bytes = 0;
  uint32_t crc32c = 0;
};

constexpr char kKeyColumn[] = "key";
constexpr char kEmbeddingColumn[] = "embedding";
constexpr char kThresholdColumn[] = "table_2_threshold";
constexpr char kHistoryColumn[] = "history_record";
constexpr char kStepColumn[] = "last_step";
constexpr char kFilterColumn[] = "admission_filter";
constexpr char kDeletedColumn[] = "deleted";

// Whether no slot can be called so.
inline bool IsReserved(const std::string& column) {
  for (const char* name :
       {kKeyColumn, kEmbeddingColumn, kThresholdColumn, kHistoryColumn, kStepColumn, kFilterColumn, kDeletedColumn}) {
    if (column == name) return true;
  }
  return false;
}

inline std::string DataFile(const std::string& column) { return column + "/slice.data"; }
inline std::string AttributeFile(const std::string& column) { return column + "/slice.attribute"; }
inline bool IsAttribute(const std::string& file) { return file == AttributeFile(file.substr(0, file.find('/'))); }

}  // namespace mxrec
