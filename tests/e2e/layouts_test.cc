// The examples and `predict` on real worker processes: one device, replicas, tensor shards and both
// give the same numbers, over shared memory and over TCP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "examples/image_classifier/image_classifier.h"
#include "examples/maml/maml.h"
#include "examples/policy_gradient/policy_gradient.h"
#include "examples/tabular_classifier/tabular_classifier.h"
#include "tests/e2e/fault_fixture.h"

namespace meshwright::testing {
namespace {

using nlohmann::json;

constexpr int64_t kUpdates = 20;
constexpr int kProcesses = 4;  // of one device each: whatever is split is split over processes

struct Ways {
  int64_t data;
  int64_t tensor;
};
constexpr Ways kLayouts[] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}};

class Layouts : public FaultFixture, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    ProcessClusterOptions options;
    options.workers = kProcesses;
    options.worker_args = {"--transport", GetParam()};
    options.worker_binary = MESHWRIGHT_POLE_WORKER;  // has the actors of an example
    ASSERT_NO_FATAL_FAILURE(Start(std::move(options)));
  }

  template <typename Options>
  static Options On(const Ways& ways) {
    Options options;
    options.dtype = ir::DType::kF64;
    options.parallel = {};
    options.parallel.data = ways.data;
    options.parallel.tensor = ways.tensor;
    return options;
  }

  // The losses that `run` gives on each layout are those of one device.
  static void ExpectTheSame(
      const std::function<Result<std::vector<double>>(const Ways& ways)>& run) {
    std::vector<double> on_one;
    for (const Ways& ways : kLayouts) {
      SCOPED_TRACE(::testing::Message() << "data=" << ways.data << " tensor=" << ways.tensor);
      const auto losses = run(ways);
      ASSERT_TRUE(losses.has_value()) << losses.error();
      ASSERT_EQ(losses->size(), static_cast<size_t>(kUpdates));
      if (on_one.empty()) on_one = *losses;
      EXPECT_NE(losses->front(), losses->back());
      for (size_t i = 0; i < on_one.size(); ++i) EXPECT_NEAR((*losses)[i], on_one[i], 1e-10) << i;
    }
  }

  // Whether two workers hold the same memory.
  bool WorkersShareMemory() {
    std::set<std::string> seen;
    bool shared = false;
    for (int i = 0; i < kProcesses; ++i) {
      const Holdings held = HoldingsOfWorker(cluster().worker(i).pid());
      for (const std::string& memory : held.shared_memory) shared |= !seen.insert(memory).second;
    }
    return shared;
  }

  json Json(std::vector<std::string> args) {
    args.insert(args.begin(), {"--address", cluster().address(), "-o", "json"});
    const auto output = RunMeshwright(args);
    EXPECT_TRUE(output.has_value()) << output.error();
    if (!output.has_value()) return {};
    EXPECT_TRUE(output->exit.ok()) << output->stdout_text << output->stderr_text;
    // The last line of what it prints.
    const std::string_view text = output->stdout_text;
    const size_t end = text.find_last_not_of('\n');
    const size_t begin = text.rfind('\n', end);
    return json::parse(text.substr(begin == std::string_view::npos ? 0 : begin + 1), nullptr,
                       /*allow_exceptions=*/false);
  }
};

TEST_P(Layouts, TabularClassifier) {
  const auto table = tabular_classifier::Spirals(100, 7);
  ExpectTheSame([&](const Ways& ways) -> Result<std::vector<double>> {
    auto options = On<tabular_classifier::Options>(ways);
    options.steps = kUpdates;
    // While both run: the option decides over what they talk.
    if (ways.data * ways.tensor == 4) {
      options.on_step = [&](int64_t step, double) {
        if (step != kUpdates / 2) return;
        EXPECT_EQ(WorkersShareMemory(), std::string(GetParam()) == "shm");
        leftovers_.Note();
      };
    }
    MW_ASSIGN_OR_RETURN(auto outcome, tabular_classifier::Run(client(), table, options));
    return std::move(outcome.losses);
  });
}

TEST_P(Layouts, Maml) {
  ExpectTheSame([&](const Ways& ways) -> Result<std::vector<double>> {
    auto options = On<maml::Options>(ways);
    options.steps = kUpdates;
    options.tasks = 8;
    MW_ASSIGN_OR_RETURN(auto outcome, maml::Run(client(), options));
    return std::move(outcome.losses);
  });
}

TEST_P(Layouts, ImageClassifier) {
  ExpectTheSame([&](const Ways& ways) -> Result<std::vector<double>> {
    auto options = On<image_classifier::Options>(ways);
    options.steps = kUpdates;
    options.batch = 8;
    options.test_batches = 1;
    MW_ASSIGN_OR_RETURN(auto outcome, image_classifier::Run(client(), options));
    return std::move(outcome.losses);
  });
}

TEST_P(Layouts, PolicyGradientFromTheSameActions) {
  std::vector<policy_gradient::Actions> of_one_device;
  ExpectTheSame([&](const Ways& ways) -> Result<std::vector<double>> {
    auto options = On<policy_gradient::Options>(ways);
    options.updates = kUpdates;
    options.environments = 4;
    options.horizon = 40;
    options.replayed = of_one_device;
    MW_ASSIGN_OR_RETURN(auto outcome, policy_gradient::Run(client(), options));
    if (of_one_device.empty()) of_one_device = std::move(outcome.actions);
    return std::move(outcome.losses);
  });
}

TEST_P(Layouts, PredictAndEvaluateSayTheSame) {
  const std::string job = Write("job.toml", JobFile(Write("data.txt", SampleText(9'000)), 1, 1,
                                                    kUpdates, "dtype = \"float64\"\n"));
  std::vector<json> said, evaluated;
  for (const Ways& ways : kLayouts) {
    const json trained =
        Json({"submit", job, "-q", "--set",
              "parallelism.data_parallel_replicate_degree=" + std::to_string(ways.data), "--set",
              "parallelism.tensor_parallel_degree=" + std::to_string(ways.tensor)});
    ASSERT_TRUE(trained.contains("id")) << trained.dump();
    const std::string id = std::to_string(trained["id"].get<int64_t>());
    said.push_back(Json({"predict", id, "the mesh of ", "--top", "3"}));
    evaluated.push_back(Json({"evaluate", id, "--batches", "2"}));
    ASSERT_TRUE(said.back().contains("loss") && evaluated.back().contains("loss"));
  }
  for (size_t i = 0; i < said.size(); ++i) {
    SCOPED_TRACE(::testing::Message()
                 << "data=" << kLayouts[i].data << " tensor=" << kLayouts[i].tensor);
    EXPECT_NEAR(said[i]["loss"].get<double>(), said[0]["loss"].get<double>(), 1e-10);
    EXPECT_NEAR(evaluated[i]["loss"].get<double>(), evaluated[0]["loss"].get<double>(), 1e-10);
    ASSERT_EQ(said[i]["next"].size(), 3u);
    for (size_t at = 0; at < 3; ++at) {
      EXPECT_EQ(said[i]["next"][at]["token"], said[0]["next"][at]["token"]);
      EXPECT_NEAR(said[i]["next"][at]["probability"].get<double>(),
                  said[0]["next"][at]["probability"].get<double>(), 1e-10);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Processes, Layouts, ::testing::Values("shm", "tcp"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace meshwright::testing
