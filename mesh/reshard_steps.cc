#include "mesh/reshard_steps.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "mesh/cost.h"

namespace meshwright::mesh {
namespace {

// Every non-empty ordered selection of `axes`, shorter ones first within a prefix.
void AppendOrderedSelections(const AxisList& axes, AxisList& prefix, std::vector<AxisList>& out) {
  for (const std::string& axis : axes) {
    if (std::find(prefix.begin(), prefix.end(), axis) != prefix.end()) continue;
    prefix.push_back(axis);
    out.push_back(prefix);
    AppendOrderedSelections(axes, prefix, out);
    prefix.pop_back();
  }
}

std::vector<AxisList> OrderedSelections(const AxisList& axes) {
  std::vector<AxisList> out;
  AxisList prefix;
  AppendOrderedSelections(axes, prefix, out);
  return out;
}

// Every non-empty subset of `axes`, in their order.
std::vector<AxisList> Subsets(const AxisList& axes) {
  std::vector<AxisList> out;
  for (size_t mask = 1; mask < (size_t{1} << axes.size()); ++mask) {
    AxisList subset;
    for (size_t i = 0; i < axes.size(); ++i) {
      if ((mask >> i) & 1) subset.push_back(axes[i]);
    }
    out.push_back(std::move(subset));
  }
  return out;
}

class StepMaker {
 public:
  StepMaker(const ir::Dims& global, const Sharding& from, const Mesh& mesh)
      : from_(from), mesh_(mesh), local_(LocalDims(global, from, mesh)) {
    MW_CHECK(from.dims.size() == global.size()) << from.dims.size() << " dims of " << global.size();
    for (const ir::MeshAxis& axis : mesh.axes) {
      if (axis.size > 1 && !from.UsesAxis(axis.name)) unused_.push_back(axis.name);
    }
  }

  std::vector<ReshardStep> Run() {
    AddSlices();
    AddAllToAlls();
    AddReduceScatters();
    AddAllGathers();
    AddAllReduces();
    return std::move(steps_);
  }

 private:
  size_t rank() const { return from_.dims.size(); }
  bool Divides(const AxisList& axes, size_t dim) const {
    return local_[dim] % mesh_.SizeOf(axes) == 0;
  }

  // A step of `axes` on `dim`; the result starts as the present sharding.
  ReshardStep& Add(StepKind kind, AxisList axes, int dim) {
    ReshardStep& step = steps_.emplace_back();
    step.kind = kind;
    step.axes = std::move(axes);
    step.dim = dim;
    step.result = from_;
    return step;
  }

  static void AppendAxes(ReshardStep& step) {
    AxisList& dim = step.result.dims[static_cast<size_t>(step.dim)];
    dim.insert(dim.end(), step.axes.begin(), step.axes.end());
  }

  // The non-empty tails of a dim's axes: what can leave it.
  std::vector<AxisList> Tails(size_t dim) const {
    std::vector<AxisList> tails;
    const AxisList& axes = from_.dims[dim];
    for (size_t n = 1; n <= axes.size(); ++n) {
      tails.emplace_back(axes.end() - static_cast<std::ptrdiff_t>(n), axes.end());
    }
    return tails;
  }

  void AddSlices() {
    for (const AxisList& axes : OrderedSelections(unused_)) {
      for (size_t d = 0; d < rank(); ++d) {
        if (Divides(axes, d)) AppendAxes(Add(StepKind::kShardSlice, axes, static_cast<int>(d)));
      }
    }
  }

  void AddAllToAlls() {
    for (size_t from_dim = 0; from_dim < rank(); ++from_dim) {
      for (const AxisList& axes : Tails(from_dim)) {
        for (size_t d = 0; d < rank(); ++d) {
          if (d == from_dim || !Divides(axes, d)) continue;
          ReshardStep& step = Add(StepKind::kAllToAll, axes, static_cast<int>(d));
          step.from_dim = static_cast<int>(from_dim);
          MW_CHECK(axes.size() <= step.result.dims[from_dim].size()) << "dim " << from_dim;
          AxisList& left = step.result.dims[from_dim];
          left.resize(left.size() - axes.size());
          AppendAxes(step);
        }
      }
    }
  }

  AxisList PartialAxes(ir::PartialKind kind) const {
    AxisList axes;
    for (const ir::MeshAxis& axis : mesh_.axes) {
      const auto it = from_.partial.find(axis.name);
      if (it != from_.partial.end() && it->second == kind) axes.push_back(axis.name);
    }
    return axes;
  }

  static void DropPartial(ReshardStep& step, ir::PartialKind kind) {
    step.partial = kind;
    for (const std::string& axis : step.axes) step.result.partial.erase(axis);
  }

  void AddReduceScatters() {
    for (const AxisList& axes : OrderedSelections(PartialAxes(ir::PartialKind::kSum))) {
      for (size_t d = 0; d < rank(); ++d) {
        if (!Divides(axes, d)) continue;
        ReshardStep& step = Add(StepKind::kReduceScatter, axes, static_cast<int>(d));
        DropPartial(step, ir::PartialKind::kSum);
        AppendAxes(step);
      }
    }
  }

  void AddAllGathers() {
    for (size_t d = 0; d < rank(); ++d) {
      for (const AxisList& axes : Tails(d)) {
        ReshardStep& step = Add(StepKind::kAllGather, axes, static_cast<int>(d));
        step.result.dims[d].resize(from_.dims[d].size() - axes.size());
      }
    }
  }

  void AddAllReduces() {
    for (const ir::PartialKind kind :
         {ir::PartialKind::kSum, ir::PartialKind::kMax, ir::PartialKind::kLogSumExp}) {
      for (const AxisList& axes : Subsets(PartialAxes(kind))) {
        DropPartial(Add(StepKind::kAllReduce, axes, -1), kind);
      }
    }
  }

  const Sharding& from_;
  const Mesh& mesh_;
  const ir::Dims local_;
  AxisList unused_;
  std::vector<ReshardStep> steps_;
};

}  // namespace

std::vector<ReshardStep> StepsFrom(const ir::Dims& global, const Sharding& from, const Mesh& mesh) {
  return StepMaker(global, from, mesh).Run();
}

double BytesOfStep(const ReshardStep& step, double local_bytes, const Mesh& mesh) {
  const int64_t group_size = mesh.SizeOf(step.axes);
  switch (step.kind) {
    case StepKind::kAllGather:
      return BytesPerDevice(CollectiveKind::kAllGather, local_bytes, group_size);
    case StepKind::kReduceScatter:
      return BytesPerDevice(CollectiveKind::kReduceScatter, local_bytes, group_size);
    case StepKind::kAllReduce:
      return BytesPerDevice(CollectiveKind::kAllReduce, local_bytes, group_size);
    case StepKind::kAllToAll:
      return BytesPerDevice(CollectiveKind::kAllToAll, local_bytes, group_size);
    case StepKind::kShardSlice:
    case StepKind::kMakePartial:
      break;
  }
  return 0;
}

}  // namespace meshwright::mesh
