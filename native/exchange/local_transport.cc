#include "exchange/local_transport.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace mxrec {
namespace {

// Where the messages to one rank arrive.
struct Inbox {
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::deque<std::pair<int, Message>> messages;
  bool is_closed = false;
};

class LocalTransport : public Transport {
 public:
  LocalTransport(int rank, std::shared_ptr<std::vector<Inbox>> inboxes) : rank_(rank), inboxes_(std::move(inboxes)) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(inboxes_->size()); }
  void Start(Deliver deliver) override {
    deliverer_ = std::thread([this, deliver = std::move(deliver)] { Run(deliver); });
  }
  void Send(int to, Message message) override {
    Inbox& inbox = (*inboxes_)[to];
    {
      std::lock_guard<std::mutex> lock(inbox.mutex);
      inbox.messages.emplace_back(rank_, std::move(message));
    }
    inbox.changed.notify_one();
  }
  void Expect(int) override {}
  void Stop(bool) override {
    Inbox& inbox = (*inboxes_)[rank_];
    {
      std::lock_guard<std::mutex> lock(inbox.mutex);
      inbox.is_closed = true;
    }
    inbox.changed.notify_one();
    deliverer_.join();
  }

 private:
  void Run(const Deliver& deliver) {
    Inbox& inbox = (*inboxes_)[rank_];
    std::unique_lock<std::mutex> lock(inbox.mutex);
    for (;;) {
      inbox.changed.wait(lock, [&] { return inbox.is_closed || !inbox.messages.empty(); });
      if (inbox.is_closed) return;
      auto [from, message] = std::move(inbox.messages.front());
      inbox.messages.pop_front();
      lock.unlock();
      deliver(from, std::move(message));
      lock.lock();
    }
  }

  const int rank_;
  const std::shared_ptr<std::vector<Inbox>> inboxes_;
  std::thread deliverer_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> LocalTransports(int size) {
  auto inboxes = std::make_shared<std::vector<Inbox>>(size);
  std::vector<std::unique_ptr<Transport>> transports;
  for (int r = 0; r < size; ++r) transports.push_back(std::make_unique<LocalTransport>(r, inboxes));
  return transports;
}

}  // namespace mxrec
