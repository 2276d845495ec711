// Which weights a job starts from, seen by its first loss.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "formats/safetensors.h"
#include "tests/e2e/process_cluster.h"

namespace meshwright::testing {
namespace {

constexpr char kConfig[] =
    R"({"model_type":"gpt2","n_embd":32,"n_layer":2,"n_head":4,"vocab_size":256,"n_positions":16,)"
    R"("resid_pdrop":0,"embd_pdrop":0,"attn_pdrop":0})";

class HfFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    ProcessClusterOptions options;
    options.workers = 1;
    auto cluster = ProcessCluster::Start(options);
    ASSERT_TRUE(cluster.has_value()) << cluster.error();
    cluster_ = std::move(*cluster);
    ASSERT_TRUE(MakeDirs(folder_).ok());
    Write(folder_ + "/config.json", kConfig);
    Write(cluster_->File("data.txt"), SampleText(9'000));
    Write(cluster_->File("job.toml"),
          fmt::format("[model]\nhf_path = \"{}\"\n[optimizer]\nlr = 0.01\n[training]\n"
                      "dataset_path = \"{}\"\nglobal_batch_size = 8\nseq_len = 16\n",
                      folder_, cluster_->File("data.txt")));
  }

  static void Write(const std::string& path, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomic(path, text).ok()) << path;
  }

  // Runs the job; its first loss.
  double FirstLoss(const std::vector<std::string>& settings) {
    const std::string record = cluster_->File("record.jsonl");
    std::vector<std::string> args = {
        "--address", cluster_->address(), "submit", cluster_->File("job.toml"), "--record", record};
    for (const std::string& setting : settings) args.insert(args.end(), {"--set", setting});
    const auto run = RunMeshwright(args, {}, 60'000);
    EXPECT_TRUE(run.has_value()) << run.error();
    if (!run.has_value()) return 0;
    EXPECT_TRUE(run->exit.ok()) << run->stdout_text << run->stderr_text;
    const std::string text = ReadFile(record).value_or("");
    const auto step = nlohmann::json::parse(Split(text, '\n')[0], nullptr, false);
    return step.is_object() ? step["loss"].get<double>() : 0;
  }

  std::unique_ptr<ProcessCluster> cluster_;
  TempDir dir_ = TempDir::Make("mw-hf").value();
  const std::string folder_ = dir_.File("hf");
};

TEST_F(HfFolder, IsAModelWithItsWeights) {
  const double fresh = FirstLoss({"training.steps=30"});
  const auto jobs = cluster_->client().List();
  ASSERT_TRUE(jobs.has_value() && !jobs->empty());
  std::filesystem::copy((*jobs)[0].directory + "/model.safetensors", folder_);
  const double trained = FirstLoss({"training.steps=1"});
  EXPECT_LT(trained, 0.8 * fresh);
  EXPECT_EQ(FirstLoss({"training.steps=1", "checkpoint.initial_load_path=" + folder_}), trained);
  EXPECT_EQ(FirstLoss({"training.steps=1", "model.from_scratch=true"}), fresh);
  // In shards: one of them is enough to see that they are found.
  std::filesystem::rename(folder_ + "/model.safetensors", folder_ + "/model-1.safetensors");
  EXPECT_EQ(FirstLoss({"training.steps=1"}), fresh) << "no weights are there";
  nlohmann::json index;
  const auto weights = formats::SafetensorsFile::Open(folder_ + "/model-1.safetensors");
  ASSERT_TRUE(weights.has_value()) << weights.error();
  for (const auto& entry : (*weights)->entries()) {
    index["weight_map"][entry.name] = "model-1.safetensors";
  }
  Write(folder_ + "/model.safetensors.index.json", index.dump());
  EXPECT_EQ(FirstLoss({"training.steps=1"}), trained);
}

}  // namespace
}  // namespace meshwright::testing
