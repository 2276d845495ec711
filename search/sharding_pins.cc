#include "search/sharding_pins.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <utility>

#include "base/parse_int.h"
#include "base/text.h"
#include "planner/resolve_layout.h"
#include "planner/stages.h"
#include "planner/strategy.h"
#include "planner/zero.h"
#include "planner/zero_levels.h"

namespace meshwright::search {
namespace {

using mesh::Sharding;

constexpr char kField[] = "parallel.sharding_pins";
constexpr const char* kForm = "write NAME=[_,_{tensor}], one entry per dim";

Status BadPin(std::string_view pin, const std::string& what) {
  return InvalidField(kField, fmt::format(": '{}' {}; {}", pin, what, kForm));
}

// Fields between commas that are not inside of braces.
std::vector<std::string> DimFields(std::string_view text) {
  std::vector<std::string> fields(1);
  int depth = 0;
  for (const char c : text) {
    if (c == '{') ++depth;
    if (c == '}') --depth;
    if (c == ',' && depth == 0) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

// "_", "768" or "_{tensor,data}".
bool ReadDim(std::string_view field, int64_t& size, mesh::AxisList& axes) {
  field = Trim(field);
  const size_t brace = field.find('{');
  const std::string_view number = Trim(field.substr(0, brace));
  size = 0;
  if (number != "_") {
    size = ParseInt(number).value_or(0);
    if (size < 1) return false;
  }
  if (brace == std::string_view::npos) return true;
  if (field.back() != '}') return false;
  for (const std::string& axis : Split(field.substr(brace + 1, field.size() - brace - 2), ',')) {
    const std::string name(Trim(axis));
    if (name != planner::kTensor && name != planner::kData) return false;
    axes.push_back(name);
  }
  return true;
}

Result<ShardingPin> ParsePin(std::string_view text) {
  const size_t equals = text.find('=');
  const std::string_view dims =
      equals == std::string_view::npos ? "" : Trim(text.substr(equals + 1));
  if (dims.size() < 2 || dims.front() != '[' || dims.back() != ']') {
    return Fail(BadPin(text, "has no '=[..]'"));
  }
  ShardingPin pin;
  pin.pattern = Trim(text.substr(0, equals));
  if (pin.pattern.empty()) return Fail(BadPin(text, "names no weight"));
  const std::string_view inner = Trim(dims.substr(1, dims.size() - 2));
  if (inner.empty()) return pin;  // a scalar
  for (const std::string& field : DimFields(inner)) {
    int64_t size = 0;
    if (!ReadDim(field, size, pin.sharding.dims.emplace_back())) {
      return Fail(BadPin(text, fmt::format("has the dim '{}', which is no size or _ with axes "
                                           "data or tensor in braces",
                                           Trim(field))));
    }
    pin.sizes.push_back(size);
  }
  for (const char* axis : {planner::kTensor, planner::kData}) {
    int64_t uses = 0;
    for (const mesh::AxisList& axes : pin.sharding.dims) {
      uses += std::count(axes.begin(), axes.end(), axis);
    }
    if (uses > 1) return Fail(BadPin(text, fmt::format("splits by {} twice", axis)));
  }
  return pin;
}

struct Weight {
  std::string name;
  ir::TensorType type;
};

std::vector<Weight> WeightsOf(const ir::Graph& graph) {
  std::vector<Weight> weights;
  for (const NodeId id : graph.NodesOf(ir::Op::kParam)) {
    const ir::Node& node = graph.node(id);
    if (node.attrs.Int("state") != 0) continue;
    weights.push_back({node.attrs.Str("name"), graph.type(node.outputs[0])});
  }
  return weights;
}

bool FitsType(const ShardingPin& pin, const ir::TensorType& type) {
  if (pin.sizes.size() != type.dims.size()) return false;
  for (size_t d = 0; d < pin.sizes.size(); ++d) {
    if (pin.sizes[d] != 0 && pin.sizes[d] != type.dims[d]) return false;
  }
  return true;
}

// The pin of every weight that has one; each pin has a weight.
Result<std::map<std::string, const ShardingPin*>> MatchPins(const std::vector<ShardingPin>& pins,
                                                            const std::vector<Weight>& weights) {
  std::map<std::string, const ShardingPin*> pin_of;
  for (const ShardingPin& pin : pins) {
    bool used = false;
    for (const Weight& weight : weights) {
      if (::fnmatch(pin.pattern.c_str(), weight.name.c_str(), 0) != 0) continue;
      used = true;
      if (!FitsType(pin, weight.type)) {
        return Fail(BadPin(
            pin.pattern, fmt::format("matches {} {}, whose dims are not those of {}", weight.name,
                                     weight.type.ToString(), FormatPinnedSharding(pin.sharding))));
      }
      const auto [it, fresh] = pin_of.emplace(weight.name, &pin);
      if (fresh || it->second->sharding == pin.sharding) continue;
      return Fail(
          InvalidField(kField, fmt::format(": '{}' and '{}' want different shardings of {}; leave "
                                           "one of them out",
                                           it->second->pattern, pin.pattern, weight.name)));
    }
    if (used) continue;
    std::vector<std::string> names;
    for (const Weight& weight : weights) names.push_back(weight.name);
    return Fail(InvalidField(kField, fmt::format(": no weight is called '{}'{}", pin.pattern,
                                                 DidYouMean(pin.pattern, names))));
  }
  return pin_of;
}

mesh::Mesh MeshOf(const planner::Layout& layout) {
  planner::Layout in_space = layout;
  in_space.microbatches = 1;
  return planner::PlanningMesh(in_space);
}

}  // namespace

Result<std::vector<ShardingPin>> ParseShardingPins(std::string_view text) {
  std::vector<ShardingPin> pins;
  for (const std::string& field : Split(text, ';')) {
    const std::string_view pin = Trim(field);
    if (pin.empty()) continue;
    MW_ASSIGN_OR_RETURN(ShardingPin parsed, ParsePin(pin));
    pins.push_back(std::move(parsed));
  }
  return pins;
}

std::string FormatPinnedSharding(const Sharding& sharding) {
  std::vector<std::string> dims;
  for (const mesh::AxisList& axes : sharding.dims) {
    dims.push_back(axes.empty() ? "_" : fmt::format("_{{{}}}", Join(axes, ",")));
  }
  return fmt::format("[{}]", Join(dims, ","));
}

Status CheckShardingPins(const ir::JobRequest& job) {
  MW_ASSIGN_OR_RETURN(const std::vector<ShardingPin> pins,
                      ParseShardingPins(job.parallel.sharding_pins));
  MW_TRY(MatchPins(pins, WeightsOf(job.main().graph)));
  return OkStatus();
}

Result<std::map<std::string, Sharding>> PinnedParams(const std::string& pins,
                                                     const ir::Graph& graph,
                                                     const planner::Layout& layout) {
  MW_ASSIGN_OR_RETURN(const std::vector<ShardingPin> parsed, ParseShardingPins(pins));
  const std::vector<Weight> weights = WeightsOf(graph);
  MW_ASSIGN_OR_RETURN(const auto pin_of, MatchPins(parsed, weights));
  const mesh::Mesh mesh = MeshOf(layout);
  std::map<std::string, Sharding> pinned;
  for (const Weight& weight : weights) {
    const auto it = pin_of.find(weight.name);
    if (it == pin_of.end()) continue;
    Sharding sharding = it->second->sharding;
    for (mesh::AxisList& axes : sharding.dims) {
      std::erase_if(axes, [&](const std::string& axis) { return mesh.AxisSize(axis) == 1; });
    }
    const Status valid = mesh::ValidateSharding(weight.type, sharding, mesh);
    if (!valid.ok()) {
      return Fail(
          InvalidField(kField, fmt::format(": '{}' of {} on {}: {}", it->second->pattern,
                                           weight.name, layout.ToString(), valid.message())));
    }
    pinned[weight.name] = std::move(sharding);
  }
  return pinned;
}

planner::ShardingChooser MakePinnedRules(const ir::JobRequest& job) {
  if (job.parallel.sharding_pins.empty()) return {};
  using planner::Strategies;
  return [pins = job.parallel.sharding_pins, min_bytes = job.parallel.zero_min_bytes](
             const ir::Graph& graph, const planner::StageAssignment& stages,
             const planner::Layout& layout,
             const std::map<std::string, Sharding>& stored) -> Result<Strategies> {
    std::map<std::string, Sharding> pinned = stored;
    if (stored.empty()) {
      MW_ASSIGN_OR_RETURN(pinned, PinnedParams(pins, graph, layout));
    }
    MW_ASSIGN_OR_RETURN(
        Strategies strategies,
        planner::ChooseStrategies(graph, stages, layout, planner::WholeOverData(layout, pinned),
                                  layout.tensor()));
    if (!stored.empty()) {  // of another program, as planner::MakePlanOf does by the rules
      planner::ReadShardedParams(graph, layout, stored, strategies);
      return strategies;
    }
    planner::ApplyZero(graph, layout, strategies, min_bytes);
    for (const auto& [name, sharding] : pinned) {
      const auto it = strategies.params.find(name);
      if (it == strategies.params.end() || it->second == sharding) continue;
      // Of a weight that the optimizer alone has as it is, a pin may say what microbatches read.
      if (planner::AsOfKind(it->second, layout, planner::ZeroKind::kWeights) == sharding) continue;
      return Fail(FailedPrecondition(
          fmt::format("the rules cannot store {} as {}", name, FormatPinnedSharding(sharding))));
    }
    return strategies;
  };
}

Status CheckJob(const ir::JobRequest& job) {
  MW_TRY(ir::ValidateJob(job));
  MW_TRY(planner::CheckPins(job.parallel, planner::LayerCount(job.main().graph)));
  return CheckShardingPins(job);
}

}  // namespace meshwright::search
