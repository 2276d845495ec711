// How tokens get to experts on other ranks and back: in one step or two, at once or in chunks
// (planner/expert_groups.h does it). Both are chosen by cost, unless the job says.
//
// Two steps. With H hosts of L ranks each that share the experts of a layer, R = H L, a rank has S
// slots of each row of the batch, and a host places for T of its tokens, T at most tokens and at
// most L S. Of b rows that all ranks of the group have together, one move of slots sends
//   in one step    b S L (R - L) / R x H slots between hosts, b S (L - 1) within
//   in two steps   b T (H - 1) tokens between hosts, b H S (L - 1) slots within
// A token goes over the network once per host instead of once per expert, and the slots of ranks
// are filled within the host, where links are fast. Two steps move more bytes within a host and
// copy tokens twice more, so that they lose where links are alike.
//
// Chunks. With n chunks of the rows the moves of one are made while experts compute another, where
// collectives run beside kernels (planner/overlap.h): n = 1, 2, 4 or 8 as is soonest through on two
// lanes, with a message more for each chunk and the copies that cut rows apart and join them.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/job.h"
#include "ir/program.h"
#include "planner/cost_model.h"
#include "planner/layout.h"

namespace meshwright::planner {

// Notes of a plan about them begin with this.
inline constexpr char kExpertNote[] = "experts: ";

// Where the programs of a layout run: its first program's device first. Borrows `costs`.
struct ProgramDevices {
  const CostModel& costs;
  std::span<const int> devices;
  // Shardings are searched: the search knows experts that are reached in one step, at once.
  bool searched = false;
  // The share of a move's time in which a device can compute beside it (planner/overlap.h).
  double beside = 0;
};

// Hosts that share the experts of a layer, by devices: each group of ranks lies on as many, with
// equally many neighbours on each. 1: on one, or unevenly.
int64_t HostsOfExperts(const Layout& layout, const ProgramDevices& devices);

// One way of moving the slots of a layer, once in one direction, in a microbatch.
struct MoveCost {
  double seconds = 0;
  double network_bytes = 0;  // sent between hosts, of a device on average
  double host_bytes = 0;     // within one
};
struct SlotMove {
  double rows = 0;        // of all ranks of the group together
  double rank_slots = 0;  // of a row, that one rank has
  double tokens = 0;      // of a row, that a host has places for
  double slot_bytes = 0;
};
MoveCost CostInOneStep(const SlotMove& move, const mesh::GroupShape& all);
// copy_s_per_byte: of the device's memory, for the copies that one step does not make.
MoveCost CostInTwoSteps(const SlotMove& move, const mesh::GroupShape& between,
                        const mesh::GroupShape& within, double copy_s_per_byte);

// Seconds until `chunks` equal chunks have been sent, computed and sent back, on two lanes.
struct ChunkedWork {
  double send_s = 0;  // of all chunks together, without what a message costs
  double compute_s = 0;
  double back_s = 0;
  double message_s = 0;     // of each move
  double pass_s = 0;        // of reading all tokens, or of writing them
  double launch_s = 0;      // of a kernel
  bool back_waits = false;  // nothing is sent back before all is computed
};
double SecondsInChunks(const ChunkedWork& work, int64_t chunks, double beside);

// The layout with its expert_hosts and expert_chunks. Notes say which and why. REQUIRES:
// layout.expert() > 1. Errors: kInvalidArgument: a pin that does not go with the layout, with what
// does.
Result<Layout> ResolveExpertWays(const ir::JobRequest& job, const Layout& layout,
                                 const ProgramDevices& devices, std::vector<std::string>& notes);

// The job with one step and one chunk pinned where the layout has chosen more: places of hosts and
// slots of chunks take memory. Nothing: it has chosen neither.
std::optional<ir::JobRequest> PlainWays(const ir::JobRequest& job, const Layout& resolved);

}  // namespace meshwright::planner
