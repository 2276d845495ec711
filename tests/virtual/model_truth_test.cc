// Families against transformers on PyTorch: logits, losses of 20 steps of AdamW and the weights
// behind them, as tools/hf_check/check_models.py wrote them. Weights and tokens are made by formula
// here and there; the weights go the way of a user's, through a file with Hugging Face's names.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "client/trainer.h"
#include "formats/safetensors.h"
#include "generation/paged_session.h"
#include "generation/write_beams.h"
#include "models/registry.h"
#include "ops/kernel.h"
#include "tests/truth_numbers.h"
#include "tests/virtual/pages_here.h"
#include "tests/virtual/truth_rows.h"
#include "tests/virtual/virtual_cluster.h"
#include "worker/weights.h"

namespace meshwright::testing {
namespace {

using ir::DType;

class TruthTokens final : public ops::TokenSource {
 public:
  Status ReadSample(const std::string& source, int64_t sample, std::span<int32_t> row) override {
    FillTruthRow(source, sample, row);
    return OkStatus();
  }
};

// What is written behind a source, and the largest logit of each token.
struct WrittenTruth {
  std::vector<int32_t> source;
  std::vector<int32_t> tokens;
  std::vector<double> best;
};

// What a search with beams finds, best first.
struct SearchedTruth {
  generation::BeamOptions options;
  double repetition_penalty = 1;
  std::vector<int32_t> stops;
  std::vector<int32_t> prompt;  // or source
  std::vector<generation::Hypothesis> texts;
};

SearchedTruth SearchedOf(const nlohmann::json& json) {
  const nlohmann::json& how = json["options"];
  const nlohmann::json& early = how["early_stopping"];
  const auto stop =
      generation::ParseEarlyStop(early.is_string() ? early.get<std::string>() : early.dump());
  MW_CHECK(stop.has_value()) << stop.error();
  SearchedTruth searched;
  searched.options = {how["num_beams"], how["length_penalty"], *stop};
  searched.repetition_penalty = how.value("repetition_penalty", 1.0);
  searched.stops = how["eos"].get<std::vector<int32_t>>();
  searched.prompt = json["prompt"].get<std::vector<int32_t>>();
  for (const nlohmann::json& text : json["texts"]) {
    searched.texts.push_back(
        {text["tokens"].get<std::vector<int32_t>>(), text["score"].get<double>(), true});
  }
  return searched;
}

struct TruthCase {
  std::string config;
  std::string salt;  // in front of names
  std::vector<double> logits;
  std::vector<double> losses;
  std::vector<int32_t> greedy;  // row 0 and what is written behind it; empty: too few positions
  std::map<std::string, double> weights;   // by exported tensor
  std::vector<WrittenTruth> written = {};  // of a model with an encoder
  std::vector<SearchedTruth> beams = {};
};

// The golden files, or those that `tools/hf-check models` has just made.
std::string TruthFolder() {
  const char* const fresh = std::getenv("MESHWRIGHT_MODEL_TRUTH");
  return fresh != nullptr ? fresh
                          : std::string(MESHWRIGHT_SOURCE_DIR) + "/tests/virtual/model_truth";
}

std::vector<std::string> TruthNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(TruthFolder())) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TruthCase ReadTruth(const std::string& name) {
  const auto text = ReadFile(TruthFolder() + "/" + name + ".json");
  MW_CHECK(text.has_value()) << text.error();
  const nlohmann::json json = nlohmann::json::parse(*text);
  std::vector<WrittenTruth> written;
  for (const nlohmann::json& one : json.value("written", nlohmann::json::array())) {
    written.push_back({one["source"].get<std::vector<int32_t>>(),
                       one["tokens"].get<std::vector<int32_t>>(),
                       one["best"].get<std::vector<double>>()});
  }
  std::vector<SearchedTruth> searched;
  for (const nlohmann::json& one : json.value("beams", nlohmann::json::array())) {
    searched.push_back(SearchedOf(one));
  }
  return {json["config"].dump(),
          json["salt"].get<std::string>(),
          json["logits"].get<std::vector<double>>(),
          json["losses"].get<std::vector<double>>(),
          json.value("greedy", std::vector<int32_t>()),
          json["weights"].get<std::map<std::string, double>>(),
          std::move(written),
          std::move(searched)};
}

std::vector<formats::ExportLayout> LayoutsOf(const ir::Graph& graph) {
  std::vector<formats::ExportLayout> layouts;
  for (const NodeId id : graph.NodesOf(ir::Op::kParam)) {
    const ir::Node& param = graph.node(id);
    const auto layout = formats::ExportLayoutOf(param, graph.type(param.outputs[0]));
    MW_CHECK(layout.has_value()) << layout.error();
    layouts.push_back(*layout);
  }
  return layouts;
}

// A file as a user has it, in f64.
Result<std::shared_ptr<const formats::SafetensorsFile>> WriteTruthWeights(const ir::Graph& graph,
                                                                          const std::string& salt,
                                                                          const std::string& path) {
  std::vector<formats::ExportLayout> layouts = LayoutsOf(graph);
  for (formats::ExportLayout& layout : layouts) layout.type.dtype = DType::kF64;
  MW_ASSIGN_OR_RETURN(const auto tensors, formats::TensorsOf(layouts));
  MW_ASSIGN_OR_RETURN(const auto writer, formats::SafetensorsWriter::Create(path, tensors));
  for (const formats::TensorSpec& tensor : tensors) {
    std::vector<double> values;
    for (int64_t i = 0; i < tensor.type.elements(); ++i) {
      values.push_back(TruthWeight(salt, tensor.name, tensor.type.rank() == 1, i));
    }
    MW_TRY(writer->Write(tensor.name, 0, std::as_bytes(std::span(values))));
  }
  MW_TRY(writer->Finish());
  return formats::SafetensorsFile::Open(path);
}

struct TruthModel {
  TruthCase truth;
  models::Model model;
  ir::Graph graph;  // the loss, in f64
  std::shared_ptr<const formats::SafetensorsFile> file;
};

models::ModelSpec TruthSpec(const std::string& config) {
  models::ModelSpec spec;
  spec.hf_config = config;
  const nlohmann::json json = nlohmann::json::parse(config);
  if (json["model_type"] == "t5" || json["model_type"] == "bart")
    spec.target_tokens = kTruthTargetTokens;
  if (json["model_type"] == "bert") spec.mask_token = 3;
  return spec;
}

Result<TruthModel> LoadTruth(const std::string& name, const TempDir& folder) {
  TruthModel loaded{ReadTruth(name), {}, {}, {}};
  MW_ASSIGN_OR_RETURN(loaded.model, models::MakeModel(TruthSpec(loaded.truth.config)));
  loaded.model.functions.corrupt = nullptr;  // labels are the formula's
  MW_ASSIGN_OR_RETURN(loaded.graph,
                      client::BuildLossGraph("truth", {kTruthBatch, kTruthTokens, DType::kF64},
                                             loaded.model.functions));
  MW_ASSIGN_OR_RETURN(loaded.file, WriteTruthWeights(loaded.graph, loaded.truth.salt,
                                                     folder.File("w.safetensors")));
  return loaded;
}

using RowFiller =
    std::function<void(const std::string& source, int64_t sample, std::span<int32_t> row)>;

// tokens: [rows, count]
Result<std::vector<double>> LogitsOf(const TruthModel& model, DType dtype,
                                     const ir::Dims& tokens = {kTruthRows, kTruthTokens},
                                     const RowFiller& fill = FillTruthRow) {
  client::Builder builder("logits", dtype);
  client::Batch batch;
  const client::TrainerFunctions& functions = model.model.functions;
  std::vector<client::InputSpec> inputs = {{"tokens", {DType::kI32, tokens}}};
  if (functions.inputs) inputs = functions.inputs({kTruthRows, kTruthTokens, dtype});
  for (const client::InputSpec& input : inputs) {
    batch[input.name] = builder.AddOne(ir::Op::kInput, {}, {{"name", input.name}}, {input.type});
  }
  builder.SetOutput("logits", functions.predict(builder, batch));
  MW_ASSIGN_OR_RETURN(const ir::Graph graph, builder.Finish());
  const auto bind = [&](const ir::Node& node) -> Result<ops::HostTensor> {
    const ir::TensorType& type = graph.type(node.outputs[0]);
    ops::HostTensor tensor{type, std::vector<std::byte>(static_cast<size_t>(type.bytes()))};
    if (node.op == ir::Op::kParam) {
      MW_ASSIGN_OR_RETURN(tensor.data, formats::ReadLogicalTile(*model.file, node, type, {}));
      return tensor;
    }
    const std::string name = node.attrs.Str("name");
    std::vector<int32_t> row(static_cast<size_t>(type.elements() / tokens[0]));
    for (int64_t i = 0; i < tokens[0]; ++i) {
      fill(functions.inputs ? "tokens/" + name : name, i, row);
      const size_t bytes = row.size() * sizeof(int32_t);
      std::memcpy(tensor.data.data() + static_cast<size_t>(i) * bytes, row.data(), bytes);
    }
    return tensor;
  };
  MW_ASSIGN_OR_RETURN(const auto outputs, ops::Evaluate(ops::Backend::kCpu, graph, bind, {}));
  std::vector<double> logits;
  for (int64_t i = 0; i < outputs[0].type.elements(); ++i) {
    const std::byte* at = outputs[0].data.data() + i * ir::DTypeBytes(dtype);
    double value = 0;
    float narrow = 0;
    if (dtype == DType::kF64) std::memcpy(&value, at, sizeof(value));
    if (dtype == DType::kF32) std::memcpy(&narrow, at, sizeof(narrow));
    logits.push_back(dtype == DType::kF64 ? value : static_cast<double>(narrow));
  }
  return logits;
}

void ExpectLogits(const TruthModel& model, DType dtype, double tolerance) {
  const auto logits = LogitsOf(model, dtype);
  ASSERT_TRUE(logits.has_value()) << logits.error();
  ASSERT_EQ(logits->size(), model.truth.logits.size());
  double worst = 0;
  for (size_t i = 0; i < logits->size(); ++i) {
    worst = std::max(worst, std::abs((*logits)[i] - model.truth.logits[i]));
  }
  EXPECT_LE(worst, tolerance);
}

// Each token is that of the largest logit behind those before it.
void ExpectGreedy(const TruthModel& model) {
  const std::vector<int32_t>& text = model.truth.greedy;
  if (text.empty()) return;
  const auto count = static_cast<int64_t>(text.size());
  const auto logits = LogitsOf(model, DType::kF64, {1, count},
                               [&](const std::string&, int64_t, std::span<int32_t> row) {
                                 std::copy(text.begin(), text.end(), row.begin());
                               });
  ASSERT_TRUE(logits.has_value()) << logits.error();
  for (int64_t i = kTruthTokens - 1; i + 1 < count; ++i) {
    const auto row = logits->begin() + i * kTruthVocabulary;
    const auto best = std::max_element(row, row + kTruthVocabulary);
    EXPECT_EQ(best - row, text[static_cast<size_t>(i + 1)]) << "behind token " << i;
  }
}

struct TruthLayout {
  int data = 1;
  int tensor = 1;
  int pipeline = 1;
  int expert = 1;
};

Result<ir::JobRequest> TruthJob(const models::Model& model, const TruthLayout& layout) {
  ir::OptimizerSpec optimizer;
  optimizer.lr = 1e-2;
  optimizer.max_norm = 0.5;
  ir::TrainSpec train;
  train.global_batch = kTruthBatch;
  train.sequence = kTruthTokens;
  train.steps = kTruthSteps;
  MW_ASSIGN_OR_RETURN(ir::JobRequest job, client::JobBuilder("truth")
                                              .Train(train)
                                              .DType(DType::kF64)
                                              .Optimizer(optimizer)
                                              .Build(model.functions));
  job.parallel.data = layout.data;
  job.parallel.tensor = layout.tensor;
  job.parallel.pipeline = layout.pipeline;
  job.parallel.expert = layout.expert;
  job.parallel.microbatches = layout.pipeline;
  return job;
}

// A number for each exported tensor: its elements times numbers by formula.
std::map<std::string, double> ProbesOf(const ir::Graph& graph, const std::string& salt,
                                       const std::map<std::string, LogicalTensor>& tensors) {
  std::map<std::string, double> probes;
  for (const NodeId id : graph.NodesOf(ir::Op::kParam)) {
    const ir::Node& param = graph.node(id);
    const ir::TensorType& type = graph.type(param.outputs[0]);
    const auto layout = formats::ExportLayoutOf(param, type);
    const LogicalTensor& tensor = tensors.at(param.attrs.Str("name"));
    const int64_t of_part = type.elements() / layout->tensors();
    for (int64_t i = 0; i < type.elements(); ++i) {
      int64_t left = i;
      int64_t place = layout->base;
      for (size_t d = type.dims.size(); d-- > 0;) {
        place += left % type.dims[d] * layout->strides[d];
        left /= type.dims[d];
      }
      const std::string name = layout->NameOf(i / of_part);
      probes[name] +=
          tensor.values[static_cast<size_t>(i)] * TruthNumber(salt + "probe/" + name, place);
    }
  }
  return probes;
}

void ExpectTraining(const TruthModel& model, const TruthLayout& layout) {
  SCOPED_TRACE(fmt::format("data={} tensor={} pipeline={} expert={}", layout.data, layout.tensor,
                           layout.pipeline, layout.expert));
  const auto job = TruthJob(model.model, layout);
  ASSERT_TRUE(job.has_value()) << job.error();
  TruthTokens tokens;
  const auto cluster =
      VirtualCluster::Start(*job, layout.data * layout.tensor * layout.pipeline, &tokens);
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  const Status loaded = worker::LoadWeights(*model.file, model.graph,
                                            worker::CollectStateSlots((*cluster)->plan().Main()),
                                            (*cluster)->runtime());
  ASSERT_TRUE(loaded.ok()) << loaded;
  const auto reports = (*cluster)->Train(0, kTruthSteps);
  ASSERT_TRUE(reports.has_value()) << reports.error();
  ASSERT_EQ(reports->size(), model.truth.losses.size());
  for (size_t i = 0; i < reports->size(); ++i) {
    EXPECT_NEAR((*reports)[i].values.at("loss"), model.truth.losses[i], 1e-8) << "step " << i;
  }
  const auto tensors = (*cluster)->Gather();
  ASSERT_TRUE(tensors.has_value()) << tensors.error();
  const auto probes = ProbesOf(model.graph, model.truth.salt, *tensors);
  EXPECT_EQ(probes.size(), model.truth.weights.size());
  for (const auto& [name, wanted] : model.truth.weights) {
    const auto found = probes.find(name);
    ASSERT_NE(found, probes.end()) << "no tensor " << name;
    EXPECT_NEAR(found->second, wanted, 1e-8 * std::max(1.0, std::abs(wanted))) << name;
  }
}

class ModelTruth : public ::testing::TestWithParam<std::string> {};

TEST_P(ModelTruth, LogitsAndTrainingAreThoseOfTransformers) {
  const auto folder = TempDir::Make();
  ASSERT_TRUE(folder.has_value()) << folder.error();
  const auto model = LoadTruth(GetParam(), *folder);
  ASSERT_TRUE(model.has_value()) << model.error();
  ExpectLogits(*model, DType::kF64, 1e-10);
  ExpectLogits(*model, DType::kF32, 1e-5);
  ExpectGreedy(*model);
  ExpectTraining(*model, {});
  ExpectTraining(*model, {.data = 2, .tensor = 2});
  ExpectTraining(*model, {.pipeline = 2});
  const bool experts = model->model.sizes.mixture.experts.has_value();
  if (experts) ExpectTraining(*model, {.data = 2, .expert = 2});
  // Two chains of stages: what the encoder says goes to both stages of the decoder.
  if (GetParam() == "t5") ExpectTraining(*model, {.pipeline = 4});
}

struct PagedTexts {
  std::vector<WrittenTruth> texts;
  int64_t preemptions = 0;
};

// The text of each request, all at once.
Result<PagedTexts> WritePaged(const TruthModel& model, const generation::PagedOptions& options,
                              const std::vector<generation::Request>& requests) {
  MW_ASSIGN_OR_RETURN(const auto plan, generation::PlanPages(options));
  MW_ASSIGN_OR_RETURN(const ir::JobRequest of, TruthJob(model.model, {}));
  MW_ASSIGN_OR_RETURN(const ir::JobRequest job,
                      generation::PagedJob(of, model.model.functions, plan, "write"));
  PagesHere session(job, *model.file);
  PagedTexts written{std::vector<WrittenTruth>(requests.size()), 0};
  const generation::StepLogits steps = generation::StepsOf(session, plan);
  generation::Engine engine(plan.limits(), [&](generation::Batch batch) {
    batch.likeliest = false;
    auto logits = steps(batch);
    for (size_t i = 0; logits.has_value() && i < batch.wanted.size(); ++i) {
      const std::vector<double>& row = std::get<0>(*logits)[i];
      written.texts[static_cast<size_t>(batch.wanted[i].id)].best.push_back(
          *std::max_element(row.begin(), row.end()));
    }
    return logits;
  });
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto on_token = [&written, i](int32_t token) {
      written.texts[i].tokens.push_back(token);
      return true;
    };
    MW_TRY(engine.Add(requests[i], {on_token, {}, {}}));
  }
  while (!engine.idle()) MW_TRY(engine.Step());
  written.preemptions = engine.scheduler().preemptions();
  return written;
}

// The texts of these sources, in too few pages for all.
Result<PagedTexts> WriteOfSources(const TruthModel& model,
                                  const std::vector<std::vector<int32_t>>& sources) {
  const auto start = nlohmann::json::parse(model.truth.config)["decoder_start_token_id"];
  std::vector<generation::Request> requests(sources.size());
  for (size_t i = 0; i < sources.size(); ++i) {
    requests[i].prompt = {start.get<int32_t>()};
    requests[i].max_new_tokens = 64;
    requests[i].source = sources[i];
  }
  return WritePaged(model,
                    {.positions = 65,
                     .texts = 3,
                     .tokens = 8,
                     .page_tokens = 4,
                     .pages = 24,
                     .source = kTruthTokens},
                    requests);
}

// What is written behind row 0, and a text of other length beside it.
std::vector<generation::Request> TwoRequests(const TruthModel& model, int64_t tokens) {
  const std::vector<int32_t>& text = model.truth.greedy;
  std::vector<generation::Request> requests(2);
  requests[0].prompt.assign(text.begin(), text.begin() + kTruthTokens);
  requests[1].prompt.assign(text.begin() + 3, text.begin() + kTruthTokens);
  for (generation::Request& request : requests) request.max_new_tokens = tokens;
  return requests;
}

TEST_P(ModelTruth, TextsInPagesAreThoseOfTransformers) {
  const auto folder = TempDir::Make();
  ASSERT_TRUE(folder.has_value()) << folder.error();
  const auto model = LoadTruth(GetParam(), *folder);
  ASSERT_TRUE(model.has_value()) << model.error();
  const std::vector<int32_t>& text = model->truth.greedy;
  if (text.empty()) return;
  const auto written =
      WritePaged(*model, {.positions = 72, .texts = 2, .tokens = 5, .page_tokens = 4},
                 TwoRequests(*model, 64));
  ASSERT_TRUE(written.has_value()) << written.error();
  EXPECT_EQ(written->texts[0].tokens,
            std::vector<int32_t>(text.begin() + kTruthTokens, text.end()));
}

// Two sources of other lengths, in one batch and alone.
TEST_P(ModelTruth, TextsOfSourcesAreThoseOfTransformers) {
  const auto folder = TempDir::Make();
  ASSERT_TRUE(folder.has_value()) << folder.error();
  const auto model = LoadTruth(GetParam(), *folder);
  ASSERT_TRUE(model.has_value()) << model.error();
  const std::vector<WrittenTruth>& wanted = model->truth.written;
  if (wanted.empty()) return;
  ASSERT_EQ(wanted.size(), 2u);
  ASSERT_NE(wanted[0].source.size(), wanted[1].source.size());
  const auto together = WriteOfSources(*model, {wanted[0].source, wanted[1].source});
  ASSERT_TRUE(together.has_value()) << together.error();
  EXPECT_GT(together->preemptions, 0);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const WrittenTruth& text = together->texts[i];
    EXPECT_EQ(text.tokens, wanted[i].tokens);
    ASSERT_EQ(text.best.size(), wanted[i].best.size());
    for (size_t j = 0; j < text.best.size(); ++j) {
      EXPECT_NEAR(text.best[j], wanted[i].best[j], 1e-10) << "token " << j;
    }
    const auto alone = WriteOfSources(*model, {wanted[i].source});
    ASSERT_TRUE(alone.has_value()) << alone.error();
    EXPECT_EQ(alone->texts[0].best, text.best);  // to the last bit
  }
}

Result<std::vector<generation::Hypothesis>> Search(const TruthModel& model,
                                                   const SearchedTruth& wanted) {
  const auto start = nlohmann::json::parse(model.truth.config).value("decoder_start_token_id", -1);
  generation::Request request;
  request.prompt = wanted.prompt;
  if (start >= 0) request.source = std::exchange(request.prompt, {start});
  request.max_new_tokens = 24;
  request.stops.insert(wanted.stops.begin(), wanted.stops.end());
  request.sampling.repetition_penalty = wanted.repetition_penalty;
  MW_ASSIGN_OR_RETURN(const auto plan, generation::PlanPages({.positions = 31,
                                                              .texts = wanted.options.beams,
                                                              .tokens = 9,
                                                              .page_tokens = 4,
                                                              .source = start >= 0 ? 8 : 0}));
  MW_ASSIGN_OR_RETURN(const ir::JobRequest of, TruthJob(model.model, {}));
  MW_ASSIGN_OR_RETURN(const ir::JobRequest job,
                      generation::PagedJob(of, model.model.functions, plan, "search"));
  PagesHere session(job, *model.file);
  return generation::WriteBeams(plan.limits(), generation::StepsOf(session, plan), request,
                                wanted.options);
}

TEST_P(ModelTruth, BeamsAreThoseOfTransformers) {
  const auto folder = TempDir::Make();
  ASSERT_TRUE(folder.has_value()) << folder.error();
  const auto model = LoadTruth(GetParam(), *folder);
  ASSERT_TRUE(model.has_value()) << model.error();
  for (const SearchedTruth& wanted : model->truth.beams) {
    SCOPED_TRACE(fmt::format("{} beams", wanted.options.beams));
    const auto found = Search(*model, wanted);
    ASSERT_TRUE(found.has_value()) << found.error();
    ASSERT_EQ(found->size(), wanted.texts.size());
    for (size_t i = 0; i < found->size(); ++i) {
      EXPECT_EQ((*found)[i].tokens, wanted.texts[i].tokens) << i;
      EXPECT_NEAR((*found)[i].score, wanted.texts[i].score, 1e-9) << i;
    }
  }
}

// The same weights with those of all experts stacked, as transformers holds them in memory.
Result<std::shared_ptr<const formats::SafetensorsFile>> StackExperts(const TruthModel& model,
                                                                     const std::string& path) {
  ir::Graph stacked = model.graph;
  for (ir::Node& node : stacked.nodes) {
    if (node.op != ir::Op::kParam || node.attrs.Str("stored_name").empty()) continue;
    for (const char* part : {"name", "perm", "rows", "row", "dim"}) {
      const auto& values = node.attrs.values();
      const auto value = values.find(std::string("stored_") + part);
      if (value != values.end()) node.attrs.Set(std::string("export_") + part, value->second);
    }
  }
  MW_ASSIGN_OR_RETURN(const auto tensors, formats::TensorsOf(LayoutsOf(stacked)));
  MW_ASSIGN_OR_RETURN(const auto writer, formats::SafetensorsWriter::Create(path, tensors));
  for (const NodeId id : model.graph.NodesOf(ir::Op::kParam)) {
    const ir::Node& param = model.graph.node(id);
    const ir::TensorType& type = model.graph.type(param.outputs[0]);
    MW_ASSIGN_OR_RETURN(const auto tile, formats::ReadLogicalTile(*model.file, param, type, {}));
    MW_TRY(formats::WriteLogicalTile(*writer, stacked.node(id), type, {}, tile));
  }
  MW_TRY(writer->Finish());
  return formats::SafetensorsFile::Open(path);
}

TEST(StackedExperts, AreThoseOfTheirOwnTensors) {
  for (const auto& [name, gate] :
       {std::pair("mixtral", "model.layers.1.block_sparse_moe.experts.0.w1.weight"),
        std::pair("qwen2-moe", "model.layers.1.mlp.experts.0.gate_proj.weight")}) {
    const auto folder = TempDir::Make();
    ASSERT_TRUE(folder.has_value()) << folder.error();
    auto model = LoadTruth(name, *folder);
    ASSERT_TRUE(model.has_value()) << model.error();
    const auto file = StackExperts(*model, folder->File("stacked.safetensors"));
    ASSERT_TRUE(file.has_value()) << file.error();
    EXPECT_EQ((*file)->Find(gate), nullptr);
    const auto* both = (*file)->Find("model.layers.1.mlp.experts.gate_up_proj");
    ASSERT_NE(both, nullptr);
    double first = 0;
    std::memcpy(&first, (*file)->data(*both).data(), sizeof(first));
    EXPECT_EQ(first, TruthWeight(model->truth.salt, gate, false, 0)) << "the gate is in front";
    EXPECT_TRUE(formats::CheckWeights(**file, model->graph).ok());
    model->file = *file;
    ExpectLogits(*model, DType::kF64, 1e-10);
  }
}

// For `tools/hf-check models`: what from_pretrained is to load, and the logits that are to come.
Status LeaveFolder(const std::string& folder, const models::Model& model,
                   const std::string& weights, const std::vector<double>& logits) {
  MW_TRY(MakeDirs(folder));
  MW_TRY(WriteFileAtomic(folder + "/config.json", model.hf_config));
  MW_TRY(WriteFileAtomic(folder + "/logits.json", nlohmann::json(logits).dump()));
  MW_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(weights));
  return WriteFileAtomic(folder + "/model.safetensors", bytes);
}

TEST_P(ModelTruth, TheConfigThatIsWrittenIsOfTheSameModel) {
  const auto folder = TempDir::Make();
  ASSERT_TRUE(folder.has_value()) << folder.error();
  auto model = LoadTruth(GetParam(), *folder);
  ASSERT_TRUE(model.has_value()) << model.error();
  const auto again = models::MakeModel(TruthSpec(model->model.hf_config));
  ASSERT_TRUE(again.has_value()) << again.error();
  model->model = *again;
  ExpectLogits(*model, DType::kF64, 1e-10);
  const char* const exports = std::getenv("MESHWRIGHT_MODEL_EXPORTS");
  if (exports == nullptr) return;
  const Status left = LeaveFolder(std::string(exports) + "/" + GetParam(), model->model,
                                  folder->File("w.safetensors"), model->truth.logits);
  EXPECT_TRUE(left.ok()) << left;
}

INSTANTIATE_TEST_SUITE_P(Families, ModelTruth, ::testing::ValuesIn(TruthNames()),
                         [](const auto& row) {
                           std::string name = row.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace meshwright::testing
