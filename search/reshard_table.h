// What it costs to take one tensor from any sharding to any other, with a link per axis.
//
// The steps are those of mesh/reshard.h; a step over several axes takes the worst of their links.
// Shardings are numbered as they are met, and all costs from one of them are found at once, because
// a search asks for thousands of pairs of a few dozen shardings.
//
// Thread rule: one thread. Source: Dijkstra over shardings.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "mesh/cost.h"
#include "mesh/reshard.h"
#include "mesh/sharding.h"

namespace meshwright::search {

using AxisLinks = std::map<std::string, mesh::LinkCost>;

class ReshardTable {
 public:
  // `copy`: of a device's own pass over memory, for blocks that are packed.
  // REQUIRES: axes of the mesh are larger than 1 and have a link each.
  ReshardTable(ir::TensorType type, mesh::Mesh mesh, AxisLinks links, mesh::LinkCost copy = {0, 0});

  // The number of a sharding. REQUIRES: it is valid for the type and the mesh.
  int Form(const mesh::Sharding& sharding);
  const ir::TensorType& type() const { return type_; }
  const mesh::Sharding& sharding(int form) const { return states_[static_cast<size_t>(form)]; }
  // Axes over which a whole value becomes a sum cost a pass over it. kForbidden: there is no way.
  double Seconds(int from, int to);

 private:
  struct Step {
    int to = 0;
    double cost_s = 0;
  };
  // What a value has to be before the last step, which makes it a sum over axes; none: no such
  // step.
  std::optional<mesh::Sharding> BeforeMadePartial(int from, int to) const;
  double StepSeconds(const ir::TensorType& local, const mesh::ReshardStep& step) const;
  void FindSteps(int form);
  void FindSecondsFrom(int form);

  const ir::TensorType type_;
  const mesh::Mesh mesh_;
  const AxisLinks links_;
  const mesh::LinkCost copy_;
  std::vector<mesh::Sharding> states_;
  std::map<mesh::Sharding, int> numbers_;
  std::vector<std::vector<Step>> steps_;  // per form
  std::vector<bool> expanded_;            // per form: steps_ are known
  std::vector<std::vector<double>>
      seconds_;  // per form, to all that can be reached; empty: unknown
};

}  // namespace meshwright::search
