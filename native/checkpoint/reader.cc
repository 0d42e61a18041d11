#include "checkpoint/reader.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "base/crc32c.h"
#include "base/hash.h"

namespace mxrec {
namespace {

std::string Hex(uint32_t value) {
  char text[11];
  snprintf(text, sizeof(text), "0x%08x", value);
  return text;
}

Status Missing(const std::string& path) {
  return Status::DataLoss("checkpoint file '" + path + "' is missing; restore another checkpoint");
}

Status CheckBytes(const std::string& path, int64_t found, int64_t expected, const std::string& source) {
  if (found == expected) return Status();
  const std::string rule = ", expected " + std::to_string(expected) + " bytes (" + source + ")";
  if (found < expected) {
    return Status::DataLoss("checkpoint file '" + path + "' is cut off: it ends at offset " + std::to_string(found) +
                            rule);
  }
  return Status::DataLoss("checkpoint file '" + path + "' is too long: it has " + std::to_string(found) + " bytes" +
                          rule);
}

// The number of buckets that hashes are dealt to before equal ones are sought: about 8 Ki to a bucket, so that a
// bucket's set stays in the second-level cache, but not more buckets than the TLB has entries for.
int BucketBits(int64_t n) {
  int bits = 0;
  while (bits < 11 && (n >> bits) > 8192) ++bits;
  return bits;
}

// Whether a value occurs twice; if so, which.
bool FindTwin(const uint64_t* values, int64_t n, uint64_t* twin) {
  uint64_t places = 16;
  while (places < 2 * static_cast<uint64_t>(n)) places *= 2;
  std::vector<uint64_t> set(places, 0);
  bool zero = false;  // 0 marks an empty place, so the value 0 is kept apart
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t value = values[i];
    bool seen = false;
    if (value == 0) {
      seen = zero;
      zero = true;
    } else {
      uint64_t at = value & (places - 1);
      while (set[at] != 0 && set[at] != value) at = (at + 1) & (places - 1);
      seen = set[at] == value;
      set[at] = value;
    }
    if (seen) {
      *twin = value;
      return true;
    }
  }
  return false;
}

}  // namespace

TableReader::TableReader(std::string directory, const Table& table, bool is_delta)
    : directory_(std::move(directory)),
      table_(table.config().name),
      is_delta_(is_delta),
      dim_(table.config().dim),
      max_rows_(table.config().max_rows) {}

Status TableReader::Open(Env& env, const std::string& directory, const Table& table, bool is_delta,
                         std::unique_ptr<TableReader>* reader) {
  std::unique_ptr<TableReader> r(new TableReader(directory, table, is_delta));
  std::vector<std::string> names = {kKeyColumn, kEmbeddingColumn};
  for (const SlotSpec& slot : table.layout().slots()) names.push_back(slot.name);
  auto open = [&](const std::string& name, bool may_lack, Column* column) {
    column->name = name;
    const Status data = env.Map(r->Path(DataFile(name)), &column->data);
    const Status attribute = env.Map(r->Path(AttributeFile(name)), &column->attribute);
    const bool no_data = data.code() == Status::Code::kNotFound;
    const bool no_attribute = attribute.code() == Status::Code::kNotFound;
    if (!data.ok() && !no_data) return data;
    if (!attribute.ok() && !no_attribute) return attribute;
    const bool is_lacking = may_lack && no_data && no_attribute;
    if (no_data && !is_lacking) return Missing(r->Path(DataFile(name)));
    if (no_attribute && !is_lacking) return Missing(r->Path(AttributeFile(name)));
    return Status();
  };
  for (size_t c = 0; c < names.size(); ++c) {
    Column column;
    MXREC_RETURN_IF_ERROR(open(names[c], c >= 2, &column));
    r->columns_.push_back(std::move(column));
  }
  if (is_delta) MXREC_RETURN_IF_ERROR(open(kDeletedColumn, false, &r->deleted_));
  MXREC_RETURN_IF_ERROR(HistoryReader::Open(env, directory, table, &r->history_));
  *reader = std::move(r);
  return Status();
}

// The file of that name; null if it does not exist. `wanted` tells whether Load reads it.
const FileView* TableReader::Find(const std::string& file, bool* wanted) const {
  for (const Column& column : columns_) {
    *wanted = true;
    if (file == DataFile(column.name)) return column.data.get();
    if (file == AttributeFile(column.name)) return column.attribute.get();
  }
  if (is_delta_ && file == DataFile(kDeletedColumn)) return deleted_.data.get();
  if (is_delta_ && file == AttributeFile(kDeletedColumn)) return deleted_.attribute.get();
  return history_.Find(file, wanted);
}

Status TableReader::CheckExpected(const std::vector<CheckpointFile>& expected, const ParallelFor& parallel) const {
  // Of large files the pieces are summed up by several threads.
  constexpr int64_t kPiece = 16 << 20;
  struct Piece {
    size_t file;
    const char* data;
    int64_t bytes;
    uint32_t crc;
  };
  std::vector<Piece> pieces;
  for (size_t i = 0; i < expected.size(); ++i) {
    bool wanted;
    const FileView* view = Find(expected[i].name, &wanted);
    if (!wanted) continue;
    const std::string path = Path(expected[i].name);
    if (view == nullptr) return Missing(path);
    MXREC_RETURN_IF_ERROR(CheckBytes(path, view->size(), expected[i].bytes, "as written"));
    int64_t at = 0;
    do {
      const int64_t bytes = std::min(kPiece, view->size() - at);
      pieces.push_back({i, view->data() + at, bytes, 0});
      at += bytes;
    } while (at < view->size());
  }
  parallel.Run(static_cast<int64_t>(pieces.size()), 2'000'000, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      pieces[p].crc = crc32c::Extend(0, pieces[p].data, static_cast<size_t>(pieces[p].bytes));
    }
  });
  for (size_t p = 0; p < pieces.size();) {
    const CheckpointFile& file = expected[pieces[p].file];
    uint32_t crc = 0;
    for (const size_t first = pieces[p].file; p < pieces.size() && pieces[p].file == first; ++p) {
      crc = crc32c::Combine(crc, pieces[p].crc, pieces[p].bytes);
    }
    if (crc == file.crc32c) continue;
    return Status::DataLoss("checkpoint file '" + Path(file.name) + "' is damaged: the CRC32C of its " +
                            std::to_string(file.bytes) + " bytes is " + Hex(crc) + ", expected " + Hex(file.crc32c) +
                            " (as written)");
  }
  return Status();
}

Status TableReader::CheckSizes() {
  int64_t rows = 0;
  for (size_t c = 0; c < columns_.size(); ++c) {
    const Column& column = columns_[c];
    if (column.data == nullptr) continue;
    const bool is_key = c == 0;
    int64_t numbers[3];  // n, 8 or n, dim, 4
    const int64_t count = is_key ? 2 : 3;
    const std::string path = Path(AttributeFile(column.name));
    MXREC_RETURN_IF_ERROR(CheckBytes(path, column.attribute->size(), count * static_cast<int64_t>(sizeof(int64_t)),
                                     std::to_string(count) + " int64 numbers"));
    std::memcpy(numbers, column.attribute->data(), count * sizeof(int64_t));
    const int64_t n = numbers[0], width = is_key ? sizeof(int64_t) : sizeof(float);
    if (numbers[count - 1] != width) {
      return Status::DataLoss("checkpoint file '" + path + "' says that an element has " +
                              std::to_string(numbers[count - 1]) + " bytes, expected " + std::to_string(width));
    }
    if (!is_key && numbers[1] != dim_) {
      return Status::InvalidArgument("table '" + table_ + "' has dim " + std::to_string(numbers[1]) + " in '" +
                                     directory_ + "' (" + AttributeFile(column.name) + "), " + std::to_string(dim_) +
                                     " in the model; create the table with the checkpoint's dim");
    }
    const int64_t row_bytes = is_key ? width : width * dim_;
    if (n < 0 || n > INT64_MAX / row_bytes || (!is_key && n != rows)) {
      return Status::DataLoss("checkpoint file '" + path + "' says that there are " + std::to_string(n) + " rows" +
                              (is_key ? "" : ", expected " + std::to_string(rows) + " as there are keys"));
    }
    rows = n;
    MXREC_RETURN_IF_ERROR(CheckBytes(Path(DataFile(column.name)), column.data->size(), n * row_bytes,
                                     std::to_string(n) + " rows of " + std::to_string(row_bytes)));
  }
  if (max_rows_ > 0 && rows > max_rows_) {
    return Status::ResourceExhausted(
        "table '" + table_ + "' may hold " + std::to_string(max_rows_) +
        " rows (device_vocabulary_size + host_vocabulary_size + ssd_vocabulary_size), but '" + directory_ + "' has " +
        std::to_string(rows) +
        "; raise device_vocabulary_size in create_table, or call init(use_dynamic_expansion=True) to let tables grow");
  }
  rows_ = rows;
  MXREC_RETURN_IF_ERROR(CheckDeleted());
  return history_.Check(rows);
}

Status TableReader::CheckDeleted() const {
  if (!is_delta_) return Status();
  constexpr int64_t kWord = sizeof(int64_t);
  const std::string path = Path(AttributeFile(kDeletedColumn));
  MXREC_RETURN_IF_ERROR(CheckBytes(path, deleted_.attribute->size(), 2 * kWord, "2 int64 numbers"));
  int64_t numbers[2];
  std::memcpy(numbers, deleted_.attribute->data(), sizeof(numbers));
  if (numbers[0] < 0 || numbers[0] > INT64_MAX / kWord || numbers[1] != kWord) {
    return Status::DataLoss("checkpoint file '" + path + "' says that there are " + std::to_string(numbers[0]) +
                            " keys of " + std::to_string(numbers[1]) + " bytes, which cannot be");
  }
  return CheckBytes(Path(DataFile(kDeletedColumn)), deleted_.data->size(), numbers[0] * kWord,
                    std::to_string(numbers[0]) + " keys");
}

Status TableReader::CheckKeysDiffer(const ParallelFor& parallel) const {
  // HashKey is a bijection: equal hashes are equal keys. Equal ones meet in one bucket, by their top bits.
  const int bits = BucketBits(rows_);
  const int64_t buckets = int64_t{1} << bits;
  auto bucket_of = [bits](uint64_t hash) { return static_cast<int64_t>(hash >> 1 >> (63 - bits)); };
  std::vector<int64_t> ends(buckets + 1, 0);
  for (int64_t i = 0; i < rows_; ++i) ++ends[bucket_of(HashKey(keys()[i])) + 1];
  for (int64_t b = 1; b <= buckets; ++b) ends[b] += ends[b - 1];
  std::vector<uint64_t> hashes(rows_);
  std::vector<int64_t> at(ends.begin(), ends.end() - 1);
  for (int64_t i = 0; i < rows_; ++i) {
    const uint64_t hash = HashKey(keys()[i]);
    hashes[at[bucket_of(hash)]++] = hash;
  }

  std::mutex mutex;
  int64_t found_in = buckets;  // the lowest bucket with a twin, so that threads do not decide which one is reported
  uint64_t found = 0;
  parallel.Run(buckets, 40'000, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      uint64_t twin;
      if (!FindTwin(hashes.data() + ends[b], ends[b + 1] - ends[b], &twin)) continue;
      std::lock_guard<std::mutex> lock(mutex);
      if (b < found_in) {
        found_in = b;
        found = twin;
      }
    }
  });
  if (found_in == buckets) return Status();
  auto next = [&](int64_t from) {
    return std::find_if(keys() + from, keys() + rows_, [&](int64_t key) { return HashKey(key) == found; }) - keys();
  };
  const int64_t first = next(0), second = next(first + 1);
  return Status::DataLoss("checkpoint file '" + Path(DataFile(kKeyColumn)) + "' holds the key " +
                          std::to_string(keys()[first]) + " twice, in rows " + std::to_string(first) + " and " +
                          std::to_string(second));
}

Status TableReader::Verify(const std::vector<CheckpointFile>& expected, const ParallelFor& parallel) {
  // Checksums first: a flipped bit in an attribute is told as such, not by what it would mean.
  MXREC_RETURN_IF_ERROR(CheckExpected(expected, parallel));
  MXREC_RETURN_IF_ERROR(CheckSizes());
  return CheckKeysDiffer(parallel);
}

Status TableReader::Load(Table* table, const ParallelFor& parallel) {
  MXREC_RETURN_IF_ERROR(CheckSizes());
  std::vector<const float*> columns;
  for (size_t c = 1; c < columns_.size(); ++c) {
    const FileView* data = columns_[c].data.get();
    columns.push_back(data == nullptr ? nullptr : reinterpret_cast<const float*>(data->data()));
  }
  if (is_delta_) {
    table->Erase(reinterpret_cast<const int64_t*>(deleted_.data->data()),
                 deleted_.data->size() / static_cast<int64_t>(sizeof(int64_t)));
  } else {
    table->Clear(true);
  }
  Status status = rows_ == 0 ? Status() : table->InsertRows(keys(), columns.data(), rows_, parallel, is_delta_);
  if (status.ok()) status = history_.Load(table, keys(), rows_, parallel);
  if (!status.ok()) table->Clear();
  table->Trim();
  return status;
}

}  // namespace mxrec
