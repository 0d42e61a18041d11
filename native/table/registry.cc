#include "table/registry.h"

namespace mxrec {
namespace {

std::string Difference(const TableConfig& have, const TableConfig& want) {
  if (have.dim != want.dim) return "dim is " + std::to_string(have.dim) + ", now " + std::to_string(want.dim);
  if (have.max_rows != want.max_rows) {
    return "the row limit is " + std::to_string(have.max_rows) + ", now " + std::to_string(want.max_rows);
  }
  if (!(have.initializer == want.initializer)) return "the initializer or init_param differs";
  if (!(have.tier == want.tier)) {
    return "the rows in memory, on disk, or ssd_data_path differ (" + std::to_string(have.tier.memory_rows) + " and " +
           std::to_string(have.tier.disk_rows) + ", now " + std::to_string(want.tier.memory_rows) + " and " +
           std::to_string(want.tier.disk_rows) + ")";
  }
  return "padding_keys differ";
}

}  // namespace

Registry& Registry::Global() {
  // Never destroyed: op threads may outlive main().
  static Registry* registry = new Registry;
  return *registry;
}

Status Registry::FindOrCreate(const TableConfig& config, std::shared_ptr<Table>* table) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<Table> created;
  MXREC_RETURN_IF_ERROR(Table::Create(config, &created));
  const auto it = tables_.find(config.name);
  if (it == tables_.end()) {
    tables_[config.name] = created;
    *table = created;
    return Status();
  }
  if (!(it->second->config() == created->config())) {
    return Status::AlreadyExists("table '" + config.name + "' exists with another configuration: " +
                                 Difference(it->second->config(), created->config()) +
                                 ". Give the new table another name, or call terminate_config_initializer() first");
  }
  *table = it->second;
  return Status();
}

Status Registry::Find(const std::string& name, std::shared_ptr<Table>* table) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = tables_.find(name);
  if (it == tables_.end()) {
    return Status::NotFound("there is no table '" + name +
                            "': call create_table with this name, after init() and before the session runs");
  }
  *table = it->second;
  return Status();
}

std::vector<std::string> Registry::Names() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::string> names;
  for (const auto& entry : tables_) names.push_back(entry.first);
  return names;
}

Status Registry::SetAccessThreshold(const std::string& name, int64_t value, int* changed) const {
  *changed = 0;
  if (value < 0) {
    return Status::InvalidArgument("the threshold must not be negative, got " + std::to_string(value) +
                                   "; 0 lets every key in");
  }
  for (const std::string& one : name.empty() ? Names() : std::vector<std::string>{name}) {
    std::shared_ptr<Table> table;
    MXREC_RETURN_IF_ERROR(Find(one, &table));
    History* history = table->history();
    if (history == nullptr && name.empty()) continue;
    if (history == nullptr) {
      return Status::InvalidArgument("table '" + one +
                                     "' does not count its keys; give it an access_threshold when the graph is built");
    }
    Tracking tracking = history->tracking();
    tracking.access_threshold = value;
    MXREC_RETURN_IF_ERROR(CheckTracking(tracking, one));
    history->SetThresholds(value, tracking.eviction_threshold, tracking.coefficient);
    ++*changed;
  }
  return Status();
}

void Registry::Clear() {
  std::lock_guard<std::mutex> lock(mutex_);
  tables_.clear();
}

}  // namespace mxrec
