// The programs under examples/: they learn, and they learn the same on every layout.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "examples/image_classifier/image_classifier.h"
#include "examples/maml/maml.h"
#include "examples/policy_gradient/policy_gradient.h"
#include "examples/policy_gradient/turn.h"
#include "examples/tabular_classifier/tabular_classifier.h"
#include "tests/e2e/control/local_cluster.h"

namespace meshwright::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kCompared = 20;  // updates
const std::vector<std::pair<int64_t, int64_t>> kLayouts = {{1, 1}, {2, 1}, {1, 2}, {2, 2}};

std::unique_ptr<LocalCluster> FourDevices(worker::HostActorOptions host_actors = {}) {
  LocalClusterOptions options;
  options.host_actors = std::move(host_actors);
  options.workers = 2;
  options.devices_per_worker = 2;
  auto cluster = LocalCluster::Start(options);
  EXPECT_TRUE(cluster.has_value()) << cluster.error();
  return cluster.has_value() ? *std::move(cluster) : nullptr;
}

template <typename Options>
Options On(int64_t data, int64_t tensor, ir::DType dtype = ir::DType::kF64) {
  Options options;
  options.dtype = dtype;
  options.parallel = {};
  options.parallel.data = data;
  options.parallel.tensor = tensor;
  return options;
}

// The losses that `run` gives of (data, tensor) are those of one device.
void ExpectTheSameOnAllLayouts(
    const std::function<Result<std::vector<double>>(int64_t data, int64_t tensor)>& run) {
  std::vector<double> on_one;
  for (const auto& [data, tensor] : kLayouts) {
    SCOPED_TRACE(::testing::Message() << "data=" << data << " tensor=" << tensor);
    const auto losses = run(data, tensor);
    ASSERT_TRUE(losses.has_value()) << losses.error();
    ASSERT_EQ(losses->size(), static_cast<size_t>(kCompared));
    if (on_one.empty()) on_one = *losses;
    EXPECT_NE(losses->front(), losses->back());
    for (size_t i = 0; i < on_one.size(); ++i) EXPECT_NEAR((*losses)[i], on_one[i], 1e-10) << i;
  }
}

TEST(TabularClassifier, TellsThreeSpiralsApart) {
  const auto cluster = FourDevices();
  ASSERT_NE(cluster, nullptr);
  const auto table = tabular_classifier::Spirals(600, 7);
  auto options = On<tabular_classifier::Options>(1, 1, ir::DType::kF32);
  options.steps = 300;
  const auto outcome = tabular_classifier::Run(cluster->client(), table, options);
  ASSERT_TRUE(outcome.has_value()) << outcome.error();
  EXPECT_GT(outcome->losses.front(), 0.9);
  EXPECT_LT(outcome->losses.back(), 0.3);
  EXPECT_GT(outcome->accuracy, 0.9);
}

TEST(TabularClassifier, ReadsTablesAndNamesTheLineThatIsNone) {
  const TempDir dir = TempDir::Make().value();
  const auto read = [&](const std::string& text) {
    EXPECT_TRUE(WriteFileAtomic(dir.File("table.csv"), text).ok());
    return tabular_classifier::ReadTable(dir.File("table.csv"));
  };
  const auto table = read("width,height,class\n1,5,0\n3,5,2\r\n");
  ASSERT_TRUE(table.has_value()) << table.error();
  EXPECT_THAT(table->x, ElementsAre(-1, 0, 1, 0)) << "mean 0, deviation 1";
  EXPECT_THAT(table->y, ElementsAre(0, 2));
  EXPECT_EQ(table->classes, 3);
  for (const char* bad :
       {"1,2,0\n1,x,0\n", "1,2,0\n1,0\n", "1,2,0\n1,2,-1\n", "1,2,0\n1,2,0.5\n"}) {
    const auto refused = read(bad);
    ASSERT_FALSE(refused.has_value()) << bad;
    EXPECT_THAT(refused.error().message(), HasSubstr("table.csv:2: ")) << bad;
  }
}

TEST(TabularClassifier, LearnsTheSameOnEveryLayout) {
  const auto cluster = FourDevices();
  ASSERT_NE(cluster, nullptr);
  const auto table = tabular_classifier::Spirals(100, 7);
  ExpectTheSameOnAllLayouts([&](int64_t data, int64_t tensor) -> Result<std::vector<double>> {
    auto options = On<tabular_classifier::Options>(data, tensor);
    options.steps = kCompared;
    MW_ASSIGN_OR_RETURN(auto outcome, tabular_classifier::Run(cluster->client(), table, options));
    return std::move(outcome.losses);
  });
}

TEST(ImageClassifier, TellsShapesApart) {
  const auto cluster = FourDevices();
  ASSERT_NE(cluster, nullptr);
  auto options = On<image_classifier::Options>(1, 1, ir::DType::kF32);
  options.steps = 120;
  const auto outcome = image_classifier::Run(cluster->client(), options);
  ASSERT_TRUE(outcome.has_value()) << outcome.error();
  EXPECT_GT(outcome->losses.front(), 1.2);
  EXPECT_LT(outcome->losses.back(), 0.3);
  EXPECT_GT(outcome->accuracy, 0.9);
}

TEST(ImageClassifier, LearnsTheSameOnEveryLayout) {
  const auto cluster = FourDevices();
  ASSERT_NE(cluster, nullptr);
  ExpectTheSameOnAllLayouts([&](int64_t data, int64_t tensor) -> Result<std::vector<double>> {
    auto options = On<image_classifier::Options>(data, tensor);
    options.steps = kCompared;
    options.batch = 8;
    MW_ASSIGN_OR_RETURN(auto outcome, image_classifier::Run(cluster->client(), options));
    return std::move(outcome.losses);
  });
}

TEST(Maml, LearnsWeightsThatOneStepAdapts) {
  const auto cluster = FourDevices();
  ASSERT_NE(cluster, nullptr);
  auto options = On<maml::Options>(1, 1, ir::DType::kF32);
  options.steps = 400;
  const auto outcome = maml::Run(cluster->client(), options);
  ASSERT_TRUE(outcome.has_value()) << outcome.error();
  EXPECT_LT(outcome->after.adapted, 0.5 * outcome->before.adapted);
  EXPECT_LT(outcome->after.adapted, 0.6 * outcome->after.unadapted);
}

TEST(Maml, LearnsTheSameOnEveryLayout) {
  const auto cluster = FourDevices();
  ASSERT_NE(cluster, nullptr);
  ExpectTheSameOnAllLayouts([&](int64_t data, int64_t tensor) -> Result<std::vector<double>> {
    auto options = On<maml::Options>(data, tensor);
    options.steps = kCompared;
    options.tasks = 8;
    MW_ASSIGN_OR_RETURN(auto outcome, maml::Run(cluster->client(), options));
    return std::move(outcome.losses);
  });
}

// As its worker binary offers them.
worker::HostActorOptions CartPoles() {
  worker::HostActorOptions options;
  options.types = {"cart-pole"};
  options.command = {MESHWRIGHT_POLE_WORKER, "host-actors"};
  return options;
}

TEST(PolicyGradient, LearnsToBalanceThePole) {
  const auto cluster = FourDevices(CartPoles());
  ASSERT_NE(cluster, nullptr);
  auto options = On<policy_gradient::Options>(1, 1, ir::DType::kF32);
  options.updates = 40;
  options.horizon = 60;
  const auto outcome = policy_gradient::Run(cluster->client(), options);
  ASSERT_TRUE(outcome.has_value()) << outcome.error();
  const std::vector<double>& lengths = outcome->lengths;
  EXPECT_LT(lengths.front(), 30);
  EXPECT_GT(std::accumulate(lengths.end() - 5, lengths.end(), 0.0) / 5, 50);
}

TEST(PolicyGradient, LearnsTheSameFromTheSameActionsOnEveryLayout) {
  const auto cluster = FourDevices(CartPoles());
  ASSERT_NE(cluster, nullptr);
  std::vector<policy_gradient::Actions> of_one_device;
  ExpectTheSameOnAllLayouts([&](int64_t data, int64_t tensor) -> Result<std::vector<double>> {
    auto options = On<policy_gradient::Options>(data, tensor);
    options.updates = kCompared;
    options.environments = 4;
    options.horizon = 60;
    options.replayed = of_one_device;
    MW_ASSIGN_OR_RETURN(auto outcome, policy_gradient::Run(cluster->client(), options));
    if (of_one_device.empty()) of_one_device = std::move(outcome.actions);
    return std::move(outcome.losses);
  });
}

TEST(PolicyGradient, SaysThatItsWorkerIsMissing) {
  const auto cluster = FourDevices();
  ASSERT_NE(cluster, nullptr);
  const auto refused = policy_gradient::Run(cluster->client(), On<policy_gradient::Options>(1, 1));
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("'cart-pole'"));
}

TEST(PolicyGradient, TurnsComeThroughAndAreReadSafely) {
  const auto codec = policy_gradient::TurnCodec();
  using policy_gradient::Turn;
  for (const Turn& turn : {Turn{Turn::Kind::kReset, 7}, Turn{Turn::Kind::kPush, 1}}) {
    EXPECT_EQ(codec.message.decode(codec.message.encode(turn)).value(), turn);
  }
  for (const char* bad : {"", "7", "reset", "reset ", "push x", "push 1 ", "pull 1"}) {
    EXPECT_FALSE(codec.message.decode(bad).has_value()) << bad;
  }
  const policy_gradient::Seen seen{{0.1, -0.2, 1e-300, 3}, true};
  EXPECT_EQ(codec.reply.decode(codec.reply.encode(seen)).value(), seen);
  EXPECT_THAT(codec.reply.decode("short").error().message(), HasSubstr("5 bytes"));
}

}  // namespace
}  // namespace meshwright::testing
