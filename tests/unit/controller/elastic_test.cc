// What is asked of the planner for fewer devices, as pure functions.
#include "controller/elastic.h"

#include <gtest/gtest.h>

namespace meshwright::controller {
namespace {

ir::ParallelSpec HadDegrees(int64_t data, int64_t tensor, int64_t pipeline, int64_t microbatches) {
  ir::ParallelSpec degrees;
  degrees.data = data;
  degrees.tensor = tensor;
  degrees.pipeline = pipeline;
  degrees.microbatches = microbatches;
  return degrees;
}

TEST(WithFewerReplicas, KeepsTheBatchByMoreMicrobatchesOfNoMoreRows) {
  struct Row {
    ir::ParallelSpec had;
    int64_t batch, devices;
    int64_t data, microbatches;  // 0: there is none
  };
  const Row rows[] = {
      {HadDegrees(2, 1, 1, 1), 8, 1, 1, 2},    {HadDegrees(4, 1, 1, 1), 8, 3, 2, 2},
      {HadDegrees(4, 1, 1, 2), 16, 3, 2, 4},   {HadDegrees(3, 1, 1, 1), 6, 2, 2, 3},
      {HadDegrees(3, 1, 1, 1), 9, 2, 1, 3},    {HadDegrees(2, 2, 2, 4), 16, 7, 1, 8},
      {HadDegrees(2, 2, 1, 1), 8, 1, 0, 0},    {HadDegrees(2, 1, 1, 1), 8, 2, 2, 1},
      {HadDegrees(2, 1, 1, 1), 8, 9, 2, 1},    {HadDegrees(0, 1, 1, 1), 8, 1, 0, 0},
      {HadDegrees(6, 1, 1, 1), 12, 5, 4, 3},   {HadDegrees(1, 1, 2, 4), 8, 1, 0, 0},
      {HadDegrees(5, 1, 3, 6), 60, 13, 4, 15},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(::testing::Message()
                 << row.had.data << " of batch " << row.batch << " on " << row.devices);
    const auto fewer = WithFewerReplicas(row.had, row.batch, row.devices);
    ASSERT_EQ(fewer.has_value(), row.data > 0);
    if (!fewer) continue;
    EXPECT_EQ(fewer->data, row.data);
    EXPECT_EQ(fewer->microbatches, row.microbatches);
    EXPECT_EQ(fewer->tensor, row.had.tensor);
    EXPECT_EQ(fewer->pipeline, row.had.pipeline);
    EXPECT_LE(fewer->data * fewer->tensor * fewer->pipeline, row.devices);
    EXPECT_EQ(row.batch % (fewer->data * fewer->microbatches), 0);
    EXPECT_LE(row.batch / fewer->data / fewer->microbatches,
              row.batch / row.had.data / row.had.microbatches)
        << "a device has more rows at a time";
  }
}

TEST(WithFewerReplicas, ExpertsAreSharedByAsManyAsDivideThem) {
  ir::ParallelSpec had = HadDegrees(4, 1, 1, 1);
  had.expert = 4;
  EXPECT_EQ(WithFewerReplicas(had, 8, 3)->data, 2);
  EXPECT_EQ(WithFewerReplicas(had, 8, 3)->expert, 2);
  EXPECT_EQ(WithFewerReplicas(had, 8, 1)->expert, 1);
  EXPECT_EQ(WithFewerReplicas(had, 8, 4)->expert, 4);
  had.expert = 2;
  EXPECT_EQ(WithFewerReplicas(had, 9, 3)->data, 3);
  EXPECT_EQ(WithFewerReplicas(had, 9, 3)->expert, 1);
}

TEST(WithFewerReplicas, GroupsOfReplicasDivideThoseThatAreLeft) {
  ir::ParallelSpec had = HadDegrees(8, 1, 1, 1);
  had.zero_shard = 4;
  had.zero_weights = 2;
  EXPECT_EQ(WithFewerReplicas(had, 24, 8)->zero_shard, 4);
  EXPECT_EQ(WithFewerReplicas(had, 24, 6)->data, 6);
  EXPECT_EQ(WithFewerReplicas(had, 24, 6)->zero_shard, 2);
  EXPECT_EQ(WithFewerReplicas(had, 24, 6)->zero_weights, 2);
  EXPECT_EQ(WithFewerReplicas(had, 24, 3)->zero_shard, 1);
}

TEST(WithFewerReplicas, NotWhereStagesDifferOrTheTensorGroupIsAGrid) {
  ir::ParallelSpec had = HadDegrees(2, 1, 2, 1);
  EXPECT_TRUE(WithFewerReplicas(had, 8, 2));
  had.stage_meshes = "2x1,1x1";
  EXPECT_FALSE(WithFewerReplicas(had, 8, 2));
  had.stage_meshes.clear();
  had.tensor_axes = "2x2";
  EXPECT_FALSE(WithFewerReplicas(had, 8, 2));
}

ir::JobRequest ElasticJob(ir::Elastic elastic) {
  ir::JobRequest job;
  job.parallel.data = 4;
  job.parallel.tensor = 0;
  job.train.global_batch = 8;
  job.train.steps = 9;
  job.fault_tolerance.elastic = elastic;
  return job;
}

TEST(ToPlanForFewer, AnyPlanWhereTheJobAllowsIt) {
  const ir::JobRequest job = ElasticJob(ir::Elastic::kReplan);
  const auto open = ToPlanForFewer(job, "cuda", HadDegrees(4, 2, 1, 1), 3);
  ASSERT_TRUE(open.has_value());
  EXPECT_EQ(open->parallel.data, 0);
  EXPECT_EQ(open->parallel.tensor, 0) << "as the job says, not as its plan had it";
  EXPECT_EQ(open->parallel.device, "cuda");
  EXPECT_EQ(open->train.steps, 9);
  EXPECT_EQ(open->train.global_batch, 8);
}

TEST(ToPlanForFewer, FewerReplicasAndTheRestAsItWas) {
  const ir::JobRequest job = ElasticJob(ir::Elastic::kShrink);
  ir::ParallelSpec had = HadDegrees(4, 2, 1, 1);
  had.zero = 1;
  had.schedule = "gpipe";
  const ir::JobRequest placed = ToPlaceOnFewer(job, "cpu", had);
  EXPECT_EQ(placed.parallel.data, 0);
  EXPECT_EQ(placed.parallel.tensor, 2);
  const auto fewer = ToPlanForFewer(job, "cpu", had, 7);
  ASSERT_TRUE(fewer.has_value());
  EXPECT_EQ(fewer->parallel.data, 2) << "three do not divide the batch";
  EXPECT_EQ(fewer->parallel.tensor, 2);
  EXPECT_EQ(fewer->parallel.microbatches, 2);
  EXPECT_EQ(fewer->parallel.zero, 1);
  EXPECT_EQ(fewer->parallel.schedule, "gpipe");
  EXPECT_EQ(fewer->train.global_batch, 8);
}

TEST(ToPlanForFewer, NotBelowTheLeastAndNotWhereItIsOff) {
  ir::JobRequest job = ElasticJob(ir::Elastic::kShrink);
  const ir::ParallelSpec had = HadDegrees(4, 1, 1, 1);
  job.fault_tolerance.min_devices = 3;
  EXPECT_FALSE(ToPlanForFewer(job, "cpu", had, 2));
  EXPECT_FALSE(ToPlanForFewer(job, "cpu", had, 3)) << "only two of them would work";
  job.fault_tolerance.elastic = ir::Elastic::kReplan;
  EXPECT_TRUE(ToPlanForFewer(job, "cpu", had, 3));
  job.fault_tolerance.elastic = ir::Elastic::kOff;
  EXPECT_FALSE(ToPlanForFewer(job, "cpu", had, 3));
}

TEST(WaitForSpareMs, IsNoTimeWhereAProgramFitsUnlessTheJobSaysOtherwise) {
  ir::FaultToleranceSpec spec;
  EXPECT_EQ(WaitForSpareMs(spec, true), 0);
  EXPECT_EQ(WaitForSpareMs(spec, false), 60'000);
  spec.max_wait_for_spare_s = 7;
  EXPECT_EQ(WaitForSpareMs(spec, true), 7000);
  EXPECT_EQ(WaitForSpareMs(spec, false), 7000);
}

}  // namespace
}  // namespace meshwright::controller
