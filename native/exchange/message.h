// Message: what one rank sends another: a header, by which the receiver finds out what it belongs to, and a payload.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "base/status.h"

namespace mxrec {

class Message {
 public:
  // Messages are multiples of this long, so that transports may count in it: 2^31 of them are 128 GiB.
  static constexpr int64_t kUnit = 64;

  enum class Kind : int32_t {
    kData = 0,
    kFailure = 1,  // the rank takes part with an error instead; the payload is its text
    kGoodbye = 2,  // the rank takes part in nothing from now on
  };

  struct Header {
    uint64_t magic;
    uint64_t stream;
    int64_t sequence;  // how many exchanges of the stream went before
    int64_t payload;   // bytes
    Kind kind;
    int32_t code;  // of a failure
  };

  Message() = default;
  // A message with room for `payload` bytes, which are not set. Throws std::bad_alloc.
  explicit Message(int64_t payload) {
    const int64_t bytes = (kUnit + payload + kUnit - 1) / kUnit * kUnit;
    data_.reset(static_cast<char*>(std::aligned_alloc(kUnit, bytes)));
    if (data_ == nullptr) throw std::bad_alloc();
    bytes_ = bytes;
    header() = {kMagic, 0, 0, payload, Kind::kData, 0};
  }
  // A message as it is sent, to be filled by a transport.
  static Message Whole(int64_t bytes) { return Message(bytes - kUnit); }

  bool is_empty() const { return data_ == nullptr; }
  Header& header() { return *reinterpret_cast<Header*>(data_.get()); }
  const Header& header() const { return *reinterpret_cast<const Header*>(data_.get()); }
  char* data() { return data_.get(); }
  const char* data() const { return data_.get(); }
  int64_t bytes() const { return bytes_; }
  char* payload() { return data_.get() + kUnit; }
  const char* payload() const { return data_.get() + kUnit; }
  int64_t payload_bytes() const { return header().payload; }
  // Whether it can be what a rank of this version sent.
  bool IsWellFormed() const {
    return bytes_ >= kUnit && header().magic == kMagic && header().payload >= 0 && header().payload <= bytes_ - kUnit;
  }

 private:
  struct Free {
    void operator()(char* data) const { std::free(data); }
  };
  static constexpr uint64_t kMagic = 0x3152434552584d00ULL;  // changes with the format

  std::unique_ptr<char, Free> data_;
  int64_t bytes_ = 0;
};

static_assert(sizeof(Message::Header) <= Message::kUnit, "the payload begins after one unit");

}  // namespace mxrec
