// Builder: appends nodes to a graph, inferring and checking types.
//
// The first error sticks: later calls return invalid ids and Finish() returns it, so that model
// code reads as formulas. Thread rule: one thread. Ownership: Finish() moves the graph out.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"

namespace meshwright::ir {

class Builder {
 public:
  explicit Builder(std::string name);
  // Continues an existing graph (autodiff does): ids of `graph` stay valid.
  explicit Builder(Graph graph);

  // General form. `declared` gives result types for ops that need them (see InferTypes). Returns
  // the result ids, or as many invalid ids as the op has results after an error.
  std::vector<ValueId> Add(Op op, std::vector<ValueId> inputs, Attrs attrs = {},
                           std::vector<TensorType> declared = {});
  // The first result of Add().
  ValueId AddOne(Op op, std::vector<ValueId> inputs, Attrs attrs = {},
                 std::vector<TensorType> declared = {});

  // Layer and phase given to nodes added from now on.
  void SetLayer(int layer) { layer_ = layer; }
  void SetPhase(Phase phase) { phase_ = phase; }
  int layer() const { return layer_; }
  Phase phase() const { return phase_; }

  // Replaces an output of the same name. `reduction`: of a scalar, over several batches.
  void SetOutput(std::string name, ValueId value, Reduction reduction = Reduction::kSum);

  const Graph& graph() const { return graph_; }
  const TensorType& type(ValueId id) const { return graph_.type(id); }
  const Status& status() const { return status_; }
  void Fail(Status status);  // records the first error

  Result<Graph> Finish();

 private:
  Graph graph_;
  std::unordered_map<std::string, size_t> output_at_;  // index in graph_.outputs
  Status status_;
  int layer_ = -1;
  Phase phase_ = Phase::kForward;
};

}  // namespace meshwright::ir
