#include "capi/world_capi.h"

#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "capi/error.h"
#include "exchange/mpi_transport.h"
#include "exchange/owners.h"
#include "exchange/world.h"
#include "table/registry.h"

namespace mxrec {
namespace {

Status NotJoined() { return Status::FailedPrecondition("this process is not one of several ranks"); }

Status JoinWorld(const char* library, double warn_seconds, double error_seconds, int32_t* rank, int32_t* size) {
  if (World::Current() != nullptr) return Status::FailedPrecondition("this process has joined the ranks already");
  std::unique_ptr<Transport> transport;
  MXREC_RETURN_IF_ERROR(JoinMpi(library, &transport));
  *rank = transport->rank();
  *size = transport->size();
  World::SetCurrent(std::make_shared<World>(std::move(transport), World::Patience{warn_seconds, error_seconds}));
  return Status();
}

Status Gather(const char* stream, const char* data, int64_t bytes, int64_t* sizes, char** gathered) {
  const std::shared_ptr<World> world = World::Current();
  if (world == nullptr) return NotJoined();
  std::vector<Message> messages;
  for (int r = 0; r < world->size(); ++r) {
    messages.emplace_back(bytes);
    std::copy_n(data, bytes, messages.back().payload());
  }
  std::promise<Status> ended;
  world->Exchange(stream, std::move(messages), [&](const Status& status, std::vector<Message> got) {
    messages = std::move(got);
    ended.set_value(status);
  });
  MXREC_RETURN_IF_ERROR(ended.get_future().get());
  int64_t all = 0;
  for (int r = 0; r < world->size(); ++r) all += sizes[r] = messages[r].payload_bytes();
  *gathered = new char[all];
  char* to = *gathered;
  for (const Message& message : messages) to = std::copy_n(message.payload(), message.payload_bytes(), to);
  return Status();
}

}  // namespace
}  // namespace mxrec

using mxrec::Guarded;
using mxrec::Status;
using mxrec::World;

int mxrec_world_join(const char* library, double warn_seconds, double error_seconds, int32_t* rank, int32_t* size) {
  return Guarded([&] { return mxrec::JoinWorld(library, warn_seconds, error_seconds, rank, size); });
}

void mxrec_world_leave(const char* why) {
  const std::shared_ptr<World> world = World::Current();
  if (world == nullptr) return;
  world->Leave(why);
  World::SetCurrent(nullptr);
}

int64_t mxrec_world_begun(void) {
  const std::shared_ptr<World> world = World::Current();
  return world == nullptr ? 0 : world->begun();
}

int mxrec_world_fail_since(int64_t begun, const char* const* streams, int32_t count, int32_t code,
                           const char* message) {
  return Guarded([&] {
    const std::shared_ptr<World> world = World::Current();
    if (world == nullptr) return mxrec::NotJoined();
    world->FailSince(begun, std::vector<std::string>(streams, streams + count), Status::Of(code, message));
    return Status();
  });
}

int mxrec_world_gather(const char* stream, const char* data, int64_t bytes, int64_t* sizes, char** gathered) {
  return Guarded([&] { return mxrec::Gather(stream, data, bytes, sizes, gathered); });
}

void mxrec_world_free(char* gathered) { delete[] gathered; }

int mxrec_world_statistics(int64_t* facts) {
  return Guarded([&] {
    const std::shared_ptr<World> world = World::Current();
    if (world == nullptr) return mxrec::NotJoined();
    const World::Statistics now = world->statistics();
    facts[0] = now.exchanges;
    facts[1] = now.bytes;
    facts[2] = now.wait_microseconds;
    return Status();
  });
}

int mxrec_table_scale_gradients(const char* name, float scale) {
  return Guarded([&] {
    std::shared_ptr<mxrec::Table> table;
    MXREC_RETURN_IF_ERROR(mxrec::Registry::Global().Find(name, &table));
    table->SetGradientScale(scale);
    return Status();
  });
}

int mxrec_table_replicate(const char* name) {
  return Guarded([&] {
    std::shared_ptr<mxrec::Table> table;
    MXREC_RETURN_IF_ERROR(mxrec::Registry::Global().Find(name, &table));
    if (table->is_replicated()) return Status();
    if (table->size() > 0) return Status::FailedPrecondition("table '" + table->config().name + "' has rows already");
    table->Replicate();
    return Status();
  });
}

void mxrec_world_owners(const int64_t* keys, int64_t n, int32_t ranks, int32_t* owners) {
  for (int64_t i = 0; i < n; ++i) owners[i] = mxrec::OwnerOf(keys[i], ranks);
}
