#include "planner/resolve_layout.h"

#include <gtest/gtest.h>

namespace meshwright::planner {
namespace {

ir::JobRequest Job(int64_t batch) {
  ir::JobRequest job;
  job.train.global_batch = batch;
  job.train.sequence = 12;
  return job;
}

TEST(ResolveLayout, DataTakesWhatTensorAndPipelineLeave) {
  ir::JobRequest job = Job(8);
  job.parallel.tensor = 2;
  const auto layout = ResolveLayout(job, 8, 4);
  ASSERT_TRUE(layout.has_value()) << layout.error();
  EXPECT_EQ(layout->data(), 4);
  EXPECT_EQ(layout->microbatches, 1);
}

TEST(ResolveLayout, AutoDataShrinksUntilTheBatchDivides) {
  const auto layout = ResolveLayout(Job(6), 4, 4);
  ASSERT_TRUE(layout.has_value()) << layout.error();
  EXPECT_EQ(layout->data(), 3);
}

TEST(ResolveLayout, PipelineGetsTwoMicrobatchesPerStageWhereTheyDivide) {
  ir::JobRequest job = Job(12);
  job.parallel.pipeline = 2;
  job.parallel.data = 2;
  const auto layout = ResolveLayout(job, 4, 4);
  ASSERT_TRUE(layout.has_value()) << layout.error();
  EXPECT_EQ(layout->microbatches, 3);
}

TEST(ResolveLayout, MeshesOfStagesSayWhatDegreesWouldSay) {
  ir::JobRequest job = Job(12);
  job.parallel = ir::OpenParallel();
  job.parallel.stage_meshes = "2x1,3x2,1x4";
  const auto layout = ResolveLayout(job, 12, 4);
  ASSERT_TRUE(layout.has_value()) << layout.error();
  EXPECT_EQ(layout->pipeline, 3);
  EXPECT_EQ(layout->data(), 6);
  EXPECT_EQ(layout->tensor(), 4);
  EXPECT_EQ(layout->device_count(), 12);
  EXPECT_EQ(layout->FirstDevice(2), 8);
  EXPECT_EQ(layout->ToString(), "pipeline=3 meshes=2x1,3x2,1x4 microbatches=2 schedule=1f1b");
  job.parallel.stage_meshes = "2x1,2x1";
  const auto equal = ResolveLayout(job, 12, 4);
  ASSERT_TRUE(equal.has_value()) << equal.error();
  EXPECT_EQ(equal->ToString(), "data=2 tensor=1 pipeline=2 microbatches=3 schedule=1f1b");
}

TEST(Layout, ManyPartsOfOneSizeAreCounted) {
  Layout layout;
  layout.part_layers = {2, 3, 3, 3, 3, 1, 1, 1};
  EXPECT_NE(layout.ToString().find(" layers=2,3*4,1,1,1"), std::string::npos) << layout.ToString();
}

TEST(ResolveLayout, EqualPartsMayBeCounted) {
  ir::JobRequest job = Job(12);
  job.parallel.pipeline = 4;
  job.parallel.part_layers = "2,3*2,1";
  const auto layout = ResolveLayout(job, 4, 9);
  ASSERT_TRUE(layout.has_value()) << layout.error();
  EXPECT_EQ(layout->part_layers, (std::vector<int>{2, 3, 3, 1}));
  const auto expect_refused = [&](const char* text, const char* why) {
    job.parallel.part_layers = text;
    const auto refused = ResolveLayout(job, 4, 9);
    ASSERT_FALSE(refused.has_value()) << text;
    EXPECT_NE(refused.error().message().find(why), std::string::npos) << refused.error();
  };
  for (const char* bad : {"3*", "*3", "3*0", "3*2*1", "1e9*1", "9*9999999999"}) {
    expect_refused(bad, "is no number of layers");
  }
  for (const char* many : {"3*99999999", "1*60000,1*60000"}) {
    expect_refused(many, "more than 100000 parts");
  }
}

// What PinDegrees writes, ResolveLayout reads.
TEST(PinDegrees, BringTheLayoutBack) {
  Layout equal;
  equal.degrees[Axis::kData] = 2;
  equal.degrees[Axis::kTensor] = 2;
  equal.pipeline = 2;
  equal.microbatches = 3;
  equal.schedule = "zb-v";
  equal.chunks = 2;
  equal.sequence_parallel = true;
  equal.zero = 2;
  Layout meshes;
  meshes.pipeline = 2;
  meshes.microbatches = 6;
  SetStageDegrees({{2, 1}, {1, 3}}, meshes);
  Layout experts;
  experts.pipeline = 2;
  experts.microbatches = 3;
  std::vector<Degrees> of_experts = {{4, 1}, {2, 2}};
  for (Degrees& stage : of_experts) ShareExperts(4, stage);
  SetStageDegrees(of_experts, experts);
  EXPECT_EQ(experts.stage_degrees[1].expert(), 2) << "it has two replicas";
  EXPECT_EQ(experts.data(), 4);
  for (const Layout& layout : {equal, meshes, experts}) {
    ir::JobRequest job = Job(12);
    job.parallel = ir::OpenParallel();
    PinDegrees(layout, job.parallel);
    const auto again = ResolveLayout(job, 8, 8);
    ASSERT_TRUE(again.has_value()) << again.error();
    EXPECT_EQ(again->ToString(), layout.ToString());
  }
}

TEST(ResolveLayout, MeshesOfStagesThatSayNothingAreRefused) {
  ir::JobRequest job = Job(12);
  job.parallel = ir::OpenParallel();
  for (const char* bad : {"2", "2x", "x2", "0x1", "2x1;1x1", "2x1,", "-1x1", "99999x1"}) {
    job.parallel.stage_meshes = bad;
    const auto layout = ResolveLayout(job, 12, 4);
    ASSERT_FALSE(layout.has_value()) << bad;
    EXPECT_EQ(layout.error().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(layout.error().message().find("is no mesh"), std::string::npos) << layout.error();
  }
  job.parallel.stage_meshes = "2x1,1x1";
  job.parallel.expert = 4;
  const auto shared = ResolveLayout(job, 12, 4);
  ASSERT_FALSE(shared.has_value());
  EXPECT_EQ(shared.error().field(), "parallel.expert");
  EXPECT_NE(shared.error().message().find("more than 2 of it"), std::string::npos)
      << shared.error();
  job.parallel.expert = 1;
  job.parallel.data = 2;
  const auto both = ResolveLayout(job, 12, 4);
  ASSERT_FALSE(both.has_value());
  EXPECT_NE(both.error().message().find("a data degree of 2 is given"), std::string::npos)
      << both.error();
}

TEST(CheckPins, NamesWhatContradictsItself) {
  struct Case {
    const char* says;
    void (*pin)(ir::ParallelSpec&);
  };
  const Case cases[] = {
      {"a tensor degree of 2 is given",
       [](ir::ParallelSpec& p) {
         p.stage_meshes = "2x1,1x1";
         p.tensor = 2;
       }},
      {"a grid of 4",
       [](ir::ParallelSpec& p) {
         p.tensor_axes = "2x2";
         p.tensor = 8;
         p.shardings = "search";
       }},
      {"2 parts of together 5 layers", [](ir::ParallelSpec& p) { p.part_layers = "2,3"; }},
      {"has a multiple of 2 parts",
       [](ir::ParallelSpec& p) {
         p.part_layers = "2,1,1";
         p.pipeline = 2;
       }},
      {"pipeline x chunks has 2 parts",
       [](ir::ParallelSpec& p) {
         p.part_layers = "1,1,1,1";
         p.pipeline = 2;
         p.schedule = "1f1b";
       }},
      {"pipeline x chunks has 1 parts",
       [](ir::ParallelSpec& p) {
         p.part_layers = "2,2";
         p.pipeline = 1;
       }},
      {"has 1 or a multiple of 2 parts",
       [](ir::ParallelSpec& p) {
         p.part_layers = "2,1,1";
         p.schedule = "zb-v";
       }},
      {"choose pipeline <= 4", [](ir::ParallelSpec& p) { p.pipeline = 5; }},
      {"needs at least 6 layers",
       [](ir::ParallelSpec& p) {
         p.pipeline = 3;
         p.chunks = 2;
       }},
      {"schedule v-half has 2 chunk(s) per stage, not 3",
       [](ir::ParallelSpec& p) {
         p.schedule = "v-half";
         p.pipeline = 2;
         p.chunks = 3;
       }},
      {"at most 65536",
       [](ir::ParallelSpec& p) {
         p.tensor_axes = "65536x65536x65536";
         p.shardings = "search";
       }},
      {"needs at least 4294967296 layers",
       [](ir::ParallelSpec& p) { p.pipeline = p.chunks = 65536; }},
      {"the rules split one tensor axis", [](ir::ParallelSpec& p) { p.tensor_axes = "2x2"; }},
      {"the last is 3", [](ir::ParallelSpec& p) { p.recompute_layers = "0-4"; }},
  };
  for (const Case& c : cases) {
    ir::ParallelSpec pins = ir::OpenParallel();
    c.pin(pins);
    const Status status = CheckPins(pins, 4);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << c.says;
    EXPECT_NE(status.message().find(c.says), std::string::npos) << status;
  }
}

TEST(CheckPins, OnePartIsASingleStageWhateverTheSchedule) {
  ir::ParallelSpec pins = ir::OpenParallel();
  pins.part_layers = "4";
  pins.schedule = "zb-v";
  EXPECT_TRUE(CheckPins(pins, 4).ok()) << CheckPins(pins, 4);
  pins.pipeline = 2;
  EXPECT_FALSE(CheckPins(pins, 4).ok());
}

TEST(CheckPins, OpenChunksMakeAnyEqualNumberOfParts) {
  ir::ParallelSpec pins = ir::OpenParallel();
  EXPECT_TRUE(CheckPins(pins, 4).ok());
  pins.pipeline = 2;
  pins.recompute_layers = "0,3";
  for (const char* layers : {"3,1", "1,1,1,1"}) {
    pins.part_layers = layers;
    EXPECT_TRUE(CheckPins(pins, 4).ok()) << layers;
  }
}

TEST(TopologyOf, PutsIdleDevicesLast) {
  mesh::Topology topology = mesh::Topology::Local(4);
  Layout layout;
  layout.devices = {3, 1};
  const mesh::Topology seen = TopologyOf(layout, topology);
  ASSERT_EQ(seen.devices.size(), 4u);
  EXPECT_EQ(seen.devices[0].worker, "worker3");
  EXPECT_EQ(seen.devices[1].worker, "worker1");
  EXPECT_EQ(seen.devices[2].worker, "worker0");
  EXPECT_EQ(seen.devices[3].worker, "worker2");
}

TEST(ResolveLayout, TooFewDevicesSaysHowManyMore) {
  ir::JobRequest job = Job(8);
  job.parallel.data = 4;
  job.parallel.tensor = 2;
  const auto layout = ResolveLayout(job, 6, 4);
  ASSERT_FALSE(layout.has_value());
  EXPECT_EQ(layout.error().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(layout.error().message().find("start 2 more device(s)"), std::string::npos)
      << layout.error();
}

TEST(ResolveLayout, IndivisibleBatchListsWhatFits) {
  ir::JobRequest job = Job(9);
  job.parallel.data = 2;
  const auto layout = ResolveLayout(job, 2, 4);
  ASSERT_FALSE(layout.has_value());
  EXPECT_NE(layout.error().message().find("{1, 3, 9}"), std::string::npos) << layout.error();
}

TEST(ResolveLayout, IndivisibleMicrobatchesListWhatFits) {
  ir::JobRequest job = Job(8);
  job.parallel.data = 2;
  job.parallel.microbatches = 3;
  const auto layout = ResolveLayout(job, 2, 4);
  ASSERT_FALSE(layout.has_value());
  EXPECT_NE(layout.error().message().find("{1, 2, 4}"), std::string::npos) << layout.error();
}

TEST(ResolveLayout, MoreStagesThanLayersIsRefused) {
  ir::JobRequest job = Job(8);
  job.parallel.pipeline = 4;
  const auto layout = ResolveLayout(job, 4, 2);
  ASSERT_FALSE(layout.has_value());
  EXPECT_NE(layout.error().message().find("pipeline <= 2"), std::string::npos) << layout.error();
}

TEST(ResolveLayout, SequenceParallelNeedsADivisibleSequence) {
  ir::JobRequest job = Job(8);
  job.parallel.tensor = 8;
  job.parallel.sequence_parallel = true;
  const auto layout = ResolveLayout(job, 8, 2);
  ASSERT_FALSE(layout.has_value());
  EXPECT_NE(layout.error().message().find("sequence"), std::string::npos) << layout.error();
}

}  // namespace
}  // namespace meshwright::planner
