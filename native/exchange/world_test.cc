#include "exchange/world.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <future>
#include <random>

#include "exchange/local_transport.h"

namespace mxrec {
namespace {

using Worlds = std::vector<std::unique_ptr<World>>;

Worlds MakeWorlds(int size, World::Patience patience = {}) {
  Worlds worlds;
  for (auto& transport : LocalTransports(size))
    worlds.push_back(std::make_unique<World>(std::move(transport), patience));
  return worlds;
}

Message MessageOf(const std::string& text) {
  Message message(static_cast<int64_t>(text.size()));
  std::memcpy(message.payload(), text.data(), text.size());
  return message;
}

std::string TextOf(const Message& message) { return std::string(message.payload(), message.payload_bytes()); }

struct Result {
  Status status;
  std::vector<std::string> texts;
};

// What a rank gets when it gives every rank `text` and the receiver's number.
std::future<Result> Give(World* world, const std::string& stream, const std::string& text) {
  std::vector<Message> messages;
  for (int r = 0; r < world->size(); ++r) messages.push_back(MessageOf(text + ">" + std::to_string(r)));
  auto promise = std::make_shared<std::promise<Result>>();
  auto future = promise->get_future();
  world->Exchange(stream, std::move(messages), [promise](const Status& status, std::vector<Message> got) {
    Result result{status, {}};
    for (const Message& message : got) result.texts.push_back(TextOf(message));
    promise->set_value(result);
  });
  return future;
}

TEST(World, EveryRankGetsTheMessagesOfAll) {
  for (int size = 1; size <= 4; ++size) {
    Worlds worlds = MakeWorlds(size);
    std::vector<std::future<Result>> results;
    for (int r = 0; r < size; ++r) results.push_back(Give(worlds[r].get(), "s", "from " + std::to_string(r)));
    for (int r = 0; r < size; ++r) {
      const Result result = results[r].get();
      ASSERT_TRUE(result.status.ok()) << result.status.message();
      ASSERT_EQ(result.texts.size(), static_cast<size_t>(size));
      for (int from = 0; from < size; ++from) {
        EXPECT_EQ(result.texts[from], "from " + std::to_string(from) + ">" + std::to_string(r));
      }
    }
  }
}

// The exchanges of a stream meet in their order, whatever the ranks do first.
TEST(World, StreamsDoNotMixInAnyOrder) {
  constexpr int kRanks = 3, kStreams = 5, kRounds = 40;
  Worlds worlds = MakeWorlds(kRanks);
  std::vector<std::thread> ranks;
  for (int r = 0; r < kRanks; ++r) {
    ranks.emplace_back([&, r] {
      std::mt19937 random(r);
      std::vector<std::pair<std::string, std::future<Result>>> results;
      for (int round = 0; round < kRounds; ++round) {
        std::vector<int> order(kStreams);
        for (int s = 0; s < kStreams; ++s) order[s] = s;
        std::shuffle(order.begin(), order.end(), random);
        for (const int s : order) {
          const std::string what = std::to_string(s) + "/" + std::to_string(round);
          results.emplace_back(what, Give(worlds[r].get(), "stream" + std::to_string(s), what));
        }
      }
      for (auto& [what, future] : results) {
        const Result result = future.get();
        EXPECT_TRUE(result.status.ok());
        for (const std::string& text : result.texts) EXPECT_EQ(text, what + ">" + std::to_string(r));
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(World, AFailureEndsTheExchangeOnEveryRankAndNoOther) {
  Worlds worlds = MakeWorlds(3);
  auto first = Give(worlds[0].get(), "s", "a");
  worlds[1]->Fail("s", Status::ResourceExhausted("table 'x' is full"));
  auto second = Give(worlds[2].get(), "s", "c");
  for (auto* future : {&first, &second}) {
    const Result result = future->get();
    EXPECT_EQ(result.status.code(), Status::Code::kResourceExhausted);
    EXPECT_EQ(result.status.message(), "rank 1: table 'x' is full");
  }
  std::vector<std::future<Result>> next;
  for (auto& world : worlds) next.push_back(Give(world.get(), "s", "next"));
  for (auto& future : next) EXPECT_TRUE(future.get().status.ok());
}

TEST(World, FailSinceLeavesAloneWhatWasBegun) {
  Worlds worlds = MakeWorlds(2);
  const int64_t before = worlds[0]->begun();
  auto mine = Give(worlds[0].get(), "done", "a");
  auto its = Give(worlds[1].get(), "done", "b");
  EXPECT_TRUE(mine.get().status.ok());
  EXPECT_TRUE(its.get().status.ok());
  worlds[0]->FailSince(before, {"done", "not yet"}, Status::OutOfRange("End of sequence"));
  const Result result = Give(worlds[1].get(), "not yet", "b").get();
  EXPECT_EQ(result.status.code(), Status::Code::kOutOfRange);
  EXPECT_EQ(result.status.message(), "rank 0: End of sequence");
  mine = Give(worlds[0].get(), "done", "a");
  EXPECT_TRUE(Give(worlds[1].get(), "done", "b").get().status.ok());
  EXPECT_TRUE(mine.get().status.ok());
}

TEST(World, ARankThatHasEndedIsAnErrorForWhoWaits) {
  Worlds worlds = MakeWorlds(2);
  auto waits = Give(worlds[0].get(), "step", "a");
  worlds[1]->Leave();
  const Result result = waits.get();
  EXPECT_EQ(result.status.code(), Status::Code::kFailedPrecondition);
  EXPECT_NE(result.status.message().find("rank 1 has ended"), std::string::npos) << result.status.message();
  EXPECT_FALSE(Give(worlds[0].get(), "step", "a").get().status.ok());
  EXPECT_FALSE(Give(worlds[1].get(), "step", "b").get().status.ok());
}

TEST(World, ARankThatFailedSaysWhyToWhoWaits) {
  Worlds worlds = MakeWorlds(2);
  worlds[1]->Leave("ValueError: no such file");
  const Result result = Give(worlds[0].get(), "step", "a").get();
  EXPECT_NE(result.status.message().find("ValueError: no such file"), std::string::npos) << result.status.message();
}

TEST(World, WhatARankSentBeforeItEndedArrives) {
  Worlds worlds = MakeWorlds(2);
  auto its = Give(worlds[1].get(), "last", "b");
  worlds[1]->Leave();
  const Result result = Give(worlds[0].get(), "last", "a").get();
  ASSERT_TRUE(result.status.ok()) << result.status.message();
  EXPECT_EQ(result.texts[1], "b>0");
}

TEST(World, ARankThatDoesNotComeIsAnErrorAfterATime) {
  Worlds worlds = MakeWorlds(2, {0.1, 0.5});
  auto train = Give(worlds[0].get(), "train", "a");
  auto evaluate = Give(worlds[1].get(), "evaluate", "b");
  const std::string message = train.get().status.message();
  EXPECT_NE(message.find("rank 0 has waited for rank 1"), std::string::npos) << message;
  EXPECT_NE(message.find("rank 1 waits at"), std::string::npos) << message;
  EXPECT_FALSE(evaluate.get().status.ok());
}

}  // namespace
}  // namespace mxrec
