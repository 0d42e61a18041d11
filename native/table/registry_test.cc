#include "table/registry.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <thread>

namespace mxrec {
namespace {

TableConfig Config(const std::string& name = "user") {
  TableConfig config;
  config.name = name;
  config.dim = 8;
  config.max_rows = 1000;
  config.initializer.kind = InitializerSpec::Kind::kNormal;
  config.initializer.b = 0.5f;
  config.initializer.seed = 7;
  config.padding_keys = {3, -1, 0};
  return config;
}

std::shared_ptr<Table> MustCreate(Registry* registry, const TableConfig& config) {
  std::shared_ptr<Table> table;
  const Status status = registry->FindOrCreate(config, &table);
  EXPECT_TRUE(status.ok()) << status.message();
  return table;
}

TEST(Registry, TheSameNameAndConfigurationIsTheSameTable) {
  Registry registry;
  const auto first = MustCreate(&registry, Config());
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(MustCreate(&registry, Config()), first);
  std::shared_ptr<Table> found;
  ASSERT_TRUE(registry.Find("user", &found).ok());
  EXPECT_EQ(found, first);
}

TEST(Registry, TheOrderOfPaddingKeysDoesNotMatter) {
  Registry registry;
  const auto first = MustCreate(&registry, Config());
  TableConfig config = Config();
  config.padding_keys = {0, 3, -1};
  EXPECT_EQ(MustCreate(&registry, config), first);
}

TEST(Registry, OtherNamesAreOtherTables) {
  Registry registry;
  const auto user = MustCreate(&registry, Config("user"));
  const auto item = MustCreate(&registry, Config("item"));
  EXPECT_NE(user, item);
  EXPECT_EQ(registry.Names(), (std::vector<std::string>{"item", "user"}));
}

TEST(Registry, AnotherConfigurationIsAnErrorThatNamesTheDifference) {
  struct Case {
    std::function<void(TableConfig*)> change;
    std::vector<std::string> words;
  };
  const std::vector<Case> cases = {
      {[](TableConfig* c) { c->dim = 16; }, {"dim", "8", "16"}},
      {[](TableConfig* c) { c->max_rows = 2000; }, {"limit", "1000", "2000"}},
      {[](TableConfig* c) { c->max_rows = 0; }, {"limit", "1000", "0"}},
      {[](TableConfig* c) { c->initializer.seed = 8; }, {"initializer"}},
      {[](TableConfig* c) { c->initializer.scale = 0.1f; }, {"init_param"}},
      {[](TableConfig* c) { c->initializer.kind = InitializerSpec::Kind::kTruncatedNormal; }, {"initializer"}},
      {[](TableConfig* c) { c->padding_keys = {3, -1}; }, {"padding_keys"}},
  };
  Registry registry;
  const auto first = MustCreate(&registry, Config());
  for (const Case& test : cases) {
    TableConfig config = Config();
    test.change(&config);
    std::shared_ptr<Table> table;
    const Status status = registry.FindOrCreate(config, &table);
    EXPECT_EQ(status.code(), Status::Code::kAlreadyExists);
    EXPECT_EQ(table, nullptr);
    EXPECT_NE(status.message().find("'user'"), std::string::npos) << status.message();
    for (const std::string& word : test.words) {
      EXPECT_NE(status.message().find(word), std::string::npos) << word << " is not in: " << status.message();
    }
  }
  EXPECT_EQ(MustCreate(&registry, Config()), first);
}

TEST(Registry, RefusesABadConfigurationAndKeepsNothingOfIt) {
  Registry registry;
  TableConfig config = Config();
  config.dim = 0;
  std::shared_ptr<Table> table;
  EXPECT_EQ(registry.FindOrCreate(config, &table).code(), Status::Code::kInvalidArgument);
  EXPECT_EQ(table, nullptr);
  EXPECT_TRUE(registry.Names().empty());
}

TEST(Registry, SaysWhichTableIsMissing) {
  Registry registry;
  std::shared_ptr<Table> table;
  const Status status = registry.Find("user", &table);
  EXPECT_EQ(status.code(), Status::Code::kNotFound);
  EXPECT_EQ(table, nullptr);
  EXPECT_NE(status.message().find("'user'"), std::string::npos);
  EXPECT_NE(status.message().find("create_table"), std::string::npos);
}

TEST(Registry, ClearForgetsTablesButNotUnderTheirUsers) {
  Registry registry;
  const auto held = MustCreate(&registry, Config());
  ASSERT_TRUE(held->Claim(1).ok());
  registry.Clear();
  EXPECT_TRUE(registry.Names().empty());
  std::shared_ptr<Table> found;
  EXPECT_FALSE(registry.Find("user", &found).ok());
  EXPECT_EQ(held->size(), 1);
  EXPECT_EQ(held.use_count(), 1);

  TableConfig config = Config();
  config.dim = 32;  // free to differ now
  const auto fresh = MustCreate(&registry, config);
  EXPECT_NE(fresh, held);
  EXPECT_EQ(fresh->size(), 0);
}

TEST(Registry, ThreadsThatCreateTheSameTableShareIt) {
  Registry registry;
  std::vector<std::shared_ptr<Table>> tables(8);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < tables.size(); ++t) {
    threads.emplace_back([&, t] {
      tables[t] = MustCreate(&registry, Config(t % 2 == 0 ? "even" : "odd"));
      std::shared_ptr<Table> found;
      EXPECT_TRUE(registry.Find(t % 2 == 0 ? "even" : "odd", &found).ok());
      EXPECT_EQ(found, tables[t]);
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(std::set<std::shared_ptr<Table>>(tables.begin(), tables.end()).size(), 2u);
}

TEST(Registry, ThereIsOneForTheProcess) { EXPECT_EQ(&Registry::Global(), &Registry::Global()); }

TEST(Registry, SetsTheThresholdOfTheTablesThatCountTheirKeys) {
  Registry registry;
  const auto counts = MustCreate(&registry, Config("a")), does_not = MustCreate(&registry, Config("b"));
  Tracking tracking;
  tracking.access_threshold = 2;
  tracking.eviction_threshold = 50;
  ASSERT_TRUE(counts->Track(tracking).ok());
  int changed = -1;
  ASSERT_TRUE(registry.SetAccessThreshold("", 7, &changed).ok());
  EXPECT_EQ(changed, 1);
  EXPECT_EQ(counts->history()->access_threshold(), 7);
  EXPECT_EQ(counts->history()->eviction_threshold(), 50);
  EXPECT_EQ(does_not->history(), nullptr);
  ASSERT_TRUE(registry.SetAccessThreshold("a", 0, &changed).ok());
  EXPECT_EQ(changed, 1);
  EXPECT_EQ(counts->history()->access_threshold(), 0);

  EXPECT_EQ(registry.SetAccessThreshold("a", -1, &changed).code(), Status::Code::kInvalidArgument);
  for (const char* name : {"b", "c"}) {
    const Status status = registry.SetAccessThreshold(name, 1, &changed);
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find("'" + std::string(name) + "'"), std::string::npos) << status.message();
  }
  EXPECT_EQ(counts->history()->access_threshold(), 0);
}

}  // namespace
}  // namespace mxrec
