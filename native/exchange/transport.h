// Transport: carries messages between the ranks. One of MPI (mpi_transport.h), and one between threads of a process
// (local_transport.h), for tests.
#pragma once

#include <functional>

#include "exchange/message.h"

namespace mxrec {

class Transport {
 public:
  // Called with each message that arrives, from any thread, one at a time for each sender.
  using Deliver = std::function<void(int from, Message message)>;

  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Begins to deliver. REQUIRES: called once.
  virtual void Start(Deliver deliver) = 0;
  // Sends a message on its way and returns at once. Messages to one rank arrive in the order in which they were sent.
  virtual void Send(int to, Message message) = 0;
  // Tells how many exchanges wait for messages now: a transport that has to look for them looks harder then.
  virtual void Expect(int exchanges) = 0;
  // Ends: what was sent is delivered first, if all ranks end so; with `orderly` false, as far as that needs no other
  // rank.
  virtual void Stop(bool orderly) = 0;
};

}  // namespace mxrec
