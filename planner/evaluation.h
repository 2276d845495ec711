// Programs that are not trained: what a graph gives out, in the update phase, where microbatches
// and data shards have been added up.
//
// Outputs of programs that others read, as tensors of the state: what gives one out writes it where
// it is made, what reads it has a param of its name (ir/program_outputs.h).
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
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

// `graph` as it is run forward, without dropout and noise of training; its outputs become update
// nodes. Scalars are those of the whole batch, made of the parts that microbatches and data shards
// have; tensors stay split as they are made.
// `validated`: the program that it is of where a driver evaluates it: its inputs of the job's data
// read the rows that are never trained on; else null.
Result<ir::Graph> MakeForwardGraph(const ir::Graph& graph, const ir::JobProgram* validated);

// The validation of a training job: the forward graph of its loss, on the rows that are never
// trained on.
Result<ir::Graph> MakeEvaluationGraph(const ir::Graph& loss, const ir::JobProgram& trained);

// The outputs named become results of update nodes.
Result<ir::Graph> ReportInUpdate(ir::Graph graph, const std::vector<std::string>& outputs);

// Whether a program gives out tensors, not only sums.
bool GivesTensors(const ir::Graph& graph);
// Rows of a program's batch; 1: it reads none.
int64_t RowsOf(const ir::Graph& graph);

// What a loss graph gives out besides its loss and count.
std::vector<std::string> OwnOutputs(const ir::Graph& loss);

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

// Fills every param of `graph` ("init" attribute): one piece per stage, outputs are the params held
// there. With `states`, all of one stage, which begin as zeros.
Result<Partition> MakeInitPartition(const ir::Graph& graph, const StageAssignment& stages,
                                    const Strategies& strategies, const Layout& layout,
                                    const OutputStates& states = {});

}  // namespace meshwright::planner
