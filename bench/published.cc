#include "bench/published.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/clock.h"
#include "config/job_config.h"
#include "mesh/cluster.h"
#include "planner/memory.h"
#include "planner/plan.h"
#include "search/find_layout.h"

namespace meshwright::bench {
namespace {

constexpr double kMostRatio = 1.1;
constexpr int64_t kDevicesOfAHost = 8;
constexpr double kGib = 1073741824.0;

constexpr PublishedModel k175B = {false, 96, 12288, 96, 96, 49152, 51200};
constexpr PublishedModel k530B = {false, 105, 20480, 128, 128, 81920, 51200};
constexpr PublishedModel k1T = {false, 128, 25600, 160, 160, 102400, 51200};
constexpr PublishedModel k405B = {true, 126, 16384, 128, 8, 53248, 128256};
// A vocabulary of 128,000: the published utilisation of each run is that of such a model.
constexpr PublishedModel k13B = {true, 40, 5120, 40, 40, 13824, 128000};
constexpr PublishedModel k30B = {true, 60, 6656, 52, 52, 17920, 128000};
constexpr PublishedModel k65B = {true, 80, 8192, 64, 64, 22016, 128000};

// Sequence parallelism wherever there is a tensor degree. Hagemann et al. kept gradients in
// bfloat16: with more, the fastest of their runs of 13B would not have fit the card.
constexpr PublishedLayout kLayouts[] = {
    {"gpt-175b-t8-p8", &k175B, "a100-80g", 2048, 64, 1, 8, 8, 1, 0, 4},
    {"gpt-530b-t8-p35", &k530B, "a100-80g", 2048, 280, 1, 8, 35, 1, 0, 4},
    {"gpt-1t-t8-p64", &k1T, "a100-80g", 2048, 512, 1, 8, 64, 1, 0, 4},
    {"llama3-405b-t8-p16-d64", &k405B, "h100-80g", 8192, 2048, 64, 8, 16, 1, 2, 4},
    {"llama3-405b-t8-p16-d128", &k405B, "h100-80g", 8192, 2048, 128, 8, 16, 1, 2, 4},
    {"llama-13b-t1-p1", &k13B, "a100-80g", 2048, 2048, 64, 1, 1, 1, 1, 2},
    {"llama-13b-t1-p2", &k13B, "a100-80g", 2048, 2048, 32, 1, 2, 1, 1, 2},
    {"llama-13b-t2-p2-mb4", &k13B, "a100-80g", 2048, 2048, 16, 2, 2, 4, 1, 2},
    {"llama-13b-8k-t2-p2", &k13B, "a100-80g", 8192, 512, 32, 2, 2, 1, 1, 2},
    {"llama-30b-t1-p4", &k30B, "a100-80g", 2048, 2048, 64, 1, 4, 1, 1, 2},
    {"llama-30b-t4-p1", &k30B, "a100-80g", 2048, 2048, 64, 4, 1, 1, 1, 2},
    {"llama-30b-t2-p2", &k30B, "a100-80g", 2048, 2048, 16, 2, 2, 1, 1, 2},
    {"llama-30b-8k-t4-p2", &k30B, "a100-80g", 8192, 512, 8, 4, 2, 1, 1, 2},
    {"llama-65b-t2-p4", &k65B, "a100-80g", 2048, 2048, 16, 2, 4, 1, 1, 2},
    {"llama-65b-t2-p8", &k65B, "a100-80g", 2048, 2048, 8, 2, 8, 1, 1, 2},
    {"llama-65b-t4-p2", &k65B, "a100-80g", 2048, 2048, 16, 4, 2, 1, 1, 2},
    {"llama-65b-t4-p4-mb2", &k65B, "a100-80g", 2048, 2048, 8, 4, 4, 2, 1, 2},
    {"llama-13b-t1-p1-mb2", &k13B, "a100-80g", 2048, 2048, 64, 1, 1, 2, 1, 2, false},
    {"llama-13b-t1-p1-mb4", &k13B, "a100-80g", 2048, 2048, 64, 1, 1, 4, 1, 2, false},
    {"llama-13b-8k-t1-p1", &k13B, "a100-80g", 8192, 512, 128, 1, 1, 1, 1, 2, false},
    {"llama-30b-t1-p1", &k30B, "a100-80g", 2048, 2048, 256, 1, 1, 1, 1, 2, false},
    {"llama-30b-t1-p2", &k30B, "a100-80g", 2048, 2048, 128, 1, 2, 1, 1, 2, false},
    {"llama-30b-8k-t2-p2", &k30B, "a100-80g", 8192, 512, 16, 2, 2, 1, 1, 2, false},
    {"llama-65b-t2-p2", &k65B, "a100-80g", 2048, 2048, 32, 2, 2, 1, 1, 2, false},
    {"llama-65b-t2-p4-mb4", &k65B, "a100-80g", 2048, 2048, 16, 2, 4, 4, 1, 2, false},
};

double Of(int64_t number) { return static_cast<double>(number); }

double ParametersOfLayer(const PublishedModel& model) {
  const double h = Of(model.width);
  const double kv = Of(model.kv_heads) / Of(model.heads);
  const double attention = (2 + 2 * kv) * h * h;
  return attention + (model.gated ? 3 : 2) * h * Of(model.hidden);
}

// Of the first stage: the others have at most as many layers and no fewer microbatches to keep.
double ParametersOfStage(const PublishedLayout& layout) {
  const PublishedModel& model = *layout.model;
  const double tables = layout.pipeline == 1 && model.gated ? 2 : 1;
  return (ParametersOfLayer(model) * Of(model.layers) / Of(layout.pipeline) +
          tables * Of(model.vocabulary) * Of(model.width)) /
         Of(layout.tensor);
}

double BytesOfAParameter(const PublishedLayout& layout) {
  const double data = Of(layout.data);
  const double optimizer = layout.zero >= 1 ? 12 / data : 12;
  return 2 + Of(layout.gradient_bytes) / (layout.zero >= 2 ? data : 1) + optimizer;
}

double BytesOfAnElement(const PublishedModel& model) {
  if (!model.gated) return 34;
  return 12 + 4 * Of(model.kv_heads) / Of(model.heads) + 6 * Of(model.hidden) / Of(model.width);
}

std::vector<std::string> SettingsOf(const PublishedLayout& layout) {
  const PublishedModel& model = *layout.model;
  std::vector<std::string> settings;
  const auto set = [&](std::string_view key, int64_t value) {
    settings.push_back(fmt::format("{}={}", key, value));
  };
  set("model.vocab_size", model.vocabulary);
  set("model.dim", model.width);
  set("model.n_layers", model.layers);
  set("model.n_heads", model.heads);
  if (model.gated) {
    set("model.n_kv_heads", model.kv_heads);
    set("model.ffn_dim", model.hidden);
  } else {
    settings.emplace_back("model.dropout=0.1");
  }
  set("training.seq_len", layout.sequence);
  set("training.global_batch_size", layout.batch);
  settings.push_back(fmt::format("training.gradient_dtype=\"{}\"",
                                 layout.gradient_bytes == 2 ? "bfloat16" : "float32"));
  set("parallelism.data_parallel_replicate_degree", layout.data);
  set("parallelism.tensor_parallel_degree", layout.tensor);
  set("parallelism.pipeline_parallel_degree", layout.pipeline);
  set("parallelism.pipeline_parallel_microbatches", layout.batch / layout.data / layout.rows);
  settings.emplace_back("parallelism.pipeline_parallel_schedule=\"1f1b\"");
  set("parallelism.zero_stage", layout.zero);
  settings.push_back(
      fmt::format("parallelism.enable_sequence_parallel={}", layout.tensor > 1 ? "true" : "false"));
  settings.emplace_back("activation_checkpoint.mode=\"selective\"");
  return settings;
}

Result<mesh::Topology> TopologyFor(const PublishedLayout& layout) {
  const int64_t devices = layout.data * layout.tensor * layout.pipeline;
  MW_CHECK(devices % kDevicesOfAHost == 0) << layout.name << " runs on " << devices << " cards";
  mesh::Cluster cluster;
  cluster.name = std::string(layout.name);
  mesh::HostGroup hosts;
  hosts.name = "h";
  hosts.count = devices / kDevicesOfAHost;
  hosts.devices = kDevicesOfAHost;
  hosts.profile = std::string(layout.card);
  cluster.hosts.push_back(std::move(hosts));
  cluster.links.host = {5e-6, 1 / 240e9};
  cluster.links.network = {10e-6, 1 / 25e9};
  return mesh::TopologyOfCluster(cluster);
}

}  // namespace

std::span<const PublishedLayout> PublishedLayouts() { return kLayouts; }

PublishedBytes ClosedForm(const PublishedLayout& layout) {
  const PublishedModel& model = *layout.model;
  PublishedBytes bytes;
  bytes.state = ParametersOfStage(layout) * BytesOfAParameter(layout);
  const double tokens = Of(layout.sequence * layout.rows);
  const double microbatches = Of(layout.batch / layout.data / layout.rows);
  const double in_flight = std::min(Of(layout.pipeline), microbatches);
  bytes.activations = tokens * Of(model.width) * BytesOfAnElement(model) / Of(layout.tensor) *
                      Of(model.layers) / Of(layout.pipeline) * in_flight;
  // The last norm's input and output, and logits in f32 (Korthikanti et al., section 4.3).
  if (layout.pipeline == 1) {
    bytes.activations += 4 * tokens * Of(model.width + model.vocabulary) / Of(layout.tensor);
  }
  return bytes;
}

Result<PublishedResult> PlanPublished(const PublishedLayout& layout) {
  const std::string file = fmt::format("{}/bench/jobs/{}.toml", MESHWRIGHT_SOURCE_DIR,
                                       layout.model->gated ? "llama405b" : "gpt3");
  MW_ASSIGN_OR_RETURN(const config::JobConfig config,
                      config::LoadJobConfig(file, SettingsOf(layout)));
  MW_ASSIGN_OR_RETURN(const config::PreparedJob prepared, config::PrepareJob(config));
  MW_ASSIGN_OR_RETURN(const mesh::Topology topology, TopologyFor(layout));
  PublishedResult result;
  result.usable_bytes = Of(topology.devices[0].memory_bytes);
  const auto start = std::chrono::steady_clock::now();
  const Result<search::FoundLayout> found =
      search::FindLayout(prepared.request, topology, {}, SystemClock());
  const Result<planner::Plan> plan =
      found.has_value()
          ? planner::MakePlanOf(prepared.request, topology, found->best.front().layout,
                                planner::PlanScope::kOnePerStage)
          : Result<planner::Plan>(Fail(found.error()));
  result.plan_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!plan.has_value()) {
    if (plan.error().code() != StatusCode::kResourceExhausted) return Fail(plan.error());
    result.refusal = plan.error().message();
    return result;
  }
  result.layout = plan->layout.ToString();
  result.plan_bytes = Of(planner::FullestBytes(plan->memory));
  return result;
}

bool IsMet(const PublishedLayout& layout, const PublishedResult& result) {
  if (!layout.ran) return !result.refusal.empty();
  return result.refusal.empty() && result.plan_bytes <= result.usable_bytes &&
         result.plan_bytes <= kMostRatio * ClosedForm(layout).total();
}

std::string FormatPublished(const PublishedLayout& layout, const PublishedResult& result) {
  const PublishedBytes form = ClosedForm(layout);
  return fmt::format(
      R"({{"name":"published-{}","ran":{},"fits":{},"plan_gib":{:.2f},"closed_form_gib":{:.2f},)"
      R"("ratio":{:.3f},"state_gib":{:.2f},"activations_gib":{:.2f},"usable_gib":{:.2f},)"
      R"("plan_s":{:.2f},"layout":"{}","target":"{}","met":{}}})",
      layout.name, layout.ran, result.refusal.empty(), result.plan_bytes / kGib,
      form.total() / kGib, result.plan_bytes / form.total(), form.state / kGib,
      form.activations / kGib, result.usable_bytes / kGib, result.plan_s, result.layout,
      layout.ran ? "fits, ratio <= 1.1" : "refused", IsMet(layout, result));
}

}  // namespace meshwright::bench
