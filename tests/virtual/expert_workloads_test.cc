// Uneven loads of experts against plain loops over whole numbers: every sum is exact in f64, so
// that what a layout makes of two steps is the oracle's to the last bit, or wrong.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "client/trainer.h"
#include "tests/virtual/run_job.h"

namespace meshwright::testing {
namespace {

using ir::Op;

constexpr int64_t kLoadRows = 8;  // of a step
constexpr int64_t kLoadTokens = 8;
constexpr int64_t kLoadExperts = 8;
constexpr int64_t kLoadChosen = 2;
constexpr int64_t kLoadWidth = 4;

struct LoadChoice {
  int64_t first, second;
};

// W0 to W7. Rows are numbered on from step to step.
LoadChoice ChoiceOf(int workload, int64_t row, int64_t token) {
  const int64_t spread = (row + token) % kLoadExperts;
  const auto with_any = [&](int64_t first) {
    return LoadChoice{first, (first + 1 + token % 7) % kLoadExperts};
  };
  switch (workload) {
    case 1:  // a hot expert
      return with_any(token % 2 == 0 ? 0 : spread);
    case 2:  // a hot rank
      return {token % 2, (token + 1) % 2};
    case 3:  // one hot expert on each rank
      return {2 * (token % 4), 2 * ((token + 1) % 4)};
    case 4:  // some rows are hot, others even
      return row % 2 == 0 ? ChoiceOf(2, row, token) : with_any(spread);
    case 5:  // half of the experts get nothing
      return {4 + token % 4, 4 + (token + 1) % 4};
    case 6:  // what is hot moves on with each step
      return with_any(row / kLoadRows * 3 % kLoadExperts);
    case 7:  // an even step, and then one expert and its neighbour
      return row < kLoadRows ? with_any(spread) : LoadChoice{7, 6};
    default:  // even
      return with_any(spread);
  }
}

class LoadTokens : public ops::TokenSource {
 public:
  explicit LoadTokens(int workload) : workload_(workload) {}
  // First choices, then second ones.
  Status ReadSample(const std::string&, int64_t sample, std::span<int32_t> row) override {
    for (int64_t token = 0; token < kLoadTokens; ++token) {
      const LoadChoice choice = ChoiceOf(workload_, sample, token);
      row[static_cast<size_t>(token)] = static_cast<int32_t>(choice.first);
      row[static_cast<size_t>(token + kLoadTokens)] = static_cast<int32_t>(choice.second);
    }
    return OkStatus();
  }

 private:
  int workload_;
};

// How experts take tokens: all, all with bounded slots of ranks, or some.
struct LoadMode {
  double capacity_factor = 0;
  double slots_factor = 0;
  bool drops() const { return capacity_factor > 0; }
  int64_t capacity() const {
    constexpr double kFair = static_cast<double>(kLoadTokens * kLoadChosen) / kLoadExperts;
    return static_cast<int64_t>(std::ceil(capacity_factor * kFair));
  }
};

// loss = sum of c . (sum over experts of (x * a) W), x = (first, second, position, 1) of a token
// and c = (0, position - 1, second - 1, first - 1).
client::Loss LoadLoss(client::Builder& b, const client::Batch& batch, const LoadMode& mode) {
  const ValueId window = batch.at("window");
  const client::Dims token = {kLoadRows, kLoadTokens, 1};
  b.SetLayer(0);
  const ValueId first = b.Reshape(b.Slice(window, 1, 0, kLoadTokens), token);
  const ValueId second = b.Reshape(b.Slice(window, 1, kLoadTokens, kLoadTokens), token);
  const ValueId zero = b.Scale(b.Cast(first, ir::DType::kF64), 0);
  const ValueId place =
      b.AddTo(zero, b.Reshape(b.Cast(b.Iota(kLoadTokens), ir::DType::kF64), {kLoadTokens, 1}));
  const std::vector<ValueId> parts = {b.Cast(first, ir::DType::kF64),
                                      b.Cast(second, ir::DType::kF64), place, b.Shift(zero, 1)};
  const ValueId x = b.Concat(parts, 2);
  const ValueId c = b.Shift(b.Concat({parts[3], parts[2], parts[1], parts[0]}, 2), -1);
  ir::Attrs attrs = {{"experts", kLoadExperts},
                     {"groups", mode.drops() ? kLoadExperts : 1},
                     {"capacity", mode.drops() ? mode.capacity() : kLoadTokens * kLoadChosen},
                     {"by_choice", int64_t{mode.drops() ? 1 : 0}},
                     {"drop", int64_t{mode.drops() ? 1 : 0}}};
  if (mode.slots_factor > 0) {
    attrs.Set("slots_factor", mode.slots_factor);
    attrs.Set("name", std::string("mlp"));
  }
  const std::vector<ValueId> routed =
      b.Add(Op::kExpertSlots, {b.Concat({first, second}, 2)}, attrs);
  const ValueId scaled = b.MulBy(x, b.Param("a", {kLoadWidth}, {.init = "ones"}));
  const ValueId slots =
      b.AddOne(Op::kDispatch, {scaled, routed[0]},
               {{"groups", attrs.Int("groups")}, {"capacity", attrs.Int("capacity")}});
  const ValueId w =
      b.Param("w", {kLoadExperts, kLoadWidth, kLoadWidth}, {.init = "ones", .decay = 0});
  const ValueId y =
      b.AddOne(Op::kCombine,
               {b.AddOne(Op::kGroupedMatmul, {slots, routed[1], w},
                         {{"groups", attrs.Int("groups")}, {"rows", kLoadTokens * kLoadChosen}}),
                routed[0]});
  return {b.ReduceSum(b.MulBy(c, y), {0, 1, 2}), b.ReduceSum(b.Shift(zero, 1), {0, 1, 2})};
}

ir::JobRequest LoadJob(const LoadMode& mode) {
  client::TrainerFunctions functions;
  functions.collate = [](client::Builder&, ValueId window) {
    return client::Batch{{"window", window}};
  };
  functions.loss = [mode](client::Builder& b, const client::Batch& batch) {
    return LoadLoss(b, batch, mode);
  };
  ir::OptimizerSpec sgd;
  sgd.name = "sgd";
  sgd.lr = kLoadRows * kLoadTokens;  // takes back the mean: a weight goes down by its sum
  sgd.weight_decay = 0;
  sgd.max_norm = 0;
  ir::TrainSpec train;
  train.global_batch = kLoadRows;
  train.sequence = 2 * kLoadTokens - 1;
  train.steps = kRunSteps;
  auto job = client::JobBuilder("load")
                 .Train(train)
                 .DType(ir::DType::kF64)
                 .Optimizer(sgd)
                 .Build(functions);
  EXPECT_TRUE(job.has_value()) << job.error();
  return *std::move(job);
}

using LoadMatrix = std::array<std::array<int64_t, kLoadWidth>, kLoadWidth>;

struct LoadModel {
  std::array<int64_t, kLoadWidth> a = {1, 1, 1, 1};
  std::array<LoadMatrix, kLoadExperts> w = {};
  std::vector<int64_t> losses = {};
};

// Which choices of a row have a slot: [choice][token]; first choices come first.
std::array<std::vector<bool>, kLoadChosen> KeptOfRow(int workload, int64_t row,
                                                     const LoadMode& mode) {
  std::array<std::vector<bool>, kLoadChosen> kept;
  std::array<int64_t, kLoadExperts> used = {};
  for (size_t which = 0; which < kLoadChosen; ++which) {
    for (int64_t token = 0; token < kLoadTokens; ++token) {
      const LoadChoice choice = ChoiceOf(workload, row, token);
      int64_t& of_expert = used[static_cast<size_t>(which == 0 ? choice.first : choice.second)];
      kept[which].push_back(!mode.drops() || of_expert < mode.capacity());
      ++of_expert;
    }
  }
  return kept;
}

void AddToken(const LoadModel& model, const LoadChoice& of, int64_t token, int64_t expert,
              LoadModel& gradient, int64_t& loss) {
  const std::array<int64_t, kLoadWidth> x = {of.first, of.second, token, 1};
  const std::array<int64_t, kLoadWidth> c = {0, token - 1, of.second - 1, of.first - 1};
  const LoadMatrix& w = model.w[static_cast<size_t>(expert)];
  for (size_t i = 0; i < kLoadWidth; ++i) {
    for (size_t j = 0; j < kLoadWidth; ++j) {
      loss += c[j] * x[i] * model.a[i] * w[i][j];
      gradient.w[static_cast<size_t>(expert)][i][j] += c[j] * x[i] * model.a[i];
      gradient.a[i] += c[j] * x[i] * w[i][j];
    }
  }
}

LoadModel OracleOf(int workload, const LoadMode& mode) {
  LoadModel model;
  for (LoadMatrix& w : model.w) w.fill({1, 1, 1, 1});
  for (int64_t step = 0; step < kRunSteps; ++step) {
    LoadModel gradient;
    gradient.a = {};
    int64_t loss = 0;
    for (int64_t row = step * kLoadRows; row < (step + 1) * kLoadRows; ++row) {
      const auto kept = KeptOfRow(workload, row, mode);
      for (int64_t token = 0; token < kLoadTokens; ++token) {
        const LoadChoice of = ChoiceOf(workload, row, token);
        for (size_t which = 0; which < kLoadChosen; ++which) {
          if (!kept[which][static_cast<size_t>(token)]) continue;
          AddToken(model, of, token, which == 0 ? of.first : of.second, gradient, loss);
        }
      }
    }
    model.losses.push_back(loss);
    for (size_t i = 0; i < kLoadWidth; ++i) model.a[i] -= gradient.a[i];
    for (size_t e = 0; e < kLoadExperts; ++e) {
      for (size_t i = 0; i < kLoadWidth; ++i) {
        for (size_t j = 0; j < kLoadWidth; ++j) model.w[e][i][j] -= gradient.w[e][i][j];
      }
    }
  }
  return model;
}

void ExpectTheOracle(const LoadModel& oracle, const std::vector<worker::StepReport>& reports,
                     const std::map<std::string, LogicalTensor>& tensors, const std::string& what) {
  for (size_t step = 0; step < reports.size(); ++step) {
    EXPECT_EQ(reports[step].values.at("loss") * (kLoadRows * kLoadTokens),
              static_cast<double>(oracle.losses[step]))
        << what << " step " << step;
  }
  const std::vector<double>& a = tensors.at("a").values;
  const std::vector<double>& w = tensors.at("w").values;
  ASSERT_EQ(w.size(), static_cast<size_t>(kLoadExperts * kLoadWidth * kLoadWidth));
  for (size_t i = 0; i < kLoadWidth; ++i) {
    EXPECT_EQ(a[i], static_cast<double>(oracle.a[i])) << what << " a " << i;
  }
  for (size_t at = 0; at < w.size(); ++at) {
    const LoadMatrix& of = oracle.w[at / (kLoadWidth * kLoadWidth)];
    EXPECT_EQ(w[at], static_cast<double>(of[at / kLoadWidth % kLoadWidth][at % kLoadWidth]))
        << what << " w " << at;
  }
}

// "": as the oracle says; else the error.
std::string RunLoad(int workload, const LoadMode& mode, int64_t degree, int64_t microbatches) {
  ir::JobRequest job = LoadJob(mode);
  job.parallel.data = 4;
  job.parallel.expert = degree;
  job.parallel.tensor = 1;
  job.parallel.pipeline = 1;
  job.parallel.microbatches = microbatches;
  LoadTokens tokens(workload);
  const auto cluster = VirtualCluster::Start(job, 4, &tokens);
  if (!cluster.has_value()) return cluster.error().message();
  const auto reports = (*cluster)->Train(0, kRunSteps);
  if (!reports.has_value()) return reports.error().message();
  const auto tensors = (*cluster)->Gather();
  if (!tensors.has_value()) return tensors.error().message();
  ExpectTheOracle(OracleOf(workload, mode), *reports, *tensors,
                  fmt::format("W{} expert={} microbatches={}", workload, degree, microbatches));
  return "";
}

class ExpertLoads : public ::testing::TestWithParam<int> {};

TEST_P(ExpertLoads, WithRoomForAllAreTheOraclesToTheLastBit) {
  for (const int64_t degree : {1, 2, 4}) EXPECT_EQ(RunLoad(GetParam(), {}, degree, 2), "");
}

TEST_P(ExpertLoads, WithACapacityAreTheOraclesToTheLastBit) {
  for (const int64_t degree : {1, 2, 4}) {
    EXPECT_EQ(RunLoad(GetParam(), {.capacity_factor = 1.25}, degree, 1), "");
  }
}

// Choices of a row that come to one of `degree` ranks, at most, in all steps.
int64_t MostOfARank(int workload, int64_t degree) {
  int64_t most = 0;
  for (int64_t row = 0; row < kRunSteps * kLoadRows; ++row) {
    std::vector<int64_t> of_rank(static_cast<size_t>(degree), 0);
    for (int64_t token = 0; token < kLoadTokens; ++token) {
      const LoadChoice choice = ChoiceOf(workload, row, token);
      for (const int64_t expert : {choice.first, choice.second}) {
        ++of_rank[static_cast<size_t>(expert * degree / kLoadExperts)];
      }
    }
    most = std::max(most, *std::max_element(of_rank.begin(), of_rank.end()));
  }
  return most;
}

// Where the bound holds nothing changes; where it does not the step says so, and is not wrong.
TEST_P(ExpertLoads, WithBoundedSlotsAreTheOraclesOrSayWhatTheyWant) {
  constexpr double kFactor = 1.5;
  for (const int64_t degree : {2, 4}) {
    const int64_t bound =
        static_cast<int64_t>(kFactor * kLoadTokens * kLoadChosen / static_cast<double>(degree));
    const std::string error = RunLoad(GetParam(), {.slots_factor = kFactor}, degree, 1);
    if (MostOfARank(GetParam(), degree) <= bound) {
      EXPECT_EQ(error, "") << degree;
      continue;
    }
    for (const std::string& part :
         {std::string("layer mlp"), fmt::format("which has {} slots", bound),
          std::string("raise model.expert_slots_factor")}) {
      EXPECT_NE(error.find(part), std::string::npos) << part << " in " << error;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Workloads, ExpertLoads, ::testing::Range(0, 8),
                         [](const auto& each) { return fmt::format("W{}", each.param); });

// Each side of the bound is met by some of the workloads above.
TEST(ExpertLoadBounds, AreHeldBySomeWorkloadsAndNotByOthers) {
  EXPECT_LE(MostOfARank(0, 2), 12);
  EXPECT_LE(MostOfARank(3, 4), 6);
  EXPECT_EQ(MostOfARank(2, 4), 16);
  EXPECT_EQ(MostOfARank(7, 2), 16) << "in the second step";
}

}  // namespace
}  // namespace meshwright::testing
