// What a job may ask for: each refusal names the field or the node, and what to do.
#include "ir/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "ir/builder.h"
#include "ir/verify.h"

namespace meshwright::ir {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TensorType F32(Dims dims) { return {DType::kF32, std::move(dims)}; }

ValueId Param(Builder& b, const std::string& name, Dims dims) {
  return b.AddOne(Op::kParam, {}, {{"name", name}}, {F32(std::move(dims))});
}

// Two blocks between an embedding and a head; `add` adds what is wrong to the last activation.
using Addition = std::function<ValueId(Builder&, ValueId)>;

Graph LossGraph(const Addition& add = {}) {
  Builder b("loss");
  const ValueId tokens = b.AddOne(Op::kFeed, {}, {{"source", "tokens"}}, {{DType::kI32, {2, 5}}});
  const auto cut = [&](int64_t start) {
    return b.AddOne(Op::kSlice, {tokens}, {{"dim", 1}, {"start", start}, {"size", 4}});
  };
  b.SetLayer(0);
  ValueId x = b.AddOne(Op::kGelu, {b.AddOne(Op::kEmbedding, {Param(b, "wte", {11, 8}), cut(0)})});
  b.SetLayer(1);
  x = b.AddOne(Op::kSilu, {x});
  if (add) x = add(b, x);
  const ValueId logits =
      b.AddOne(Op::kEinsum, {x, Param(b, "head", {8, 11})}, {{"equation", "bsd,dv->bsv"}});
  const std::vector<ValueId> loss = b.Add(Op::kCrossEntropy, {logits, cut(1)});
  b.SetOutput("loss_sum", loss[0]);
  b.SetOutput("count", loss[1]);
  auto graph = b.Finish();
  EXPECT_TRUE(graph.has_value()) << graph.error();
  return std::move(*graph);
}

JobRequest Job(const Addition& add = {}) {
  JobRequest job;
  job.name = "job";
  job.SetLoss(LossGraph(add));
  job.train.global_batch = 2;
  job.train.sequence = 4;
  return job;
}

void ExpectRefused(const JobRequest& job, const std::vector<std::string>& words) {
  const Status status = ValidateJob(job);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << words[0];
  for (const std::string& word : words) {
    EXPECT_NE(status.message().find(word), std::string::npos) << word << " in: " << status;
  }
}

TEST(ValidateJob, AcceptsATwoLayerModel) {
  const Status status = ValidateJob(Job());
  EXPECT_TRUE(status.ok()) << status;
}

TEST(ValidateJob, RefusesNodesThatThePlannerCannotExpress) {
  ExpectRefused(Job([](Builder& b, ValueId x) {
                  const ValueId y = b.AddOne(Op::kInput, {}, {{"name", "mask"}}, {F32({8})});
                  return b.AddOne(Op::kMul, {x, y});
                }),
                {"input", "node 6", "use a feed, a constant or a param"});
  ExpectRefused(Job([](Builder& b, ValueId x) {
                  const std::vector<std::string> axes = {"data"};
                  return b.AddOne(Op::kAllReduce, {x}, {{"axes", axes}, {"kind", "sum"}});
                }),
                {"all_reduce", "made by the planner"});
  ExpectRefused(Job([](Builder& b, ValueId x) {
                  b.SetPhase(Phase::kBackward);
                  const ValueId y = b.AddOne(Op::kGelu, {x});
                  b.SetPhase(Phase::kForward);
                  return y;
                }),
                {"gelu", "all forward"});
  ExpectRefused(Job([](Builder& b, ValueId x) {
                  const ValueId s = b.AddOne(Op::kSumSquares, {x});
                  const auto clip = b.Add(Op::kClipMultiplier, {s, s}, {{"max_norm", 1.0}});
                  return b.AddOne(Op::kMulScalar, {x, clip[0]});
                }),
                {"clip_multiplier", "job's optimizer"});
}

TEST(ValidateJob, RefusesParamsThatNobodyReadsOrThatLookLikeState) {
  ExpectRefused(Job([](Builder& b, ValueId x) {
                  Param(b, "spare", {3});
                  return x;
                }),
                {"no node reads param \"spare\"", "remove it"});
  ExpectRefused(Job([](Builder& b, ValueId x) {
                  return b.AddOne(Op::kMul, {x, Param(b, "opt.m/head", {8})});
                }),
                {"opt.m/head", "rename it"});
}

TEST(ValidateJob, RefusesLayersThatAreNoPipeline) {
  ExpectRefused(Job([](Builder& b, ValueId x) {
                  b.SetLayer(0);
                  return b.AddOne(Op::kGelu, {x});
                }),
                {"gelu", "of layer 0 reads", "of layer 1", "give it layer 1"});
  // Through a node without a layer, which is computed with the latest of its operands.
  ExpectRefused(Job([](Builder& b, ValueId x) {
                  b.SetLayer(-1);
                  const ValueId y = b.AddOne(Op::kGelu, {x});
                  b.SetLayer(0);
                  return b.AddOne(Op::kGelu, {y});
                }),
                {"of layer 0 reads", "of layer 1"});
  ExpectRefused(Job([](Builder& b, ValueId x) {
                  b.SetLayer(3);
                  return b.AddOne(Op::kGelu, {x});
                }),
                {"layer 3 but no layer 2", "Builder::SetLayer"});
  ExpectRefused(Job([](Builder& b, ValueId x) {
                  b.SetLayer(2000000000);
                  return b.AddOne(Op::kGelu, {x});
                }),
                {"layer 2000000000", "[-1, 16383]"});
}

TEST(ValidateJob, RefusesNamesAndPinsThatNoPersonWrote) {
  JobRequest job = Job();
  job.name = "a\n 7 SUCCEEDED";
  ExpectRefused(job, {"job.name", "a\\x0a 7 SUCCEEDED", "control characters"});
  job.name = "job";
  for (std::string ParallelSpec::*pin :
       {&ParallelSpec::tensor_axes, &ParallelSpec::stage_meshes, &ParallelSpec::part_layers,
        &ParallelSpec::recompute_layers, &ParallelSpec::sharding_pins, &ParallelSpec::schedule}) {
    JobRequest pinned = job;
    pinned.parallel.*pin = std::string(1 << 20, '1');
    ExpectRefused(pinned, {"has 1048576 bytes", "at most"});
  }
}

// Values that follow from the data or from nothing are computed where they are read.
TEST(ValidateJob, AcceptsDataOfALaterLayer) {
  const Status status = ValidateJob(Job([](Builder& b, ValueId x) {
    const ValueId bias = b.AddOne(Op::kConstant, {}, {{"value", 1.0}}, {F32({8})});
    b.SetLayer(2);
    const ValueId y = b.AddOne(Op::kGelu, {bias});
    x = b.AddOne(Op::kSilu, {x});
    return b.AddOne(Op::kAdd, {x, y});
  }));
  EXPECT_TRUE(status.ok()) << status;
}

// A scalar of the activation that nothing reads.
ValueId ScalarOf(Builder& b, ValueId x) { return b.AddOne(Op::kSumSquares, {x}); }

TEST(ValidateJob, TakesOutputsOfTheLossUnderNamesOfTheirOwn) {
  const auto with = [](const char* name) {
    return Job([name](Builder& b, ValueId x) {
      b.SetOutput(name, ScalarOf(b, x));
      return x;
    });
  };
  EXPECT_TRUE(ValidateJob(with("my_metric")).ok()) << ValidateJob(with("my_metric"));
  ExpectRefused(with("grad_norm"), {"output \"grad_norm\"", "rename it"});
}

TEST(ValidateJob, AMeanOverBatchesIsAScalarAndNoneOfTheLoss) {
  const auto with = [](const char* name, bool scalar) {
    return Job([=](Builder& b, ValueId x) {
      b.SetOutput(name, scalar ? ScalarOf(b, x) : x, Reduction::kMean);
      return x;
    });
  };
  EXPECT_TRUE(ValidateJob(with("accuracy", true)).ok()) << ValidateJob(with("accuracy", true));
  ExpectRefused(with("accuracy", false), {"output \"accuracy\" is f32[", "declared a mean"});
  JobRequest job = Job();
  job.programs[0].graph.outputs[1].reduction = Reduction::kMean;
  ExpectRefused(job, {"output \"count\" is declared a mean", "quotient of the sums"});
}

TEST(ValidateJob, RefusesNamesOfProgramsThatChangeATerminal) {
  JobRequest job = Job();
  job.programs[0].name = "a\x1b[2J";
  ExpectRefused(job, {"a program's name is", "control characters"});
}

// A controller that took one of these would look for a program that no plan has.
TEST(ValidateJob, RefusesADriverThatHasNothingToRun) {
  JobRequest job = Job();
  const std::string trained = job.main().name;
  job.driver = {DriverKind::kEvaluate, trained, 1, 0};
  ExpectRefused(job, {"evaluates program '" + trained + "'", "is trained"});
  job.driver.program = "other";
  ExpectRefused(job, {"evaluates program 'other'", "does not have"});
  job.programs[0].trained = false;
  job.driver.program = trained;
  const Status valid = ValidateJob(job);
  EXPECT_TRUE(valid.ok()) << valid;
  job.driver.batches = job.train.validation_batches = 0;
  ExpectRefused(job, {"nothing to do"});
  job.driver = {.kind = DriverKind::kTrain};
  ExpectRefused(job, {"no program of the job is trained"});
  job.driver = {.kind = DriverKind::kClient};
  job.programs[0].inputs = {{"tokens", InputFrom::kClient}};
  EXPECT_TRUE(ValidateJob(job).ok()) << ValidateJob(job);
  job.driver = {DriverKind::kEvaluate, trained, 1, 0};
  ExpectRefused(job, {"input \"tokens\" comes from a client"});
}

TEST(ValidateJob, RefusesOpsWithoutGradientBetweenParamsAndLoss) {
  JobRequest job = Job();
  Builder b(job.main().graph);
  b.SetLayer(1);
  const ValueId x = job.main().graph.node(job.main().graph.NodesOf(Op::kSilu)[0]).outputs[0];
  const ValueId feed = job.main().graph.node(job.main().graph.NodesOf(Op::kFeed)[0]).outputs[0];
  const ValueId ids = b.AddOne(Op::kSlice, {feed},
                               {{"dim", int64_t{1}}, {"start", int64_t{0}}, {"size", int64_t{4}}});
  const auto with = [&](ValueId picked) {
    Builder more = b;
    const ValueId spread = more.AddOne(Op::kSumSquares, {picked});
    more.SetOutput("loss_sum", more.AddOne(Op::kAdd, {b.graph().Output("loss_sum"), spread}));
    auto graph = more.Finish();
    EXPECT_TRUE(graph.has_value()) << graph.error();
    job.SetLoss(*std::move(graph));
    return job;
  };
  const ValueId stopped = b.AddOne(Op::kStopGradient, {x});
  ExpectRefused(with(b.AddOne(Op::kPick, {x, ids})),
                {"loss graph \"loss\", node 12 pick", "has no gradient"});
  const Status constant = ValidateJob(with(b.AddOne(Op::kPick, {stopped, ids})));
  EXPECT_TRUE(constant.ok()) << constant;
}

TEST(ValidateJob, RefusesACountThatDependsOnParams) {
  JobRequest job = Job();
  Builder b(job.main().graph);
  b.SetLayer(1);
  const ValueId x = job.main().graph.node(job.main().graph.NodesOf(Op::kSilu)[0]).outputs[0];
  b.SetOutput("count", b.AddOne(Op::kAdd, {job.main().graph.Output("count"), ScalarOf(b, x)}));
  auto graph = b.Finish();
  ASSERT_TRUE(graph.has_value()) << graph.error();
  job.SetLoss(*std::move(graph));
  ExpectRefused(job, {"\"count\"", "depends on param \"wte\"", "labels and constants"});
}

TEST(ValidateJob, RefusesAnInitialisationThatNobodyKnows) {
  Builder b("loss");
  b.AddOne(Op::kParam, {}, {{"name", "w"}, {"init", "triangular"}}, {F32({2, 3})});
  const auto graph = b.Finish();
  ASSERT_FALSE(graph.has_value());
  EXPECT_THAT(graph.error().message(),
              HasSubstr("\"w\" has init \"triangular\"; known: normal, uniform, zeros, ones"));
}

TEST(ValidateJob, LossAndCountHaveOneDType) {
  JobRequest job = Job();
  Builder b(job.main().graph);
  b.SetOutput("count", b.AddOne(Op::kConstant, {}, {{"value", 8.0}}, {{DType::kF64, {}}}));
  job.SetLoss(*b.Finish());
  ExpectRefused(job, {"f32[]", "f64[]", "one dtype"});
}

TEST(ValidateJob, TheHostRenewsWhatIsWithItAndWhatItCanRenew) {
  JobRequest job = Job();
  job.parallel.host_update = 50;
  for (const char* memory : {"host", "auto"}) {
    job.parallel.optimizer_memory = memory;
    EXPECT_TRUE(ValidateJob(job).ok()) << ValidateJob(job);
  }
  job.optimizer.name = "adafactor";
  ExpectRefused(job, {"parallel.host_update is 50", "no state of adafactor"});
  job.optimizer.name = "adamw";
  job.parallel.weights_memory = "disk";
  ExpectRefused(job, {"parallel.host_update is 50", "no weights that are on a disk"});
  for (const char* memory : {"device", "disk"}) {
    job.parallel.optimizer_memory = memory;
    ExpectRefused(job, {"parallel.host_update is 50", "in its memory only", memory});
  }
}

TEST(ValidateJob, MixedPrecisionIsOf16BitsOverF32Params) {
  JobRequest job = Job();
  job.train.compute_dtype = DType::kBF16;
  const Status status = ValidateJob(job);
  EXPECT_TRUE(status.ok()) << status;
  job.train.gradient_dtype = DType::kF16;
  ExpectRefused(job, {"train.gradient_dtype is f16", "f32, or the 16-bit type", "(bf16)"});
  job.train.compute_dtype = DType::kF16;
  EXPECT_TRUE(ValidateJob(job).ok()) << ValidateJob(job);
  job.train.gradient_dtype = DType::kF32;
  for (const DType dtype : {DType::kF64, DType::kI32}) {
    job.train.compute_dtype = dtype;
    ExpectRefused(job,
                  {"train.compute_dtype is " + std::string(DTypeName(dtype)), "f32, bf16 or f16"});
  }
  job = Job([](Builder& b, ValueId x) {
    const ValueId w = b.AddOne(Op::kParam, {}, {{"name", "narrow"}}, {{DType::kBF16, {8}}});
    return b.AddOne(Op::kMul, {x, b.AddOne(Op::kCast, {w}, {{"dtype", "f32"}})});
  });
  EXPECT_TRUE(ValidateJob(job).ok()) << ValidateJob(job);
  job.train.compute_dtype = DType::kBF16;
  ExpectRefused(job, {"train.compute_dtype is bf16", "f32 params", "\"narrow\" is bf16[8]"});
}

TEST(ValidateJob, OptimizerNumbersAreCheckedByName) {
  struct Case {
    double OptimizerSpec::*field;
    double value;
    const char* name;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Case& c : {Case{&OptimizerSpec::beta1, 1.0, "optimizer.beta1"},
                        Case{&OptimizerSpec::beta2, 1.0, "optimizer.beta2"},
                        Case{&OptimizerSpec::beta2, -0.1, "optimizer.beta2"},
                        Case{&OptimizerSpec::momentum, 1.0, "optimizer.momentum"},
                        Case{&OptimizerSpec::momentum, nan, "optimizer.momentum"},
                        Case{&OptimizerSpec::eps, 0.0, "optimizer.eps"},
                        Case{&OptimizerSpec::eps, nan, "optimizer.eps"},
                        Case{&OptimizerSpec::min_lr, -1.0, "optimizer.min_lr"}}) {
    JobRequest job = Job();
    job.optimizer.*c.field = c.value;
    ExpectRefused(job, {c.name});
  }
  JobRequest job = Job();
  job.optimizer.warmup_steps = -1;
  ExpectRefused(job, {"optimizer.warmup_steps"});
  job = Job();
  job.optimizer.total_steps = -1;
  ExpectRefused(job, {"optimizer.total_steps"});
}

TEST(ValidateJob, WhatIsSavedAndHowItRecoversIsCheckedByName) {
  const auto refused = [](const std::function<void(JobRequest&)>& change, const char* field) {
    JobRequest job = Job();
    change(job);
    EXPECT_EQ(ValidateJob(job).field(), field);
  };
  refused([](JobRequest& job) { job.fault_tolerance.max_recoveries = -1; },
          "fault_tolerance.max_recoveries");
  refused([](JobRequest& job) { job.fault_tolerance.min_devices = 0; },
          "fault_tolerance.min_devices");
  refused([](JobRequest& job) { job.fault_tolerance.snapshot_every = -2; },
          "fault_tolerance.snapshot_every");
  refused([](JobRequest& job) { job.fault_tolerance.copies = 17; }, "fault_tolerance.copies");
  refused([](JobRequest& job) { job.fault_tolerance.max_wait_for_spare_s = -2; },
          "fault_tolerance.max_wait_for_spare_s");
  refused([](JobRequest& job) { job.fault_tolerance.stall_s = -1; }, "fault_tolerance.stall_s");
  refused([](JobRequest& job) { job.fault_tolerance.orphan_grace_s = -1; },
          "fault_tolerance.orphan_grace_s");
  refused([](JobRequest& job) { job.checkpoint.folder.path = "../elsewhere"; },
          "checkpoint.folder");
  refused([](JobRequest& job) { job.checkpoint.interval = -1; }, "checkpoint.interval");
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  refused([](JobRequest& job) { job.checkpoint.interval_s = kMost; }, "checkpoint.interval_s");
  refused([](JobRequest& job) { job.checkpoint.keep_latest_k = kMost; },
          "checkpoint.keep_latest_k");
}

TEST(ValidateJob, OnlyATrainingGoesOnFromACheckpointAndFromAStepThatItHas) {
  JobRequest job = Job();
  job.start = {{"", "gpt/7/step-00000040"}, job.train.steps, {}};
  EXPECT_TRUE(ValidateJob(job).ok()) << "all steps are done: it may still save its weights";
  ++job.start.step;
  EXPECT_FALSE(ValidateJob(job).ok());
  job.start.step = 0;
  job.start.checkpoint.path = "/etc";
  EXPECT_THAT(ValidateJob(job).message(), HasSubstr("the checkpoint to go on from"));
}

TEST(ElasticName, IsReadBack) {
  for (const Elastic elastic : kElastics) {
    EXPECT_EQ(ParseElastic(ElasticName(elastic)).value(), elastic);
  }
  EXPECT_THAT(ParseElastic("grow").error().message(), HasSubstr("none of off, shrink, replan"));
}

TEST(ValidateJob, NamesStayShortEnoughForListings) {
  JobRequest job;
  for (const size_t bytes : {0, 257}) {
    job.name = std::string(bytes, 'n');
    EXPECT_EQ(ValidateJob(job).code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(ValidateJob(job).message(), HasSubstr("job.name has " + std::to_string(bytes)));
  }
  job.name = std::string(256, 'n');
  EXPECT_THAT(ValidateJob(job).message(), Not(HasSubstr("job.name")));
}

}  // namespace
}  // namespace meshwright::ir
