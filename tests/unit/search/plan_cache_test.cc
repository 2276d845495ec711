#include "search/plan_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/sha256.h"
#include "tests/scale.h"
#include "tests/still_clock.h"
#include "tests/ticking_clock.h"
#include "tests/unit/search/search_testing.h"

namespace meshwright::search {
namespace {

using ::testing::HasSubstr;

// In memory; counts.
class FakeCache : public PlanCache {
 public:
  Result<std::string> Read(const std::string& key) const override {
    const auto it = entries.find(key);
    if (it == entries.end()) return Fail(NotFound("none"));
    return it->second;
  }
  Status Write(const std::string& key, std::string_view text) const override {
    if (full) return ResourceExhausted("disk full");
    entries[key] = text;
    ++writes;
    return OkStatus();
  }
  mutable std::map<std::string, std::string> entries;
  mutable int writes = 0;
  bool full = false;
};

ir::JobRequest SmallJob() {
  ir::JobRequest job = OpenJob();
  return job;
}

PlanEntry SomeEntry() {
  PlanEntry entry;
  entry.layout.degrees[planner::Axis::kTensor] = 2;
  entry.layout.pipeline = 2;
  entry.layout.schedule = "zb-v";
  entry.layout.chunks = 2;
  entry.layout.part_layers = {1, 2, 1, 1};
  entry.layout.zero = 1;
  entry.layout.recompute = {planner::Recompute::kFull, planner::Recompute::kNone};
  entry.by_search = true;
  entry.note = "a note of several words";
  LayoutCost cost;
  cost.layout = entry.layout;
  cost.step_s = 1.0 / 3;
  cost.stages = {{0.5, 0.25, 1e-9, 0, 0, 1, 2, 4, 3}, {}};
  entry.found.best = {cost, cost};
  entry.found.best[1].is_forecast = true;
  entry.found.microbatches = {{entry.layout.degrees, 2, 4, 0.5, 0, 0},
                              {entry.layout.degrees, 2, 8, 0, 0.25, 7}};
  entry.found.gap = 0.01;
  entry.found.priced = 7;
  entry.found.candidates = 9;
  return entry;
}

TEST(PlanEntry, IsReadBackAsItWasWritten) {
  const PlanEntry entry = SomeEntry();
  const auto text = FormatPlanEntry("k", entry);
  ASSERT_TRUE(text.has_value()) << text.error();
  const auto again = ParsePlanEntry("k", *text);
  ASSERT_TRUE(again.has_value()) << again.error();
  EXPECT_EQ(again->layout.ToString(), entry.layout.ToString());
  EXPECT_TRUE(again->by_search);
  EXPECT_EQ(again->note, entry.note);
  EXPECT_EQ(again->found.gap, 0.01);
  ASSERT_EQ(again->found.best.size(), 2u);
  EXPECT_EQ(again->found.best[0].step_s, 1.0 / 3);
  EXPECT_FALSE(again->found.best[0].is_forecast);
  EXPECT_TRUE(again->found.best[1].is_forecast);
  EXPECT_EQ(again->found.microbatches, entry.found.microbatches);
  EXPECT_EQ(again->found.best[1].fullest_bytes(), 1 + 4 + 3) << "state, the update, transients";
  EXPECT_EQ(FormatPlanEntry("k", *again).value_or(""), *text);
}

// A sound checksum over numbers that are none.
// What planning a layout finds again is no part of an entry.
TEST(PlanEntry, KeepsLayoutsThatGoInChunks) {
  PlanEntry entry = SomeEntry();
  entry.layout.expert_chunks = 2;
  entry.layout.tensor_chunks = 4;
  const auto text = FormatPlanEntry("k", entry);
  ASSERT_TRUE(text.has_value()) << text.error();
  EXPECT_EQ(ParsePlanEntry("k", *text)->layout.AskedText(), entry.layout.AskedText());
}

TEST(PlanEntry, NamesTheNumberThatIsNone) {
  const std::string text = FormatPlanEntry("k", SomeEntry()).value_or("");
  const auto spoil = [&text](const std::string& key, const std::string& value) {
    std::string spoiled = text.substr(0, text.rfind("sha256 "));
    const size_t at = spoiled.find("\"" + key + "\":") + key.size() + 3;
    spoiled.replace(at, spoiled.find_first_of(",}", at) - at, value);
    spoiled += "sha256 " + Sha256Hex(spoiled) + "\n";
    const auto entry = ParsePlanEntry("k", spoiled);
    return entry.has_value() ? "taken" : std::string(entry.error().message());
  };
  for (const char* key : {"pipeline", "microbatches", "chunks", "zero", "context_attention",
                          "priced", "candidates", "bytes"}) {
    for (const char* value : {"1e308", "1.5", "1e19", "\"1\"", "null"}) {
      EXPECT_THAT(spoil(key, value), HasSubstr("\"" + std::string(key) + "\"")) << value;
    }
  }
  EXPECT_THAT(spoil("context_attention", "5"), HasSubstr("from 0 to 4"));
  EXPECT_THAT(spoil("schedule", "1"), HasSubstr("\"schedule\" is no text"));
  EXPECT_THAT(spoil("gap", "\"\""), HasSubstr("\"gap\" is no number"));
  EXPECT_EQ(spoil("microbatches", "3"), "taken");
}

TEST(PlanEntry, EveryChangedByteIsNoticed) {
  const std::string text = FormatPlanEntry("k", SomeEntry()).value_or("");
  ASSERT_FALSE(text.empty());
  for (size_t i = 0; i < text.size(); ++i) {
    std::string spoiled = text;
    spoiled[i] = spoiled[i] == '7' ? '8' : '7';
    EXPECT_FALSE(ParsePlanEntry("k", spoiled).has_value()) << "byte " << i;
    EXPECT_FALSE(ParsePlanEntry("k", text.substr(0, i)).has_value()) << i << " bytes";
  }
  EXPECT_THAT(ParsePlanEntry("other", text).error().message(), HasSubstr("another job"));
}

TEST(PlanCacheKey, IsOfAllThatThePlanDependsOn) {
  const ir::JobRequest job = SmallJob();
  const mesh::Topology topology = mesh::Topology::Local(4, 1);
  const std::string key = PlanCacheKey(job, topology, {});
  EXPECT_EQ(PlanCacheKey(job, topology, {}), key);
  ir::JobRequest other = job;
  other.train.global_batch = 16;
  EXPECT_NE(PlanCacheKey(other, topology, {}), key);
  other = job;
  other.parallel.tensor = 2;
  EXPECT_NE(PlanCacheKey(other, topology, {}), key);
  EXPECT_EQ(JobFingerprint(other), JobFingerprint(job)) << "what is pinned is apart";
  other = job;
  other.optimizer.moments_dtype = ir::DType::kBF16;
  EXPECT_NE(PlanCacheKey(other, topology, {}), key);
  other = job;
  other.name = "renamed";
  EXPECT_EQ(PlanCacheKey(other, topology, {}), key);
  EXPECT_NE(PlanCacheKey(job, mesh::Topology::Local(8, 1), {}), key);
  EXPECT_NE(PlanCacheKey(job, mesh::Topology::Local(4, 2), {}), key);
  FindOptions shorter;
  shorter.timeout_ms = 1;
  EXPECT_NE(PlanCacheKey(job, topology, shorter), key);
  mesh::Topology renamed = topology;
  for (mesh::Device& device : renamed.devices) device.worker = "x" + device.worker;
  EXPECT_EQ(PlanCacheKey(job, renamed, {}), key);
  mesh::Topology smaller = topology;
  smaller.devices[1].memory_bytes = 1 << 30;
  EXPECT_NE(PlanCacheKey(job, smaller, {}), key);
  mesh::Topology slower = topology;
  slower.links.host.alpha_s *= 2;
  EXPECT_NE(PlanCacheKey(job, slower, {}), key);
}

class CachedFindPlan : public ::testing::Test {
 protected:
  Result<FoundPlan> Find() {
    FindOptions options;
    options.cache = &cache_;
    return FindPlan(job_, topology_, options, kStill);
  }
  std::string Notes(const FoundPlan& found) {
    std::string text;
    for (const std::string& note : found.plan.notes) text += note + "\n";
    return text;
  }

  FakeCache cache_;
  ir::JobRequest job_ = SmallJob();
  const mesh::Topology topology_ = mesh::Topology::Local(2, 1);
};

TEST_F(CachedFindPlan, TheSecondTimeIsTheFirstOnesPlan) {
  const auto first = Find();
  ASSERT_TRUE(first.has_value()) << first.error();
  EXPECT_FALSE(first->from_cache);
  const auto second = Find();
  ASSERT_TRUE(second.has_value()) << second.error();
  EXPECT_TRUE(second->from_cache);
  EXPECT_EQ(cache_.writes, 1);
  EXPECT_EQ(second->plan.Of("step"), first->plan.Of("step"));
  EXPECT_EQ(second->plan.notes, first->plan.notes);
  ASSERT_EQ(second->found.best.size(), first->found.best.size());
  EXPECT_EQ(second->found.best[0].step_s, first->found.best[0].step_s);
  EXPECT_EQ(second->found.priced, first->found.priced);
}

TEST_F(CachedFindPlan, ASpoiledEntryIsANoteAndASearch) {
  if (kSanitizedBuild) GTEST_SKIP() << "searches many layouts: left to the plain build";
  ASSERT_TRUE(Find().has_value());
  cache_.entries.begin()->second.insert(40, "x");
  const auto again = Find();
  ASSERT_TRUE(again.has_value()) << again.error();
  EXPECT_FALSE(again->from_cache);
  EXPECT_THAT(Notes(*again), HasSubstr("the cached plan is ignored: its checksum"));
  EXPECT_TRUE(Find()->from_cache) << "it was replaced";
}

TEST_F(CachedFindPlan, WhatCannotBeKeptIsANote) {
  cache_.full = true;
  const auto found = Find();
  ASSERT_TRUE(found.has_value()) << found.error();
  EXPECT_THAT(Notes(*found), HasSubstr("the plan is not kept: disk full"));
}

TEST_F(CachedFindPlan, WhatTheTimeWasNotEnoughForIsNotKept) {
  mesh::Topology sharing = topology_;
  sharing.hosts[sharing.devices[0].host].cores = 1;
  FindOptions options;
  options.cache = &cache_;
  options.timeout_ms = 1;
  const auto cut = FindPlan(job_, sharing, options, TickingClock());
  ASSERT_TRUE(cut.has_value()) << cut.error();
  EXPECT_THAT(Notes(*cut), HasSubstr("0.001 s were not enough to compare all plans"));
  EXPECT_EQ(cache_.writes, 0);
  options.timeout_ms = 1'000'000;
  const auto whole = FindPlan(job_, sharing, options, TickingClock());
  ASSERT_TRUE(whole.has_value()) << whole.error();
  EXPECT_EQ(Notes(*whole).find("were not enough"), std::string::npos);
  EXPECT_EQ(cache_.writes, 1);
}

TEST_F(CachedFindPlan, JobsThatLeaveNothingOpenAreNotKept) {
  job_.parallel = ir::ParallelSpec();
  ASSERT_TRUE(Find().has_value());
  EXPECT_EQ(cache_.writes, 0);
}

TEST_F(CachedFindPlan, SearchedShardingsAreKeptToo) {
  job_.parallel.shardings = "search";
  const auto first = Find();
  ASSERT_TRUE(first.has_value()) << first.error();
  const auto second = Find();
  ASSERT_TRUE(second.has_value()) << second.error();
  EXPECT_TRUE(second->from_cache);
  EXPECT_EQ(second->by_search, first->by_search);
  EXPECT_EQ(second->plan.notes, first->plan.notes);
  ASSERT_EQ(second->plan.params.size(), first->plan.params.size());
  for (size_t i = 0; i < first->plan.params.size(); ++i) {
    EXPECT_EQ(second->plan.params[i].sharding, first->plan.params[i].sharding);
  }
}

}  // namespace
}  // namespace meshwright::search
