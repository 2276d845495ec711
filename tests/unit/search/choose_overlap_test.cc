// Overlap that is open: left where it does not fit or hides nothing, and decided either way.
#include "search/choose_overlap.h"

#include <gtest/gtest.h>

#include <string>

#include "base/check.h"
#include "base/clock.h"
#include "ir/builder.h"
#include "planner/forecast.h"
#include "search/find_layout.h"
#include "tests/still_clock.h"
#include "tests/unit/search/search_testing.h"

namespace meshwright::search {
namespace {

using ir::Builder;
using ir::DType;
using ir::Op;

// Products one after the other, on two replicas.
ir::JobRequest OverlapJob() {
  Builder b("loss");
  const auto param = [&](const std::string& name) {
    return b.AddOne(Op::kParam, {}, {{"name", name}}, {{DType::kF32, {64, 64}}});
  };
  const ValueId tokens = b.AddOne(Op::kFeed, {}, {{"source", "tokens"}}, {{DType::kI32, {8, 5}}});
  const auto cut = [&](int64_t start) {
    return b.AddOne(Op::kSlice, {tokens}, {{"dim", 1}, {"start", start}, {"size", 4}});
  };
  ValueId x = b.AddOne(Op::kEmbedding, {param("wte"), cut(0)});
  for (int i = 0; i < 6; ++i) {
    x = b.AddOne(Op::kEinsum, {x, param("w" + std::to_string(i))}, {{"equation", "bsk,kn->bsn"}});
  }
  const auto loss = b.Add(Op::kCrossEntropy, {x, cut(1)});
  b.SetOutput("loss_sum", loss[0]);
  b.SetOutput("count", loss[1]);
  ir::JobRequest job;
  job.name = "job";
  job.SetLoss(*b.Finish());
  job.train.global_batch = 8;
  job.train.sequence = 4;
  job.optimizer.max_norm = 1;
  job.parallel.data = 2;
  job.parallel.bucket_bytes = 64 * 64 * 4;
  return job;
}

mesh::Topology TwoDevices(int cores) {
  mesh::Topology topology = mesh::Topology::Local(2);
  topology.hosts[topology.devices[0].host].cores = cores;
  return topology;
}

bool Says(const planner::Plan& plan, const std::string& text) {
  for (const std::string& note : plan.notes) {
    if (note.find(text) != std::string::npos) return true;
  }
  return false;
}

TEST(ChooseOverlap, IsPriced) {
  const auto find = [](const mesh::Topology& topology) {
    return FindPlan(OverlapJob(), topology, {}, SystemClock());
  };
  // Nobody has a core to spare: the device says.
  const auto full = find(TwoDevices(2));
  ASSERT_TRUE(full.has_value()) << full.error();
  EXPECT_EQ(full->plan.decided.overlap, std::nullopt);
  // Where something is hidden the note says how much.
  const auto spare = find(TwoDevices(8));
  ASSERT_TRUE(spare.has_value()) << spare.error();
  EXPECT_EQ(spare->plan.decided.overlap, true);
  EXPECT_TRUE(Says(spare->plan, "are hidden"));
}

// Layouts are compared as they would run. The slower the links, the more replicas gain by it: there
// are some with which two replicas are worth it only because their reductions are hidden.
TEST(ChooseOverlap, LayoutsAreComparedWithIt) {
  ir::JobRequest open = SmallGpt2Job(4);
  open.parallel.data = open.parallel.tensor = 0;
  open.parallel.bucket_bytes = 1 << 15;
  ir::JobRequest in_turn = open;
  in_turn.parallel.overlap = false;
  int other_layouts = 0;
  for (double seconds_per_byte = 1e-10; seconds_per_byte < 1e-7; seconds_per_byte *= 2) {
    mesh::Topology topology = TwoDevices(8);
    topology.links.host = {5e-6, seconds_per_byte};
    const auto beside = FindPlan(open, topology, {}, kStill);
    const auto after = FindPlan(in_turn, topology, {}, kStill);
    ASSERT_TRUE(beside.has_value()) << beside.error();
    ASSERT_TRUE(after.has_value()) << after.error();
    const double beside_s = planner::ForecastStep(beside->plan, topology)->step_s;
    const double after_s = planner::ForecastStep(after->plan, topology)->step_s;
    EXPECT_LE(beside_s, 1.02 * after_s) << seconds_per_byte;
    const planner::Layout& layout = beside->plan.layout;
    EXPECT_NEAR(beside->found.best.front().step_s, beside_s, 0.15 * beside_s)
        << seconds_per_byte << ": " << layout.ToString();
    const bool changes = layout.device_count() != after->plan.layout.device_count();
    if (!changes) continue;
    EXPECT_EQ(layout.data(), 2) << layout.ToString();
    ++other_layouts;
  }
  EXPECT_GT(other_layouts, 0);
}

TEST(ChooseOverlap, IsLeftWhereNothingIsHidden) {
  ir::JobRequest job = OverlapJob();
  job.parallel.data = 1;
  // One device meets nobody.
  const FindOnDevices find = [](const ir::JobRequest& asked, const mesh::Topology& devices,
                                const SearchTime&) {
    ir::JobRequest beside = asked;
    beside.parallel.overlap = true;
    return FindPlan(beside, devices, {}, SystemClock());
  };
  const auto found = FindWithOverlap(job, TwoDevices(8), SearchTime(1, 1, kStill), find);
  ASSERT_TRUE(found.has_value()) << found.error();
  EXPECT_EQ(found->plan.decided.overlap, false);
  EXPECT_EQ(found->plan.Main()[0].overlap, ir::OverlapMode::kOff);
  EXPECT_TRUE(Says(found->plan, "next to none is hidden"));
}

TEST(ChooseOverlap, IsLeftWhereItDoesNotFit) {
  const mesh::Topology topology = TwoDevices(8);
  int asked = 0;
  const FindOnDevices find = [&](const ir::JobRequest& job, const mesh::Topology& devices,
                                 const SearchTime&) -> Result<FoundPlan> {
    ++asked;
    if (job.parallel.overlap != false) return Fail(ResourceExhausted("buckets have no room"));
    return FindPlan(job, devices, {}, SystemClock());
  };
  const auto found = FindWithOverlap(OverlapJob(), topology, SearchTime(1, 1, kStill), find);
  ASSERT_TRUE(found.has_value()) << found.error();
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(found->plan.decided.overlap, false);
  EXPECT_TRUE(Says(found->plan, "buckets have no room"));
  // What the job says is not tried otherwise.
  ir::JobRequest pinned = OverlapJob();
  pinned.parallel.overlap = true;
  const SearchTime time(1, 1, kStill);
  const auto refused =
      OfferTurns(FindWithOverlap(pinned, topology, time, find), pinned, topology, time, find);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message(),
            "it fits with parallelism.overlap = false, and not with true: buckets have no room");
  EXPECT_EQ(asked, 4);
  // The second device's host has no core to spare, as planner::ResolveOverlap sees it: nothing was
  // to run beside what computes.
  mesh::Topology uneven = topology;
  uneven.devices[1].host = "other";
  uneven.hosts["other"].cores = 1;
  EXPECT_FALSE(FindWithOverlap(OverlapJob(), uneven, SearchTime(1, 1, kStill), find).has_value());
  EXPECT_EQ(asked, 5);
}

TEST(ChooseOverlap, SaysWhatComesOfOneThatTheJobPins) {
  ir::JobRequest job = OverlapJob();
  job.parallel.overlap = true;
  const auto full = FindPlan(job, TwoDevices(2), {}, SystemClock());
  ASSERT_TRUE(full.has_value()) << full.error();
  EXPECT_EQ(full->plan.decided.overlap, true);
  EXPECT_TRUE(Says(full->plan, "parallelism.overlap = true: collectives run beside"));
  EXPECT_TRUE(Says(full->plan, "no core is free for them"));
  const auto spare = FindPlan(job, TwoDevices(8), {}, SystemClock());
  ASSERT_TRUE(spare.has_value()) << spare.error();
  EXPECT_TRUE(Says(spare->plan, "are hidden"));
  EXPECT_FALSE(Says(spare->plan, "parallelism.overlap = true"));
  job.parallel.data = 1;
  const auto one = FindPlan(job, TwoDevices(8), {}, SystemClock());
  ASSERT_TRUE(one.has_value()) << one.error();
  EXPECT_TRUE(Says(one->plan, "no devices meet in a collective"));
}

// The plan that is made again has notes of its own; what the search says stays.
TEST(ChooseOverlap, KeepsNoNoteOfThePlanThatItDrops) {
  ir::JobRequest job = OverlapJob();
  job.parallel.data = 1;
  const FindOnDevices find = [](const ir::JobRequest& asked, const mesh::Topology& devices,
                                const SearchTime&) {
    ir::JobRequest beside = asked;
    beside.parallel.overlap = true;
    Result<FoundPlan> found = FindPlan(beside, devices, {}, SystemClock());
    MW_CHECK(found.has_value()) << found.error().message();
    found->plan.notes = {"one device has no work", "3 products go in 2 chunks"};
    found->plan.made_notes = {"3 products go in 2 chunks"};
    return found;
  };
  const auto found = FindWithOverlap(job, TwoDevices(8), SearchTime(1, 1, kStill), find);
  ASSERT_TRUE(found.has_value()) << found.error();
  EXPECT_TRUE(Says(found->plan, "one device has no work"));
  EXPECT_FALSE(Says(found->plan, "chunks"));
  EXPECT_TRUE(Says(found->plan, "next to none is hidden"));
}

// Buckets of their own are what does not fit then; in MiB both amounts would look alike.
TEST(ChooseOverlap, IsNamedWhereItIsWhatDoesNotFit) {
  ir::JobRequest job = SmallGpt2Job(4);
  job.parallel.data = 2;
  job.parallel.zero = 0;
  job.parallel.bucket_bytes = 1 << 15;
  job.parallel.recompute = "none";
  job.parallel.overlap = false;
  mesh::Topology topology = TwoDevices(8);
  const auto in_turn = FindPlan(job, topology, {}, kStill);
  ASSERT_TRUE(in_turn.has_value()) << in_turn.error();
  for (mesh::Device& device : topology.devices) {
    device.memory_bytes = planner::FullestBytes(in_turn->plan.memory);
  }
  job.parallel.overlap = true;
  const auto beside = FindPlan(job, topology, {}, kStill);
  ASSERT_FALSE(beside.has_value());
  EXPECT_EQ(beside.error().code(), StatusCode::kResourceExhausted);
  const std::string& why = beside.error().message();
  EXPECT_NE(why.find("it fits with parallelism.overlap = false"), std::string::npos) << why;
  EXPECT_NE(why.find(" bytes and has "), std::string::npos) << why;
}

}  // namespace
}  // namespace meshwright::search
