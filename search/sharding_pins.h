// Shardings of weights that a job decides itself, by name.
//
//   *.c_attn.weight=[_,_,_{tensor},_]; transformer.wte.weight=[50304{tensor,data},768]
//
// Left a name or a glob, right per dim its size or "_" and the axes that split it, major first.
// Axes that a layout has only once split nothing. A weight may match several pins that agree.
//
// Thread rule: pure functions.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "ir/job.h"
#include "mesh/sharding.h"
#include "planner/plan.h"

namespace meshwright::search {

struct ShardingPin {
  std::string pattern;
  std::vector<int64_t> sizes;  // per dim; 0: any
  mesh::Sharding sharding;
};

// Errors: kInvalidArgument naming the pin and what is wrong in it.
Result<std::vector<ShardingPin>> ParseShardingPins(std::string_view text);

// "[_,_{tensor}]": what ParseShardingPins reads behind the '='.
std::string FormatPinnedSharding(const mesh::Sharding& sharding);

// Everything that is known before there is a layout: the pins can be read, every one matches a
// weight of the graph and has its dims, none contradicts another. Errors: kInvalidArgument naming
// pin and weight.
Status CheckShardingPins(const ir::JobRequest& job);

// The weights of `graph` that are pinned, with what the pins come to on a layout. Errors: as above,
// and where an axis does not divide a dim.
Result<std::map<std::string, mesh::Sharding>> PinnedParams(const std::string& pins,
                                                           const ir::Graph& graph,
                                                           const planner::Layout& layout);

// The rules of planner/strategy.h around the pins; null where the job has none, which is what
// planner::MakePlanOf takes for the rules alone. Errors of the chooser: as
// planner::ChooseStrategies; kFailedPrecondition naming a pin that the rules cannot honour.
planner::ShardingChooser MakePinnedRules(const ir::JobRequest& job);

// What can be said of a job before there is a cluster: the one check that a request passes before a
// controller accepts it and before a command line submits it. Whatever a client sends is either
// refused here or can be placed and planned without harm to who does it.
// ir::ValidateJob, planner::CheckPins and CheckShardingPins. Errors: kInvalidArgument naming the
// field.
Status CheckJob(const ir::JobRequest& job);

}  // namespace meshwright::search
