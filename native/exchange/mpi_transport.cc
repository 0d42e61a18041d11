#include "exchange/mpi_transport.h"

#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <list>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "exchange/mpi_abi.h"

namespace mxrec {
namespace {

using Clock = std::chrono::steady_clock;

// MPI makes progress only while it is called. Whoever waits for a message calls it again and again; after this long it
// sleeps in between. (MPICH moves a bounded part of a large message per call: sleeping early made 4 MiB take 28 ms
// instead of 0.6.)
constexpr auto kSpin = std::chrono::milliseconds(50);
constexpr auto kNap = std::chrono::microseconds(50);
// While nothing is expected, messages may lie for this long.
constexpr auto kIdle = std::chrono::milliseconds(2);
// A rank that ends gives what it has sent this long to leave.
constexpr auto kLastSends = std::chrono::seconds(30);
constexpr auto kLastSendsOfFailure = std::chrono::seconds(1);
constexpr int kTag = 1;

template <typename Abi>
class MpiTransport : public Transport {
 public:
  using Handle = typename Abi::Handle;

  explicit MpiTransport(void* library) : library_(library) {}
  ~MpiTransport() override { Stop(false); }

  // Returns an error of MPI's, "" if it is joined.
  std::string Join() {
    const char* missing = mpi_.Find(library_);
    if (missing != nullptr) return std::string("it has no ") + missing;
    std::promise<std::string> joined;
    thread_ = std::thread([&] {
      const std::string error = Begin();
      joined.set_value(error);
      if (error.empty()) Run();
    });
    const std::string error = joined.get_future().get();
    if (!error.empty()) thread_.join();
    return error;
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void Start(Deliver deliver) override {
    std::lock_guard<std::mutex> lock(mutex_);
    deliver_ = std::move(deliver);
    changed_.notify_one();
  }

  void Send(int to, Message message) override {
    std::lock_guard<std::mutex> lock(mutex_);
    outgoing_.emplace_back(to, std::move(message));
    changed_.notify_one();
  }

  void Expect(int exchanges) override {
    std::lock_guard<std::mutex> lock(mutex_);
    expected_ = exchanges;
    if (exchanges > 0) changed_.notify_one();
  }

  void Stop(bool orderly) override {
    if (!thread_.joinable()) return;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      is_stopping_ = true;
      is_orderly_ = orderly;
    }
    changed_.notify_one();
    thread_.join();
  }

 private:
  struct Sending {
    Message message;
    Handle request;
  };
  struct Receiving {
    int from;
    Message message;
    Handle request;
    bool is_complete;
  };

  std::string Begin() {
    int is_there = 0;
    if (mpi_.Initialized(&is_there) != 0) return "MPI_Initialized failed";
    if (is_there == 0) {
      int provided = 0;
      if (mpi_.Init_thread(nullptr, nullptr, MpiFunctions<Abi>::kFunneled, &provided) != 0) return "MPI_Init failed";
      is_owner_ = true;
    }
    // Messages of its own, apart from those that the script may send.
    if (mpi_.Comm_dup(Abi::World(library_), &world_) != 0 || mpi_.Comm_rank(world_, &rank_) != 0 ||
        mpi_.Comm_size(world_, &size_) != 0 || mpi_.Type_contiguous(Message::kUnit, Abi::Byte(library_), &unit_) != 0 ||
        mpi_.Type_commit(&unit_) != 0) {
      return "MPI_Comm_dup or MPI_Type_contiguous failed";
    }
    return "";
  }

  void Run() {
    Clock::time_point last_progress = Clock::now(), stop_by{};
    std::deque<std::pair<int, Message>> outgoing;
    for (;;) {
      bool waits, has_deliver;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        if (outgoing_.empty() && expected_ == 0 && sending_.empty() && !is_stopping_) changed_.wait_for(lock, kIdle);
        outgoing.swap(outgoing_);
        waits = expected_ > 0;
        has_deliver = deliver_ != nullptr;
        if (is_stopping_) {
          if (stop_by == Clock::time_point{}) stop_by = Clock::now() + (is_orderly_ ? kLastSends : kLastSendsOfFailure);
          if ((outgoing.empty() && sending_.empty()) || Clock::now() > stop_by) break;
        }
      }
      bool progress = !outgoing.empty();
      for (auto& [to, message] : outgoing) {
        sending_.push_back({std::move(message), Handle()});
        Sending& sending = sending_.back();
        mpi_.Isend(sending.message.data(), static_cast<int>(sending.message.bytes() / Message::kUnit), unit_, to, kTag,
                   world_, &sending.request);
      }
      outgoing.clear();
      for (auto it = sending_.begin(); it != sending_.end();) {
        const bool is_sent = IsComplete(&it->request);
        progress |= is_sent;
        it = is_sent ? sending_.erase(it) : std::next(it);
      }
      progress |= has_deliver && Receive();
      const Clock::time_point now = Clock::now();
      if (progress) {
        last_progress = now;
      } else if (waits && now - last_progress < kSpin) {
        sched_yield();
      } else if (waits || !sending_.empty() || !receiving_.empty()) {
        std::this_thread::sleep_for(kNap);
      }
    }
    deliver_ = nullptr;
    int is_over = 0;
    if (is_orderly_ && is_owner_ && mpi_.Finalized(&is_over) == 0 && is_over == 0) mpi_.Finalize();
  }

  bool IsComplete(Handle* request) {
    int is_complete = 0;
    typename Abi::Status status;
    mpi_.Test(request, &is_complete, &status);
    return is_complete != 0;
  }

  // Takes in what has arrived; whether there was anything.
  bool Receive() {
    bool progress = false;
    for (;;) {
      int is_there = 0, units = 0;
      Handle message;
      typename Abi::Status status;
      mpi_.Improbe(Abi::kAnySource, kTag, world_, &is_there, &message, &status);
      if (is_there == 0) break;
      mpi_.Get_count(&status, unit_, &units);
      receiving_.push_back({status.source, Message::Whole(int64_t{units} * Message::kUnit), Handle(), false});
      Receiving& receiving = receiving_.back();
      mpi_.Imrecv(receiving.message.data(), units, unit_, &message, &receiving.request);
      progress = true;
    }
    std::vector<char> is_behind(size_, 0);  // of each rank, whether an earlier message is still on its way
    for (auto it = receiving_.begin(); it != receiving_.end();) {
      it->is_complete = it->is_complete || IsComplete(&it->request);
      if (!it->is_complete || is_behind[it->from] != 0) {
        is_behind[it->from] = 1;
        ++it;
        continue;
      }
      deliver_(it->from, std::move(it->message));
      it = receiving_.erase(it);
      progress = true;
    }
    return progress;
  }

  void* const library_;
  MpiFunctions<Abi> mpi_{};
  Handle world_{}, unit_{};
  int rank_ = 0, size_ = 1;
  bool is_owner_ = false;
  std::thread thread_;
  // Of the thread alone.
  std::list<Sending> sending_;
  std::list<Receiving> receiving_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::pair<int, Message>> outgoing_;
  Deliver deliver_;
  int expected_ = 0;
  bool is_stopping_ = false;
  bool is_orderly_ = false;
};

template <typename Abi>
Status Join(void* library, const std::string& path, std::unique_ptr<Transport>* transport) {
  auto joined = std::make_unique<MpiTransport<Abi>>(library);
  const std::string error = joined->Join();
  if (!error.empty())
    return Status::FailedPrecondition("cannot join the ranks by the MPI library '" + path + "': " + error);
  *transport = std::move(joined);
  return Status();
}

// What the library calls itself; "" if it is none.
std::string NameOf(void* library) {
  const auto get = reinterpret_cast<int (*)(char*, int*)>(dlsym(library, "MPI_Get_library_version"));
  std::vector<char> text(8192 + 1, 0);
  int length = 0;
  return get != nullptr && get(text.data(), &length) == 0 ? text.data() : "";
}

}  // namespace

Status JoinMpi(const std::string& path, std::unique_ptr<Transport>* transport) {
  // Global: the parts that the library loads later look for its symbols.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    const char* why = dlerror();
    return Status::NotFound("cannot load the MPI library '" + path + "': " + (why == nullptr ? "" : why));
  }
  if (dlsym(library, "ompi_mpi_comm_world") != nullptr) return Join<OpenMpiAbi>(library, path, transport);
  if (NameOf(library).find("MPICH") != std::string::npos || NameOf(library).find("Intel") != std::string::npos ||
      NameOf(library).find("MVAPICH") != std::string::npos) {
    return Join<MpichAbi>(library, path, transport);
  }
  return Status::FailedPrecondition("'" + path +
                                    "' is neither Open MPI nor an MPI of MPICH's binary interface (MPICH, Intel MPI, "
                                    "MVAPICH): use one of these");
}

}  // namespace mxrec
