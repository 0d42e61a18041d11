// Tier: a table's rows in memory and on disk. Rows beyond the number that may be in memory, the ones used least
// (store/frames.h), are on disk (store/disk_store.h); a step brings those it needs back. Where a row is changes nothing
// but speed.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/files.h"
#include "store/disk_store.h"
#include "store/frames.h"
#include "store/uses.h"

namespace mxrec {

struct TierConfig {
  int64_t memory_rows = 0;         // 0: all rows are in memory, there is no disk
  int64_t disk_rows = 0;           // without a limit on all rows: how many go to disk before memory grows instead
  std::vector<std::string> paths;  // directories, in the order in which they are filled
  Env* env = &Env::Posix();
};

// Whether both describe the same tier; the file system is not part of it.
inline bool operator==(const TierConfig& a, const TierConfig& b) {
  return a.memory_rows == b.memory_rows && a.disk_rows == b.disk_rows && a.paths == b.paths;
}

struct Tier {
  Tier(const TierConfig& config, int64_t row_bytes, int shards)
      : config(config),
        quota((config.memory_rows + shards - 1) / shards),
        frames(config.memory_rows, shards),
        disk(MakeDisk(row_bytes, shards)) {}

  bool usable() const { return frames.usable() && disk->usable(); }

  std::unique_ptr<DiskStore> MakeDisk(int64_t row_bytes, int shards) const {
    return std::unique_ptr<DiskStore>(
        new DiskStore(*config.env, config.paths, row_bytes, config.memory_rows + config.disk_rows, shards));
  }

  const TierConfig config;
  const int64_t quota;  // rows of a shard in memory
  Uses uses;
  Frames frames;
  std::unique_ptr<DiskStore> disk;

  // Since creation.
  std::atomic<int64_t> hits{0};        // keys of batches whose rows were in memory
  std::atomic<int64_t> promotions{0};  // rows that came back from disk
  std::atomic<int64_t> demotions{0};   // rows that went to disk
  std::atomic<int64_t> moved{0};       // rows that were written again, to free space
  std::atomic<int64_t> read_time{0};   // nanoseconds that steps waited for rows from disk
};

}  // namespace mxrec
