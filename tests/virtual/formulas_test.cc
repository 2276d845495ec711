// Formulas that no built-in model uses, on every way of splitting the work: trained like on one
// device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "client/trainer.h"
#include "tests/virtual/virtual_cluster.h"

namespace meshwright::testing {
namespace {

using client::Batch;
using client::Builder;
using client::Loss;
using ir::Op;

constexpr int64_t kRows = 8;
constexpr int64_t kTokens = 4;
constexpr int kVocabulary = 32;
constexpr int64_t kWidth = 16;

using LossFunction = std::function<Loss(Builder&, const Batch&)>;

struct Degrees {
  int data, tensor, pipeline, microbatches;
};

Result<ir::JobRequest> MakeJob(const LossFunction& loss, const Degrees& degrees,
                               bool sequence_parallel = false) {
  client::TrainerFunctions functions;
  functions.loss = loss;
  ir::OptimizerSpec optimizer;
  optimizer.lr = 1e-2;
  ir::ParallelSpec parallel;
  parallel.data = degrees.data;
  parallel.tensor = degrees.tensor;
  parallel.pipeline = degrees.pipeline;
  parallel.microbatches = degrees.microbatches;
  parallel.sequence_parallel = sequence_parallel;
  return client::JobBuilder("formula")
      .Batch(kRows, kTokens)
      .Steps(10)
      .Seed(42)
      .DType(ir::DType::kF64)
      .Optimizer(optimizer)
      .Parallel(parallel)
      .Build(functions);
}

struct Outcome {
  std::vector<double> numbers;  // loss and norm of each step, the validation loss
  std::map<std::string, LogicalTensor> tensors;
};

Result<Outcome> Run(const LossFunction& loss, const Degrees& degrees,
                    bool sequence_parallel = false) {
  MW_ASSIGN_OR_RETURN(const ir::JobRequest job, MakeJob(loss, degrees, sequence_parallel));
  SyntheticTokens tokens(kVocabulary);
  MW_ASSIGN_OR_RETURN(
      const std::unique_ptr<VirtualCluster> cluster,
      VirtualCluster::Start(job, degrees.data * degrees.tensor * degrees.pipeline, &tokens));
  MW_ASSIGN_OR_RETURN(const std::vector<worker::StepReport> reports, cluster->Train(0, 2));
  Outcome outcome;
  for (const worker::StepReport& report : reports) {
    outcome.numbers.push_back(report.values.at("loss"));
    outcome.numbers.push_back(report.values.at("grad_norm"));
  }
  MW_ASSIGN_OR_RETURN(const double validation, cluster->Validate(2));
  outcome.numbers.push_back(validation);
  MW_ASSIGN_OR_RETURN(outcome.tensors, cluster->Gather());
  return outcome;
}

void ExpectParity(const LossFunction& loss, const std::vector<Degrees>& layouts,
                  bool sequence_parallel = false) {
  const auto expected = Run(loss, {1, 1, 1, 1});
  ASSERT_TRUE(expected.has_value()) << expected.error();
  for (const Degrees& d : layouts) {
    const std::string layout = fmt::format("data={} tensor={} pipeline={} microbatches={}", d.data,
                                           d.tensor, d.pipeline, d.microbatches);
    const auto actual = Run(loss, d, sequence_parallel);
    ASSERT_TRUE(actual.has_value()) << layout << ": " << actual.error();
    for (size_t i = 0; i < expected->numbers.size(); ++i) {
      EXPECT_NEAR(actual->numbers[i] / expected->numbers[i], 1.0, 1e-10) << layout << " #" << i;
    }
    std::string where;
    EXPECT_LE(LargestDifference(expected->tensors, actual->tensors, &where), 1e-10)
        << layout << " " << where;
  }
}

const std::vector<Degrees> kFlat = {{2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 1, 4}, {2, 2, 1, 2}};
const std::vector<Degrees> kStaged = {{2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 1, 4}, {2, 2, 1, 2},
                                      {1, 1, 2, 1}, {1, 1, 2, 4}, {2, 1, 2, 2}, {2, 2, 2, 2}};

ir::TensorType F64(ir::Dims dims) { return {ir::DType::kF64, std::move(dims)}; }

ValueId Constant(Builder& b, double value, ir::Dims dims) {
  return b.AddOne(Op::kConstant, {}, {{"value", value}}, {F64(std::move(dims))});
}

ValueId AllDims(Builder& b, ValueId x) {
  std::vector<int64_t> dims;
  for (size_t i = 0; i < b.dims(x).size(); ++i) dims.push_back(static_cast<int64_t>(i));
  return b.ReduceSum(x, dims);
}

ValueId Embed(Builder& b, const Batch& batch) {
  b.SetLayer(0);
  return b.Embedding(batch.at("tokens"), "embed", kVocabulary, kWidth);
}

ValueId Feedforward(Builder& b, ValueId x, const std::string& name) {
  const ValueId up = b.Gelu(b.Linear(x, name + ".up", 2 * kWidth));
  return b.AddTo(x, b.Linear(up, name + ".down", kWidth));
}

Loss TokenLoss(Builder& b, ValueId x, const Batch& batch) {
  return b.CrossEntropy(b.Linear(x, "head", kVocabulary), batch.at("labels"));
}

TEST(Formulas, TrainedScalarGetsItsGradient) {
  ExpectParity(
      [](Builder& b, const Batch& batch) {
        const ValueId scale = b.Param("scale", {}, {.std_dev = 1});
        const ValueId x = b.AddOne(Op::kMulScalar, {Embed(b, batch), scale});
        b.SetLayer(1);
        return TokenLoss(b, Feedforward(b, x, "ffn"), batch);
      },
      kStaged);
}

// Token 0 is a label like any other: no attribute, no padding.
// The table is whole, as its rows do not divide, while what is read from it is split by columns.
TEST(Formulas, WholeTableReadByASplitResidual) {
  const auto loss = [](Builder& b, const Batch& batch) {
    ValueId x = b.Embedding(batch.at("tokens"), "embed", kVocabulary + 1, kWidth);
    x = b.AddTo(x, b.Linear(x, "l", kWidth, {.bias = false}));
    return b.CrossEntropy(b.Linear(x, "head", kVocabulary + 1, {.bias = false}),
                          batch.at("labels"));
  };
  ExpectParity(loss, {{1, 2, 1, 1}, {2, 2, 1, 1}, {1, 2, 1, 2}});
}

TEST(Formulas, LossWithoutIgnoreIndexCountsEveryLabel) {
  ExpectParity(
      [](Builder& b, const Batch& batch) {
        const ValueId logits =
            b.Linear(Feedforward(b, Embed(b, batch), "ffn"), "head", kVocabulary, {.bias = false});
        const auto loss = b.Add(Op::kCrossEntropy, {logits, batch.at("labels")});
        return Loss{loss[0], loss[1]};
      },
      kFlat);
}

// A weight that is the bias of a column-split linear and the scale of a norm, which needs it whole.
TEST(Formulas, WeightOfASplitAndOfAWholeUse) {
  ExpectParity(
      [](Builder& b, const Batch& batch) {
        const ValueId shared = b.Param("shared", {kWidth}, {.std_dev = 1});
        const ValueId x = Embed(b, batch);
        const ValueId up = b.Gelu(b.AddTo(b.Linear(x, "up", kWidth, {.bias = false}), shared));
        const ValueId y = b.AddTo(x, b.Linear(up, "down", kWidth));
        const ValueId n = b.Add(Op::kRmsNorm, {y, shared}, {{"eps", 1e-5}})[0];
        return TokenLoss(b, n, batch);
      },
      kFlat);
}

TEST(Formulas, SumOverTheBatchAsLoss) {
  for (const bool by_steps : {false, true}) {
    ExpectParity(
        [by_steps](Builder& b, const Batch& batch) {
          const ValueId x = Feedforward(b, Embed(b, batch), "ffn");
          b.SetLayer(1);
          const ValueId y = Feedforward(b, x, "ffn2");
          const ValueId squares = b.MulBy(y, y);
          if (!by_steps) return Loss{AllDims(b, squares), Constant(b, kRows * kTokens, {})};
          const ValueId sum = b.ReduceSum(b.Scale(b.ReduceSum(squares, {1}), 0.5), {0, 1});
          const Loss loss = TokenLoss(b, y, batch);
          return Loss{b.AddTo(loss.loss_sum, sum), loss.count};
        },
        kStaged);
  }
}

// The gradient of the sum is a weight, spread over the rows of one microbatch only.
TEST(Formulas, ScaledSumSpreadsATrainedGradient) {
  ExpectParity(
      [](Builder& b, const Batch& batch) {
        const ValueId scale = b.Param("scale", {}, {.std_dev = 1});
        const ValueId x = Feedforward(b, Embed(b, batch), "ffn");
        const ValueId sum = b.AddOne(Op::kMulScalar, {AllDims(b, b.MulBy(x, x)), scale});
        const Loss loss = TokenLoss(b, x, batch);
        return Loss{b.AddTo(loss.loss_sum, sum), loss.count};
      },
      kFlat);
}

TEST(Formulas, ConstantsAndNoiseWithABatchDim) {
  ExpectParity(
      [](Builder& b, const Batch& batch) {
        const ir::Dims dims = {kRows, kTokens, kWidth};
        ValueId x = b.AddTo(Embed(b, batch), Constant(b, 0.25, dims));
        const ValueId noise = b.AddOne(
            Op::kRandomNormal, {}, {{"name", "noise"}, {"mean", 1.0}, {"std", 0.1}}, {F64(dims)});
        b.SetLayer(1);
        x = b.MulBy(Feedforward(b, x, "ffn"), b.Gelu(noise));
        return TokenLoss(b, x, batch);
      },
      kStaged);
}

TEST(Formulas, CountThatDoesNotDependOnTheData) {
  for (const bool summed : {false, true}) {
    ExpectParity(
        [summed](Builder& b, const Batch& batch) {
          ValueId x = Embed(b, batch);
          b.SetLayer(1);
          x = Feedforward(b, x, "ffn");
          const ValueId count = summed ? AllDims(b, Constant(b, 1.0, {kRows, kTokens}))
                                       : Constant(b, kRows * kTokens, {});
          return Loss{TokenLoss(b, x, batch).loss_sum, count};
        },
        kStaged);
  }
}

// An auxiliary loss of the first stage joins the loss of the last.
TEST(Formulas, LossesOfTwoStagesAddUp) {
  ExpectParity(
      [](Builder& b, const Batch& batch) {
        ValueId x = Feedforward(b, Embed(b, batch), "ffn");
        const ValueId auxiliary = b.Scale(AllDims(b, b.MulBy(x, x)), 0.01);
        b.SetLayer(1);
        x = Feedforward(b, x, "ffn2");
        const Loss loss = TokenLoss(b, x, batch);
        return Loss{b.AddTo(loss.loss_sum, auxiliary), loss.count};
      },
      kStaged);
}

// A value without a layer, read in both stages: its gradient comes back to the stage that makes it.
TEST(Formulas, ValueWithoutLayerIsReadInTwoStages) {
  ExpectParity(
      [](Builder& b, const Batch& batch) {
        const ValueId table = b.Param("embed", {kVocabulary, kWidth});
        const ValueId x0 = b.Gelu(b.Lookup(table, batch.at("tokens")));
        b.SetLayer(0);
        ValueId x = b.AddTo(Feedforward(b, x0, "ffn"), x0);
        b.SetLayer(1);
        x = b.AddTo(Feedforward(b, x, "ffn2"), x0);
        return TokenLoss(b, x, batch);
      },
      kStaged);
}

// The gradient that p's update sums over microbatches is read per microbatch by the other stage.
TEST(Formulas, GradientOfTwoStagesIsSummedAndSentPerMicrobatch) {
  for (const bool shared : {false, true}) {
    ExpectParity(
        [shared](Builder& b, const Batch& batch) {
          ValueId x = Embed(b, batch);
          const ValueId r = b.Param("r", {kWidth}, {.std_dev = 1});
          const ValueId q = b.Scale(r, 2);
          x = Feedforward(b, x, "ffn");
          b.SetLayer(1);
          // Shared: the sum that stage 0's update imports is one that its backward has imported.
          const ValueId p = shared ? r : b.Param("p", {kWidth}, {.std_dev = 1});
          x = b.AddTo(Feedforward(b, x, "ffn2"), b.AddTo(p, q));
          return TokenLoss(b, x, batch);
        },
        kStaged);
  }
}

// The update divides by a count that one microbatch's weight is scaled with, here or a stage later.
TEST(Formulas, CountOfTheDataIsAlsoPartOfTheLoss) {
  for (const bool first_stage : {false, true}) {
    ExpectParity(
        [first_stage](Builder& b, const Batch& batch) {
          const auto count_of = [&] {
            const ValueId table =
                b.AddOne(Op::kRandomNormal, {}, {{"name", "table"}, {"mean", 0.0}, {"std", 1.0}},
                         {F64({kVocabulary, kWidth})});
            const ValueId weights = b.Lookup(table, batch.at("tokens"));
            return AllDims(b, b.MulBy(weights, weights));
          };
          const ValueId x = Feedforward(b, Embed(b, batch), "ffn");
          ValueId count = first_stage ? count_of() : ValueId();
          b.SetLayer(1);
          const Loss loss = TokenLoss(b, Feedforward(b, x, "ffn2"), batch);
          if (!first_stage) count = count_of();
          const ValueId w = b.Param("w", {}, {.std_dev = 1});
          const ValueId term = b.AddOne(Op::kMulScalar, {count, w});
          return Loss{b.AddTo(loss.loss_sum, term), count};
        },
        kStaged);
  }
}

// A whole value with a batch dim: the other stage gets the rows, not the weights to compute them.
TEST(Formulas, RowsOfAWholeValueComeFromTheStageThatHasItsWeights) {
  for (const bool also_there : {false, true}) {
    ExpectParity(
        [also_there](Builder& b, const Batch& batch) {
          ValueId x = Embed(b, batch);
          const ValueId noise =
              b.AddOne(Op::kRandomNormal, {}, {{"name", "noise"}, {"mean", 0.0}, {"std", 1.0}},
                       {F64({kRows, kTokens, kWidth})});
          const ValueId scale = b.Param("scale", {}, {.std_dev = 1});
          const ValueId offset = b.AddOne(Op::kMulScalar, {noise, scale});
          x = Feedforward(b, also_there ? b.AddTo(x, offset) : x, "ffn");
          b.SetLayer(1);
          x = b.AddTo(Feedforward(b, x, "ffn2"), offset);
          return TokenLoss(b, x, batch);
        },
        kStaged);
  }
}

std::string PlanError(const LossFunction& loss, const Degrees& degrees) {
  const auto job = MakeJob(loss, degrees);
  if (!job.has_value()) return job.error().message();
  const auto plan = planner::MakePlan(
      *job, mesh::Topology::Local(degrees.data * degrees.tensor * degrees.pipeline));
  if (plan.has_value()) return "";
  EXPECT_EQ(plan.error().code(), StatusCode::kInvalidArgument) << plan.error();
  return plan.error().message();
}

TEST(Formulas, WhatMicrobatchesCannotSayIsRefusedWithAWayOut) {
  const auto per_row = [](Builder& b, const Batch& batch) {
    const ValueId offset = b.Param("offset", {kRows, kTokens, kWidth});
    return TokenLoss(b, b.AddTo(Embed(b, batch), offset), batch);
  };
  EXPECT_EQ(PlanError(per_row, {1, 1, 1, 1}), "");
  EXPECT_NE(PlanError(per_row, {1, 1, 1, 2}).find("param offset"), std::string::npos);
  const auto no_data = [](Builder& b, const Batch& batch) {
    const ValueId w = b.Param("w", {kWidth});
    return Loss{AllDims(b, b.MulBy(w, w)), TokenLoss(b, Embed(b, batch), batch).count};
  };
  EXPECT_NE(PlanError(no_data, {1, 1, 1, 2}).find("does not reach"), std::string::npos);
  const auto regularizer = [](Builder& b, const Batch&) {
    const ValueId w = b.Param("w", {kWidth});
    return Loss{AllDims(b, b.MulBy(w, w)), Constant(b, 1.0, {})};
  };
  EXPECT_NE(PlanError(regularizer, {1, 1, 1, 2}).find("microbatches=1"), std::string::npos)
      << PlanError(regularizer, {1, 1, 1, 2});
}

// Sequence parallelism splits what is the minor part of a dim before the reshape.
TEST(Formulas, SplitOfAMinorFactorIsComputedWhole) {
  const auto loss = [](Builder& b, const Batch& batch) {
    const ValueId noise =
        b.AddOne(Op::kRandomNormal, {}, {{"name", "noise"}, {"mean", 0.0}, {"std", 1.0}},
                 {F64({kRows * kTokens, kWidth})});
    const ValueId rows = b.Reshape(noise, {kRows, kTokens, kWidth});
    const ValueId x = Feedforward(b, Embed(b, batch), "ffn");
    return TokenLoss(b, Feedforward(b, b.AddTo(x, rows), "ffn2"), batch);
  };
  ExpectParity(loss, {{1, 2, 1, 1}, {2, 2, 1, 1}}, /*sequence_parallel=*/true);
}

const std::vector<Degrees> kTensors = {{1, 2, 1, 1}, {1, 4, 1, 1}, {2, 2, 1, 2}};

ValueId Heads(Builder& b, ValueId x, int64_t heads, int64_t size) {
  const ValueId weight = b.Param("up", {kWidth, heads, size}, {.std_dev = 0.3});
  return b.Gelu(b.Einsum("bsd,dhe->bshe", x, weight));
}

Loss LossOfHeads(Builder& b, const Batch& batch, ValueId x, ValueId flat) {
  return TokenLoss(b, b.AddTo(x, b.Linear(flat, "down", kWidth)), batch);
}

// Heads that the axis divides stay split in the merged dim; a part of each head lies in pieces all
// over it, and is gathered.
TEST(Formulas, HeadsBecomeOneDim) {
  for (const int64_t heads : {4, 3, 2}) {
    ExpectParity(
        [heads](Builder& b, const Batch& batch) {
          const ValueId x = Embed(b, batch);
          const ValueId y = Heads(b, x, heads, 8);
          return LossOfHeads(b, batch, x, b.Reshape(y, {kRows, kTokens, heads * 8}));
        },
        kTensors);
  }
}

TEST(Formulas, HeadsAreTheMinorPartOfADim) {
  ExpectParity(
      [](Builder& b, const Batch& batch) {
        const ValueId x = Embed(b, batch);
        const ValueId y = b.Transpose(Heads(b, x, 4, 4), {0, 1, 3, 2});
        return LossOfHeads(b, batch, x, b.Reshape(y, {kRows, kTokens, 16}));
      },
      kTensors);
  ExpectParity(
      [](Builder& b, const Batch& batch) {
        const ValueId x = Embed(b, batch);
        const ValueId rows = b.Reshape(Heads(b, x, 4, 4), {kRows, kTokens * 16});
        return LossOfHeads(b, batch, x, b.Reshape(rows, {kRows, kTokens, 16}));
      },
      kTensors);
}

TEST(Formulas, OneDimBecomesHeadsAndAWeightOfHeadsOneDim) {
  ExpectParity(
      [](Builder& b, const Batch& batch) {
        const ValueId x = Embed(b, batch);
        const ValueId scale = b.Param("scale", {4, 4}, {.std_dev = 1});
        const ValueId up = b.Linear(x, "up", 16);
        const ValueId y = b.Gelu(b.MulBy(b.Reshape(up, {kRows, kTokens, 4, 4}), scale));
        const ValueId flat = b.Reshape(y, {kRows, kTokens, 16});
        return LossOfHeads(b, batch, x, b.AddTo(flat, b.Reshape(scale, {16})));
      },
      kTensors);
}

TEST(Formulas, TokensOfAllRowsBecomeOneDim) {
  ExpectParity(
      [](Builder& b, const Batch& batch) {
        const ValueId x = Embed(b, batch);
        ValueId y = b.Reshape(Feedforward(b, x, "ffn"), {kRows * kTokens, kWidth});
        y = b.Linear(b.Gelu(b.Linear(y, "up", 2 * kWidth)), "down", kWidth);
        return TokenLoss(b, b.AddTo(x, b.Reshape(y, {kRows, kTokens, kWidth})), batch);
      },
      kTensors, /*sequence_parallel=*/true);
}

// What a plan says that a device allocates is what its worker allocates.
TEST(Formulas, PlannedMemoryIsWhatWorkersAllocate) {
  for (const Degrees& d : kStaged) {
    const auto job = MakeJob(
        [](Builder& b, const Batch& batch) {
          ValueId x = Feedforward(b, Embed(b, batch), "ffn");
          b.SetLayer(1);
          return TokenLoss(b, Feedforward(b, x, "ffn2"), batch);
        },
        d);
    ASSERT_TRUE(job.has_value()) << job.error();
    SyntheticTokens tokens(kVocabulary);
    const auto cluster = VirtualCluster::Start(*job, d.data * d.tensor * d.pipeline, &tokens);
    ASSERT_TRUE(cluster.has_value()) << cluster.error();
    for (const worker::DeviceStats& stats : (*cluster)->runtime().Stats()) {
      int64_t allocated = 0;
      for (const auto& [kind, bytes] : stats.memory_bytes) allocated += bytes;
      EXPECT_EQ((*cluster)->plan().memory[static_cast<size_t>(stats.rank)].total_bytes, allocated)
          << "device " << stats.rank << " of " << (*cluster)->plan().layout.ToString();
    }
  }
}

TEST(Formulas, ImagesThroughConvolutionAndPooling) {
  ExpectParity(
      [](Builder& b, const Batch& batch) {
        const ValueId x = Embed(b, batch);
        const ValueId images = b.Reshape(x, {kRows, 4, 4, kTokens});
        ValueId y = b.Relu(b.Conv2d(images, "conv", {3, 3}, 6, {.padding = {1, 1, 1, 1}}));
        y = b.AddTo(b.MaxPool(y, {2, 2}, {.strides = {2, 2}}),
                    b.AvgPool(y, {2, 2}, {.strides = {2, 2}}));
        y = b.Linear(b.Reshape(y, {kRows, 24}), "flat", kWidth);
        y = b.BroadcastTo(b.Reshape(y, {kRows, 1, kWidth}), {kRows, kTokens, kWidth});
        return TokenLoss(b, b.AddTo(x, y), batch);
      },
      kFlat);
}

TEST(Formulas, AttentionAcrossLengthsWithABias) {
  ExpectParity(
      [](Builder& b, const Batch& batch) {
        const ValueId x = Embed(b, batch);
        const auto heads = [&](const char* name, ValueId of, int64_t length) {
          // A bias of keys changes nothing: its gradient is but what rounding leaves.
          const ValueId linear = b.Linear(of, name, kWidth, {.bias = name[0] != 'k'});
          return b.Reshape(linear, {kRows, length, 4, kWidth / 4});
        };
        const ValueId memory = b.Slice(x, 1, 0, 3);
        const ValueId bias = b.Param("bias", {1, 4, kTokens, 3}, {.std_dev = 0.5});
        const ValueId y = b.Attention(heads("q", x, kTokens), heads("k", memory, 3),
                                      heads("v", memory, 3), {.causal = false, .bias = bias});
        const ValueId flat = b.Reshape(y, {kRows, kTokens, kWidth});
        return TokenLoss(b, b.AddTo(x, b.Linear(flat, "o", kWidth)), batch);
      },
      kFlat);
}

TEST(Formulas, ChoicesNoiseAndReductions) {
  ExpectParity(
      [](Builder& b, const Batch& batch) {
        ValueId x = Embed(b, batch);
        x = b.AddTo(x, b.Scale(b.Normal(x, "noise"), 0.01));
        const ValueId scores = b.Linear(x, "route", 6);
        const client::TopValues top = b.TopK(b.Softmax(scores), 2);
        const ValueId hot = b.ReduceSum(
            b.MulBy(b.OneHot(top.ids, 6), b.Reshape(top.values, {kRows, kTokens, 2, 1})), {2});
        const ValueId routed = b.Linear(b.Concat({hot, b.Softplus(scores)}, -1), "mix", kWidth);
        const ValueId coin = b.Bernoulli(b.Sigmoid(b.StopGradient(routed)), "coin");
        const ValueId largest = b.ReduceMax(x, {-1}, true);
        const ValueId kept = b.Where(coin, routed, b.Tanh(b.Sub(x, largest)));
        const ValueId logits = b.LogSoftmax(b.Linear(kept, "head", kVocabulary));
        const ValueId labels = b.Reshape(batch.at("labels"), {kRows, kTokens, 1});
        const ValueId picked = b.Gather(logits, labels, -1);
        const ValueId counted = b.Cast(b.Equal(labels, labels), ir::DType::kF64);
        return Loss{b.Neg(AllDims(b, picked)), AllDims(b, counted)};
      },
      kFlat);
}

// A step of each row's own weights, trained through: MAML with a row as a task.
TEST(Formulas, InnerGradientsOfRowsAreTrainedThrough) {
  ExpectParity(
      [](Builder& b, const Batch& batch) {
        const ValueId x = Embed(b, batch);
        const ValueId start = b.Param("fast", {kWidth, kWidth}, {.std_dev = 0.3});
        const ValueId own = b.BroadcastTo(start, {kRows, kWidth, kWidth});
        const auto apply = [&](ValueId weights) {
          return b.Tanh(b.Einsum("bsi,bio->bso", x, weights));
        };
        const ValueId inner = AllDims(b, b.Square(b.Sub(apply(own), b.Scale(x, 0.5))));
        const ValueId slope = b.Grad(inner, {own})[0];
        const ValueId adapted = b.Sub(own, b.Scale(slope, 0.1));
        return TokenLoss(b, b.AddTo(x, apply(adapted)), batch);
      },
      kFlat);
}

}  // namespace
}  // namespace meshwright::testing
