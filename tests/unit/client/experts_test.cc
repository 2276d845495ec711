// Routers, balance losses and steering against plain loops and hand-made rows.
#include "client/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include "base/philox.h"
#include "client/balance.h"
#include "ir/autodiff.h"
#include "ops/kernel.h"

namespace meshwright::client {
namespace {

using ir::DType;
using ops::HostTensor;
using RowValues = std::vector<double>;

// A layer of experts in f64 whose logits are its input: the gate is the identity.
class ExpertLayer : public ::testing::Test {
 protected:
  // logits [b, s, experts] by rows.
  MixtureOfExperts Route(int64_t rows, const ExpertOptions& options, const RowValues& logits) {
    const int64_t tokens = static_cast<int64_t>(logits.size()) / (rows * options.experts);
    experts_ = options.experts;
    bound_["x"] = logits;
    const ValueId x = builder_.AddOne(ir::Op::kInput, {}, {{"name", std::string("x")}},
                                      {{DType::kF64, {rows, tokens, options.experts}}});
    return RouteToExperts(builder_, x, "mlp", options);
  }

  // Of `graph`, whose params are bound by name or by formula.
  std::map<std::string, RowValues> Run(const ir::Graph& graph) {
    const auto bind = [&](const ir::Node& node) -> Result<HostTensor> {
      const ir::TensorType& type = graph.type(node.outputs[0]);
      return Tensor(type, ValuesFor(node.attrs.Str("name"), type));
    };
    const auto evaluated = ops::Evaluate(ops::Backend::kReference, graph, bind, {});
    EXPECT_TRUE(evaluated.has_value()) << evaluated.error();
    std::map<std::string, RowValues> results;
    if (!evaluated.has_value()) return results;
    for (size_t i = 0; i < evaluated->size(); ++i) {
      results[graph.outputs[i].name] = Values((*evaluated)[i]);
    }
    return results;
  }

  RowValues Run(ValueId output) {
    Builder copy = builder_;
    copy.SetOutput("y", output);
    const auto graph = copy.Finish();
    EXPECT_TRUE(graph.has_value()) << graph.error();
    return graph.has_value() ? Run(*graph)["y"] : RowValues();
  }

  Builder builder_{"experts", DType::kF64};
  std::map<std::string, RowValues> bound_;

 private:
  RowValues ValuesFor(const std::string& name, const ir::TensorType& type) const {
    const auto it = bound_.find(name);
    if (it != bound_.end()) return it->second;
    RowValues values(static_cast<size_t>(type.elements()));
    for (int64_t i = 0; i < type.elements(); ++i) {
      const bool identity = name == "mlp.gate.weight";
      values[static_cast<size_t>(i)] =
          identity ? (i / experts_ == i % experts_ ? 1 : 0)
          : name.starts_with("opt.")
              ? 0
              : PhiloxNormal(3, std::hash<std::string>{}(name), static_cast<uint64_t>(i));
    }
    return values;
  }
  static HostTensor Tensor(const ir::TensorType& type, const RowValues& values) {
    HostTensor tensor{type, std::vector<std::byte>(static_cast<size_t>(type.bytes()))};
    std::memcpy(tensor.data.data(), values.data(), tensor.data.size());
    return tensor;
  }
  static RowValues Values(const HostTensor& tensor) {
    RowValues values;
    for (int64_t i = 0; i < tensor.type.elements(); ++i) {
      if (tensor.type.dtype == DType::kI32) {
        int32_t value = 0;
        std::memcpy(&value, tensor.data.data() + i * 4, 4);
        values.push_back(value);
      } else {
        double value = 0;
        std::memcpy(&value, tensor.data.data() + i * 8, 8);
        values.push_back(value);
      }
    }
    return values;
  }

  int64_t experts_ = 0;
};

void ExpectClose(const RowValues& found, const RowValues& wanted, double tolerance = 1e-12) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], wanted[i], tolerance) << i;
}

double Logistic(double x) { return 1 / (1 + std::exp(-x)); }

TEST_F(ExpertLayer, SoftmaxWeightsAreProbabilitiesOrDividedByTheirSum) {
  const RowValues logits = {2, 0, 1, -1};
  const double all = std::exp(2) + 1 + std::exp(1) + std::exp(-1);
  const ExpertOptions plain{.experts = 4, .chosen = 2, .router = TopOfSoftmax{.normalised = false}};
  const MixtureOfExperts mixture = Route(1, plain, logits);
  EXPECT_EQ(Run(mixture.ids), (RowValues{0, 2}));
  ExpectClose(Run(mixture.weights), {std::exp(2) / all, std::exp(1) / all});
}

TEST_F(ExpertLayer, ASoftmaxOfTheTopIsNotTheTopOfASoftmax) {
  const double of_two = std::exp(2) + std::exp(1);
  const ExpertOptions options{.experts = 4, .chosen = 2, .router = SoftmaxOfTop{.bias = true}};
  bound_["mlp.gate.bias"] = {0, 2.5, 0, 0};
  const MixtureOfExperts mixture = Route(1, options, {2, -1.5, 0.5, -1});
  EXPECT_EQ(Run(mixture.ids), (RowValues{0, 1})) << "the bias counts";
  ExpectClose(Run(mixture.weights), {std::exp(2) / of_two, std::exp(1) / of_two});
}

TEST_F(ExpertLayer, ABiasOfSigmoidsChoosesAndDoesNotWeigh) {
  const ExpertOptions options{
      .experts = 4, .chosen = 2, .router = TopOfSigmoid{.normalised = true, .scale = 2.5}};
  bound_["mlp.gate.e_score_correction_bias"] = {0, 0, 0, 1};
  const MixtureOfExperts mixture = Route(1, options, {2, 1, 0, -1});
  EXPECT_EQ(Run(mixture.ids), (RowValues{3, 0}));
  const double sum = Logistic(-1) + Logistic(2);
  ExpectClose(Run(mixture.weights), {2.5 * Logistic(-1) / sum, 2.5 * Logistic(2) / sum});
}

// The single best expert is in a group whose best two are worse than those of the others. Negative
// scores must not make experts of other groups look good, as zeros in their place would.
TEST_F(ExpertLayer, AGroupIsJudgedByItsBestTwoAndOthersAreNeverChosen) {
  const ExpertOptions options{
      .experts = 6, .chosen = 3, .router = TopOfSigmoid{.groups = 3, .chosen_groups = 2}};
  bound_["mlp.gate.e_score_correction_bias"] = {-5, -5, -5, -5, -5, -5};
  const MixtureOfExperts mixture = Route(1, options, {1, 0.9, 4, -4, 0.8, 0.7});
  EXPECT_EQ(Run(mixture.ids), (RowValues{0, 1, 4}));
}

TEST_F(ExpertLayer, NoiseMovesLogitsByItsSoftplus) {
  const ExpertOptions options{.experts = 3, .chosen = 3, .router = NoisyTop{}};
  bound_["mlp.noise.weight"] = RowValues(9, -200);  // of x = 1: no noise
  const RowValues logits = {0.3, 0.5, 0.2};
  const MixtureOfExperts mixture = Route(1, options, logits);
  const double all = std::exp(0.3) + std::exp(0.5) + std::exp(0.2);
  const RowValues silent = Run(mixture.weights);
  ExpectClose(silent, {std::exp(0.5) / all, std::exp(0.3) / all, std::exp(0.2) / all});
  bound_["mlp.noise.weight"] = RowValues(9, 1);
  EXPECT_GT(std::abs(Run(mixture.weights)[0] - silent[0]), 1e-3);
}

// Switch: room is tokens / experts x factor, whatever the number of choices; first come, first
// served; what finds no room passes the layer by, and its weight stays its probability.
TEST_F(ExpertLayer, SwitchHasRoomForAShareOfTheTokens) {
  const ExpertOptions options{.experts = 2,
                              .chosen = 1,
                              .router = TopOfSoftmax{.normalised = false},
                              .capacity_factor = 1.25};
  EXPECT_EQ(CapacityOf(options, 4), 3);
  EXPECT_EQ(CapacityOf({.experts = 2, .chosen = 2, .capacity_factor = 1.25}, 4), 4)
      << "never more than there are tokens";
  EXPECT_EQ(CapacityOf({.experts = 64, .chosen = 1, .capacity_factor = 1}, 4), 1);
  const MixtureOfExperts mixture = Route(1, options, {2, 0, 2, 0, 2, 0, 2, 0});
  EXPECT_EQ(Run(mixture.slot), (RowValues{0, 1, 2, -1}));
  EXPECT_EQ(Run(mixture.choices), (RowValues{4, 0})) << "what is dropped was chosen";
  const double p = Logistic(2);
  ExpectClose(Run(mixture.Combine(mixture.slots)), {2 * p, 0, 2 * p, 0, 2 * p, 0, 0, 0});
}

// A published dispatch counts positions from one, keeps those below the capacity, and so keeps one
// too few: 0, 1, 1, 2, 2 and 3 of these. Room here is the capacity, rounded up.
TEST_F(ExpertLayer, RoomIsTheCapacityRoundedUpAndAllOfItIsUsed) {
  RowValues all_to_one;
  for (int token = 0; token < 8; ++token) all_to_one.insert(all_to_one.end(), {3, 0});
  for (const auto& [capacity, kept] : {std::pair(1.0, 1), std::pair(1.5, 2), std::pair(2.0, 2),
                                       std::pair(2.5, 3), std::pair(3.0, 3), std::pair(4.0, 4)}) {
    builder_ = Builder("experts", DType::kF64);
    const MixtureOfExperts mixture =
        Route(1, {.experts = 2, .chosen = 1, .capacity_factor = capacity / 4}, all_to_one);
    EXPECT_EQ(Run(mixture.used), (RowValues{static_cast<double>(kept), 0})) << capacity;
  }
  EXPECT_EQ(CapacityOf({.experts = 2, .chosen = 1, .capacity_factor = 1.1}, 20), 11)
      << "1.1 x 10 is not above 11";
}

RowValues SomeLogits(int64_t count) {
  RowValues logits;
  for (int64_t i = 0; i < count; ++i) {
    logits.push_back(PhiloxNormal(7, 1, static_cast<uint64_t>(i)));
  }
  return logits;
}

// Counts and mean probabilities of some rows of [rows, tokens, experts].
struct LoadOfRows {
  RowValues choices, first, shares;
  double tokens = 0;
};

LoadOfRows LoadsOf(const RowValues& logits, size_t experts, size_t k) {
  LoadOfRows load{RowValues(experts), RowValues(experts), RowValues(experts)};
  for (size_t at = 0; at < logits.size(); at += experts) {
    std::vector<size_t> order(experts);
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return logits[at + a] > logits[at + b]; });
    for (size_t i = 0; i < k; ++i) load.choices[order[i]] += 1;
    load.first[order[0]] += 1;
    double all = 0;
    for (size_t e = 0; e < experts; ++e) all += std::exp(logits[at + e]);
    for (size_t e = 0; e < experts; ++e) load.shares[e] += std::exp(logits[at + e]) / all;
    load.tokens += 1;
  }
  for (double& share : load.shares) share /= load.tokens;
  return load;
}

double Product(const RowValues& x, const RowValues& y) {
  return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
}

TEST_F(ExpertLayer, EveryFormOfBalanceIsItsFormula) {
  constexpr size_t kExperts = 4, kChosen = 2, kTokens = 5;
  const RowValues logits = SomeLogits(2 * kTokens * kExperts);
  const auto middle = logits.begin() + kTokens * kExperts;
  const LoadOfRows all = LoadsOf(logits, kExperts, kChosen);
  const LoadOfRows rows[] = {LoadsOf({logits.begin(), middle}, kExperts, kChosen),
                             LoadsOf({middle, logits.end()}, kExperts, kChosen)};
  const MixtureOfExperts mixture = Route(2, {.experts = kExperts, .chosen = kChosen}, logits);
  const double counted[] = {3, 5};  // labels that count
  double sequence = 0, gshard = 0;
  for (size_t r = 0; r < 2; ++r) {
    sequence += counted[r] * kExperts / (kChosen * rows[r].tokens) *
                Product(rows[r].choices, rows[r].shares);
    gshard += counted[r] / (kExperts * rows[r].tokens) * Product(rows[r].first, rows[r].shares);
  }
  const double of_batch = 8 * kExperts / all.tokens * Product(all.choices, all.shares);
  const std::map<BalanceForm, double> wanted = {{BalanceForm::kSequence, sequence},
                                                {BalanceForm::kGshard, gshard},
                                                {BalanceForm::kSwitch, of_batch / kChosen},
                                                {BalanceForm::kMixtral, of_batch}};
  for (const auto& [form, value] : wanted) {
    BalanceLoss loss(builder_, form);
    loss.Add(mixture);
    const ValueId labels = builder_.Concat({builder_.Fill({1}, 3), builder_.Fill({1}, 5)}, 0);
    ExpectClose(Run(loss.Sum(labels)), {value});
  }
}

// Rows of one domain each, whose expert has 0.85 of the probability: row by row the loss is 3.4,
// and over the batch, where domains even each other out, 1.
TEST_F(ExpertLayer, RowsOfOneDomainAreUnevenAloneAndEvenTogether) {
  RowValues logits;
  for (size_t row = 0; row < 4; ++row) {
    for (int token = 0; token < 3; ++token) {
      for (size_t e = 0; e < 4; ++e) logits.push_back(std::log(e == row ? 0.85 : 0.05));
    }
  }
  const MixtureOfExperts mixture = Route(4, {.experts = 4, .chosen = 1}, logits);
  for (const auto& [form, value] :
       {std::pair(BalanceForm::kSequence, 3.4), std::pair(BalanceForm::kSwitch, 1.0)}) {
    BalanceLoss loss(builder_, form);
    loss.Add(mixture);
    ExpectClose(Run(loss.Sum(builder_.Fill({4}, 0.25))), {value});
  }
}

// Each expert takes as many tokens, those that it likes best.
TEST_F(ExpertLayer, ExpertsThatChooseTakeTheirBestTokens) {
  const ExpertOptions options{.experts = 2, .chosen = 1, .router = ExpertChoice{}};
  const RowValues logits = {3, 0, 2, 0, 0.5, 0.5, 1, 0};
  const MixtureOfExperts mixture = Route(1, options, logits);
  EXPECT_EQ(Run(mixture.used), (RowValues{2, 2}));
  EXPECT_EQ(Run(mixture.choices), (RowValues{2, 2}));
  const double p0 = Logistic(3), p1 = Logistic(2), q2 = 0.5, q3 = 1 - Logistic(1);
  // Expert 0 takes tokens 0 and 1, expert 1 tokens 2 and 3.
  ExpectClose(Run(mixture.Combine(mixture.slots)),
              {3 * p0, 0, 2 * p1, 0, 0.5 * q2, 0.5 * q2, q3, 0});
}

// Two layers that each use one expert only, another one each: together they are balanced.
TEST_F(ExpertLayer, MixtralsFormSeesAllLayersTogether) {
  const ExpertOptions options{.experts = 2, .chosen = 1};
  const MixtureOfExperts first = Route(1, options, {50, 0});
  const ValueId other = builder_.AddOne(ir::Op::kInput, {}, {{"name", std::string("other")}},
                                        {{DType::kF64, {1, 1, 2}}});
  bound_["other"] = {0, 50};
  bound_["next.gate.weight"] = {1, 0, 0, 1};
  const MixtureOfExperts second = RouteToExperts(builder_, other, "next", options);
  for (const auto& [form, value] :
       {std::pair(BalanceForm::kMixtral, 1.0), std::pair(BalanceForm::kSwitch, 4.0)}) {
    BalanceLoss loss(builder_, form);
    loss.Add(first);
    loss.Add(second);
    ExpectClose(Run(loss.Sum(builder_.Fill({1}, 1))), {value}, 1e-9);
  }
}

TEST(BalanceForms, AreParsedByNameAndUnknownOnesListThem) {
  for (const std::string& name : BalanceFormNames()) EXPECT_TRUE(ParseBalanceForm(name)) << name;
  const auto unknown = ParseBalanceForm("global");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message().find("one of sequence, gshard, switch, mixtral"),
            std::string::npos);
}

// An expert that no token takes has a gradient of zero, not of nothing or of NaN.
TEST_F(ExpertLayer, AnIdleExpertHasZeroGradients) {
  const MixtureOfExperts mixture = Route(1, {.experts = 2, .chosen = 1}, {5, 1, 6, 1, 7, 1});
  const ValueId y = mixture.Combine(mixture.Matmul(mixture.slots, "mlp.up", 3));
  builder_.SetOutput("loss_sum", builder_.ReduceSum(builder_.Square(y), {0, 1, 2}));
  builder_.SetOutput("count", builder_.Fill({}, 3));
  const auto forward = builder_.Finish();
  ASSERT_TRUE(forward.has_value()) << forward.error();
  const auto graph = ir::Differentiate(*forward);
  ASSERT_TRUE(graph.has_value()) << graph.error();
  const RowValues gradient = Run(*graph)["grad/mlp.up"];
  ASSERT_EQ(gradient.size(), 12u);
  for (size_t i = 0; i < 6; ++i) EXPECT_NE(gradient[i], 0) << i;
  for (size_t i = 6; i < 12; ++i) EXPECT_EQ(gradient[i], 0) << i;
}

// y of a slot has the vector of its expert; slots that nobody has stay zero.
TEST_F(ExpertLayer, BiasesAreOfTheSlotsExpert) {
  const MixtureOfExperts mixture = Route(1, {.experts = 2, .chosen = 1}, {5, 1, 1, 6, 7, 1});
  bound_["mlp.bias"] = {10, 20, 30, 40};
  const ValueId y = mixture.Combine(mixture.AddBias(mixture.slots, "mlp.bias"));
  ExpectClose(Run(y), {15, 21, 31, 46, 17, 21});
}

// The loss does not have the bias, which goes down by its rate where more than a share was chosen.
TEST_F(ExpertLayer, TheBiasGoesAgainstTheLoadByItsRateWhateverTheOptimizerIs) {
  for (const char* optimizer : {"adamw", "sgd"}) {
    builder_ = Builder("experts", DType::kF64);
    const ExpertOptions options{
        .experts = 4, .chosen = 1, .router = TopOfSigmoid{.bias_rate = 0.25}};
    bound_["mlp.gate.e_score_correction_bias"] = {0.25, 0, 0, 0};
    // Expert 0 gets 2 of 4 choices, 1 and 2 their share, 3 nothing.
    const MixtureOfExperts mixture =
        Route(2, options, {9, 0, 0, 0, 0, 9, 0, 0, 0, 0, 9, 0, 9, 0, 0, 0});
    const ValueId y = mixture.Combine(mixture.Matmul(mixture.slots, "mlp.up", 3));
    const ValueId loss = builder_.ReduceSum(builder_.Square(y), {0, 1, 2});
    builder_.SetOutput("loss_sum", builder_.AddTo(loss, builder_.ReduceSum(mixture.steering, {0})));
    builder_.SetOutput("unsteered", loss);
    builder_.SetOutput("count", builder_.Fill({}, 4));
    const auto forward = builder_.Finish();
    ASSERT_TRUE(forward.has_value()) << forward.error();
    const auto gradients = ir::Differentiate(*forward);
    ASSERT_TRUE(gradients.has_value()) << gradients.error();
    const auto step = ir::AppendUpdate(*gradients, {.name = optimizer, .lr = 7});
    ASSERT_TRUE(step.has_value()) << step.error();
    auto results = Run(*step);
    EXPECT_EQ(results["loss_sum"], results["unsteered"]);
    const std::string bias = "mlp.gate.e_score_correction_bias";
    EXPECT_EQ(results["grad/" + bias], (RowValues{4, 0, 0, -4}));
    EXPECT_EQ(results["update/" + bias], (RowValues{0, 0, 0, 0.25})) << optimizer;
    double squares = 0;
    for (const char* param : {"mlp.gate.weight", "mlp.up"}) {
      const RowValues& gradient = results[std::string("grad/") + param];
      squares += Product(gradient, gradient);
    }
    ExpectClose(results["grad_norm"], {std::sqrt(squares) / 4}, 1e-9);
  }
}

TEST(ExpertOptions, WhatDoesNotFitNamesTheKeyAndTheFix) {
  const auto message = [](int64_t experts, int64_t chosen, const TopOfSigmoid& router) {
    return Validate(ExpertOptions{.experts = experts, .chosen = chosen, .router = router})
        .message();
  };
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(message(8, 2, {.groups = 3}), "expert_groups is 3, which does not divide n_experts 8");
  has(message(8, 2, {.groups = 4, .chosen_groups = 5}),
      "expert_groups_per_token is 5; it must be in [1, 4]");
  has(message(8, 5, {.groups = 4, .chosen_groups = 2}), "raise expert_groups_per_token");
  has(message(8, 2, {.groups = 8, .chosen_groups = 4}), "at most 4 groups");
  has(Validate(ExpertOptions{.slots_factor = 0.5}).message(),
      "expert_slots_factor is 0.5; 0 (room");
  has(Validate(ExpertOptions{.capacity_factor = 1, .slots_factor = 2}).message(),
      "remove it, or capacity_factor");
  has(message(8, 2, {.scale = 0}), "routed_scale is 0");
  has(message(8, 2, {.bias_rate = -1}), "router_bias_rate is -1");
  EXPECT_EQ(message(8, 4, {.groups = 4, .chosen_groups = 2}), "");
}

}  // namespace
}  // namespace meshwright::client
