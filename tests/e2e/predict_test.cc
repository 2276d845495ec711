// `meshwright predict`: the model of a job that has ended, and of one that trains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/text.h"
#include "client/data_files.h"
#include "client/program.h"
#include "client/trainer.h"
#include "data/describe.h"
#include "tests/e2e/fault_fixture.h"

namespace meshwright::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class PredictCommand : public FaultFixture {
 protected:
  std::string WriteJob(int64_t steps, const std::string& degrees) {
    const std::string data = Write("data.txt", SampleText(9'000));
    return Write("job.toml",
                 "[model]\ndim = 32\nn_layers = 4\nn_heads = 4\nvocab_size = 256\n"
                 "[training]\nglobal_batch_size = 8\nseq_len = 16\nsteps = " +
                     std::to_string(steps) + "\ndtype = \"float64\"\ndataset_path = \"" + data +
                     "\"\n[parallelism]\n" + degrees);
  }
  std::string Run(std::vector<std::string> args) {
    args.insert(args.begin(), {"--address", cluster().address()});
    const auto output = RunMeshwright(args);
    EXPECT_TRUE(output.has_value()) << output.error();
    if (!output) return "";
    EXPECT_TRUE(output->exit.ok()) << output->stdout_text << output->stderr_text;
    return output->stdout_text;
  }
};

// One device, replicas, tensor shards and stages train the same model, so it says the same.
TEST_F(PredictCommand, SaysTheSameWhateverTheLayoutOfTheTraining) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  std::vector<json> said;
  for (const char* degrees : {"data_parallel_replicate_degree = 1\ntensor_parallel_degree = 1\n"
                              "pipeline_parallel_degree = 1\n",
                              "tensor_parallel_degree = 2\n", "pipeline_parallel_degree = 2\n"}) {
    Run({"submit", WriteJob(4, degrees), "-q"});
    const std::string id = std::to_string(2 * said.size() + 1);
    said.push_back(json::parse(Run({"predict", id, "hello", "--top", "3", "-o", "json"})));
  }
  for (const json& one : said) {
    EXPECT_EQ(one["predicted"], 4);
    EXPECT_NEAR(one["loss"].get<double>(), said[0]["loss"].get<double>(), 1e-10);
    ASSERT_EQ(one["next"].size(), 3u);
    EXPECT_EQ(one["next"][0]["token"], said[0]["next"][0]["token"]);
  }
  EXPECT_THAT(Run({"predict", "1", "hello"}), HasSubstr("nats per token over 4 tokens"));
}

// Foreign to the command: the loss that the training job itself measured at its end.
TEST_F(PredictCommand, EvaluatesToTheValidationLossOfTheJob) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  Run({"submit", WriteJob(4, "tensor_parallel_degree = 2\n"), "-q", "--set", "validation.batches=3",
       "--record", dir_.File("steps.jsonl")});
  const std::string steps = *ReadFile(dir_.File("steps.jsonl"));
  const size_t last = steps.rfind('\n', steps.size() - 2);
  const json validated = json::parse(steps.substr(last == std::string::npos ? 0 : last + 1));
  const json evaluated = json::parse(Run({"evaluate", "1", "-o", "json"}));
  EXPECT_EQ(evaluated["batches"], 3);
  EXPECT_NEAR(evaluated["loss"].get<double>(), validated["validation_loss"].get<double>(), 1e-10);
  EXPECT_EQ(json::parse(Run({"evaluate", "1", "--batches", "1", "-o", "json"}))["batches"], 1);
  EXPECT_THAT(Run({"evaluate", "1"}), HasSubstr("perplexity"));
}

// Every window of a file, once and in order; each line says what the single question says.
TEST_F(PredictCommand, WalksADataSetIntoAFile) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  Run({"submit", WriteJob(4, "tensor_parallel_degree = 2\n"), "-q"});
  const std::string text = SampleText(500);
  const std::string asked = Write("asked.txt", text);
  const std::string lines = dir_.File("said.jsonl");
  const json told =
      json::parse(Run({"predict", "1", "--data", asked, "--out", lines, "-o", "json"}));
  const int64_t rows = (static_cast<int64_t>(text.size()) - 1) / 16;
  EXPECT_EQ(told["rows"], rows);
  std::vector<json> said;
  for (const std::string& line : Split(*ReadFile(lines), '\n')) {
    if (!line.empty()) said.push_back(json::parse(line));
  }
  ASSERT_EQ(static_cast<int64_t>(said.size()), rows);
  for (const int64_t row : {int64_t{0}, rows - 1}) {
    const json& one = said[static_cast<size_t>(row)];
    EXPECT_EQ(one["row"], row);
    const std::string window = text.substr(static_cast<size_t>(row) * 16, 16);
    const json single = json::parse(Run({"predict", "1", window, "-o", "json"}));
    EXPECT_NEAR(one["loss"].get<double>(), single["loss"].get<double>(), 1e-12) << row;
    EXPECT_EQ(one["next"][0]["token"], single["next"][0]["token"]) << row;
  }
  const std::string arrays = dir_.File("logits.npy");
  Run({"predict", "1", "--data", asked, "--out", arrays});
  const std::string npy = *ReadFile(arrays);
  EXPECT_THAT(npy, HasSubstr("'descr': '<f8'"));
  EXPECT_THAT(npy, HasSubstr("(" + std::to_string(rows) + ", 16, 256)"));
  EXPECT_EQ(npy.size() % 64, 0u);
  EXPECT_EQ(npy.size() - 128, static_cast<size_t>(rows) * 16 * 256 * 8);
  const Failure no_format =
      Fails({"--address", cluster().address(), "predict", "1", "--data", asked, "--out", "x.csv"});
  EXPECT_THAT(no_format.text, HasSubstr(".jsonl or .npy"));
}

TEST_F(PredictCommand, AsksAJobThatTrainsAndAStrayQuestionHarmsNothing) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(1));
  Run({"submit", WriteJob(1'000'000, ""), "--no-wait"});
  ASSERT_TRUE(cluster().RunUntil(1, 1).ok());
  EXPECT_THAT(Run({"predict", "1", "hello"}), HasSubstr("next:"));
  const Failure bad =
      Fails({"--address", cluster().address(), "predict", "1", "--tokens", "1,999"});
  EXPECT_THAT(bad.text, HasSubstr("token 999 is not among the 256"));
  const Failure no_job = Fails({"--address", cluster().address(), "predict", "7", "x"});
  EXPECT_THAT(no_job.text, HasSubstr("no job 7"));
  EXPECT_EQ(no_job.code, 2);
  EXPECT_EQ(client().Get(1)->state, client::JobState::kRunning);
  Run({"cancel", "1"});
  const Failure no_weights = Fails({"--address", cluster().address(), "predict", "1", "x"});
  EXPECT_THAT(no_weights.text, HasSubstr("left no weights"));
}

// Rows whose one feature is their number, and a label for each, as .npy.
template <typename T>
std::string Npy(const char* descr, const std::string& shape, const std::vector<T>& values) {
  std::string header =
      std::string("{'descr': '") + descr + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  header.resize(117, ' ');
  return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + "\n" +
         std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

// A classifier whose trained program reports a sum and a mean of its own, and whose "predict" gives
// out what is no logits.
Result<ir::JobRequest> OwnJob(ir::DataSpec data) {
  using client::Batch;
  using client::Builder;
  const auto logits = [](Builder& b, ValueId x) { return b.Linear(x, "head", 3); };
  MW_ASSIGN_OR_RETURN(
      ir::JobProgram loss,
      client::TrainedProgram({{"rows/x", {ir::DType::kF32, {8, 1}}, ir::InputFrom::kData},
                              {"rows/y", {ir::DType::kI32, {8}}, ir::InputFrom::kData}},
                             [&](Builder& b, const Batch& in) {
                               const ValueId x = in.at("rows/x");
                               b.SetOutput("total", b.ReduceSum(x, {0, 1}));
                               b.SetOutput("level", b.ReduceMean(x, {0, 1}), ir::Reduction::kMean);
                               return b.CrossEntropy(logits(b, x), in.at("rows/y"));
                             }));
  MW_ASSIGN_OR_RETURN(ir::JobProgram predict,
                      client::MakeProgram("predict", {{"x", {ir::DType::kF32, {2, 1}}}},
                                          [&](Builder& b, const Batch& in) {
                                            const ValueId all = logits(b, in.at("x"));
                                            b.SetOutput("never", b.Greater(all, all));
                                            b.SetOutput("number",
                                                        b.Cast(in.at("x"), ir::DType::kI64));
                                            return OkStatus();
                                          }));
  ir::TrainSpec train;
  train.global_batch = 8;
  train.steps = 2;
  train.validation_batches = 2;
  return client::JobBuilder("own")
      .Train(train)
      .Data(std::move(data))
      .Program(std::move(loss))
      .Program(std::move(predict))
      .Build();
}

TEST_F(PredictCommand, AProgramOfOnesOwnIsAskedByRowsAndItsScalarsAreReduced) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  std::vector<float> x;
  for (int i = 0; i < 16; ++i) x.push_back(static_cast<float>(i));
  const std::string rows = Write("x.npy", Npy("<f4", "16, 1", x));
  const std::string labels = Write("y.npy", Npy("<i4", "16,", std::vector<int32_t>(16, 1)));
  data::FilesRequest files;
  files.stream = "rows";
  files.format = "npy";
  files.paths = files.validation_paths = {"x=" + rows, "y=" + labels};
  const auto stream = data::DescribeFiles(files);
  ASSERT_TRUE(stream.has_value()) << stream.error();
  const auto sent = client::SendData(client(), {*stream});
  ASSERT_TRUE(sent.has_value()) << sent.error();
  const auto job = OwnJob(sent->spec);
  ASSERT_TRUE(job.has_value()) << job.error();
  const auto id = client().Submit(*job);
  ASSERT_TRUE(id.has_value()) << id.error();
  const client::JobInfo end = EndOf(*id);
  ASSERT_EQ(end.state, client::JobState::kSucceeded) << end.message;

  const json evaluated = json::parse(Run({"evaluate", "1", "-o", "json"}));
  EXPECT_EQ(evaluated["means"], json({"level"}));
  EXPECT_NEAR(evaluated["values"]["total"].get<double>(), 120, 1e-4);
  EXPECT_NEAR(evaluated["values"]["level"].get<double>(), 7.5, 1e-6);
  const std::string text = Run({"evaluate", "1"});
  EXPECT_THAT(text, HasSubstr("total 120 (sum over 2 batches)"));
  EXPECT_THAT(text, HasSubstr("level 7.5 (mean of 2 batches)"));

  const std::string said = dir_.File("said.jsonl");
  Run({"predict", "1", "--data", "x=" + rows, "--out", said});
  const std::vector<std::string> lines = Split(*ReadFile(said), '\n');
  ASSERT_GE(lines.size(), 16u);
  EXPECT_EQ(json::parse(lines[15])["number"], json({15.0}));
  EXPECT_EQ(json::parse(lines[15])["never"], json({0.0, 0.0, 0.0}));
  const Failure no_model =
      Fails({"--address", cluster().address(), "predict", "1", "--tokens", "1"});
  EXPECT_THAT(no_model.text, HasSubstr("has no input \"window\" that takes tokens"));
}

}  // namespace
}  // namespace meshwright::testing
