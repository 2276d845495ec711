#include "config/saved_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "config/config_keys.h"
#include "planner/decided.h"
#include "planner/recompute_modes.h"
#include "planner/resolve_layout.h"
#include "planner/stages.h"
#include "search/plan_cache.h"
#include "search/sharding_pins.h"

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 1
// Its assertions judge input: without them a key that is none is an error as any other.
#define TOML_ASSERT(expression) static_cast<void>(0)
#include <toml++/toml.h>

namespace meshwright::config {
namespace {

constexpr size_t kShownFingerprint = 12;

std::string TomlText(const std::string& text) {
  std::ostringstream out;
  out << toml::value<std::string>(text);
  return out.str();
}

std::vector<int> LayersOfParts(const planner::Plan& plan) {
  const planner::PipelineShape shape = plan.layout.shape();
  std::vector<int> layers(static_cast<size_t>(shape.parts()));
  for (size_t stage = 0; stage < plan.stages.size(); ++stage) {
    for (size_t chunk = 0; chunk < plan.stages[stage].layers.size(); ++chunk) {
      const auto [first, last] = plan.stages[stage].layers[chunk];
      const int part = shape.PartOf(static_cast<int>(stage), static_cast<int>(chunk));
      layers[static_cast<size_t>(part)] = last - first + 1;
    }
  }
  return layers;
}

std::string Header(const DecidedPlan& decided) {
  const planner::Forecast& forecast = decided.forecast;
  const int64_t fullest_bytes = planner::FullestBytes(decided.found.plan.memory);
  return fmt::format(
      "# A plan of {}, saved by `meshwright plan`.\n"
      "# Forecast: step {}, {} tokens/s, MFU {:.1f} %, {} of the fullest device.\n"
      "# Edit what should be otherwise; then `meshwright plan JOB --plan FILE` shows what comes "
      "of\n"
      "# it, and `meshwright submit JOB --plan FILE` runs it. A key that is taken out is the\n"
      "# planner's to decide.\n",
      decided.prepared.model.summary, FormatDuration(forecast.step_s),
      FormatCount(static_cast<int64_t>(std::min(forecast.tokens_per_s, 1e15))),
      100 * forecast.model_flops_utilization, FormatBytes(fullest_bytes));
}

std::string OriginText(const PlanOrigin& origin) {
  std::vector<std::string> overrides;
  for (const std::string& text : origin.overrides) overrides.push_back(TomlText(text));
  std::string text = fmt::format("\n[plan]\njob = {}\n", TomlText(origin.job));
  if (!overrides.empty()) text += fmt::format("set = [{}]\n", fmt::join(overrides, ", "));
  if (!origin.cluster.empty()) {
    text += fmt::format("cluster = {}\n", TomlText(origin.cluster));
  } else {
    text += fmt::format("devices = {}\ndevices_per_worker = {}\n", origin.devices,
                        origin.devices_per_worker);
  }
  return text + fmt::format("job_fingerprint = \"{}\"\ncluster_fingerprint = \"{}\"\n",
                            origin.job_fingerprint, origin.cluster_fingerprint);
}

// "transformer.h.3.attn.w" -> "transformer.h.*.attn.w".
std::string LayerGlob(const std::string& name) {
  std::vector<std::string> parts = Split(name, '.');
  for (std::string& part : parts) {
    const bool number = !part.empty() && std::all_of(part.begin(), part.end(),
                                                     [](char c) { return c >= '0' && c <= '9'; });
    if (number) part = "*";
  }
  return Join(parts, ".");
}

// One line per weight, or for those of all layers where they are split alike.
std::string PinLines(const planner::Plan& plan) {
  std::map<std::string, std::string> sharding_of;
  std::map<std::string, std::set<std::string>> shardings;  // by glob
  for (const planner::ParamInfo& param : plan.params) {
    sharding_of[param.name] = search::FormatPinnedSharding(param.sharding);
    shardings[LayerGlob(param.name)];
  }
  for (auto& [glob, found] : shardings) {
    for (const auto& [name, sharding] : sharding_of) {
      if (::fnmatch(glob.c_str(), name.c_str(), 0) == 0) found.insert(sharding);
    }
  }
  std::map<std::string, std::string> lines;
  for (const auto& [name, sharding] : sharding_of) {
    const std::string glob = LayerGlob(name);
    lines[shardings.at(glob).size() == 1 ? glob : name] = sharding;
  }
  std::string text = "\n[parallelism.pin]\n";
  for (const auto& [name, sharding] : lines) {
    text += fmt::format("{} = \"{}\"\n", TomlText(name), sharding);
  }
  return text;
}

// Sizes of what a plan may not have would only be reported as having no effect.
bool HasEffect(const ConfigKey& key, const ir::ParallelSpec& parallel) {
  if (key.name == "zero_min_weight_bytes") return parallel.zero != 0;
  if (key.name != "offload_chunk_bytes") return true;
  return std::any_of(
      planner::kMemoryPins.begin(), planner::kMemoryPins.end(),
      [&](const planner::MemoryPin& pin) { return parallel.*pin.memory != "device"; });
}

// Where the search chose the shardings, they are pins.
std::string DecisionsText(const JobConfig& config, const search::FoundPlan& found) {
  std::string text;
  for (const char* section : {"parallelism", "activation_checkpoint"}) {
    text += fmt::format("\n[{}]\n", section);
    for (const ConfigKey& key : ConfigKeys()) {
      if (key.section != section) continue;
      if (found.by_search && key.name == "sharding_pins") continue;
      if (!HasEffect(key, config.parallel)) continue;
      const std::string value = FormatValue(key, config);
      if (!value.empty() && value != "\"\"") text += fmt::format("{} = {}\n", key.name, value);
    }
    if (found.by_search && std::string_view(section) == "parallelism") text += PinLines(found.plan);
  }
  return text;
}

// That the keys bring the layout back: pinned degrees resolve to it.
Status CheckReplay(const JobConfig& config, const DecidedPlan& decided, int64_t devices) {
  ir::JobRequest job = decided.prepared.request;
  job.parallel = config.parallel;
  const int layers = planner::LayerCount(job.main().graph);
  const planner::Layout& wanted = decided.found.plan.layout;
  MW_ASSIGN_OR_RETURN(planner::Layout layout, planner::ResolveLayout(job, devices, layers));
  // A layout that balances its parts does not name them.
  if (wanted.part_layers.empty()) layout.part_layers.clear();
  layout.recompute = wanted.recompute;
  if (!wanted.devices.empty()) {
    return Unimplemented(
        fmt::format("the plan cannot be saved as keys of a job file: it chooses devices for its "
                    "stages ({}), which no key says",
                    fmt::join(wanted.devices, ",")));
  }
  if (layout.AskedText() == wanted.AskedText()) return OkStatus();
  return Unimplemented(
      fmt::format("the plan cannot be saved as keys of a job file: they come to {}, the plan is {}",
                  layout.ToString(), wanted.ToString()));
}

}  // namespace

JobConfig WithDecisions(JobConfig config, const planner::Plan& plan) {
  const planner::Layout& layout = plan.layout;
  ir::ParallelSpec& parallel = config.parallel;
  planner::PinDegrees(layout, parallel);
  parallel.part_layers =
      layout.pipeline > 1 ? fmt::format("{}", fmt::join(LayersOfParts(plan), ",")) : "";
  parallel.tensor_axes = fmt::format("{}", fmt::join(layout.tensor_axes, "x"));
  if (layout.tensor_chunks > 1) parallel.tensor_chunks = layout.tensor_chunks;
  planner::PinRecompute(layout.recompute, parallel);
  planner::PinMemories(plan, parallel);
  return config;
}

Result<std::string> FormatSavedPlan(PlanOrigin origin, const DecidedPlan& decided,
                                    const mesh::Topology& topology) {
  JobConfig config = WithDecisions(decided.config, decided.found.plan);
  if (decided.found.by_search) config.parallel.shardings = "search";
  origin.devices = static_cast<int64_t>(topology.devices.size());
  MW_TRY(CheckReplay(config, decided, origin.devices));
  origin.job_fingerprint = search::JobFingerprint(decided.prepared.request);
  origin.cluster_fingerprint = search::TopologyFingerprint(topology);
  return Header(decided) + OriginText(origin) + DecisionsText(config, decided.found);
}

bool IsSavedPlan(std::string_view text) {
  const toml::parse_result parsed = toml::parse(text);
  return parsed.succeeded() && parsed.table().contains("plan");
}

Result<PlanOrigin> ParsePlanOrigin(std::string_view text, const std::string& file) {
  const toml::parse_result parsed = toml::parse(text, file);
  const auto fail = [&](const toml::source_region& at, const std::string& message) {
    return Fail(InvalidArgument(
        fmt::format("{}:{}:{}: {}", file, at.begin.line, at.begin.column, message)));
  };
  if (!parsed.succeeded()) {
    return fail(parsed.error().source(), std::string(parsed.error().description()));
  }
  const toml::table* plan = parsed.table()["plan"].as_table();
  if (plan == nullptr) return fail(parsed.table().source(), "there is no section [plan]");
  PlanOrigin origin;
  const std::map<std::string_view, std::string*> texts = {
      {"job", &origin.job},
      {"cluster", &origin.cluster},
      {"job_fingerprint", &origin.job_fingerprint},
      {"cluster_fingerprint", &origin.cluster_fingerprint}};
  const std::map<std::string_view, int64_t*> numbers = {
      {"devices", &origin.devices}, {"devices_per_worker", &origin.devices_per_worker}};
  for (const auto& [name, node] : *plan) {
    if (texts.contains(name.str()) && node.is_string()) {
      *texts.at(name.str()) = *node.value<std::string>();
    } else if (numbers.contains(name.str()) && node.is_integer()) {
      *numbers.at(name.str()) = *node.value<int64_t>();
    } else if (name.str() == "set" && node.is_array()) {
      for (const toml::node& entry : *node.as_array()) {
        origin.overrides.push_back(entry.value_or<std::string>(""));
      }
    } else {
      return fail(name.source(),
                  fmt::format("'{}' of [plan] is unknown or of the wrong type; known: job, set, "
                              "cluster, devices, devices_per_worker, job_fingerprint, "
                              "cluster_fingerprint",
                              name.str()));
    }
  }
  return origin;
}

bool IsOfAnotherJob(const PlanOrigin& origin, const ir::JobRequest& job) {
  return !origin.job_fingerprint.empty() && origin.job_fingerprint != search::JobFingerprint(job);
}

std::string ForeignPlanNote(const PlanOrigin& origin, const std::string& file,
                            const ir::JobRequest& job, const mesh::Topology* topology) {
  if (IsOfAnotherJob(origin, job)) {
    const std::string own_job = search::JobFingerprint(job);
    return fmt::format(
        "{} was saved for another job (fingerprint {} instead of {}): its decisions are taken, its "
        "forecast does not hold",
        file, origin.job_fingerprint.substr(0, kShownFingerprint),
        own_job.substr(0, kShownFingerprint));
  }
  if (topology == nullptr) return "";
  const std::string own_cluster = search::TopologyFingerprint(*topology);
  const std::string& saved = origin.cluster_fingerprint;
  if (saved.empty() || saved == own_cluster) return "";
  return fmt::format(
      "{} was saved for another cluster (fingerprint {} instead of {}): its decisions are taken, "
      "its forecast does not hold",
      file, origin.cluster_fingerprint.substr(0, kShownFingerprint),
      own_cluster.substr(0, kShownFingerprint));
}

}  // namespace meshwright::config
