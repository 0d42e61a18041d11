// DiskStore: the rows of one table that are not in memory, in scratch files.
//
//   segment 0 (of shard 3)            segment 1 (of shard 0)
//   ┌────────┬────────┬──   ──┬────┐  ┌────────┬──
//   │ record │ record │  ...  │    │  │ record │        a power of two of records, about 256 KiB
//   └────────┴────────┴──   ──┴────┘  └────────┴──
//   record = [ key | CRC32C | row ]; its place = kOnDisk | segment << bits | number in the segment
//
// A log: rows are appended to the shard's last segment, all rows that leave memory in one step with one write, and
// never changed. So the disk sees long writes, and no page must be read to be written. A record whose row went back to
// memory or was erased is dead; a segment with dead records alone is free for any shard, and one that has few live ones
// can be emptied by appending these again (see Wasteful). At most a third of what is used is dead, plus two segments
// per shard.
//
// Files are scratch space: nobody but this object reads them, and they vanish with the process. The checksums guard
// against disks that lie, not against crashes.
//
// Thread rule: what is done for a shard needs the shard's lock (table.h), shared for Read, alone for the rest. Shards
// may be used together.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/pages.h"
#include "base/status.h"

namespace mxrec {

// The row numbers that are places on disk.
constexpr uint32_t kOnDisk = 1u << 31;

class DiskStore {
 public:
  // For at most `max_rows` rows of `row_bytes`, in files in the directories `paths`: the first that have space.
  DiskStore(Env& env, std::vector<std::string> paths, int64_t row_bytes, int64_t max_rows, int shards);

  // False if the system refused the memory of the directory; then nothing else may be called.
  bool usable() const { return segments_ != nullptr; }

  // ---- Records.
  int64_t record_bytes() const { return record_bytes_; }
  // Writes the record of a row to `record`.
  void Pack(int64_t key, const float* row, char* record) const;
  // Copies the row out of a record. DataLoss if it is not that of `key` or is damaged.
  Status Unpack(const char* record, int64_t key, float* row) const;
  static int64_t KeyOf(const char* record);
  // Whether the record is as it was packed.
  bool IsWhole(const char* record) const;

  // ---- Rows.
  // Writes n records; places[i] receives where. On failure no row of the store has changed. The last free segment is
  // kept for those that `empty` another one: without it, a full disk would stay full however many rows were erased.
  Status Append(int shard, const char* records, int64_t n, uint32_t* places, bool empty = false);
  // Reads the n records from `place` on, which must be of one segment.
  Status Read(uint32_t place, int64_t n, char* records) const;
  // Reads the record of each place; places in ascending order are read fastest.
  Status ReadEach(const std::vector<uint32_t>& places, char* records) const;
  // Starts to read records, unless they seem to be in the system's cache. The shard's lock is needed for Add alone.
  //
  // On a cold file a row took 8.4 to 9.5 us this way, reading it later included; 81 us one after another, 20 to 25 us
  // with 8 to 32 threads that read, 7 to 8 us with io_uring, which needs buffers that can be out of date and is
  // forbidden in many containers (400-byte rows, one core of a VM). In the cache all take 1.1 to 1.7 us, and this 0.6
  // more: so it looks first.
  class ReadAhead {
   public:
    void Add(const DiskStore& store, uint32_t place);
    void Start() const;

   private:
    struct Piece {
      std::shared_ptr<ScratchFile> file;
      int64_t offset;
    };
    size_t bytes_ = 0;
    std::vector<Piece> pieces_;
  };
  // The row at a place is no longer needed there.
  void Free(int shard, uint32_t place);
  // Frees all places. REQUIRES: no other call is running.
  void Clear();

  // The shard that a place with a row belongs to.
  int OwnerOf(uint32_t place) const { return static_cast<int>(segment(place).shard); }
  // How many records from `place` on, this one included, lie in its segment.
  int64_t RestOfSegment(uint32_t place) const { return rows_ - (place & (rows_ - 1)); }

  // ---- Space.
  // The first place of a segment whose live records should be appended elsewhere and freed, because too much of the
  // shard's space is dead; false if there is none.
  bool Wasteful(int shard, uint32_t* place) const;
  int64_t segment_rows() const { return rows_; }

  int64_t rows() const { return live_.load(std::memory_order_relaxed); }
  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }  // of the files

 private:
  struct Segment {
    int64_t offset;
    uint32_t file;
    uint32_t live;    // records
    uint32_t number;  // among the shard's segments
    uint32_t shard;
  };
  struct alignas(64) Shard {
    std::vector<uint32_t> segments;
    uint32_t used = 0;  // records in the last one
    int64_t live = 0;
  };
  struct File {
    std::string path;
    std::shared_ptr<ScratchFile> file;
    int64_t end = 0;
  };

  int64_t OffsetOf(uint32_t place) const { return segment(place).offset + (place & (rows_ - 1)) * record_bytes_; }
  Segment& segment(uint32_t place) const { return segments_[(place & ~kOnDisk) >> bits_]; }
  int64_t segment_bytes() const { return rows_ * record_bytes_; }
  Status AddSegment(Shard* shard, bool empty);
  Status Extend();
  void Release(Shard* shard, uint32_t segment);

  Env& env_;
  const int64_t row_bytes_;
  const int64_t record_bytes_;
  int bits_;
  int64_t rows_;  // of a segment
  std::vector<Shard> shards_;
  uint32_t max_segments_;
  Pages directory_;
  Segment* segments_;
  std::atomic<int64_t> live_{0};
  std::atomic<int64_t> bytes_{0};
  std::mutex mutex_;  // guards the rest
  std::vector<File> files_;
  std::vector<uint32_t> free_;
  uint32_t made_ = 0;  // segments
};

}  // namespace mxrec
