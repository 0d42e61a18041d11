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

inline std::string DataFile(const std::string& column) { return column + "/slice.data"; }
inline std::string AttributeFile(const std::string& column) { return column + "/slice.attribute"; }

}  // namespace mxrec
