// Where what the devices of a plan hold is, and why: `meshwright plan explain JOB memory`.
//
// Each kind that is in a farther memory is planned in the nearer one, too, in the plan's layout and
// with the shardings of its weights: it does not fit there, or a step would take as long as the
// answer says.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "mesh/topology.h"
#include "report/plan_job.h"

namespace meshwright::report {

struct NearerMemory {
  std::string kind;    // "optimizer"
  std::string nearer;  // "device", "host"
  double step_s = 0;   // where it fits
  int64_t memory_bytes = 0;
  std::string refused;  // why there is no such plan; empty: there is
};

// Of each kind that is not on the device, as far as ten seconds go. Errors: those of forecasts.
Result<std::vector<NearerMemory>> FindNearer(const PlannedJob& planned,
                                             const mesh::Topology& topology, const Clock& clock);

// "transformer.h.3.attn.w" -> "transformer.h.*.attn.w": of all layers.
std::string NameOfLayers(const std::string& name);

// The bytes of each kind in each memory, what state is in farther ones and who renews it, and what
// nearer ones would do. Errors: as FindNearer.
Result<std::string> ExplainMemory(const PlannedJob& planned, const mesh::Topology& topology,
                                  bool json, const Clock& clock);

}  // namespace meshwright::report
