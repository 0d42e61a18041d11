// Deal: sorts items into buckets, by several threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/parallel.h"

namespace mxrec {

// Calls make_room(count), then put(item, place) for each of `count` items out of [0, n): the places of bucket b's items
// follow those of the buckets before it, in the order of the items, whatever the threads. Returns where the buckets
// begin, and `count` at the end. bucket_of(item) is asked twice; items that it gives kNoBucket are left out.
constexpr int64_t kNoBucket = -1;
template <typename BucketOf, typename MakeRoom, typename Put>
std::vector<int64_t> Deal(int64_t n, int64_t buckets, const ParallelFor& parallel, BucketOf bucket_of,
                          MakeRoom make_room, Put put) {
  // Each part is counted and dealt by one thread. Not more of them than there may be threads: each has its counts.
  constexpr int64_t kMaxParts = 16, kSmallest = 1 << 14, kCost = 5;
  const int64_t parts = std::clamp<int64_t>(n / kSmallest, 1, kMaxParts);
  std::vector<int64_t> places(parts * buckets, 0);
  auto for_parts = [&](auto fn) {
    parallel.Run(parts, n / parts * kCost, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) fn(&places[p * buckets], n * p / parts, n * (p + 1) / parts);
    });
  };
  for_parts([&](int64_t* count, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t bucket = bucket_of(i);
      if (bucket != kNoBucket) ++count[bucket];
    }
  });
  std::vector<int64_t> starts(buckets + 1);
  int64_t start = 0;
  for (int64_t b = 0; b < buckets; ++b) {
    starts[b] = start;
    for (int64_t p = 0; p < parts; ++p) {
      const int64_t count = places[p * buckets + b];
      places[p * buckets + b] = start;
      start += count;
    }
  }
  starts[buckets] = start;
  make_room(start);
  for_parts([&](int64_t* place, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t bucket = bucket_of(i);
      if (bucket != kNoBucket) put(i, place[bucket]++);
    }
  });
  return starts;
}

}  // namespace mxrec
