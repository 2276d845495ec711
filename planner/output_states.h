// Outputs of programs that others read, as tensors of the state: what gives one out writes it where
// it is made, what reads it has a param of its name (ir/program_outputs.h).
//
// Thread rule: pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "ir/job.h"
#include "ir/program_outputs.h"
#include "mesh/sharding.h"
#include "planner/partition.h"
#include "planner/pieces.h"
#include "planner/stages.h"
#include "planner/strategy.h"

namespace meshwright::planner {

struct OutputState {
  ir::ProgramOutput output;
  ir::TensorType type;      // as it is computed
  mesh::Sharding sharding;  // as it is made

  std::string name() const { return ir::OutputStateName(output); }
};
using OutputStates = std::vector<OutputState>;

// Adds the outputs of `program` that other programs of the job read, as its planned graph makes
// them.
void MakeOutputStates(const ir::JobRequest& job, const std::string& program, const ir::Graph& graph,
                      const Strategies& strategies, OutputStates& states);

// The graph with params of `states` in the place of the inputs that read them.
Result<ir::Graph> ReadOutputStates(ir::Graph graph, const ir::JobProgram& program,
                                   const OutputStates& states);

// Errors: kInvalidArgument: several stages, which do not hold each other's outputs.
Status CheckOneStage(const Layout& layout);

// Whether a planned graph does.
bool ReadsOutputStates(const ir::Graph& graph);
// Adds the shardings of what the graph reads to those that are `known` of its params.
void AddOutputStates(const ir::Graph& graph, const OutputStates& states,
                     std::map<std::string, mesh::Sharding>& known);

// Adds what `program` gives out to what its update pieces write.
Status WriteOutputStates(const std::string& program, const OutputStates& states,
                         Partition& partition);

// As MakeInitPartition, with `states`, all of one stage, which begin as zeros.
Result<Partition> MakeInitPartition(const ir::Graph& graph, const StageAssignment& stages,
                                    const Strategies& strategies, const Layout& layout,
                                    const OutputStates& states);

}  // namespace meshwright::planner
