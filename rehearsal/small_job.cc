#include "rehearsal/small_job.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "planner/decided.h"
#include "planner/resolve_layout.h"
#include "search/sharding_pins.h"

namespace meshwright::rehearsal {
namespace {

using planner::Axis;
using planner::Layout;
using planner::Recompute;

// So small that nothing is left of a model, and large enough that offsets are not all zero.
constexpr int64_t kLeastWidth = 8;
constexpr int64_t kLeastVocabulary = 31;
constexpr int64_t kLeastTokens = 8;
constexpr int64_t kLeastExperts = 4;
constexpr int64_t kMostRows = 2;  // of a microbatch and replica
// Parts of a model beyond which one layer each is enough.
constexpr int kManyParts = 8;
// Below this AdamW makes a step out of the rounding of a gradient that is zero.
constexpr double kLeastEpsilon = 1e-6;

// Layers of the job that are kept, per part.
std::vector<std::vector<int>> KeptLayers(const planner::Plan& plan) {
  const planner::PipelineShape shape = plan.layout.shape();
  std::vector<std::vector<int>> kept(static_cast<size_t>(shape.parts()));
  const auto mode_of = [&](int layer) {
    const std::vector<Recompute>& modes = plan.layout.recompute;
    const auto index = static_cast<size_t>(layer);
    return index < modes.size() ? modes[index] : Recompute::kNone;
  };
  for (size_t stage = 0; stage < plan.stages.size(); ++stage) {
    for (size_t chunk = 0; chunk < plan.stages[stage].layers.size(); ++chunk) {
      const auto [first, last] = plan.stages[stage].layers[chunk];
      std::set<Recompute> seen;
      std::vector<int> layers;
      for (int layer = first; layer <= last; ++layer) {
        if (seen.insert(mode_of(layer)).second) layers.push_back(layer);
      }
      if (layers.size() == 1 && last > first && shape.parts() <= kManyParts) {
        layers.push_back(last);
      }
      const int part = shape.PartOf(static_cast<int>(stage), static_cast<int>(chunk));
      kept[static_cast<size_t>(part)] = std::move(layers);
    }
  }
  return kept;
}

// Enough to fill the stages and to be steady, with the same remainder.
int64_t SmallMicrobatches(const Layout& layout) {
  const int64_t stages = layout.pipeline;
  if (stages == 1) return std::min<int64_t>(layout.microbatches, 3);
  if (layout.microbatches <= 4 * stages) return layout.microbatches;
  return 3 * stages + layout.microbatches % stages;
}

// Writes sizes and remembers those that changed.
class Shrinker {
 public:
  explicit Shrinker(std::vector<SmallSize>& sizes) : sizes_(sizes) {}

  int64_t Take(const char* name, int64_t of_job, int64_t small) {
    if (small != of_job) sizes_.push_back({name, of_job, small});
    return small;
  }

  // Of sizes that the model has.
  void Like(const char* name, const std::optional<int64_t>& of_job, int64_t degrees, int64_t least,
            std::optional<int64_t>& small) {
    if (of_job) small = Take(name, *of_job, SmallLike(*of_job, degrees, least));
  }

 private:
  std::vector<SmallSize>& sizes_;
};

// Query heads are groups of as many as there are, or two, for each key-value head.
int64_t SmallHeads(int64_t heads, int64_t kv_heads, int64_t small_kv_heads, int64_t tensor) {
  const int64_t least = std::min<int64_t>(heads / kv_heads, 2) * small_kv_heads;
  for (int64_t small = least; small < heads; small += small_kv_heads) {
    if (std::gcd(small, tensor) == std::gcd(heads, tensor)) return small;
  }
  return heads;
}

// Heads of an even size that together are like the model's width.
int64_t SmallWidth(int64_t width, int64_t heads, int64_t degrees) {
  for (int64_t head_size = 2; head_size * heads < width; head_size += 2) {
    const int64_t small = head_size * heads;
    if (small >= kLeastWidth && std::gcd(small, degrees) == std::gcd(width, degrees)) return small;
  }
  return width;
}

// Of those that share a row: attention may share its heads, too (planner/context_attention.h).
int64_t DevicesThatShareHeads(const Layout& layout) {
  switch (layout.context_attention) {
    case planner::ContextAttention::kUlysses:
      return layout.context();
    case planner::ContextAttention::kNested:
      return layout.context_heads;
    default:
      return 1;
  }
}

void ShrinkHeads(const models::ModelSpec& of_job, const Layout& layout, Shrinker& shrinker,
                 models::ModelSpec& small) {
  if (!of_job.heads || !of_job.width) return;
  const int64_t tensor = layout.tensor() * DevicesThatShareHeads(layout);
  const int64_t kv_heads = of_job.kv_heads.value_or(*of_job.heads);
  const int64_t small_kv_heads = SmallLike(kv_heads, tensor, 1);
  const int64_t heads = SmallHeads(*of_job.heads, kv_heads, small_kv_heads, tensor);
  const int64_t width = SmallWidth(*of_job.width, heads, layout.degrees.device_count());
  // A model whose width has no small likeness keeps its heads, too: one must divide the other.
  if (width % heads != 0) {
    small.heads = of_job.heads;
    small.kv_heads = of_job.kv_heads;
    small.width = of_job.width;
    return;
  }
  small.heads = shrinker.Take("heads", *of_job.heads, heads);
  small.width = shrinker.Take("width", *of_job.width, width);
  if (of_job.kv_heads) small.kv_heads = shrinker.Take("kv heads", kv_heads, small_kv_heads);
}

// Experts that are chosen by groups stay as many: groups have sizes of their own.
void ShrinkExperts(const models::MixtureSpec& of_job, const Layout& layout, int64_t layers,
                   Shrinker& shrinker, models::MixtureSpec& small) {
  const int64_t devices = layout.degrees.device_count();
  if (of_job.groups.value_or(1) == 1) {
    const int64_t least = std::max(kLeastExperts, of_job.experts_per_token.value_or(0) + 1);
    shrinker.Like("experts", of_job.experts, layout.expert() * layout.tensor(), least,
                  small.experts);
  }
  shrinker.Like("width of shared experts", of_job.shared_inner, devices, kLeastWidth,
                small.shared_inner);
  shrinker.Like("inner width of dense layers", of_job.dense_inner, devices, kLeastWidth,
                small.dense_inner);
  if (of_job.dense_layers) {
    const int64_t dense = std::min(*of_job.dense_layers, layers / 2);
    small.dense_layers = shrinker.Take("dense layers", *of_job.dense_layers, dense);
  }
}

// The model's sizes in `config`, which all else of it is taken from; `tokens`: of a row of the job.
void ShrinkModel(const models::ModelSpec& of_job, const Layout& layout, int64_t layers,
                 int64_t tokens, Shrinker& shrinker, config::JobConfig& config) {
  const int64_t devices = layout.degrees.device_count();
  models::ModelSpec& small = config.model;
  small.layers = shrinker.Take("layers", of_job.layers.value_or(layers), layers);
  ShrinkHeads(of_job, layout, shrinker, small);
  shrinker.Like("inner width", of_job.inner, devices, kLeastWidth, small.inner);
  shrinker.Like("vocabulary", of_job.vocabulary, devices, kLeastVocabulary, small.vocabulary);
  shrinker.Like("positions", of_job.positions, devices, config.train.sequence, small.positions);
  ShrinkExperts(of_job.mixture, layout, layers, shrinker, small.mixture);
  if (of_job.attention_window) {
    const int64_t window = *of_job.attention_window * config.train.sequence / tokens;
    small.attention_window =
        shrinker.Take("attention window", *of_job.attention_window, std::max<int64_t>(window, 1));
  }
  if (of_job.document_separator.value_or(-1) >= 0) {
    small.document_separator = std::min(*of_job.document_separator, *small.vocabulary - 1);
  }
  if (of_job.mask_token) {
    small.mask_token = std::min(*of_job.mask_token, *small.vocabulary - 1);
  }
}

// Buckets of gradients, chunks of what is far, and blocks of the head, as many as there are in the
// job.
void ShrinkBlocks(double params_share, double tokens_share, ir::ParallelSpec& parallel) {
  constexpr int64_t kLeastBucket = 64;
  const auto scaled = [](int64_t size, double share) {
    return static_cast<int64_t>(static_cast<double>(size) * share);
  };
  parallel.bucket_bytes = std::max(kLeastBucket, scaled(parallel.bucket_bytes, params_share));
  parallel.zero_min_bytes = scaled(parallel.zero_min_bytes, params_share);
  parallel.offload_chunk_bytes =
      std::max(kLeastBucket, scaled(parallel.offload_chunk_bytes, params_share));
  if (parallel.head_block_tokens == 0) return;
  parallel.head_block_tokens =
      std::max<int64_t>(1, scaled(parallel.head_block_tokens, tokens_share));
}

// Pins without sizes, of weights that the small model has; where the search chose, what it chose.
Result<std::string> SmallPins(const ir::Graph& small, const std::string& pins,
                              const planner::Plan* searched) {
  std::map<std::string, std::string> sharding_of;
  MW_ASSIGN_OR_RETURN(const std::vector<search::ShardingPin> own, search::ParseShardingPins(pins));
  for (const search::ShardingPin& pin : own) {
    sharding_of[pin.pattern] = search::FormatPinnedSharding(pin.sharding);
  }
  if (searched != nullptr) {
    sharding_of.clear();
    for (const planner::ParamInfo& param : searched->params) {
      sharding_of[param.name] = search::FormatPinnedSharding(param.sharding);
    }
  }
  std::vector<std::string> names;
  for (const NodeId id : small.NodesOf(ir::Op::kParam)) {
    names.push_back(small.node(id).attrs.Str("name"));
  }
  std::vector<std::string> lines;
  for (const auto& [pattern, sharding] : sharding_of) {
    const std::string& glob = pattern;
    const bool known = std::any_of(names.begin(), names.end(), [&glob](const std::string& name) {
      return ::fnmatch(glob.c_str(), name.c_str(), 0) == 0;
    });
    if (known) lines.push_back(pattern + "=" + sharding);
  }
  return Join(lines, "; ");
}

// Of what the job says, what has no part in whether layouts compute the same.
void LeaveOut(config::JobConfig& config) {
  config.dtype = "float64";
  config.gradient_dtype = "float32";
  config.train.tf32 = false;
  config.dataset_format = "uint16";  // tokens are made up, so the vocabulary may be small
  config.loss_on = "all";
  config.packing.reset();
  config.datasets.clear();
  config.validation_datasets.clear();
  config.train.early_stop_patience = 0;
  config.checkpoint.keep_best.clear();
  config.optimizer.warmup_steps = 0;
  config.optimizer.eps = std::max(config.optimizer.eps, kLeastEpsilon);
  config.parallel.device = "cpu";
}

// Rows, tokens and microbatches.
void ShrinkBatch(Shrinker& shrinker, Layout& layout, ir::TrainSpec& train) {
  const int64_t replicas = layout.data();
  MW_CHECK(train.global_batch % (replicas * layout.microbatches) == 0)
      << train.global_batch << " rows in " << layout.ToString();
  const int64_t rows = train.global_batch / (replicas * layout.microbatches);
  layout.microbatches =
      shrinker.Take("microbatches", layout.microbatches, SmallMicrobatches(layout));
  train.global_batch =
      shrinker.Take("rows of a step", train.global_batch,
                    replicas * layout.microbatches *
                        (layout.expert_chunks > 1 ? layout.expert_chunks
                                                  : std::clamp<int64_t>(rows, 1, kMostRows)));
  // Ranks that share a row have two parts of it each (ir/sequence_order.h).
  const int64_t parts = 2 * layout.context() * layout.tensor() * layout.tensor_chunks;
  train.sequence = shrinker.Take("tokens of a row", train.sequence,
                                 SmallLike(train.sequence, parts, kLeastTokens));
}

// Layers of parts, and what they compute again; returns how many layers there are.
int64_t ShrinkLayers(const planner::Plan& plan, Layout& layout) {
  std::vector<int> part_layers;
  std::vector<Recompute> modes;
  for (const std::vector<int>& layers : KeptLayers(plan)) {
    MW_CHECK(!layers.empty()) << "a part of the model without layers";
    part_layers.push_back(static_cast<int>(layers.size()));
    for (const int layer : layers) {
      const auto index = static_cast<size_t>(layer);
      const std::vector<Recompute>& of_job = plan.layout.recompute;
      modes.push_back(index < of_job.size() ? of_job[index] : Recompute::kNone);
    }
  }
  if (!layout.recompute.empty()) layout.recompute = modes;
  layout.part_layers = layout.pipeline > 1 ? part_layers : std::vector<int>();
  return std::accumulate(part_layers.begin(), part_layers.end(), int64_t{0});
}

}  // namespace

int64_t SmallLike(int64_t n, int64_t degrees, int64_t least) {
  MW_CHECK(n >= 1 && degrees >= 1 && least >= 1) << n << " by " << degrees << " from " << least;
  for (int64_t small = least; small < n; ++small) {
    if (std::gcd(small, degrees) == std::gcd(n, degrees)) return small;
  }
  return n;
}

Result<SmallJob> MakeSmallJob(const config::JobConfig& config, const models::Model& model,
                              const planner::Plan& plan, bool by_search) {
  if (model.rows.kind != models::SampleKind::kWindow) {
    return Fail(
        Unimplemented(fmt::format("model '{}' is trained on whole texts or images, and a rehearsal "
                                  "makes up windows of tokens; "
                                  "`meshwright plan` checks its programs",
                                  model.name)));
  }
  SmallJob made;
  made.layout = plan.layout;
  made.layout.devices.clear();
  Shrinker shrinker(made.sizes);
  config::JobConfig small = config;
  const int64_t layers = ShrinkLayers(plan, made.layout);
  ShrinkBatch(shrinker, made.layout, small.train);
  ShrinkModel(model.sizes, made.layout, layers, config.train.sequence, shrinker, small);
  LeaveOut(small);
  const std::string own_pins = std::exchange(small.parallel.sharding_pins, "");
  planner::PinDegrees(made.layout, small.parallel);
  planner::PinMemories(plan, small.parallel);
  small.parallel.expert_dispatch = made.layout.expert_hosts > 1 ? "two-level" : "flat";
  small.parallel.expert_chunks = made.layout.expert_chunks;
  small.parallel.tensor_chunks = made.layout.tensor_chunks;
  small.parallel.part_layers.clear();  // the layout has them
  small.parallel.recompute_layers.clear();
  small.parallel.tensor_axes.clear();
  MW_ASSIGN_OR_RETURN(config::PreparedJob prepared, config::PrepareJob(small));
  ShrinkBlocks(static_cast<double>(prepared.model.param_count) /
                   static_cast<double>(std::max<int64_t>(model.param_count, 1)),
               static_cast<double>(small.train.global_batch * small.train.sequence) /
                   static_cast<double>(config.train.global_batch * config.train.sequence),
               prepared.request.parallel);
  // A grid has axes that no pin can name.
  const bool pinned = made.layout.tensor_axes.empty();
  MW_ASSIGN_OR_RETURN(
      prepared.request.parallel.sharding_pins,
      SmallPins(prepared.request.main().graph, own_pins, by_search && pinned ? &plan : nullptr));
  made.vocabulary = prepared.model.vocabulary;
  made.model_summary = prepared.model.summary;
  made.job = std::move(prepared.request);
  return made;
}

ir::JobRequest OnOneDevice(ir::JobRequest small) {
  small.parallel = {};
  small.parallel.data = 1;
  small.parallel.device = "cpu";
  small.parallel.recompute = "none";
  small.train.compile = false;
  return small;
}

}  // namespace meshwright::rehearsal
