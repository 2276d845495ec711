#include "planner/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/parse_int.h"
#include "base/text.h"
#include "planner/context_attention.h"
#include "planner/plan_text.h"

namespace meshwright::planner {
namespace {

constexpr int64_t kMostMultiple = int64_t{1} << 40;

// "2,3*40,2": of hundreds of parts, most are like their neighbours.
std::string FormatPartLayers(const std::vector<int>& layers) {
  constexpr std::ptrdiff_t kLeastRun = 4;
  std::vector<std::string> runs;
  for (auto begin = layers.begin(); begin != layers.end();) {
    auto end = std::find_if(begin, layers.end(), [&](int count) { return count != *begin; });
    if (end - begin < kLeastRun) end = begin + 1;
    runs.push_back(end - begin == 1 ? fmt::to_string(*begin)
                                    : fmt::format("{}*{}", *begin, end - begin));
    begin = end;
  }
  return fmt::format("{}", fmt::join(runs, ","));
}

}  // namespace

Result<ContextAttention> ParseContextAttention(const std::string& text) {
  for (size_t way = 0; way < kContextAttentionNames.size(); ++way) {
    if (text == kContextAttentionNames[way]) return static_cast<ContextAttention>(way);
  }
  return Fail(InvalidField(
      "parallel.context_attention",
      fmt::format("is '{}'; known: {}", text, fmt::join(kContextAttentionNames, ", "))));
}

PipelineShape Layout::shape() const {
  return {static_cast<int>(pipeline), static_cast<int>(chunks), chunks > 1 && IsFolded(schedule)};
}

const Degrees& Layout::DegreesOf(int stage) const {
  MW_CHECK(stage >= 0 && stage < pipeline) << "stage " << stage << " of " << pipeline;
  return stage_degrees.empty() ? degrees : stage_degrees[static_cast<size_t>(stage)];
}

int64_t Layout::FirstDevice(int stage) const {
  MW_CHECK(stage >= 0 && stage <= pipeline) << "stage " << stage << " of " << pipeline;
  if (stage_degrees.empty()) return stage * degrees.device_count();
  int64_t first = 0;
  for (int s = 0; s < stage; ++s) first += DegreesOf(s).device_count();
  return first;
}

int64_t Layout::device_count() const { return FirstDevice(static_cast<int>(pipeline)); }

bool Layout::SplitsBackward() const { return planner::SplitsBackward(schedule); }

std::string Layout::ToString() const {
  std::string text;
  if (stage_degrees.empty()) {
    text =
        fmt::format("data={}{}{} tensor={} pipeline={}", data(),
                    expert() > 1 ? fmt::format(" expert={}", expert()) : "",
                    context() > 1 ? fmt::format(" context={}", context()) : "", tensor(), pipeline);
  } else {
    text = fmt::format("pipeline={} meshes={}{}", pipeline, FormatStageDegrees(stage_degrees),
                       expert() > 1 ? fmt::format(" expert={}", expert()) : "");
  }
  if (expert_hosts > 1) text += fmt::format(" expert_hosts={}", expert_hosts);
  if (expert_chunks > 1) text += fmt::format(" expert_chunks={}", expert_chunks);
  text += fmt::format(" microbatches={} schedule={}", microbatches, schedule);
  if (tensor_axes.size() > 1) text += fmt::format(" tensor_axes={}", fmt::join(tensor_axes, "x"));
  if (sequence_parallel) text += " sequence_parallel";
  if (chunks > 1) text += fmt::format(" chunks={}", chunks);
  if (!part_layers.empty()) text += fmt::format(" layers={}", FormatPartLayers(part_layers));
  if (zero > 0) text += fmt::format(" zero={}", zero);
  // Of what the stage splits; groups of other state have no effect.
  const ZeroGroups shown{zero_groups.state, zero > 1 ? zero_groups.gradients : 0,
                         zero > 2 ? zero_groups.weights : 0};
  if (zero > 0 && shown != ZeroGroups{}) {
    text += fmt::format(" groups={}/{}/{}", shown.state, shown.gradients, shown.weights);
  }
  const bool recomputes = std::any_of(recompute.begin(), recompute.end(),
                                      [](Recompute mode) { return mode != Recompute::kNone; });
  if (recomputes) text += fmt::format(" recompute={}", FormatRecompute(recompute));
  return text;
}

std::string Layout::AskedText() const {
  Layout asked = *this;
  asked.expert_hosts = 1;
  asked.expert_chunks = 1;
  return asked.ToString();
}

mesh::Topology TopologyOf(const Layout& layout, const mesh::Topology& topology) {
  if (layout.devices.empty()) return topology;
  mesh::Topology seen = topology;
  seen.devices.clear();
  std::vector<bool> used(topology.devices.size(), false);
  for (const int device : layout.devices) {
    MW_CHECK(static_cast<size_t>(device) < used.size() && !used[static_cast<size_t>(device)])
        << "device " << device << " of " << used.size() << ", or twice";
    seen.devices.push_back(topology.devices[static_cast<size_t>(device)]);
    used[static_cast<size_t>(device)] = true;
  }
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) seen.devices.push_back(topology.devices[i]);
  }
  return seen;
}

std::string FormatDevices(const Layout& layout, int64_t first, int64_t count) {
  const auto at = [&](int64_t program) {
    return layout.devices.empty() ? program : int64_t{layout.devices[static_cast<size_t>(program)]};
  };
  std::vector<int64_t> devices;
  for (int64_t program = first; program < first + count; ++program) devices.push_back(at(program));
  return FormatRanges(devices);
}

Result<std::vector<Degrees>> ParseStageDegrees(const std::string& text) {
  constexpr int64_t kMost = 1 << 16;
  std::vector<Degrees> stages;
  for (const std::string& part : Split(text, ',')) {
    const std::string field(Trim(part));
    std::vector<int64_t> sizes;
    for (const std::string& number : Split(field, 'x')) {
      const int64_t size = ParseInt(number).value_or(0);
      const bool valid = size >= 1 && size <= kMost;
      if (!valid) sizes.clear();
      if (!valid) break;
      sizes.push_back(size);
    }
    if (sizes.size() != 2 && sizes.size() != 3) {
      return Fail(InvalidField("parallel.stage_meshes",
                               fmt::format("is '{}': '{}' is no mesh; write data x tensor of each "
                                           "stage as in \"2x1,1x1\"",
                                           text, field)));
    }
    Degrees& stage = stages.emplace_back(sizes.front(), sizes.back());
    if (sizes.size() == 3) stage[Axis::kContext] = sizes[1];
  }
  return stages;
}

std::string FormatStageDegrees(const std::vector<Degrees>& degrees) {
  const bool flat = std::all_of(degrees.begin(), degrees.end(),
                                [](const Degrees& stage) { return stage.context() == 1; });
  std::string text;
  for (const Degrees& stage : degrees) {
    if (!text.empty()) text += ",";
    text += std::to_string(stage.data());
    if (!flat) text += fmt::format("x{}", stage.context());
    text += fmt::format("x{}", stage.tensor());
  }
  return text;
}

void ShareExperts(int64_t degree, Degrees& stage) {
  const int64_t replicas = stage.data();
  stage[Axis::kExpert] = std::gcd(std::max<int64_t>(degree, 1), replicas);
  stage[Axis::kData] = replicas / stage.expert();
}

void SetStageDegrees(const std::vector<Degrees>& degrees, Layout& layout) {
  MW_CHECK(!degrees.empty()) << "no stage has a mesh";
  layout.pipeline = static_cast<int64_t>(degrees.size());
  layout.degrees = {};
  for (const Degrees& stage : degrees) {
    for (const AxisKind& kind : kAxisKinds) {
      // What is larger divides no batch and no weight.
      int64_t& common = layout.degrees[kind.axis];
      if (common < kMostMultiple) common = std::lcm(common, stage[kind.axis]);
    }
  }
  const bool equal = std::all_of(degrees.begin(), degrees.end(),
                                 [&](const Degrees& stage) { return stage == degrees[0]; });
  layout.stage_degrees = equal ? std::vector<Degrees>() : degrees;
}

}  // namespace meshwright::planner
