// Programs that are not trained: what a graph gives out, in the update phase, where microbatches
// and data shards have been added up.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "ir/job.h"

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

}  // namespace meshwright::planner
