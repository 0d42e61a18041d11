// Registry: the process's tables by name. Graphs come and go (an Estimator builds one per mode); tables stay until the
// registry is cleared. The one piece of global state in the core.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "table/table.h"

namespace mxrec {

class Registry {
 public:
  static Registry& Global();

  // The table of this name: the existing one if its configuration is the same, else a new one. The same name with
  // another configuration is AlreadyExists, naming what differs.
  Status FindOrCreate(const TableConfig& config, std::shared_ptr<Table>* table);

  // NotFound if there is none.
  Status Find(const std::string& name, std::shared_ptr<Table>* table) const;

  std::vector<std::string> Names() const;

  // Sets the count at which new keys get a row, in the table of this name, or if that is empty, in all that count their
  // keys; *changed receives the number of tables. InvalidArgument naming what is wrong.
  Status SetAccessThreshold(const std::string& name, int64_t value, int* changed) const;

  // Forgets all tables. Memory is freed when the last running op lets go.
  void Clear();

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Table>> tables_;
};

}  // namespace mxrec
