// The seconds of an intra-operator problem (search/intra_problem.h) on the devices of a layout, by
// the cost model of planner/cost_model.h.
//
// A node is priced as the local node that a device runs: the rate of its class of kernels on its
// local shape. Programs are SPMD, so that every stage takes the time of its slowest device; one
// problem has one price, so the slowest kind of device of the layout counts. A collective takes the
// worst of its axis's groups in any stage.
//
// Nodes are priced one by one, as the search chooses them; the fusion of elementwise nodes that
// comes behind it (compile/compile.h) is not seen.
//
// Thread rule: immutable once made, so thread-safe.
#pragma once

#include <memory>

#include "mesh/topology.h"
#include "planner/plan.h"
#include "search/intra_problem.h"

namespace meshwright::search {

// Of the axes data and tensor. REQUIRES: the topology has layout.device_count() devices.
std::unique_ptr<const IntraCosts> MakeModelCosts(const mesh::Topology& topology,
                                                 const planner::Layout& layout);

}  // namespace meshwright::search
