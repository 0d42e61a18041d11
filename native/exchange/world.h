// World: the ranks that train one model together, as one of them sees them. All that they do together is an exchange:
// every rank gives every rank a message and gets one from each.
//
// An exchange belongs to a stream, named alike on all ranks; the exchanges of a stream are numbered, and number k of
// one rank meets number k of the others, whatever other streams do meanwhile, in whatever order. A rank that cannot
// give what it should takes part with an error, which ends the exchange on every rank: an error is never a hang. A rank
// that does not come at all is an error after a time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "exchange/message.h"
#include "exchange/transport.h"

namespace mxrec {

class World {
 public:
  // Gets the messages of all ranks, in their order, this one's too; or an error, and none. Called once, from the thread
  // that brought what was missing: it must not block.
  using Done = std::function<void(const Status&, std::vector<Message>)>;

  struct Patience {
    double warn_seconds = 30;    // then it is said who waits for whom
    double error_seconds = 600;  // and then the exchange fails
  };
  struct Statistics {
    int64_t exchanges = 0;
    int64_t bytes = 0;              // sent to other ranks
    int64_t wait_microseconds = 0;  // from giving to having got, summed over exchanges
  };

  World(std::unique_ptr<Transport> transport, const Patience& patience);
  World(std::unique_ptr<Transport> transport) : World(std::move(transport), Patience()) {}
  ~World();

  // The world that the process is part of; nullptr with one rank.
  static std::shared_ptr<World> Current();
  static void SetCurrent(std::shared_ptr<World> world);

  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }

  // Gives `messages[r]` to rank r. REQUIRES: one for each rank.
  void Exchange(const std::string& stream, std::vector<Message> messages, Done done);
  // Takes part in the stream's next exchange with an error, and waits for nobody.
  void Fail(const std::string& stream, const Status& status);

  // The number of exchanges that were begun so far, by which FailSince knows later ones.
  int64_t begun() const;
  // Fails in those of the streams in which this rank has begun nothing since.
  void FailSince(int64_t begun, const std::vector<std::string>& streams, const Status& status);

  // Tells the others that this rank takes part in nothing any more, `why` if it is no orderly end, and ends.
  void Leave(const std::string& why = "");

  Statistics statistics() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Waiting {
    std::vector<Message> messages;  // of each rank; empty: not there yet
    int missing = 0;
    Done done;
    Clock::time_point since;
    bool is_warned = false;
  };
  struct Stream {
    std::string name;   // empty: this rank has not come to it yet
    int64_t next = 0;   // the number of this rank's next exchange
    int64_t order = 0;  // of its last one among all of the process
    std::map<int64_t, Waiting> waiting;
    std::map<int64_t, std::vector<Message>> early;  // of each rank, for exchanges that this rank has not begun
  };
  struct Finished {
    Done done;
    Status status;
    std::vector<Message> messages;
  };

  static uint64_t IdOf(const std::string& stream);
  void Deliver(int from, Message message);
  Stream* Find(const std::string& name, int64_t* number);
  void SendFailure(Stream* stream, const std::string& name, int64_t number, const Status& status);
  // Takes a message of rank `from` that an exchange waits for; true if the exchange has ended by it.
  bool Take(Stream* stream, int64_t number, int from, Message message, Finished* finished);
  bool End(Stream* stream, int64_t number, Status status, Finished* finished);
  Status Departed(int rank, const std::string& stream) const;
  void Watch();

  std::unique_ptr<Transport> transport_;
  const Patience patience_;
  mutable std::mutex mutex_;
  std::map<uint64_t, Stream> streams_;
  std::vector<char> is_gone_;      // of each rank
  std::vector<std::string> last_;  // of each rank, and why it went if it is gone
  int waiting_ = 0;
  int64_t begun_ = 0;
  bool is_leaving_ = false;
  Statistics statistics_;
  std::condition_variable leaving_;
  std::thread watcher_;
};

}  // namespace mxrec
