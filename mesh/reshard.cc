#include "mesh/reshard.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/mutex.h"
#include "mesh/reshard_steps.h"

namespace meshwright::mesh {
namespace {

// Axes of size 1 split nothing and sum nothing: without them equal placements are equal values.
Sharding WithoutUnitAxes(Sharding sharding, const Mesh& mesh) {
  const auto unit = [&](const std::string& axis) { return mesh.AxisSize(axis) == 1; };
  for (AxisList& dim : sharding.dims) std::erase_if(dim, unit);
  std::erase_if(sharding.partial, [&](const auto& entry) { return unit(entry.first); });
  return sharding;
}

// The best known way to a sharding. Cost is computed from whole sums, so that the order of a path's
// steps does not change it by a rounding and ties stay ties.
struct Label {
  int calls = 0;
  double bytes = 0;
  int steps = 0;
  Sharding previous;
  ReshardStep step;

  double Cost(const ReshardCostModel& model) const {
    return model.alpha_s * calls + model.seconds_per_byte * bytes;
  }
};

// Dijkstra over shardings. Order of settling: cost, number of steps, then the sharding itself.
class PathSearch {
 public:
  PathSearch(const ir::TensorType& type, const Mesh& mesh, const ReshardCostModel& model)
      : type_(type), mesh_(mesh), model_(model) {}

  // False when `to` cannot be reached.
  bool Run(const Sharding& from, const Sharding& to, ReshardPath& path) {
    labels_[from] = Label{};
    open_.emplace(0.0, 0, from);
    while (!open_.empty()) {
      const Sharding at = std::get<2>(*open_.begin());
      open_.erase(open_.begin());
      if (at == to) {
        path = Trace(from, to);
        return true;
      }
      for (ReshardStep& step : StepsFrom(type_.dims, at, mesh_)) Relax(at, std::move(step), to);
    }
    return false;
  }

 private:
  double LocalBytes(const Sharding& sharding) const {
    double bytes = static_cast<double>(ir::DTypeBytes(type_.dtype));
    for (int64_t dim : LocalDims(type_.dims, sharding, mesh_)) bytes *= static_cast<double>(dim);
    return bytes;
  }

  // Nothing makes an axis partial again.
  static bool LosesPartial(const Sharding& at, const Sharding& to) {
    return std::any_of(to.partial.begin(), to.partial.end(),
                       [&](const auto& entry) { return !at.partial.contains(entry.first); });
  }

  void Relax(const Sharding& at, ReshardStep step, const Sharding& to) {
    if (LosesPartial(step.result, to)) return;
    Label next = labels_.at(at);
    next.calls += step.kind == StepKind::kShardSlice ? 0 : 1;
    next.bytes += BytesOfStep(step, LocalBytes(at), mesh_);
    next.steps += 1;
    const Sharding result = step.result;
    const auto it = labels_.find(result);
    if (it != labels_.end()) {
      const Label& best = it->second;
      if (std::pair(best.Cost(model_), best.steps) <= std::pair(next.Cost(model_), next.steps)) {
        return;
      }
      open_.erase({best.Cost(model_), best.steps, result});
    }
    next.previous = at;
    next.step = std::move(step);
    open_.emplace(next.Cost(model_), next.steps, result);
    labels_[result] = std::move(next);
  }

  ReshardPath Trace(const Sharding& from, const Sharding& to) const {
    ReshardPath path;
    MW_CHECK(labels_.contains(to)) << "no way to " << FormatSharding(type_, to) << " was found";
    path.bytes_per_device = labels_.at(to).bytes;
    path.cost = labels_.at(to).Cost(model_);
    for (Sharding at = to; at != from;) {
      const Label& label = labels_.at(at);
      MW_CHECK(label.steps > 0) << "the way back ends at " << FormatSharding(type_, at);
      path.steps.push_back(label.step);
      at = label.previous;
    }
    std::reverse(path.steps.begin(), path.steps.end());
    return path;
  }

  const ir::TensorType& type_;
  const Mesh& mesh_;
  const ReshardCostModel& model_;
  std::map<Sharding, Label> labels_;
  std::set<std::tuple<double, int, Sharding>> open_;
};

// Answers of earlier searches. Thread-safe; a plan asks the same few questions per layer.
class PathCache {
 public:
  using Axes = std::vector<std::pair<std::string, int64_t>>;
  using Key = std::tuple<ir::DType, ir::Dims, Sharding, Sharding, Axes, double, double>;

  static PathCache& Instance() {
    static PathCache cache;
    return cache;
  }

  bool Find(const Key& key, ReshardPath& path) const {
    const MutexLock lock(mutex_);
    const auto it = paths_.find(key);
    if (it == paths_.end()) return false;
    path = it->second;
    return true;
  }

  void Insert(Key key, const ReshardPath& path) {
    // Forgetting everything bounds the memory of a long-lived process; answers do not depend on it.
    constexpr size_t kEntriesMax = 16384;
    const MutexLock lock(mutex_);
    if (paths_.size() >= kEntriesMax) paths_.clear();
    paths_.insert_or_assign(std::move(key), path);
  }

 private:
  mutable Mutex mutex_;
  std::map<Key, ReshardPath> paths_ MW_GUARDED_BY(mutex_);
};

PathCache::Key KeyOf(const ir::TensorType& type, const Sharding& from, const Sharding& to,
                     const Mesh& mesh, const ReshardCostModel& model) {
  PathCache::Axes axes;
  for (const ir::MeshAxis& axis : mesh.axes) axes.emplace_back(axis.name, axis.size);
  return {type.dtype, type.dims, from, to, std::move(axes), model.alpha_s, model.seconds_per_byte};
}

Status CheckPartials(const ir::TensorType& type, const Sharding& from, const Sharding& to) {
  for (const auto& [axis, kind] : to.partial) {
    const auto it = from.partial.find(axis);
    const bool made = it == from.partial.end() && kind == ir::PartialKind::kSum;
    if (made || (it != from.partial.end() && it->second == kind)) continue;
    return Fail(Unimplemented(fmt::format(
        "reshard {} -> {}: the target is partial over axis {} and the source is not partial in the "
        "same way; ask for a target without that partial axis",
        FormatSharding(type, from), FormatSharding(type, to), axis)));
  }
  return OkStatus();
}

// Turns `target` into what it is before axes become sums that `source` is not; the step that makes
// them so, if there are any.
std::optional<ReshardStep> TakeMadePartials(const Sharding& source, Sharding& target) {
  ReshardStep step;
  step.kind = StepKind::kMakePartial;
  step.result = target;
  for (const auto& [axis, kind] : step.result.partial) {
    if (source.partial.contains(axis)) continue;
    step.axes.push_back(axis);
    target.partial.erase(axis);
  }
  if (step.axes.empty()) return std::nullopt;
  return step;
}

}  // namespace

Result<ReshardPath> FindReshardPath(const ir::TensorType& global_type, const Sharding& from,
                                    const Sharding& to, const Mesh& mesh,
                                    const ReshardCostModel& model) {
  MW_TRY(ValidateSharding(global_type, from, mesh));
  MW_TRY(ValidateSharding(global_type, to, mesh));
  const Sharding source = WithoutUnitAxes(from, mesh);
  Sharding target = WithoutUnitAxes(to, mesh);
  if (source == target) return ReshardPath{};
  MW_TRY(CheckPartials(global_type, source, target));
  if (std::optional<ReshardStep> made = TakeMadePartials(source, target)) {
    MW_ASSIGN_OR_RETURN(ReshardPath before,
                        FindReshardPath(global_type, source, target, mesh, model));
    before.steps.push_back(*std::move(made));
    return before;
  }
  PathCache::Key key = KeyOf(global_type, source, target, mesh, model);
  ReshardPath path;
  if (PathCache::Instance().Find(key, path)) return path;
  if (!PathSearch(global_type, mesh, model).Run(source, target, path)) {
    return Fail(Unimplemented(fmt::format("reshard {} -> {}: no sequence of collectives does it",
                                          FormatSharding(global_type, from),
                                          FormatSharding(global_type, to))));
  }
  PathCache::Instance().Insert(std::move(key), path);
  return path;
}

}  // namespace meshwright::mesh
