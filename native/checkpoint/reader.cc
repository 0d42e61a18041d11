#include "checkpoint/reader.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/crc32c.h"
#include "base/failure.h"
#include "base/pages.h"
#include "checkpoint/row_loader.h"
#include "checkpoint/twins.h"

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

Status CheckSum(const std::string& path, const CheckpointFile& expected, uint32_t crc) {
  if (crc == expected.crc32c) return Status();
  return Status::DataLoss("checkpoint file '" + path + "' is damaged: the CRC32C of its " +
                          std::to_string(expected.bytes) + " bytes is " + Hex(crc) + ", expected " +
                          Hex(expected.crc32c) + " (as written)");
}

}  // namespace

bool ReadScope::Includes(const std::string& column) const {
  if (column == kKeyColumn || column == kEmbeddingColumn || column == kDeletedColumn) return true;
  if (rows_only) return false;
  return listed.empty() || std::any_of(listed.begin(), listed.end(),
                                       [&](const CheckpointFile& file) { return file.name == DataFile(column); });
}

TableReader::TableReader(std::string directory, const Table& table, bool is_delta, const ReadScope& scope)
    : directory_(std::move(directory)),
      table_(table.config().name),
      is_delta_(is_delta),
      owned_(scope.owned),
      joins_(scope.joins),
      dim_(table.config().dim),
      max_rows_(table.config().max_rows) {}

Status TableReader::Open(Env& env, const std::string& directory, const Table& table, bool is_delta,
                         std::unique_ptr<TableReader>* reader, const ReadScope& scope) {
  std::unique_ptr<TableReader> r(new TableReader(directory, table, is_delta, scope));
  std::vector<std::string> names = {kKeyColumn, kEmbeddingColumn};
  for (const SlotSpec& slot : table.layout().slots()) names.push_back(slot.name);
  auto open = [&](const std::string& name, bool may_lack, Column* column) {
    column->name = name;
    column->is_read = scope.Includes(name);
    if (!column->is_read) return Status();
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
  MXREC_RETURN_IF_ERROR(HistoryReader::Open(
      env, directory, table, [&](const std::string& column) { return scope.Includes(column); }, &r->history_));
  *reader = std::move(r);
  return Status();
}

// The file of that name; null if it does not exist. `wanted` tells whether Load reads it.
const FileView* TableReader::Find(const std::string& file, bool* wanted) const {
  for (const Column& column : columns_) {
    *wanted = column.is_read;
    if (file == DataFile(column.name)) return column.data.get();
    if (file == AttributeFile(column.name)) return column.attribute.get();
  }
  *wanted = is_delta_;
  if (is_delta_ && file == DataFile(kDeletedColumn)) return deleted_.data.get();
  if (is_delta_ && file == AttributeFile(kDeletedColumn)) return deleted_.attribute.get();
  return history_.Find(file, wanted);
}

bool TableReader::IsValues(const std::string& file) const {
  return std::any_of(columns_.begin() + 1, columns_.end(),
                     [&](const Column& column) { return file == DataFile(column.name); });
}

Status TableReader::CheckFiles(const std::vector<CheckpointFile>& expected) const {
  for (const CheckpointFile& file : expected) {
    bool wanted;
    const FileView* view = Find(file.name, &wanted);
    if (!wanted) continue;
    if (view == nullptr) return Missing(Path(file.name));
    MXREC_RETURN_IF_ERROR(CheckBytes(Path(file.name), view->size(), file.bytes, "as written"));
  }
  return Status();
}

// Of the files for which is_meant(name) holds. They stay in the page cache: they are verified to be loaded.
template <typename IsMeant>
Status TableReader::CheckSums(const std::vector<CheckpointFile>& expected, const ParallelFor& parallel,
                              IsMeant is_meant) const {
  // A thread's part, so long that the kernel reads ahead, and what is read at once, so short that it stays in the
  // cache.
  constexpr int64_t kPart = 16 << 20, kRead = 256 << 10;
  struct Part {
    const CheckpointFile* file;
    const FileView* view;
    int64_t offset, bytes;
    uint32_t crc;
  };
  std::vector<Part> parts;
  for (const CheckpointFile& file : expected) {
    bool wanted;
    const FileView* view = Find(file.name, &wanted);
    if (!wanted || !is_meant(file.name)) continue;
    int64_t at = 0;
    do {  // an empty file is a part, too
      parts.push_back({&file, view, at, std::min(kPart, view->size() - at), 0});
      at += kPart;
    } while (at < view->size());
  }
  Failure failure;
  parallel.Run(static_cast<int64_t>(parts.size()), kPart / 4, [&](int64_t begin, int64_t end) {
    const Pages buffer(kRead + 2 * kFileBlock, Pages::Kind::kLazy);
    if (buffer.data() == nullptr) return failure.Set(Status::ResourceExhausted("out of memory: cannot read files"));
    for (int64_t p = begin; p < end; ++p) {
      Part& part = parts[p];
      for (int64_t at = 0; at < part.bytes && !failure.failed(); at += kRead) {
        const int64_t n = std::min(kRead, part.bytes - at);
        const char* data;
        const Status read =
            part.view->Read(part.offset + at, n, FileView::Use::kAgain, static_cast<char*>(buffer.data()), &data);
        if (!read.ok()) return failure.Set(read);
        part.crc = crc32c::Extend(part.crc, data, static_cast<size_t>(n));
      }
    }
  });
  MXREC_RETURN_IF_ERROR(failure.status());
  for (size_t p = 0; p < parts.size();) {
    const CheckpointFile& file = *parts[p].file;
    uint32_t crc = 0;
    for (; p < parts.size() && parts[p].file == &file; ++p) crc = crc32c::Combine(crc, parts[p].crc, parts[p].bytes);
    MXREC_RETURN_IF_ERROR(CheckSum(Path(file.name), file, crc));
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
  // The limit is that of all ranks together.
  if (max_rows_ > 0 && rows > max_rows_) {
    return Status::ResourceExhausted(
        "table '" + table_ + "' may hold " + std::to_string(max_rows_) +
        " rows (device_vocabulary_size + host_vocabulary_size + ssd_vocabulary_size), but '" + directory_ + "' has " +
        std::to_string(rows) +
        "; raise device_vocabulary_size in create_table, or call init(use_dynamic_expansion=True) to let tables grow");
  }
  rows_ = rows;
  return CheckDeleted();
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
  int64_t first, second;
  if (!FindTwins(keys(), rows_, parallel, &first, &second)) return Status();
  return Status::DataLoss("checkpoint file '" + Path(DataFile(kKeyColumn)) + "' holds the key " +
                          std::to_string(keys()[first]) + " twice, in rows " + std::to_string(first) + " and " +
                          std::to_string(second));
}

Status TableReader::Verify(const std::vector<CheckpointFile>& expected, bool contents, const ParallelFor& parallel) {
  // Checksums first: a flipped bit in an attribute is told as such, not by what it would mean.
  MXREC_RETURN_IF_ERROR(CheckFiles(expected));
  MXREC_RETURN_IF_ERROR(
      CheckSums(expected, parallel, [&](const std::string& file) { return contents || IsAttribute(file); }));
  MXREC_RETURN_IF_ERROR(CheckSizes());
  if (!contents) return Status();
  MXREC_RETURN_IF_ERROR(history_.Check(rows_));
  return CheckKeysDiffer(parallel);
}

Status TableReader::Load(Table* table, const std::vector<CheckpointFile>& expected, const ParallelFor& parallel) {
  MXREC_RETURN_IF_ERROR(CheckFiles(expected));
  MXREC_RETURN_IF_ERROR(CheckSums(expected, parallel, [&](const std::string& file) { return !IsValues(file); }));
  MXREC_RETURN_IF_ERROR(CheckSizes());
  MXREC_RETURN_IF_ERROR(history_.Check(rows_));
  // In a table that was cleared a key that comes twice is noticed.
  if (is_delta_ && !expected.empty()) MXREC_RETURN_IF_ERROR(CheckKeysDiffer(parallel));
  table->CountMutation();
  if (is_delta_) {
    table->Erase(reinterpret_cast<const int64_t*>(deleted_.data->data()),
                 deleted_.data->size() / static_cast<int64_t>(sizeof(int64_t)));
  } else if (!joins_) {
    table->Clear(true);
  }
  Status status = LoadValues(table, expected, parallel);
  if (status.code() == Status::Code::kAlreadyExists) {
    const Status twins = CheckKeysDiffer(parallel);  // says where
    if (!twins.ok()) status = twins;
  }
  if (status.ok()) status = history_.Load(table, keys(), rows_, parallel, owned_);
  if (!status.ok()) table->Clear();
  table->Trim();
  return status;
}

Status TableReader::LoadValues(Table* table, const std::vector<CheckpointFile>& expected,
                               const ParallelFor& parallel) const {
  RowSource source = {keys(), rows_, {}, owned_};
  for (size_t c = 1; c < columns_.size(); ++c) source.columns.push_back(columns_[c].data.get());
  std::vector<uint32_t> sums;
  MXREC_RETURN_IF_ERROR(LoadRows(table, source, is_delta_, parallel, expected.empty() ? nullptr : &sums));
  for (const CheckpointFile& file : expected) {
    for (size_t c = 1; c < columns_.size(); ++c) {
      if (source.columns[c - 1] == nullptr || file.name != DataFile(columns_[c].name)) continue;
      MXREC_RETURN_IF_ERROR(CheckSum(Path(file.name), file, sums[c - 1]));
    }
  }
  return Status();
}

}  // namespace mxrec
