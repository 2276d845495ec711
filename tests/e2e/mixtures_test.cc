// Several data sets in one job, with processes: the same rows on every layout, validations by name,
// an early end and the best save, and all of it again behind a worker that is killed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "tests/e2e/fault_fixture.h"

namespace meshwright::testing {
namespace {

using client::JobState;
using nlohmann::json;
using ::testing::HasSubstr;

class Mixtures : public FaultFixture {
 protected:
  void StartWith(int workers) {
    ProcessClusterOptions options;
    options.workers = workers;
    options.worker_args = {"--checkpoint-root", dir_.File("checkpoints")};
    ASSERT_NO_FATAL_FAILURE(FaultFixture::Start(options));
  }

  // Two texts, one of which comes three times as often, and one to validate with of each.
  std::string JobOf(int64_t steps, int64_t interval, const std::string& more) {
    const std::string text = SampleText(12'000);
    std::string upper = text;
    for (char& c : upper) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
    const std::string low = Write("low.txt", text.substr(0, 9'000));
    const std::string up = Write("up.txt", upper.substr(0, 5'000));
    const std::string held_low = Write("held-low.txt", text.substr(9'000));
    const std::string held_up = Write("held-up.txt", upper.substr(9'000));
    return Write("job.toml",
                 fmt::format("[model]\ndim = 32\nn_layers = 4\nn_heads = 4\nvocab_size = 256\n"
                             "[optimizer]\nlr = 0.01\n"
                             "[validation]\ninterval = {}\nbatches = 2\n"
                             "datasets = [\"low: {}\", \"up: {}\"]\n"
                             "[training]\nglobal_batch_size = 8\nseq_len = 16\nsteps = {}\n"
                             "dtype = \"float64\"\ndatasets = [\"{}: weight=3\", \"{}\"]\n{}",
                             interval, held_low, held_up, steps, low, up, more));
  }
  ProcessOutput Run(std::vector<std::string> args) {
    args.insert(args.begin(), {"--address", cluster().address()});
    return RunMeshwright(args, {}, 120'000).value();
  }
  client::JobInfo Train(int64_t id, const std::string& file, const std::vector<std::string>& sets) {
    std::vector<std::string> args = {"submit", file, "-q"};
    for (const std::string& set : sets) args.insert(args.end(), {"--set", set});
    const ProcessOutput ran = Run(args);
    EXPECT_TRUE(ran.exit.ok()) << ran.stdout_text << ran.stderr_text;
    const auto info = client().Get(id);
    EXPECT_TRUE(info.has_value()) << info.error();
    return info.value_or(client::JobInfo());
  }
  std::string FolderOf(const client::JobInfo& job) const {
    return dir_.File("checkpoints") + "/" + job.checkpoint_folder.path;
  }
  static std::vector<json> StepsOf(const client::JobInfo& job) {
    std::vector<json> steps;
    const std::string text = ReadFile(job.directory + "/metrics.jsonl").value_or("");
    for (const std::string& line : Split(text, '\n')) {
      if (!line.empty()) steps.push_back(json::parse(line));
    }
    return steps;
  }
};

TEST_F(Mixtures, TrainTheSameOnEveryLayout) {
  ASSERT_NO_FATAL_FAILURE(StartWith(2));
  const std::string file = JobOf(12, 4, "");
  const std::vector<json> expected = StepsOf(
      Train(1, file,
            {"parallelism.data_parallel_replicate_degree=1", "parallelism.tensor_parallel_degree=1",
             "parallelism.pipeline_parallel_degree=1"}));
  ASSERT_EQ(expected.size(), 12u);
  EXPECT_FALSE(expected[0].contains("values")) << "this step is not validated";
  const json& sets = expected[3]["values"];
  EXPECT_NEAR((sets["validation/low"].get<double>() + sets["validation/up"].get<double>()) / 2,
              expected[3]["validation_loss"].get<double>(), 1e-9)
      << "both sets have as many tokens";
  EXPECT_NE(sets["validation/low"], sets["validation/up"]);
  int64_t id = 2;
  for (const char* degree : {"data_parallel_replicate_degree=2", "tensor_parallel_degree=2",
                             "pipeline_parallel_degree=2"}) {
    const std::vector<json> steps =
        StepsOf(Train(id++, file, {fmt::format("parallelism.{}", degree)}));
    ASSERT_EQ(steps.size(), expected.size()) << degree;
    for (size_t i = 0; i < steps.size(); ++i) {
      EXPECT_NEAR(steps[i]["loss"].get<double>(), expected[i]["loss"].get<double>(), 1e-9);
    }
    EXPECT_NEAR(steps[11]["values"]["validation/up"].get<double>(),
                expected[11]["values"]["validation/up"].get<double>(), 1e-9);
  }
  const ProcessOutput evaluated = Run({"evaluate", "1", "-o", "json"});
  EXPECT_NEAR(json::parse(evaluated.stdout_text)["loss"].get<double>(),
              expected[11]["validation_loss"].get<double>(), 1e-9);
}

// More is better of what falls: the first validation stays the best, and the job ends after ten
// more. Its end and its best save are the same where a worker was killed on the way.
TEST_F(Mixtures, EndEarlyAndKeepTheBestAlsoBehindAKilledWorker) {
  ASSERT_NO_FATAL_FAILURE(StartWith(3));
  const std::string file =
      JobOf(100'000, 100,
            "early_stop_patience = 10\nearly_stop_metric = \"max:validation_loss\"\n"
            "[checkpoint]\nenable = true\ninterval = 150\nkeep_latest_k = 2\n"
            "keep_best = \"validation/up\"\n"
            "[parallelism]\ndata_parallel_replicate_degree = 2\nzero_stage = 0\n"
            "pipeline_parallel_microbatches = 1\n");
  const client::JobInfo expected = Train(1, file, {});
  EXPECT_EQ(expected.state, JobState::kSucceeded) << expected.message;
  EXPECT_EQ(expected.steps_done, 1100);
  const std::string best = ReadFile(FolderOf(expected) + "/best").value_or("");
  EXPECT_THAT(best, HasSubstr("step-"));
  EXPECT_TRUE(FileExists(FolderOf(expected) + "/" + std::string(Trim(best)))) << "the best is kept";

  const ProcessOutput submitted = Run({"submit", file, "--no-wait"});
  ASSERT_TRUE(submitted.exit.ok()) << submitted.stderr_text;
  ASSERT_TRUE(cluster().RunUntil(2, 430).ok());
  const std::vector<client::WorkerInfo> workers = client().Workers().value();
  for (const client::WorkerInfo& worker : workers) {
    if (worker.busy_devices == 0) continue;
    Kill(cluster().worker(std::stoi(worker.name.substr(1))));
    break;
  }
  const auto ended = client().Wait(2, 120'000);
  ASSERT_TRUE(ended.has_value()) << ended.error();
  EXPECT_EQ(ended->state, JobState::kSucceeded) << ended->message;
  EXPECT_EQ(ended->steps_done, expected.steps_done);
  EXPECT_EQ(ReadFile(FolderOf(*ended) + "/best").value_or(""), best);
  // Not as EXPECT_EQ: it would look for the edits between two files.
  EXPECT_TRUE(ReadFile(ended->directory + "/model.safetensors").value_or("2") ==
              ReadFile(expected.directory + "/model.safetensors").value_or("1"));
}

TEST_F(Mixtures, WhatCannotBeJudgedIsRefusedByName) {
  ASSERT_NO_FATAL_FAILURE(StartWith(1));
  const std::string file = JobOf(10, 5, "");
  const ProcessOutput ran = Run({"submit", file, "-q", "--set", "training.early_stop_patience=2",
                                 "--set", "training.early_stop_metric=\"validation/mid\""});
  EXPECT_FALSE(ran.exit.ok());
  EXPECT_THAT(ran.stdout_text + ran.stderr_text,
              ::testing::AllOf(HasSubstr("early_stop_metric"), HasSubstr("validation/low")));
}

}  // namespace
}  // namespace meshwright::testing
