// The mixed case: two hosts of two workers each, as network namespaces with a cable between them.
// Workers of one host share memory, workers of two hosts talk by TCP, certificates guard the
// cluster, and everything equals the run on one device.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "formats/safetensors.h"
#include "tests/e2e/leftovers.h"
#include "tests/e2e/net_hosts.h"
#include "tests/e2e/process_cluster.h"
#include "tests/e2e/weights.h"

namespace meshwright::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr int kWorkers = 4;
constexpr int kSteps = 5;

struct Layout {
  const char* name;
  int data;
  int tensor;
  int pipeline;
};

struct Training {
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> weights;
};

// The tensors of a safetensors file, as f64.
void ExpectEqual(const Training& expected, const Training& actual, double tolerance,
                 const char* layout) {
  ASSERT_EQ(expected.losses.size(), static_cast<size_t>(kSteps));
  ASSERT_EQ(actual.losses.size(), expected.losses.size()) << layout;
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(actual.losses[i] / expected.losses[i], 1, tolerance) << layout << " step " << i;
  }
  ExpectWeightsNear(expected.weights, actual.weights, tolerance, layout);
}

class Namespaces : public ::testing::Test {
 protected:
  void SetUp() override {
    auto hosts = NetHosts::Make();
    if (!hosts.has_value()) {
      GTEST_SKIP() << "hosts as network namespaces need root and `ip`: " << hosts.error().message();
    }
    hosts_ = std::move(*hosts);
    const auto made = RunMeshwright({"cert", "init", "--dir", dir_.File("tls")});
    ASSERT_TRUE(made.has_value() && made->exit.ok()) << made->stderr_text;
    const auto token = RunMeshwright({"cert", "join-token", "--dir", dir_.File("tls")});
    ASSERT_TRUE(token.has_value() && token->exit.ok()) << token->stderr_text;
    ASSERT_TRUE(WriteFileAtomic(dir_.File("join"), token->stdout_text, 0600).ok());
    StartProcess(0, "controller",
                 {"controller", "--bind", NetHosts::Address(0), "--port", "7700", "--metrics-port",
                  "0", "--state-dir", dir_.File("state")});
    for (int i = 0; i < kWorkers; ++i) {
      const int host = i * NetHosts::kHosts / kWorkers;
      StartProcess(
          host, fmt::format("w{}", i),
          {"worker", "--device", "cpu", "--name", fmt::format("w{}", i), "--address", kController,
           "--bind", NetHosts::Address(host), "--join", "@" + dir_.File("join")});
    }
    ASSERT_TRUE(WaitUntil(
        [this] {
          return ReadyHosts() == std::vector<int>({2, 2});
        },
        30'000))
        << ReadFile(dir_.File("controller.log")).value_or("")
        << ReadFile(dir_.File("w3.log")).value_or("");
  }

  void TearDown() override {
    for (auto it = processes_.rbegin(); it != processes_.rend(); ++it) {
      const auto exit = (*it)->Terminate(kSoonMs);
      ASSERT_TRUE(exit.has_value()) << exit.error();
      EXPECT_TRUE(exit->ok()) << exit->ToString();
    }
    processes_.clear();
    hosts_.reset();
    EXPECT_EQ(leftovers_.Find(), "");
  }

  void StartProcess(int host, const std::string& name, std::vector<std::string> args) {
    args.insert(args.begin(), MESHWRIGHT_BINARY);
    SubprocessOptions options;
    options.args = hosts_->On(host, args);
    options.env = {{"MESHWRIGHT_TLS_HOME", dir_.File("tls")}, {"TMPDIR", dir_.path()}};
    options.stdout_to = OutputTo::File(dir_.File(name + ".log"));
    options.stderr_to = OutputTo::File(dir_.File(name + ".log"));
    options.death_signal = SIGKILL;
    auto process = Subprocess::Start(options);
    ASSERT_TRUE(process.has_value()) << process.error();
    processes_.push_back(std::move(*process));
  }

  // A command of a client on host 1.
  Result<ProcessOutput> Client(std::vector<std::string> args, const std::string& home = "tls") {
    args.insert(args.begin(), {MESHWRIGHT_BINARY, "--address", kController, "-o", "json"});
    SubprocessOptions options;
    options.args = hosts_->On(1, args);
    options.env = {{"MESHWRIGHT_TLS_HOME", dir_.File(home)}};
    options.death_signal = SIGKILL;
    return RunProcess(options, 60'000);
  }

  // How many workers are ready on each host, by what they say where they are.
  std::vector<int> ReadyHosts() {
    const auto status = Client({"status"});
    if (!status.has_value() || !status->exit.ok()) return {};
    std::map<std::string, int> ready;
    const json cluster = json::parse(status->stdout_text);
    for (const json& worker : cluster["workers"]) {
      if (worker["state"] == "READY") ++ready[worker["host"].get<std::string>()];
    }
    std::vector<int> counts;
    for (const auto& [host, count] : ready) counts.push_back(count);
    return counts;
  }

  // Trains a tiny GPT; the losses of its steps and its last weights.
  Training Train(const Layout& layout, const std::string& dtype) {
    const std::string record = dir_.File(fmt::format("{}-{}.jsonl", layout.name, dtype));
    Training run;
    const auto submit = Client({"submit", WriteJob(layout, dtype), "--quiet", "--record", record});
    EXPECT_TRUE(submit.has_value()) << submit.error();
    if (!submit.has_value()) return run;
    EXPECT_EQ(submit->exit.code, 0) << submit->stdout_text << submit->stderr_text;
    for (const std::string& line : Split(ReadFile(record).value_or(""), '\n')) {
      if (!line.empty()) run.losses.push_back(json::parse(line)["loss"].get<double>());
    }
    const std::string last = LastLine(submit->stdout_text);
    const json job = json::parse(last, nullptr, /*allow_exceptions=*/false);
    if (job.is_discarded() || !job.contains("directory")) {
      ADD_FAILURE() << "no job at the end of " << submit->stdout_text;
      return run;
    }
    auto weights = ReadWeights(job["directory"].get<std::string>() + "/model.safetensors");
    EXPECT_TRUE(weights.has_value()) << weights.error();
    if (weights.has_value()) run.weights = std::move(*weights);
    return run;
  }

  std::string WriteJob(const Layout& layout, const std::string& dtype) {
    const std::string data = dir_.File("data.txt");
    EXPECT_TRUE(WriteFileAtomic(data, SampleText(20'000)).ok());
    const std::string path = dir_.File("job.toml");
    // Adam divides by the gradient's size: where a gradient is all rounding, so is its step. A
    // large eps keeps rounding errors of f32 small.
    const std::string text =
        fmt::format(R"([model]
name = "gpt2"
vocab_size = 256
dim = 32
n_layers = 4
n_heads = 4
[optimizer]
lr = 1e-3
eps = 1e-3
[parallelism]
data_parallel_replicate_degree = {}
tensor_parallel_degree = {}
pipeline_parallel_degree = {}
[training]
dataset_path = "{}"
global_batch_size = 8
seq_len = 32
steps = {}
seed = 11
dtype = "{}"
[validation]
batches = 0
)",
                    layout.data, layout.tensor, layout.pipeline, data, kSteps, dtype);
    EXPECT_TRUE(WriteFileAtomic(path, text).ok());
    return path;
  }

  static std::string LastLine(const std::string& text) {
    const std::string_view trimmed = Trim(text);
    return std::string(trimmed.substr(trimmed.rfind('\n') + 1));
  }

  static inline const std::string kController = NetHosts::Address(0) + ":7700";
  TempDir dir_ = TempDir::Make("mw-net").value();
  Leftovers leftovers_;
  std::unique_ptr<NetHosts> hosts_;
  std::vector<std::unique_ptr<Subprocess>> processes_;  // the controller first
};

TEST_F(Namespaces, TwoHostsOfTwoWorkersTrainLikeOneDevice) {
  const Layout one = {"one", 1, 1, 1};
  const Training expected = Train(one, "float64");
  const Training expected_f32 = Train(one, "float32");
  for (const Layout& layout : {Layout{"data2-tensor2", 2, 2, 1}, {"data2-pipeline2", 2, 1, 2}}) {
    ExpectEqual(expected, Train(layout, "float64"), 1e-10, layout.name);
    ExpectEqual(expected_f32, Train(layout, "float32"), 1e-5, layout.name);
  }
  const auto nobody = Client({"status"}, "nothing");
  ASSERT_TRUE(nobody.has_value()) << nobody.error();
  EXPECT_EQ(nobody->exit.code, 2);
  EXPECT_THAT(nobody->stderr_text, HasSubstr("meshwright cert issue operator"));
  const auto other = RunMeshwright({"cert", "init", "--dir", dir_.File("other")});
  ASSERT_TRUE(other.has_value() && other->exit.ok());
  const auto stranger = Client({"status"}, "other");
  ASSERT_TRUE(stranger.has_value()) << stranger.error();
  EXPECT_EQ(stranger->exit.code, 2);
  EXPECT_THAT(stranger->stderr_text, HasSubstr("controller 'controller', and no controller that"));
}

// While a job runs: pairs of one host map the same memory and no pair of two hosts does; what
// crosses hosts goes over the cable.
TEST_F(Namespaces, SharedMemoryInsideAHostAndTcpBetweenHosts) {
  const std::string job = WriteJob({"data2-tensor2", 2, 2, 1}, "float32");
  const auto submit = Client({"submit", job, "--no-wait", "--set", "training.steps=1000000"});
  ASSERT_TRUE(submit.has_value()) << submit.error();
  ASSERT_EQ(submit->exit.code, 0) << submit->stdout_text << submit->stderr_text;
  std::vector<std::set<std::string>> shared(kWorkers);
  const auto look = [&] {
    for (int i = 0; i < kWorkers; ++i) {
      std::set<std::string>& memory = shared[static_cast<size_t>(i)];
      memory = HoldingsOfWorker(processes_[static_cast<size_t>(i) + 1]->pid()).shared_memory;
      // Snapshots are each worker's own.
      std::erase_if(memory, [](const std::string& name) {
        return name.find("meshwright-snapshot") != std::string::npos;
      });
    }
    // Device memory appears at each worker first, at its peers once they are connected.
    return shared[0] == shared[1] && shared[2] == shared[3] && !shared[0].empty() &&
           !shared[2].empty();
  };
  EXPECT_TRUE(WaitUntil(look, kSoonMs)) << "the workers of a host do not share all memory";
  leftovers_.Note();
  EXPECT_EQ(shared[0], shared[1]) << "host 0";
  EXPECT_EQ(shared[2], shared[3]) << "host 1";
  for (const std::string& memory : shared[0]) EXPECT_EQ(shared[2].count(memory), 0u) << memory;

  // The replicas are on different hosts: the gradients, 4 bytes for each of more than 50,000
  // parameters, cross the cable once per step and direction at least.
  constexpr int64_t kStepBytes = 4 * 50'000;
  const int64_t cable = hosts_->CableBytes(1);
  const int64_t loopback = hosts_->LoopbackBytes(1);
  EXPECT_TRUE(
      WaitUntil([&] { return hosts_->CableBytes(1) - cable > 20 * kStepBytes; }, 2 * kSoonMs))
      << hosts_->CableBytes(1) - cable << " bytes crossed the cable";
  // Two workers of host 1 talk through memory: their loopback is quiet.
  EXPECT_LT(hosts_->LoopbackBytes(1) - loopback, kStepBytes);
  ASSERT_TRUE(Client({"cancel", "1"}).has_value());
  EXPECT_TRUE(WaitUntil(
      [&] {
        (void)look();
        return std::all_of(shared.begin(), shared.end(), [](const auto& s) { return s.empty(); });
      },
      kSoonMs))
      << "a worker keeps memory of a cancelled job";
}

}  // namespace
}  // namespace meshwright::testing
