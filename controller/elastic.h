// Fewer devices than a job's plan has: what is asked of the planner for them, and which plans fit.
//
// What a job allows is its fault_tolerance.elastic. The global batch stays what it is: fewer
// replicas take more microbatches, of no more rows than before, so that no device needs more memory
// for activations. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "controller/run.h"
#include "ir/job.h"
#include "mesh/topology.h"

namespace meshwright::controller {

// `had`, degrees of a plan, with as many replicas as the devices allow, no more than there were.
// Nothing: not even one, or the replicas of its stages differ, or its tensor group is a grid.
std::optional<ir::ParallelSpec> WithFewerReplicas(const ir::ParallelSpec& had, int64_t global_batch,
                                                  int64_t devices);

// The degrees of a plan in the place of those that a job says.
void TakeDegrees(const ir::ParallelSpec& from, ir::ParallelSpec& parallel);

// The job as devices are looked for, when they may be fewer than the plan with the degrees `had`
// takes. kind: of the devices that it had.
ir::JobRequest ToPlaceOnFewer(const ir::JobRequest& job, const std::string& kind,
                              const ir::ParallelSpec& had);
// The job as it is planned for so many devices. Nothing: it does not go on with so few.
std::optional<ir::JobRequest> ToPlanForFewer(const ir::JobRequest& job, const std::string& kind,
                                             const ir::ParallelSpec& had, int64_t devices);

// How long it waits for devices in the place of lost ones.
int64_t WaitForSpareMs(const ir::FaultToleranceSpec& spec, bool has_program);

// Devices for a plan, by rank: those in `wanted` that are free, else others that have the memory
// for it; those of the worker `avoid` where there are no others. Nothing: there are not enough.
std::optional<std::vector<RankPlace>> FindSeats(const PlannedJob& plan,
                                                const std::vector<RankPlace>& wanted,
                                                const std::string& avoid,
                                                std::vector<mesh::Device> free);

}  // namespace meshwright::controller
