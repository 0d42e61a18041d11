// Fuzzes the reader of checkpoints: whatever the files hold, Verify and Load must say what is wrong, or the table must
// hold what the files say. Runs under libFuzzer with the address and undefined-behaviour sanitizers (`make fuzz`).
//
// An input is a table's directory: a byte of flags (the table tracks its keys, has a filter, rows on disk; a delta;
// loaded unverified, with checksums), then for each file a byte that says which, two bytes for its length, and its
// content.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "base/files.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"

namespace mxrec {
namespace {

constexpr int kDim = 3;
constexpr int64_t kMaxRows = 64;
constexpr char kSlot[] = "momentum";
enum Flags { kTracked = 1, kFiltered = 2, kOnDiskToo = 4, kDelta = 8, kWhileLoading = 16, kAllFlags = 31 };

const std::vector<std::string>& Names() {
  static const std::vector<std::string>* const names = [] {
    auto* all = new std::vector<std::string>();
    for (const char* column : {kKeyColumn, kEmbeddingColumn, kSlot, kDeletedColumn, kHistoryColumn, kStepColumn,
                               kFilterColumn, kThresholdColumn}) {
      all->push_back(DataFile(column));
      all->push_back(AttributeFile(column));
    }
    return all;
  }();
  return *names;
}

// Files in memory, each in a block of just its size, so that a read past its end is noticed. What is written is kept,
// too. Scratch files are real.
class MemoryEnv : public Env {
 public:
  std::map<std::string, std::vector<char>> files;

  Status Create(const std::string& path, std::unique_ptr<WritableFile>* file) override {
    file->reset(new File(&files[path]));
    return Status();
  }
  Status Join(const std::string& path, std::unique_ptr<WritableFile>* file) override { return Create(path, file); }
  Status Map(const std::string& path, std::unique_ptr<FileView>* view) override {
    const auto found = files.find(path);
    if (found == files.end()) return Status::NotFound(path);
    view->reset(new View(found->second));
    return Status();
  }
  Status MakeDirectory(const std::string&) override { return Status(); }
  Status JoinDirectory(const std::string&) override { return Status(); }
  Status SyncDirectory(const std::string&) override { return Status(); }
  Status Rename(const std::string&, const std::string&) override { return Status(); }
  Status Scratch(const std::string& directory, std::unique_ptr<ScratchFile>* file) override {
    return Env::Posix().Scratch(directory, file);
  }
  Status Remove(const std::string&) override { return Status(); }

 private:
  class View : public FileView {
   public:
    explicit View(const std::vector<char>& content) : View(content, new char[content.size()]) {}
    ~View() override { delete[] owned_; }

   private:
    View(const std::vector<char>& content, char* block)
        : FileView(block, static_cast<int64_t>(content.size())), owned_(block) {
      if (!content.empty()) std::memcpy(block, content.data(), content.size());
    }
    Status Read(int64_t offset, int64_t n, Use, char* buffer, const char** at) const override {
      std::memcpy(buffer, data() + offset, static_cast<size_t>(n));
      *at = buffer;
      return Status();
    }
    char* owned_;
  };
  class File : public WritableFile {
   public:
    explicit File(std::vector<char>* content) : content_(content) { content->clear(); }
    Status Append(const void* data, size_t n) override {
      return WriteAt(static_cast<int64_t>(content_->size()), data, n);
    }
    Status WriteAt(int64_t offset, const void* data, size_t n) override {
      if (content_->size() < offset + n) content_->resize(offset + n);
      std::memcpy(content_->data() + offset, data, n);
      return Status();
    }
    Status Sync() override { return Status(); }
    Status Close() override { return Status(); }

   private:
    std::vector<char>* content_;
  };
};

void Check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

std::shared_ptr<Table> MakeTable(int flags) {
  TableConfig config;
  config.name = "t";
  config.dim = kDim;
  config.max_rows = kMaxRows;
  if ((flags & kOnDiskToo) != 0) config.tier = {8, kMaxRows - 8, {"/tmp"}, &Env::Posix()};
  std::shared_ptr<Table> table;
  Check(Table::Create(config, &table).ok(), "a table can be made");
  Check(table->SetSlots({{kSlot, 0.5f}}).ok(), "with a slot");
  Tracking tracking;
  if ((flags & kTracked) != 0) tracking = {2, 100, 1, (flags & kFiltered) != 0 ? 4096 : 0};
  Check(table->Track(tracking).ok(), "that counts its keys");
  return table;
}

void Put(std::string* input, const std::string& name, const std::vector<char>& content) {
  for (size_t i = 0; i < Names().size(); ++i) {
    if (Names()[i] != name) continue;
    input->push_back(static_cast<char>(i));
    input->push_back(static_cast<char>(content.size() & 0xff));
    input->push_back(static_cast<char>(content.size() >> 8));
    input->append(content.begin(), content.end());
  }
}

// Writes a whole checkpoint of every kind for the fuzzer to begin with.
void WriteSeeds(const std::string& directory) {
  for (int flags = 0; flags <= kAllFlags; ++flags) {
    const std::shared_ptr<Table> table = MakeTable(flags);
    Check(table->FollowChanges(true).ok(), "changes can be followed");
    const int64_t base = table->Moment();
    for (int64_t key : {7, -1, 0, 123456}) {
      const float row[] = {1, 2, 3};
      const float* const parts[] = {row, row};
      Check(table->Assign(key, parts).ok(), "a row can be set");
      if (table->history() != nullptr) Check(table->SetFacts(key, {50, 3, 1}).ok(), "facts can be set");
    }
    if (table->history() != nullptr) Check(table->SetFacts(99, {40, 1, 0}).ok(), "a key can wait");
    const int64_t gone = 0;
    table->Erase(&gone, 1);
    std::unique_ptr<Snapshot> snapshot;
    Check(Snapshot::Take(table, base, (flags & kDelta) == 0, &snapshot).ok(), "a snapshot can be taken");
    MemoryEnv env;
    int64_t rows;
    std::vector<CheckpointFile> files;
    Check(WriteTable(env, snapshot.get(), "d", &rows, &files).ok(), "it can be written");
    std::string input(1, static_cast<char>(flags));
    for (const auto& [path, content] : env.files) Put(&input, path.substr(2), content);
    std::ofstream(directory + "/" + std::to_string(flags), std::ios::binary) << input;
  }
}

// As if the files had been written like this.
std::vector<CheckpointFile> ChecksumsOf(const MemoryEnv& env) {
  std::vector<CheckpointFile> files;
  for (const auto& [path, content] : env.files) {
    const uint32_t crc = crc32c::Extend(0, content.data(), content.size());
    files.push_back({path.substr(2), static_cast<int64_t>(content.size()), crc});
  }
  return files;
}

void Read(const uint8_t* data, size_t size) {
  if (size == 0) return;
  const int flags = data[0] & kAllFlags;
  MemoryEnv env;
  for (size_t at = 1; at + 3 <= size;) {
    const std::string& name = Names()[data[at] % Names().size()];
    const size_t length = std::min<size_t>(data[at + 1] | data[at + 2] << 8, size - at - 3);
    env.files["d/" + name].assign(data + at + 3, data + at + 3 + length);
    at += 3 + length;
  }
  const std::shared_ptr<Table> table = MakeTable(flags);
  // What was there before must survive a refusal, and mixes with a delta.
  const float old[] = {9, 8, 7};
  const float* const parts[] = {old, old};
  constexpr int64_t kOldKey = 5;
  Check(table->Assign(kOldKey, parts).ok(), "a row can be set");
  const bool is_delta = (flags & kDelta) != 0;
  std::unique_ptr<TableReader> reader;
  Status status = TableReader::Open(env, "d", *table, is_delta, &reader);
  if (status.ok()) status = reader->Verify({}, true, SerialFor());
  if (!status.ok()) {
    Check(!status.message().empty(), "a refusal says why");
    Check(table->size() == 1, "a refusal changes nothing");
    if (reader == nullptr || (flags & kWhileLoading) == 0) return;
    Check(!reader->Load(table.get(), ChecksumsOf(env), SerialFor()).ok(), "what is refused is not loaded either");
    Check(table->size() == 0 || table->size() == 1, "the table is as it was, or empty");
    return;
  }
  const bool while_loading = (flags & kWhileLoading) != 0;
  status = reader->Load(table.get(), while_loading ? ChecksumsOf(env) : std::vector<CheckpointFile>(), SerialFor());
  if (!status.ok()) {
    // A delta may bring more rows than there is room for beside the old one.
    Check(is_delta && reader->rows() == kMaxRows, "what was verified can be loaded");
    return;
  }
  const std::vector<char>&keys = env.files["d/" + DataFile(kKeyColumn)],
        &rows = env.files["d/" + DataFile(kEmbeddingColumn)];
  const int64_t n = static_cast<int64_t>(keys.size() / sizeof(int64_t));
  std::set<int64_t> expected;
  for (int64_t i = 0; i < n; ++i) {
    int64_t key;
    std::memcpy(&key, keys.data() + i * sizeof(key), sizeof(key));
    expected.insert(key);
    float row[2 * kDim];
    bool found;
    Check(table->Read(key, row, &found).ok() && found, "every key of the file has a row");
    Check(std::memcmp(row, rows.data() + i * kDim * sizeof(float), kDim * sizeof(float)) == 0, "and it is the file's");
  }
  float row[2 * kDim];
  bool is_kept;
  Check(table->Read(kOldKey, row, &is_kept).ok(), "rows can be read");
  if (is_delta && is_kept) expected.insert(kOldKey);
  Check(table->size() == static_cast<int64_t>(expected.size()), "no key has a row that should not");
}

}  // namespace
}  // namespace mxrec

// `--seeds=DIRECTORY` writes inputs to begin with.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  const std::string option = "--seeds=";
  for (int i = 1; i < *argc; ++i) {
    const std::string argument = (*argv)[i];
    if (argument.compare(0, option.size(), option) != 0) continue;
    mxrec::WriteSeeds(argument.substr(option.size()));
    std::exit(0);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  mxrec::Read(data, size);
  return 0;
}
