#include "capi/capi.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/heap.h"
#include "capi/error.h"
#include "table/assign_embeddings.h"
#include "table/eviction.h"
#include "table/registry.h"

using mxrec::Guarded;
using mxrec::Registry;
using mxrec::Status;
using mxrec::Table;

namespace mxrec {
namespace {

thread_local std::string last_error;

int64_t RowFloats(const Table& table) {
  return static_cast<int64_t>(table.config().dim) * (1 + table.layout().slots().size());
}

// Runs fn(table) on the table of that name.
template <typename Fn>
int WithTable(const char* name, Fn fn) {
  return Guarded([&]() -> Status {
    std::shared_ptr<Table> table;
    MXREC_RETURN_IF_ERROR(Registry::Global().Find(name, &table));
    return fn(*table);
  });
}

// Whether a table can take what a checkpoint says of its tracking.
Status CheckSaved(const Table& table, int64_t access, int64_t eviction, int64_t coefficient, int64_t step) {
  const std::string& name = table.config().name;
  const History* history = table.history();
  if (history == nullptr) return Status::NotFound("table '" + name + "' does not track its keys");
  if (step < 0 || step > UINT32_MAX) {
    return Status::InvalidArgument("table '" + name + "': step must be in [0, " + std::to_string(UINT32_MAX) +
                                   "], got " + std::to_string(step));
  }
  return CheckTracking({access, eviction, coefficient, history->tracking().filter_bytes}, name);
}

}  // namespace

int Report(const Status& status) {
  if (!status.ok()) last_error = status.message();
  return static_cast<int>(status.code());
}

}  // namespace mxrec

extern "C" {

const char* mxrec_last_error(void) { return mxrec::last_error.c_str(); }

int mxrec_table_create(const mxrec_table_config* given) {
  return Guarded([&] {
    mxrec::TableConfig config;
    config.name = given->name;
    config.dim = given->dim;
    config.max_rows = given->max_rows;
    config.expected_rows = given->expected_rows;
    const int32_t kind = given->initializer;
    if (kind < 0 || kind > static_cast<int32_t>(mxrec::InitializerSpec::Kind::kPool)) {
      return Status::InvalidArgument("table '" + config.name + "': unknown initializer kind " + std::to_string(kind));
    }
    config.initializer.kind = static_cast<mxrec::InitializerSpec::Kind>(kind);
    config.initializer.a = given->a;
    config.initializer.b = given->b;
    config.initializer.scale = given->scale;
    config.initializer.seed = given->seed;
    if (given->pool != nullptr) {
      config.initializer.pool.assign(given->pool, given->pool + given->pool_rows * given->dim);
    }
    config.padding_keys.assign(given->padding_keys, given->padding_keys + given->padding_count);
    config.tier.memory_rows = given->memory_rows;
    config.tier.disk_rows = given->disk_rows;
    config.tier.paths.assign(given->paths, given->paths + given->path_count);
    std::shared_ptr<Table> table;
    return Registry::Global().FindOrCreate(config, &table);
  });
}

int mxrec_table_set_slots(const char* name, int32_t count, const char* const* slot_names, const float* initial_values) {
  return mxrec::WithTable(name, [&](Table& table) {
    std::vector<mxrec::SlotSpec> slots;
    for (int32_t i = 0; i < count; ++i) slots.push_back({slot_names[i], initial_values[i]});
    return table.SetSlots(slots);
  });
}

int mxrec_table_slot_name(const char* name, int32_t slot, char* out, int64_t capacity) {
  return mxrec::WithTable(name, [&](Table& table) {
    const std::vector<mxrec::SlotSpec>& slots = table.layout().slots();
    if (slot < 0 || slot >= static_cast<int32_t>(slots.size())) return Status::NotFound("no such slot");
    const std::string& slot_name = slots[slot].name;
    if (static_cast<int64_t>(slot_name.size()) >= capacity) return Status::InvalidArgument("buffer too small");
    std::copy_n(slot_name.c_str(), slot_name.size() + 1, out);
    return Status();
  });
}

int mxrec_table_facts(const char* name, int64_t* facts) {
  return mxrec::WithTable(name, [&](Table& table) {
    facts[0] = table.size();
    facts[1] = table.capacity();
    facts[2] = table.bytes();
    facts[3] = table.inserted();
    facts[4] = table.erased();
    facts[5] = table.shards();
    const Table::Lives lives = table.lives();
    facts[6] = lives.seen;
    facts[7] = lives.refused;
    facts[8] = lives.candidates;
    facts[9] = table.mutations();
    facts[10] = table.nonfinite();
    facts[11] = table.elsewhere();
    return Status();
  });
}

int mxrec_table_tier(const char* name, int64_t* facts) {
  return mxrec::WithTable(name, [&](Table& table) {
    const mxrec::Tier* tier = table.tier();
    if (tier == nullptr) return Status::NotFound("table '" + table.config().name + "' has no rows on disk");
    const int64_t on_disk = tier->disk->rows();
    const int64_t numbers[] = {table.size() - on_disk, on_disk,         tier->disk->bytes(), tier->hits,
                               tier->promotions,       tier->demotions, tier->moved,         tier->read_time};
    std::copy_n(numbers, 8, facts);
    return Status();
  });
}

int mxrec_table_track(const char* name, const int64_t* tracking) {
  return mxrec::WithTable(
      name, [&](Table& table) { return table.Track({tracking[0], tracking[1], tracking[2], tracking[3]}); });
}

int mxrec_table_tracking(const char* name, int64_t* tracking) {
  return mxrec::WithTable(name, [&](Table& table) {
    const mxrec::History* history = table.history();
    if (history == nullptr) return Status::NotFound("table '" + table.config().name + "' does not track its keys");
    const mxrec::Tracking now = history->tracking();
    const int64_t numbers[] = {now.access_threshold, now.eviction_threshold, now.coefficient,
                               now.filter_bytes,     history->now(),         history->step()};
    std::copy_n(numbers, 6, tracking);
    return Status();
  });
}

int mxrec_table_check_tracking(const char* name, int64_t access, int64_t eviction, int64_t coefficient, int64_t step) {
  return mxrec::WithTable(name,
                          [&](Table& table) { return mxrec::CheckSaved(table, access, eviction, coefficient, step); });
}

int mxrec_table_restore_tracking(const char* name, int64_t access, int64_t eviction, int64_t coefficient,
                                 int64_t step) {
  return mxrec::WithTable(name, [&](Table& table) {
    MXREC_RETURN_IF_ERROR(mxrec::CheckSaved(table, access, eviction, coefficient, step));
    mxrec::History* history = table.history();
    history->SetThresholds(access, eviction, coefficient);
    history->SetClock(history->now(), static_cast<uint32_t>(step));
    return Status();
  });
}

int mxrec_table_history(const char* name, const int64_t* keys, int64_t n, int64_t* counts, int64_t* times,
                        int64_t* steps) {
  return mxrec::WithTable(name, [&](Table& table) {
    for (int64_t i = 0; i < n; ++i) {
      const mxrec::RowFacts facts = table.Facts(keys[i]);
      counts[i] = facts.count;
      times[i] = facts.time;
      steps[i] = facts.step;
    }
    return Status();
  });
}

int mxrec_eviction_begin(const char* name, int32_t score, double threshold, int64_t keep, mxrec_eviction** eviction) {
  *eviction = nullptr;
  return Guarded([&]() -> Status {
    std::shared_ptr<Table> table;
    MXREC_RETURN_IF_ERROR(Registry::Global().Find(name, &table));
    const mxrec::EvictionPolicy policy{static_cast<mxrec::EvictionPolicy::Score>(score), threshold, keep};
    std::unique_ptr<mxrec::Eviction> made;
    MXREC_RETURN_IF_ERROR(mxrec::Eviction::Begin(std::move(table), policy, &made));
    *eviction = reinterpret_cast<mxrec_eviction*>(made.release());
    return Status();
  });
}

int mxrec_eviction_run(mxrec_eviction* eviction, int64_t rows, int32_t* done, int64_t* evicted) {
  return Guarded([&] {
    auto* running = reinterpret_cast<mxrec::Eviction*>(eviction);
    *done = running->Run(rows) ? 1 : 0;
    *evicted = running->evicted();
    return Status();
  });
}

void mxrec_eviction_end(mxrec_eviction* eviction) { delete reinterpret_cast<mxrec::Eviction*>(eviction); }

int mxrec_table_read(const char* name, const int64_t* keys, int64_t n, float* out, uint8_t* found) {
  return mxrec::WithTable(name, [&](Table& table) {
    const int64_t floats = mxrec::RowFloats(table);
    for (int64_t i = 0; i < n; ++i) {
      bool is_found;
      MXREC_RETURN_IF_ERROR(table.Read(keys[i], out + i * floats, &is_found));
      found[i] = is_found ? 1 : 0;
    }
    return Status();
  });
}

int mxrec_table_write(const char* name, const int64_t* keys, int64_t n, const float* values) {
  return mxrec::WithTable(name, [&](Table& table) {
    const int64_t dim = table.config().dim, floats = mxrec::RowFloats(table);
    std::vector<const float*> parts(floats / dim);
    table.CountMutation();
    for (int64_t i = 0; i < n; ++i) {
      for (size_t p = 0; p < parts.size(); ++p) parts[p] = values + i * floats + p * dim;
      MXREC_RETURN_IF_ERROR(table.Assign(keys[i], parts.data()));
    }
    return Status();
  });
}

int mxrec_table_assign(const char* name, const int64_t* keys, int64_t n, const float* embeddings) {
  return mxrec::WithTable(name, [&](Table& table) {
    table.CountMutation();
    return mxrec::AssignEmbeddings(&table, keys, n, embeddings);
  });
}

int mxrec_table_keys(const char* name, int64_t* out, int64_t capacity, int64_t* n) {
  return mxrec::WithTable(name, [&](Table& table) {
    *n = 0;
    table.ForEach([&](int64_t key, int64_t) {
      if (*n < capacity) out[*n] = key;
      ++*n;
    });
    return Status();
  });
}

int mxrec_table_some_keys(const char* name, int64_t* out, int64_t capacity, int64_t* n) {
  return mxrec::WithTable(name, [&](Table& table) {
    const std::vector<int64_t> keys = table.SomeKeys(capacity);
    std::copy(keys.begin(), keys.end(), out);
    *n = static_cast<int64_t>(keys.size());
    return Status();
  });
}

int mxrec_table_erase(const char* name, const int64_t* keys, int64_t n, int64_t* erased) {
  return mxrec::WithTable(name, [&](Table& table) {
    *erased = table.Erase(keys, n);
    return Status();
  });
}

int mxrec_table_clear(const char* name) {
  return mxrec::WithTable(name, [&](Table& table) {
    table.Clear();
    if (table.history() != nullptr) table.history()->SetClock(0, 0);
    return Status();
  });
}

void mxrec_keep_freed_memory(void) { mxrec::KeepFreedMemory(); }

void mxrec_registry_clear(void) { Registry::Global().Clear(); }

}  // extern "C"
