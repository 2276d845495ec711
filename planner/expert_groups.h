// The programs of a job as ranks that share experts compute them: slots by rank, and tokens that
// are moved to the ranks of their experts and back.
//
// Where no token is dropped all experts share the slots of a row (client/experts.h). Ranks that
// have some of the experts each want slots by rank, so that a rank gets those of its experts alone:
// as many groups of slots as there are ranks, each with room for all tokens that may come, or for
// what the attr slots_factor of expert_slots times the mean says; counts are known before tokens
// move, and a row that wants more is an error of the kernel.
//
// Between rows and experts tokens are moved once in each direction: behind a dispatch, and before a
// combine, stands a reshape to the same shape with the attribute kSplitAttr, whose value is split
// by experts or by rows (planner/choose_rows.cc), so that the backward has what it reads where it
// is.
//
// Two steps (Layout::expert_hosts above 1). A token is first moved once to each host that any of
// its experts is on, then, within the host, to their ranks. Both steps are a dispatch and a move:
// of tokens to places of hosts, over the axis kExpert; of a host's places to slots of ranks, over
// kExpertLanes. On the way back a host adds up what its experts say to a token, in the order of the
// token's choices, and sends one sum; the token adds up its hosts' sums in the order of hosts. How
// much a token takes of each expert goes to the hosts with it. The attribute kMovedAxisAttr says
// which axis a move is of; rows are split by the devices of a host first, so that what one host
// sends another is one block.
//
// Chunks (Layout::expert_chunks above 1). Row r of the rows is in chunk r modulo their number, so
// that every device has as many rows of each chunk. What is between a dispatch and its combine is
// there once for each chunk, in the order in which the moves of one chunk can be made while experts
// compute another (worker/step_list.h): all are sent, then each is computed and sent back, then all
// are combined. Gradients of weights are summed in the order of chunks.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "ir/job.h"
#include "planner/layout.h"

namespace meshwright::planner {

inline constexpr char kSplitAttr[] = "split";
inline constexpr int64_t kByExperts = 1;
inline constexpr int64_t kByRows = 2;
// Of a value with kSplitAttr: the axis that it is moved over; absent: all of experts.
inline constexpr char kMovedAxisAttr[] = "moved_axis";

// Slots of a row, in groups that ranks share.
struct ExpertSlots {
  int64_t groups = 1;
  int64_t capacity = 1;
};
// Of an expert_slots node of a graph without ranks, on `degree` of them. REQUIRES: the degree is
// above 1 and divides the experts.
ExpertSlots SlotsOnRanks(const ir::Graph& graph, const ir::Node& node, int64_t degree);
// Places that a host has for tokens of a row, where `hosts` share the slots: what comes at most.
int64_t HostCapacity(const ExpertSlots& slots, int64_t hosts, int64_t tokens);

// Whether the graph has its tokens moved to experts and back in that form alone: gradients that a
// model computes itself read slots in others.
bool MovesPlainly(const ir::Graph& graph);

// REQUIRES: layout.expert() > 1, and ways as ResolveExpertWays gives them. Errors:
// kInvalidArgument: the model has no experts, or as many as the degree does not divide.
Result<ir::JobRequest> WithExpertGroups(const ir::JobRequest& job, const Layout& layout);

}  // namespace meshwright::planner
