#include "planner/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/text.h"
#include "planner/recompute.h"

namespace meshwright::planner {
namespace {

int64_t LargestDivisor(int64_t n, int64_t limit) {
  for (int64_t d = std::min(n, limit); d > 1; --d) {
    if (n % d == 0) return d;
  }
  return 1;
}

Status CheckDevices(const Layout& layout, int64_t device_count) {
  if (layout.device_count() <= device_count) return OkStatus();
  return InvalidArgument(
      fmt::format("data={} x tensor={} x pipeline={} needs {} devices, the cluster has {}; start "
                  "{} more device(s) or choose "
                  "degrees whose product is at most {}",
                  layout.data, layout.tensor, layout.pipeline, layout.device_count(), device_count,
                  layout.device_count() - device_count, device_count));
}

Status CheckBatch(const Layout& layout, int64_t batch) {
  if (batch % layout.data != 0) {
    return InvalidArgument(
        fmt::format("data={} does not divide the global batch of {} rows; choose data in {{{}}}",
                    layout.data, batch, DivisorList(batch, batch)));
  }
  const int64_t rows = batch / layout.data;
  if (rows % layout.microbatches != 0) {
    return InvalidArgument(
        fmt::format("microbatches={} does not divide the {} rows of each data shard (global batch "
                    "{} / data={}); choose "
                    "microbatches in {{{}}}",
                    layout.microbatches, rows, batch, layout.data, DivisorList(rows, rows)));
  }
  return OkStatus();
}

Status CheckLayers(const Layout& layout, int64_t layer_count) {
  const int64_t parts = layout.shape().parts();
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

// "6,6" -> {6, 6}.
Result<std::vector<int>> ParsePartLayers(const std::string& text, int64_t parts,
                                         int64_t layer_count) {
  std::vector<int> counts;
  int64_t sum = 0;
  for (const std::string& field : Split(text, ',')) {
    int count = 0;
    const char* const end = field.data() + field.size();
    const auto [at, error] = std::from_chars(field.data(), end, count);
    if (error != std::errc() || at != end || count < 1) {
      return Fail(
          InvalidArgument(fmt::format("parallel.part_layers is '{}': '{}' is no number of layers; "
                                      "write the layers of each part "
                                      "as in \"6,6\"",
                                      text, field)));
    }
    counts.push_back(count);
    sum += count;
  }
  if (static_cast<int64_t>(counts.size()) != parts || sum != layer_count) {
    return Fail(
        InvalidArgument(fmt::format("parallel.part_layers is '{}': {} parts of together {} layers, "
                                    "but pipeline x chunks has {} "
                                    "parts and the model {} layers",
                                    text, counts.size(), sum, parts, layer_count)));
  }
  return counts;
}

}  // namespace

std::string DivisorList(int64_t n, int64_t limit) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d <= std::min(n, limit) && divisors.size() < 16; ++d) {
    if (n % d == 0) divisors.push_back(d);
  }
  return fmt::format("{}", fmt::join(divisors, ", "));
}

PipelineShape Layout::shape() const {
  return {static_cast<int>(pipeline), static_cast<int>(chunks), chunks > 1 && IsFolded(schedule)};
}

bool Layout::SplitsBackward() const { return planner::SplitsBackward(schedule); }

std::string Layout::ToString() const {
  std::string text = fmt::format("data={} tensor={} pipeline={} microbatches={} schedule={}", data,
                                 tensor, pipeline, microbatches, schedule);
  if (sequence_parallel) text += " sequence_parallel";
  if (chunks > 1) text += fmt::format(" chunks={}", chunks);
  if (!part_layers.empty()) text += fmt::format(" layers={}", fmt::join(part_layers, ","));
  if (zero > 0) text += fmt::format(" zero={}", zero);
  const bool recomputes = std::any_of(recompute.begin(), recompute.end(),
                                      [](Recompute mode) { return mode != Recompute::kNone; });
  if (recomputes) text += fmt::format(" recompute={}", FormatRecompute(recompute));
  return text;
}

std::string IdleDevicesNote(const ir::JobRequest& job, const Layout& layout, int64_t device_count) {
  const int64_t used = layout.device_count();
  if (job.parallel.data > 0 || used >= device_count) return "";
  const int64_t per_replica = layout.tensor * layout.pipeline;
  const int64_t data = device_count / per_replica;
  std::string note =
      fmt::format("{} of {} devices have no work:", device_count - used, device_count);
  if (layout.data < data) {
    const int64_t batch = (job.train.global_batch + data - 1) / data * data;
    note += fmt::format(
        " data={} is the most that divides a global batch of {} rows; with {} rows "
        "data={} would use {}",
        layout.data, job.train.global_batch, batch, data, data * per_replica);
  } else {
    note += fmt::format(" tensor={} x pipeline={} does not divide {}", layout.tensor,
                        layout.pipeline, device_count);
  }
  return note;
}

Result<Layout> ResolveLayout(const ir::JobRequest& job, int64_t device_count, int64_t layer_count) {
  const ir::ParallelSpec& wanted = job.parallel;
  Layout layout;
  layout.tensor = std::max<int64_t>(wanted.tensor, 1);
  layout.pipeline = std::max<int64_t>(wanted.pipeline, 1);
  layout.schedule = wanted.schedule == "auto" ? "1f1b" : wanted.schedule;
  MW_ASSIGN_OR_RETURN(const PipelineShape shape,
                      ShapeOfSchedule(layout.schedule, static_cast<int>(layout.pipeline),
                                      static_cast<int>(wanted.chunks)));
  layout.chunks = shape.chunks;
  layout.sequence_parallel = wanted.sequence_parallel && layout.tensor > 1;
  layout.zero = std::max<int64_t>(wanted.zero, 0);
  const int64_t batch = job.train.global_batch;
  if (wanted.data > 0) {
    layout.data = wanted.data;
  } else {
    const int64_t rest = device_count / (layout.tensor * layout.pipeline);
    layout.data = rest < 1 ? 1 : LargestDivisor(batch, rest);
  }
  MW_TRY(CheckDevices(layout, device_count));
  MW_TRY(CheckLayers(layout, layer_count));
  if (!wanted.part_layers.empty()) {
    MW_ASSIGN_OR_RETURN(layout.part_layers,
                        ParsePartLayers(wanted.part_layers, shape.parts(), layer_count));
  }
  if (wanted.microbatches > 0) {
    layout.microbatches = wanted.microbatches;
  } else if (layout.pipeline > 1 && batch % layout.data == 0) {
    layout.microbatches = LargestDivisor(batch / layout.data, 2 * layout.pipeline);
  }
  MW_TRY(CheckBatch(layout, batch));
  if (layout.sequence_parallel && job.train.sequence % layout.tensor != 0) {
    return Fail(
        InvalidArgument(fmt::format("sequence_parallel splits the {} tokens of a row over "
                                    "tensor={}; choose a sequence that {} divides",
                                    job.train.sequence, layout.tensor, layout.tensor)));
  }
  return layout;
}

}  // namespace meshwright::planner
