#include "exchange/world.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/hash.h"

namespace mxrec {
namespace {

std::shared_ptr<World>& Slot() {
  static std::shared_ptr<World>* slot = new std::shared_ptr<World>;  // never destroyed: threads may still ask
  return *slot;
}
std::mutex& SlotMutex() {
  static std::mutex* mutex = new std::mutex;
  return *mutex;
}

std::string Ranked(int rank) { return "rank " + std::to_string(rank); }

Message FailureOf(const Status& status) {
  Message message(static_cast<int64_t>(status.message().size()));
  message.header().kind = Message::Kind::kFailure;
  message.header().code = static_cast<int32_t>(status.code());
  std::memcpy(message.payload(), status.message().data(), status.message().size());
  return message;
}

Status Ended() {
  return Status::FailedPrecondition("this rank has ended its part in the world (terminate_config_initializer)");
}

std::string TextOf(const Message& message) {
  return std::string(message.payload(), static_cast<size_t>(message.payload_bytes()));
}

}  // namespace

World::World(std::unique_ptr<Transport> transport, const Patience& patience)
    : transport_(std::move(transport)), patience_(patience) {
  is_gone_.assign(size(), 0);
  last_.assign(size(), "");
  watcher_ = std::thread([this] { Watch(); });
  transport_->Start([this](int from, Message message) { Deliver(from, std::move(message)); });
}

World::~World() { Leave(); }

std::shared_ptr<World> World::Current() {
  std::lock_guard<std::mutex> lock(SlotMutex());
  return Slot();
}

void World::SetCurrent(std::shared_ptr<World> world) {
  std::lock_guard<std::mutex> lock(SlotMutex());
  Slot().swap(world);
}

uint64_t World::IdOf(const std::string& stream) {
  uint64_t id = 0x9e3779b97f4a7c15ULL;
  for (const char c : stream) id = Mix64(id ^ static_cast<unsigned char>(c)) + 0x9e3779b97f4a7c15ULL;
  return id;
}

World::Stream* World::Find(const std::string& name, int64_t* number) {
  Stream& stream = streams_[IdOf(name)];
  stream.name = name;
  *number = stream.next++;
  stream.order = ++begun_;
  return &stream;
}

Status World::Departed(int rank, const std::string& stream) const {
  const std::string at = " at '" + stream + "', where " + Ranked(this->rank()) + " waits for it";
  if (!last_[rank].empty()) {
    return Status::FailedPrecondition(Ranked(rank) + " has failed and does not come to the exchange" + at + ": " +
                                      last_[rank]);
  }
  return Status::FailedPrecondition(
      Ranked(rank) + " has ended (its script, or terminate_config_initializer) and does not come to the exchange" + at +
      ": all ranks must run the same number of steps and evaluations");
}

bool World::End(Stream* stream, int64_t number, Status status, Finished* finished) {
  const auto found = stream->waiting.find(number);
  Waiting& waiting = found->second;
  *finished = {std::move(waiting.done), std::move(status), {}};
  if (finished->status.ok()) finished->messages = std::move(waiting.messages);
  statistics_.wait_microseconds +=
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - waiting.since).count();
  stream->waiting.erase(found);
  transport_->Expect(--waiting_);
  return true;
}

bool World::Take(Stream* stream, int64_t number, int from, Message message, Finished* finished) {
  const Message::Header& header = message.header();
  if (header.kind == Message::Kind::kFailure) {
    return End(stream, number, Status::Of(header.code, Ranked(from) + ": " + TextOf(message)), finished);
  }
  Waiting& waiting = stream->waiting.at(number);
  waiting.messages[from] = std::move(message);
  return --waiting.missing == 0 && End(stream, number, Status(), finished);
}

void World::Exchange(const std::string& name, std::vector<Message> messages, Done done) {
  Finished finished;
  bool has_ended = false;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (is_leaving_) {
      lock.unlock();
      return done(Ended(), {});
    }
    int64_t number;
    Stream* stream = Find(name, &number);
    ++statistics_.exchanges;
    for (int r = 0; r < size(); ++r) {
      messages[r].header().stream = IdOf(name);
      messages[r].header().sequence = number;
      if (r == rank()) continue;
      statistics_.bytes += messages[r].bytes();
      transport_->Send(r, std::move(messages[r]));
    }
    Waiting& waiting = stream->waiting[number];
    waiting.messages.resize(size());
    waiting.messages[rank()] = std::move(messages[rank()]);
    waiting.missing = size() - 1;
    waiting.done = std::move(done);
    waiting.since = Clock::now();
    transport_->Expect(++waiting_);
    if (waiting.missing == 0) has_ended = End(stream, number, Status(), &finished);
    std::vector<Message> early;
    const auto found = stream->early.find(number);
    if (found != stream->early.end()) {
      early = std::move(found->second);
      stream->early.erase(found);
    }
    for (int r = 0; r < size() && !has_ended; ++r) {
      if (r == rank()) continue;
      if (!early.empty() && !early[r].is_empty()) {
        has_ended = Take(stream, number, r, std::move(early[r]), &finished);
      } else if (is_gone_[r]) {
        has_ended = End(stream, number, Departed(r, name), &finished);
      }
    }
  }
  if (has_ended) finished.done(finished.status, std::move(finished.messages));
}

void World::SendFailure(Stream* stream, const std::string& name, int64_t number, const Status& status) {
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    Message message = FailureOf(status);
    message.header().stream = IdOf(name);
    message.header().sequence = number;
    transport_->Send(r, std::move(message));
  }
  stream->early.erase(number);  // nobody will read it
}

void World::Fail(const std::string& name, const Status& status) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (is_leaving_) return;
  int64_t number;
  Stream* stream = Find(name, &number);
  SendFailure(stream, name, number, status);
}

int64_t World::begun() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return begun_;
}

void World::FailSince(int64_t begun, const std::vector<std::string>& streams, const Status& status) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (is_leaving_) return;
  for (const std::string& name : streams) {
    const auto found = streams_.find(IdOf(name));
    if (found != streams_.end() && found->second.order > begun) continue;
    int64_t number;
    Stream* stream = Find(name, &number);
    SendFailure(stream, name, number, status);
  }
}

void World::Deliver(int from, Message message) {
  if (!message.IsWellFormed()) return;  // no rank of this version sent it; who waits for it will say so
  const Message::Header header = message.header();
  std::vector<Finished> finished;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (header.kind == Message::Kind::kGoodbye) {
      is_gone_[from] = 1;
      last_[from] = TextOf(message);
      for (auto& [id, stream] : streams_) {
        std::vector<int64_t> numbers;
        for (const auto& [number, waiting] : stream.waiting) {
          if (waiting.messages[from].is_empty()) numbers.push_back(number);
        }
        for (const int64_t number : numbers) {
          finished.emplace_back();
          End(&stream, number, Departed(from, stream.name), &finished.back());
        }
      }
    } else {
      Stream& stream = streams_[header.stream];
      if (stream.waiting.count(header.sequence) != 0) {
        finished.emplace_back();
        if (!Take(&stream, header.sequence, from, std::move(message), &finished.back())) finished.pop_back();
      } else if (header.sequence >= stream.next) {
        std::vector<Message>& early = stream.early[header.sequence];
        early.resize(size());
        early[from] = std::move(message);
      }  // else this rank has ended that exchange already, with an error
    }
  }
  for (Finished& one : finished) one.done(one.status, std::move(one.messages));
}

void World::Watch() {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto after = [](Clock::time_point since, double seconds) {
    return Clock::now() - since > std::chrono::duration<double>(seconds);
  };
  while (!is_leaving_) {
    leaving_.wait_for(lock, std::chrono::milliseconds(200));
    std::vector<Finished> finished;
    for (auto& [id, stream] : streams_) {
      std::vector<int64_t> late;
      for (auto& [number, waiting] : stream.waiting) {
        const bool is_late = after(waiting.since, patience_.error_seconds);
        if (!is_late && (waiting.is_warned || !after(waiting.since, patience_.warn_seconds))) continue;
        waiting.is_warned = true;
        if (is_late) {
          late.push_back(number);
          continue;
        }
        std::string whom;
        for (int r = 0; r < size(); ++r) {
          if (waiting.messages[r].is_empty()) whom += (whom.empty() ? "" : ", ") + Ranked(r);
        }
        std::fprintf(stderr, "mx_rec: %s has waited for %s for %.0f s, at '%s' (exchange %lld of it)\n",
                     Ranked(rank()).c_str(), whom.c_str(), patience_.warn_seconds, stream.name.c_str(),
                     static_cast<long long>(number));
      }
      for (const int64_t number : late) {
        const Waiting& waiting = stream.waiting.at(number);
        std::string whom, elsewhere;
        for (int r = 0; r < size(); ++r) {
          if (!waiting.messages[r].is_empty()) continue;
          whom += (whom.empty() ? "" : ", ") + Ranked(r);
          for (const auto& [other_id, other] : streams_) {
            for (const auto& [n, early] : other.early) {
              if (early[r].is_empty() || other_id == id) continue;
              elsewhere +=
                  "; " + Ranked(r) + " waits at " +
                  (other.name.empty() ? "an exchange that this rank has never come to" : "'" + other.name + "'");
            }
          }
        }
        char seconds[32];
        std::snprintf(seconds, sizeof(seconds), "%.0f", patience_.error_seconds);
        finished.emplace_back();
        End(&stream, number,
            Status::FailedPrecondition(
                Ranked(rank()) + " has waited for " + whom + " for " + seconds + " s, at '" + stream.name +
                "' (exchange " + std::to_string(number) + " of it)" + elsewhere +
                ": all ranks must run the same graph, steps and evaluations; if a rank is only slow, raise "
                "MX_REC_EXCHANGE_TIMEOUT (seconds)"),
            &finished.back());
      }
    }
    if (finished.empty()) continue;
    lock.unlock();
    for (Finished& one : finished) one.done(one.status, std::move(one.messages));
    lock.lock();
  }
}

void World::Leave(const std::string& why) {
  std::vector<Finished> finished;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (is_leaving_) return;
    is_leaving_ = true;
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      Message message(static_cast<int64_t>(why.size()));
      message.header().kind = Message::Kind::kGoodbye;
      std::memcpy(message.payload(), why.data(), why.size());
      transport_->Send(r, std::move(message));
    }
    for (auto& [id, stream] : streams_) {
      while (!stream.waiting.empty()) {
        finished.emplace_back();
        End(&stream, stream.waiting.begin()->first, Ended(), &finished.back());
      }
    }
  }
  for (Finished& one : finished) one.done(one.status, {});
  leaving_.notify_all();
  watcher_.join();
  transport_->Stop(why.empty());
}

World::Statistics World::statistics() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return statistics_;
}

}  // namespace mxrec
