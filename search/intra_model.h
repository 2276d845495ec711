// The parts of an intra-operator problem (search/intra_problem.h), and the three steps that make
// it: variables, costs, memory. Of this room, and of who says why (report/sharding_reasons.h).
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "search/intra_problem.h"
#include "search/node_strategies.h"

namespace meshwright::search {

inline constexpr int kNoVariable = -1;

// The axis as a list of others.
void RenameAxis(const std::string& axis, const mesh::AxisList& names, mesh::Sharding& sharding);

// Of more than microbatches.
bool SumsOverDevices(const mesh::Sharding& sharding);

enum class VariableKind : uint8_t { kNode, kParam, kForm };

// One node of the choice problem.
struct Variable {
  VariableKind kind = VariableKind::kNode;
  int node = 0;    // the first of the equal nodes; producer of a form
  int result = 0;  // kForm
  std::vector<planner::NodeStrategy> strategies;  // kNode
  std::vector<mesh::Sharding> shardings;          // kParam, kForm: over the axes of space
};

// Who reads a value: those of one audience share its form.
enum class Audience : uint8_t { kForward, kBackward, kUpdate, kOnce };

// A value (its producer, first of the equal ones, and result) for an audience.
using FormKey = std::tuple<int, int, Audience>;

struct IntraModel {
  const ir::Graph* graph = nullptr;
  const planner::StageAssignment* stages = nullptr;
  IntraOptions options;
  mesh::Mesh mesh;               // micro and the axes of space
  mesh::Mesh space;              // without micro
  planner::Strategies base;      // over micro and the pinned batch axes
  std::vector<int> first;        // per node: the first equal one
  std::vector<bool> constant;    // per node: computed where it is read
  std::vector<int> variable_of;  // per node, by its first; kNoVariable: constants and state
  std::map<FormKey, int> forms;  // variables of values that have one
  std::vector<Variable> variables;
  ChoiceProblem problem;

  int VariableOf(size_t node) const { return variable_of[static_cast<size_t>(first[node])]; }
  size_t ProducerOf(ValueId value) const { return graph->value(value).producer.index(); }
  const ir::Node& NodeAt(size_t node) const { return graph->nodes[node]; }
  int ResultIndex(ValueId value) const;
  bool IsState(size_t node) const;
  bool IsOptimizer(size_t node) const;
  // How often per step a node runs.
  int64_t Executions(size_t node) const;
  Audience AudienceOf(ValueId value, size_t reader) const;
  // The variable of the form in which `reader` gets the value, or kNoVariable.
  int FormOf(ValueId value, size_t reader) const;
  // Of one microbatch, where "micro" splits `sharding`.
  ir::TensorType TypeWithin(ValueId value, const mesh::Sharding& sharding) const;
  int64_t LocalBytes(const ir::TensorType& type, const mesh::Sharding& sharding) const;
};

// `graph` and `stages` must outlive it. REQUIRES: `graph` as ir::AppendUpdate makes it, staged by
// planner::AssignStages. Errors: kInvalidArgument: a pin that nothing fulfils, named; what
// microbatches cannot express (as planner::ChooseStrategies).
Result<IntraModel> MakeIntraModel(const ir::Graph& graph, const planner::StageAssignment& stages,
                                  const IntraOptions& options, const IntraCosts& costs);

// Its parts behind the variables: nodes and edges of the problem, then their memory and moments.
void AddIntraCosts(const IntraCosts& costs, IntraModel& model);
void AddIntraMemory(IntraModel& model);

}  // namespace meshwright::search
