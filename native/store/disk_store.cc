#include "store/disk_store.h"

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"

namespace mxrec {
namespace {

constexpr int64_t kHeader = 16;  // key, checksum, and four bytes that keep rows aligned to 16
constexpr int64_t kSegmentBytes = 256 << 10;
constexpr int64_t kExtentBytes = 8 << 20;  // what a file grows by: a call of some 20 us per 8 MiB

int SegmentBits(int64_t record_bytes) {
  int bits = 4;
  while (bits < 12 && (record_bytes << (bits + 1)) <= kSegmentBytes) ++bits;
  return bits;
}

uint32_t Checksum(const char* record, int64_t row_bytes) {
  return crc32c::Extend(crc32c::Extend(0, record, sizeof(int64_t)), record + kHeader, static_cast<size_t>(row_bytes));
}

}  // namespace

DiskStore::DiskStore(Env& env, std::vector<std::string> paths, int64_t row_bytes, int64_t max_rows, int shards)
    : env_(env),
      row_bytes_(row_bytes),
      record_bytes_(kHeader + (row_bytes + 15) / 16 * 16),
      bits_(SegmentBits(record_bytes_)),
      rows_(int64_t{1} << bits_),
      shards_(shards),
      // Twice the live ones are never exceeded by more than what Wasteful leaves to a shard, and its open segment; and
      // there is the one that is kept back.
      max_segments_(static_cast<uint32_t>(
          std::min<int64_t>(2 * max_rows / rows_ + 4 * int64_t{shards} + 2, (int64_t{1} << 31) / rows_))),
      directory_(max_segments_ * sizeof(Segment), Pages::Kind::kLazy),
      segments_(static_cast<Segment*>(directory_.data())) {
  for (std::string& path : paths) files_.push_back({std::move(path), nullptr, 0});
}

void DiskStore::Pack(int64_t key, const float* row, char* record) const {
  std::memset(record, 0, kHeader);
  std::memcpy(record, &key, sizeof(key));
  std::memcpy(record + kHeader, row, row_bytes_);
  std::memset(record + kHeader + row_bytes_, 0, record_bytes_ - kHeader - row_bytes_);
  const uint32_t checksum = Checksum(record, row_bytes_);
  std::memcpy(record + sizeof(key), &checksum, sizeof(checksum));
}

int64_t DiskStore::KeyOf(const char* record) {
  int64_t key;
  std::memcpy(&key, record, sizeof(key));
  return key;
}

bool DiskStore::IsWhole(const char* record) const {
  uint32_t checksum;
  std::memcpy(&checksum, record + sizeof(int64_t), sizeof(checksum));
  return checksum == Checksum(record, row_bytes_);
}

Status DiskStore::Unpack(const char* record, int64_t key, float* row) const {
  if (KeyOf(record) != key || !IsWhole(record)) {
    return Status::DataLoss("the row of key " + std::to_string(key) +
                            " came back from disk damaged: its checksum differs from the one written. The disk or the "
                            "memory is at fault; restore a checkpoint");
  }
  std::memcpy(row, record + kHeader, row_bytes_);
  return Status();
}

Status DiskStore::Append(int shard, const char* records, int64_t n, uint32_t* places, bool empty) {
  Shard& s = shards_[shard];
  const size_t segments = s.segments.size();
  uint32_t used = s.used;
  int64_t done = 0;
  Status status;
  while (done < n) {
    if (s.segments.empty() || s.used == rows_) {
      status = AddSegment(&s, empty);
      if (!status.ok()) break;
      if (s.segments.size() == segments) used = 0;  // the open segment was emptied
    }
    const uint32_t number = s.segments.back();
    Segment& segment = segments_[number];
    const int64_t count = std::min<int64_t>(n - done, rows_ - s.used);
    status = files_[segment.file].file->Write(segment.offset + s.used * record_bytes_, records + done * record_bytes_,
                                              count * record_bytes_);
    if (!status.ok()) break;
    for (int64_t i = 0; i < count; ++i) {
      places[done + i] = kOnDisk | number << bits_ | (s.used + static_cast<uint32_t>(i));
    }
    segment.live += static_cast<uint32_t>(count);
    s.used += static_cast<uint32_t>(count);
    done += count;
  }
  if (!status.ok()) {
    for (int64_t i = 0; i < done; ++i) --segment(places[i]).live;
    while (s.segments.size() > segments) Release(&s, s.segments.back());
    s.used = used;
    return status;
  }
  s.live += n;
  live_.fetch_add(n, std::memory_order_relaxed);
  return Status();
}

Status DiskStore::Read(uint32_t place, int64_t n, char* records) const {
  return files_[segment(place).file].file->Read(OffsetOf(place), records, n * record_bytes_);
}

Status DiskStore::ReadEach(const std::vector<uint32_t>& places, char* records) const {
  auto file_of = [&](uint32_t place) -> const ScratchFile& { return *files_[segment(place).file].file; };
  const size_t bytes = static_cast<size_t>(record_bytes_);
  size_t next = 0;
  while (next < places.size() && file_of(places[next]).ReadNow(OffsetOf(places[next]), records + next * bytes, bytes)) {
    ++next;
  }
  // The first that must be waited for: then for all others at the same time.
  for (size_t i = next; i < places.size(); ++i) file_of(places[i]).WillNeed(OffsetOf(places[i]), bytes);
  for (; next < places.size(); ++next) {
    MXREC_RETURN_IF_ERROR(file_of(places[next]).Read(OffsetOf(places[next]), records + next * bytes, bytes));
  }
  return Status();
}

void DiskStore::ReadAhead::Add(const DiskStore& store, uint32_t place) {
  bytes_ = static_cast<size_t>(store.record_bytes_);
  pieces_.push_back({store.files_[store.segment(place).file].file, store.OffsetOf(place)});
}

void DiskStore::ReadAhead::Start() const {
  constexpr size_t kSample = 2;
  bool is_cached = true;
  std::vector<char> record(bytes_);
  for (size_t i = 0; i < pieces_.size() && is_cached; i += pieces_.size() / kSample + 1) {
    is_cached = pieces_[i].file->ReadNow(pieces_[i].offset, record.data(), bytes_);
  }
  if (is_cached) return;
  for (const Piece& piece : pieces_) piece.file->WillNeed(piece.offset, bytes_);
}

void DiskStore::Free(int shard, uint32_t place) {
  Shard& s = shards_[shard];
  --s.live;
  live_.fetch_sub(1, std::memory_order_relaxed);
  if (--segment(place).live == 0) {
    const uint32_t number = (place & ~kOnDisk) >> bits_;
    if (number != s.segments.back()) Release(&s, number);
  }
}

void DiskStore::Release(Shard* shard, uint32_t number) {
  // Any order will do but for the last segment, which is the open one.
  std::vector<uint32_t>& segments = shard->segments;
  const uint32_t at = segments_[number].number;
  const size_t last = segments.size() - 1;
  if (last > 0 && at != last - 1 && at != last) {
    segments[at] = segments[last - 1];
    segments_[segments[at]].number = at;
    segments[last - 1] = segments[last];
    segments_[segments[last - 1]].number = static_cast<uint32_t>(last - 1);
  } else if (at != last) {
    segments[at] = segments[last];
    segments_[segments[at]].number = at;
  }
  segments.pop_back();
  std::lock_guard<std::mutex> lock(mutex_);
  free_.push_back(number);
}

// Opens a segment: the shard's last one again if all of it has died, else another.
Status DiskStore::AddSegment(Shard* shard, bool empty) {
  uint32_t number;
  if (!shard->segments.empty() && segments_[shard->segments.back()].live == 0) {
    number = shard->segments.back();
  } else {
    std::lock_guard<std::mutex> lock(mutex_);
    while (free_.size() <= (empty ? 0 : 1)) MXREC_RETURN_IF_ERROR(Extend());
    number = free_.back();
    free_.pop_back();
    segments_[number].number = static_cast<uint32_t>(shard->segments.size());
    segments_[number].shard = static_cast<uint32_t>(shard - shards_.data());
    shard->segments.push_back(number);
  }
  shard->used = 0;
  return Status();
}

// Adds segments to free_: as many as fit an extent, or one where space is short.
Status DiskStore::Extend() {
  std::string refusals;
  bool is_full = true;
  for (uint32_t f = 0; f < files_.size(); ++f) {
    File& file = files_[f];
    Status status;
    if (file.file == nullptr) {
      std::unique_ptr<ScratchFile> made;
      status = env_.Scratch(file.path, &made);
      file.file = std::move(made);
    }
    int64_t count = std::min<int64_t>(std::max<int64_t>(1, kExtentBytes / segment_bytes()), max_segments_ - made_);
    if (count == 0) return Status::ResourceExhausted("too many rows on disk");
    if (status.ok()) {
      status = file.file->Reserve(file.end, count * segment_bytes());
      if (!status.ok() && count > 1) {
        count = 1;
        status = file.file->Reserve(file.end, segment_bytes());
      }
    }
    if (!status.ok()) {
      is_full = is_full && status.code() == Status::Code::kResourceExhausted;
      refusals += (refusals.empty() ? "" : "; ") + status.message();
      continue;
    }
    for (int64_t i = 0; i < count; ++i) {
      segments_[made_] = {file.end, f, 0, 0, 0};  // it may have been another before Clear
      file.end += segment_bytes();
      free_.push_back(made_++);
    }
    std::reverse(free_.end() - count, free_.end());  // to be used from the front of the file on
    bytes_.fetch_add(count * segment_bytes(), std::memory_order_relaxed);
    return Status();
  }
  return is_full ? Status::ResourceExhausted(refusals) : Status::IoError(refusals);
}

bool DiskStore::Wasteful(int shard, uint32_t* place) const {
  const Shard& s = shards_[shard];
  const int64_t used = (static_cast<int64_t>(s.segments.size()) - 1) * rows_;
  // Half as much dead as live: a lower share would save little disk and cost many copies (at 1/3 dead overall, the
  // emptiest segment is about half dead, so a row is written twice in its life on disk).
  if (used <= s.live + s.live / 2 + 2 * rows_) return false;
  uint32_t best = s.segments.front();
  for (size_t i = 0; i + 1 < s.segments.size(); ++i) {
    if (segments_[s.segments[i]].live < segments_[best].live) best = s.segments[i];
  }
  *place = kOnDisk | best << bits_;
  return true;
}

void DiskStore::Clear() {
  for (Shard& s : shards_) s = Shard();
  std::lock_guard<std::mutex> lock(mutex_);
  for (File& file : files_) {
    file.file.reset();
    file.end = 0;
  }
  free_.clear();
  made_ = 0;
  live_ = 0;
  bytes_ = 0;
}

}  // namespace mxrec
