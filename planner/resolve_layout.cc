#include "planner/resolve_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "base/parse_int.h"
#include "base/text.h"
#include "planner/router_sweep.h"
#include "planner/zero_levels.h"

namespace meshwright::planner {
namespace {

constexpr size_t kMostTensorAxes = 3;
constexpr int64_t kMostTensor = 1 << 16;

int64_t LargestDivisor(int64_t n, int64_t limit) {
  for (int64_t d = std::min(n, limit); d > 1; --d) {
    if (n % d == 0) return d;
  }
  return 1;
}

Status CheckDevices(const Layout& layout, int64_t device_count) {
  if (layout.device_count() <= device_count) return OkStatus();
  if (!layout.stage_degrees.empty()) {
    return InvalidField(
        "parallel.stage_meshes",
        fmt::format("is {}, which needs {} devices, the cluster has {}; start {} more device(s) or "
                    "choose smaller meshes",
                    FormatStageDegrees(layout.stage_degrees), layout.device_count(), device_count,
                    layout.device_count() - device_count));
  }
  const std::string context =
      layout.context() > 1 ? fmt::format("context={} x ", layout.context()) : "";
  return InvalidArgument(
      fmt::format("data={} x {}tensor={} x pipeline={} needs {} devices, the cluster has {}; start "
                  "{} more device(s) or choose "
                  "degrees whose product is at most {}",
                  layout.data(), context, layout.tensor(), layout.pipeline, layout.device_count(),
                  device_count, layout.device_count() - device_count, device_count));
}

Status CheckBatch(const Layout& layout, int64_t batch) {
  if (batch % layout.data() != 0) {
    return InvalidArgument(
        fmt::format("data={} does not divide the global batch of {} rows; choose data in {{{}}}",
                    layout.data(), batch, DivisorList(batch, batch)));
  }
  const int64_t rows = batch / layout.data();
  if (rows % layout.microbatches != 0) {
    return InvalidArgument(
        fmt::format("microbatches={} does not divide the {} rows of each data shard (global batch "
                    "{} / data={}); choose "
                    "microbatches in {{{}}}",
                    layout.microbatches, rows, batch, layout.data(), DivisorList(rows, rows)));
  }
  return OkStatus();
}

Status CheckLayers(const Layout& layout, int64_t layer_count) {
  // Of pins that nobody has bounded yet: as int the product could wrap.
  const int64_t parts = layout.pipeline * layout.chunks;
  if (layout.pipeline == 1 || parts <= layer_count) return OkStatus();
  if (layer_count == 0) {
    return InvalidArgument(
        fmt::format("pipeline={} cuts between layers, the loss graph has none; number the blocks "
                    "with Builder::SetLayer, or choose pipeline=1",
                    layout.pipeline));
  }
  if (layout.chunks > 1) {
    return InvalidArgument(
        fmt::format("pipeline={} x {} chunks needs at least {} layers, the model has {}; choose "
                    "fewer stages or "
                    "chunks",
                    layout.pipeline, layout.chunks, parts, layer_count));
  }
  return InvalidArgument(
      fmt::format("pipeline={} needs at least {} layers, the model has {}; choose pipeline <= {}",
                  layout.pipeline, layout.pipeline, layer_count, layer_count));
}

// 0: it is no number above 0 that an int can be.
int Positive(std::string_view text) {
  const int64_t number = ParseInt(text).value_or(0);
  return number > 0 && number <= std::numeric_limits<int>::max() ? static_cast<int>(number) : 0;
}

// "6,5*3" -> {6, 5, 5, 5}.
Result<std::vector<int>> ParsePartLayers(const std::string& text) {
  constexpr size_t kMostParts = 100'000;
  std::vector<int> counts;
  for (const std::string& field : Split(text, ',')) {
    const std::vector<std::string> factors = Split(field, '*');
    const int count = Positive(factors[0]);
    const int times = factors.size() == 1 ? 1 : Positive(factors[1]);
    if (count == 0 || times == 0 || factors.size() > 2) {
      return Fail(
          InvalidField("parallel.part_layers", fmt::format("is '{}': '{}' is no number of layers; "
                                                           "write the layers of each part "
                                                           "as in \"6,6\", or \"6*2\"",
                                                           text, field)));
    }
    if (counts.size() + static_cast<size_t>(times) > kMostParts) {
      return Fail(InvalidField("parallel.part_layers",
                               fmt::format("has more than {} parts; a model has no more parts than "
                                           "layers",
                                           kMostParts)));
    }
    counts.insert(counts.end(), static_cast<size_t>(times), count);
  }
  return counts;
}

// How many parts there are: `unit`, or what is open.
struct PartCount {
  enum class Open { kNothing, kMultiple, kMultipleOrOne };  // one: of a single stage
  int64_t unit = 1;
  Open open = Open::kNothing;

  bool Allows(int64_t parts) const {
    if (open == Open::kMultipleOrOne && parts == 1) return true;
    return open == Open::kNothing ? parts == unit : parts % unit == 0;
  }
  std::string ToString() const {
    if (open == Open::kNothing) return std::to_string(unit);
    return fmt::format("{}a multiple of {}", open == Open::kMultiple ? "" : "1 or ", unit);
  }
};

Result<std::vector<int>> TakePartLayers(const std::string& text, const PartCount& wanted,
                                        int64_t layer_count) {
  MW_ASSIGN_OR_RETURN(std::vector<int> counts, ParsePartLayers(text));
  const auto sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const auto parts = static_cast<int64_t>(counts.size());
  if (sum == layer_count && wanted.Allows(parts)) return counts;
  return Fail(InvalidField("parallel.part_layers",
                           fmt::format("is '{}': {} parts of together {} layers, but pipeline x "
                                       "chunks has {} parts and the model {} layers",
                                       text, parts, sum, wanted.ToString(), layer_count)));
}

Status TakeTensorAxes(const ir::ParallelSpec& wanted, Layout& layout) {
  if (wanted.tensor_axes.empty()) return OkStatus();
  if (wanted.shardings != "search") {
    return InvalidField("parallel.tensor_axes",
                        fmt::format("is '{}', but shardings is \"{}\": the rules "
                                    "split one tensor axis; use shardings = \"search\"",
                                    wanted.tensor_axes, wanted.shardings));
  }
  MW_ASSIGN_OR_RETURN(layout.tensor_axes, ParseTensorAxes(wanted.tensor_axes));
  if (!wanted.stage_meshes.empty()) {
    return InvalidField(
        "parallel.tensor_axes",
        fmt::format("is '{}', but stages name their meshes ('{}') and have one tensor axis each; "
                    "leave one of them open",
                    wanted.tensor_axes, wanted.stage_meshes));
  }
  int64_t product = 1;
  for (const int64_t size : layout.tensor_axes) product *= size;
  if (wanted.tensor > 0 && wanted.tensor != product) {
    return InvalidField(
        "parallel.tensor_axes",
        fmt::format("is '{}', a grid of {}, but the tensor degree is {}; leave one of them open",
                    wanted.tensor_axes, product, wanted.tensor));
  }
  layout.degrees[Axis::kTensor] = product;
  std::erase(layout.tensor_axes, 1);
  if (layout.tensor_axes.size() < 2) layout.tensor_axes.clear();
  return OkStatus();
}

// Meshes of stages say what degrees would say otherwise.
Status TakeStageMeshes(const ir::ParallelSpec& wanted, Layout& layout) {
  if (wanted.stage_meshes.empty()) return OkStatus();
  MW_ASSIGN_OR_RETURN(std::vector<Degrees> degrees, ParseStageDegrees(wanted.stage_meshes));
  const bool other_count =
      wanted.pipeline > 0 && wanted.pipeline != static_cast<int64_t>(degrees.size());
  if (wanted.data > 0 || wanted.tensor > 0 || wanted.context > 1 || other_count) {
    std::vector<std::string> given;
    if (wanted.data > 0) given.push_back(fmt::format("a data degree of {}", wanted.data));
    if (wanted.context > 1) {
      given.push_back(fmt::format("a context degree of {}", wanted.context));
    }
    if (wanted.tensor > 0) given.push_back(fmt::format("a tensor degree of {}", wanted.tensor));
    if (other_count) given.push_back(fmt::format("a pipeline degree of {}", wanted.pipeline));
    return InvalidField(
        "parallel.stage_meshes",
        fmt::format("is '{}', {} meshes, but {} is given, too; leave one of them open",
                    wanted.stage_meshes, degrees.size(), fmt::join(given, " and ")));
  }
  for (Degrees& stage : degrees) ShareExperts(wanted.expert, stage);
  SetStageDegrees(degrees, layout);
  if (layout.expert() == std::max<int64_t>(wanted.expert, 1)) return OkStatus();
  return InvalidField(
      "parallel.expert",
      fmt::format("is {}, and no stage of {} has replicas for more than {} of it; "
                  "choose that, or a mesh with a multiple of {} replicas",
                  wanted.expert, wanted.stage_meshes, layout.expert(), wanted.expert));
}

// Parts per stage, of which a schedule has as many whatever the number of stages is; 1: open.
Result<PipelineShape> ShapeOfPins(const ir::ParallelSpec& pins, int stages) {
  const auto chunks = static_cast<int>(pins.chunks);
  if (pins.schedule != "auto") return ShapeOfSchedule(pins.schedule, stages, chunks);
  return PipelineShape{stages, stages == 1 ? 1 : std::max(1, chunks), false};
}

// Where the schedule or the stages are open, so is the number of parts.
Status CheckSchedule(const ir::ParallelSpec& pins, Layout layout, int64_t layer_count) {
  constexpr int kSomeStages = 2;
  const bool stages_known = pins.pipeline > 0 || !pins.stage_meshes.empty();
  MW_ASSIGN_OR_RETURN(
      const PipelineShape shape,
      ShapeOfPins(pins, stages_known ? static_cast<int>(layout.pipeline) : kSomeStages));
  layout.chunks = shape.chunks;
  if (stages_known) MW_TRY(CheckLayers(layout, layer_count));
  if (pins.part_layers.empty()) return OkStatus();
  const bool chunks_known = pins.schedule != "auto" || pins.chunks > 0 || shape.stages == 1;
  using Open = PartCount::Open;
  const PartCount count =
      stages_known ? PartCount{shape.parts(), chunks_known ? Open::kNothing : Open::kMultiple}
                   : PartCount{shape.chunks, Open::kMultipleOrOne};
  MW_TRY(TakePartLayers(pins.part_layers, count, layer_count));
  return OkStatus();
}

// Replicas in groups that share experts.
Status TakeExperts(const ir::ParallelSpec& wanted, Layout& layout) {
  const int64_t expert = std::max<int64_t>(wanted.expert, 1);
  const int64_t replicas = layout.degrees[Axis::kData];
  if (replicas % expert != 0) {
    return InvalidField("parallel.expert",
                        fmt::format("is {}, which does not divide the {} replicas that share the "
                                    "experts; choose one of {{{}}}",
                                    expert, replicas, DivisorList(replicas, replicas)));
  }
  layout.degrees[Axis::kExpert] = expert;
  layout.degrees[Axis::kData] = replicas / expert;
  return OkStatus();
}

}  // namespace

std::string DivisorList(int64_t n, int64_t limit) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d <= std::min(n, limit) && divisors.size() < 16; ++d) {
    if (n % d == 0) divisors.push_back(d);
  }
  return fmt::format("{}", fmt::join(divisors, ", "));
}

void PinDegrees(const Layout& layout, ir::ParallelSpec& spec) {
  const bool equal = layout.stage_degrees.empty();
  spec.data = equal ? layout.data() : 0;
  spec.expert = layout.expert();
  spec.context = equal ? layout.context() : 0;
  spec.tensor = equal ? layout.tensor() : 0;
  spec.stage_meshes = FormatStageDegrees(layout.stage_degrees);
  spec.pipeline = layout.pipeline;
  spec.microbatches = layout.microbatches;
  spec.schedule = layout.schedule;
  spec.chunks = layout.chunks;
  spec.sequence_parallel = layout.sequence_parallel;
  spec.zero = layout.zero;
  for (const ZeroLevel& level : ZeroLevels()) spec.*level.pin = layout.zero_groups.*level.group;
}

std::string IdleDevicesNote(const ir::JobRequest& job, const Layout& layout, int64_t device_count) {
  const int64_t used = layout.device_count();
  if (job.parallel.data > 0 || used >= device_count || !layout.stage_degrees.empty()) return "";
  const int64_t per_replica = layout.degrees.per_replica() * layout.pipeline;
  const int64_t data = device_count / per_replica;
  std::string note =
      fmt::format("{} of {} devices have no work:", device_count - used, device_count);
  if (layout.data() < data) {
    const int64_t batch = (job.train.global_batch + data - 1) / data * data;
    note += fmt::format(
        " data={} is the most that divides a global batch of {} rows; with {} rows "
        "data={} would use {}",
        layout.data(), job.train.global_batch, batch, data, data * per_replica);
  } else {
    note += fmt::format(" tensor={} x pipeline={} does not divide {}", layout.tensor(),
                        layout.pipeline, device_count);
  }
  return note;
}

Result<std::vector<int64_t>> ParseTensorAxes(const std::string& text) {
  std::vector<int64_t> axes;
  for (const std::string& field : Split(text, 'x')) {
    const int64_t size = ParseInt(field).value_or(0);
    if (size < 1 || size > kMostTensor) {
      return Fail(
          InvalidField("parallel.tensor_axes",
                       fmt::format("is '{}': '{}' is no size of an axis; write sizes as in \"2x2\"",
                                   text, field)));
    }
    axes.push_back(size);
  }
  if (axes.size() > kMostTensorAxes) {
    return Fail(
        InvalidField("parallel.tensor_axes",
                     fmt::format("is '{}': a grid has at most {} axes", text, kMostTensorAxes)));
  }
  int64_t devices = 1;
  for (const int64_t size : axes) devices *= size;
  if (devices <= kMostTensor) return axes;
  return Fail(
      InvalidField("parallel.tensor_axes",
                   fmt::format("is '{}': a grid of {} devices; a tensor group has at most {}", text,
                               devices, kMostTensor)));
}

Status CheckPins(const ir::ParallelSpec& pins, int64_t layer_count) {
  Layout layout;
  layout.pipeline = std::max<int64_t>(pins.pipeline, 1);
  MW_TRY(TakeStageMeshes(pins, layout));
  MW_TRY(TakeTensorAxes(pins, layout));
  MW_TRY(CheckSchedule(pins, layout, layer_count));
  MW_TRY(ZeroGroupsOf(pins));
  MW_TRY(RecomputeOfLayers(Recompute::kFull, pins.recompute_layers, static_cast<int>(layer_count)));
  return OkStatus();
}

Result<Layout> ResolveLayout(const ir::JobRequest& job, int64_t device_count, int64_t layer_count) {
  const ir::ParallelSpec& wanted = job.parallel;
  Layout layout;
  layout.degrees[Axis::kContext] = std::max<int64_t>(wanted.context, 1);
  layout.degrees[Axis::kTensor] = std::max<int64_t>(wanted.tensor, 1);
  layout.pipeline = std::max<int64_t>(wanted.pipeline, 1);
  MW_TRY(TakeStageMeshes(wanted, layout));
  layout.schedule = wanted.schedule == "auto" ? "1f1b" : wanted.schedule;
  MW_ASSIGN_OR_RETURN(const PipelineShape shape,
                      ShapeOfSchedule(layout.schedule, static_cast<int>(layout.pipeline),
                                      static_cast<int>(wanted.chunks)));
  layout.chunks = shape.chunks;
  MW_TRY(TakeTensorAxes(wanted, layout));
  MW_ASSIGN_OR_RETURN(layout.context_attention, ParseContextAttention(wanted.context_attention));
  layout.sequence_parallel = wanted.sequence_parallel.value_or(false) && layout.tensor() > 1;
  layout.zero = std::max<int64_t>(wanted.zero, 0);
  MW_ASSIGN_OR_RETURN(layout.zero_groups, ZeroGroupsOf(wanted));
  const int64_t batch = job.train.global_batch;
  if (wanted.data > 0) {
    layout.degrees[Axis::kData] = wanted.data;
    MW_TRY(TakeExperts(wanted, layout));
  } else if (wanted.stage_meshes.empty()) {
    const int64_t rest = device_count / (layout.degrees.per_replica() * layout.pipeline);
    layout.degrees[Axis::kData] = rest < 1 ? 1 : LargestDivisor(batch, rest);
    MW_TRY(TakeExperts(wanted, layout));
  }
  MW_TRY(CheckZeroGroups(layout));
  MW_TRY(CheckDevices(layout, device_count));
  MW_TRY(CheckLayers(layout, layer_count));
  if (!wanted.part_layers.empty()) {
    MW_ASSIGN_OR_RETURN(layout.part_layers,
                        TakePartLayers(wanted.part_layers, {shape.parts()}, layer_count));
  }
  if (wanted.microbatches > 0) {
    layout.microbatches = wanted.microbatches;
  } else if (layout.pipeline > 1 && batch % layout.data() == 0 && WholeBatchOf(job).empty()) {
    layout.microbatches = LargestDivisor(batch / layout.data(), 2 * layout.pipeline);
  }
  MW_TRY(CheckBatch(layout, batch));
  if (layout.sequence_parallel && job.train.sequence % layout.tensor() != 0) {
    return Fail(
        InvalidArgument(fmt::format("sequence_parallel splits the {} tokens of a row over "
                                    "tensor={}; choose a sequence that {} divides",
                                    job.train.sequence, layout.tensor(), layout.tensor())));
  }
  return layout;
}

}  // namespace meshwright::planner
