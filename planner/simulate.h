// Replays programs in virtual time: a pure function from instruction lists and costs to a timeline.
//
// RUN takes the cost of its executable; a message takes alpha + bytes * seconds_per_byte after
// SEND, and a device sends its messages one after the other; SEND waits while the channel holds
// `capacity` messages that were not received; RECV waits for its message. A RUN whose executable
// has collectives waits for the devices that differ in the collectives' axes; they begin together
// and end together, after the last of them.
//
// Copies between a device's memory and a farther one are made one after the other beside what
// computes, in the order of the list, those of each memory beside those of another; a RUN waits for
// the copies of its slots, an OFFLOAD for the last RUN that wrote its slot.
//
// Devices that share the cores of a host slow one another: while the devices that run have more
// threads than the host has cores, each advances at cores / threads of its speed (processor
// sharing). A device that waits takes no core.
//
// Answers: makespan, busy and idle seconds per device (bubble), most live forward activations.
// O(n log n) in the number of instructions.
//
// Thread rule: pure functions; deterministic.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/program.h"
#include "mesh/cost.h"

namespace meshwright::planner {

// The cores that a device computes on.
struct CoreUse {
  int host = -1;  // any number that devices of one host have in common; -1: cores of its own
  int cores = 1;  // of the host, equal for all of its devices
  int threads = 1;
};

struct SimulationCosts {
  // Seconds of one RUN of this executable on this device, which has all the cores that it can use.
  std::function<double(const ir::Program&, const ir::Executable&)> run_s;
  // Of one that the host runs (ir::RunsOnHost); not set: as if the device did.
  std::function<double(const ir::Program&, const ir::Executable&)> host_run_s;
  // Of a message between two devices, as Program::device numbers them; not set: none.
  std::function<mesh::LinkCost(int from, int to)> link;
  // Of a copy between a farther memory and this device; not set: none.
  std::function<mesh::LinkCost(int device, ir::Space far)> tier;
  // Not set: every device has cores of its own.
  std::function<CoreUse(int device)> cores;
  // What a step's last copies and the host's RUNs still do when the devices are done is beside the
  // next step: the answer is a step between two others. Else a step ends with the last of them.
  bool steps_follow = false;
  // Programs stand for others that do the same at the same time: members of groups may be missing.
  bool stand_for_others = false;
};

struct Span {
  int device = 0;       // Program::device
  int instruction = 0;  // index in its program
  double begin_s = 0;
  double end_s = 0;
};

// Vectors have one entry per program, in the order given.
struct Simulation {
  double makespan_s = 0;
  std::vector<double> busy_s;       // inside a RUN
  std::vector<double> idle_s;       // makespan - busy
  std::vector<double> copy_wait_s;  // of these, for copies from and to farther memories
  std::vector<double> host_busy_s;  // RUNs of the host for the device
  std::vector<int> in_flight_max;   // microbatches forwarded but not yet backwarded
  std::vector<int64_t> sent_bytes;  // SEND only
  std::vector<Span> spans;          // RUNs of devices, in order of begin
  // Collectives that run beside what computes: of a RUN those that are done in part before it.
  // Forecasts find them; their time is not a part of the RUN's.
  std::vector<Span> beside;
};

// REQUIRES: costs.run_s is set; it is asked once per program and executable.
// Errors: kInvalidArgument "deadlock: device 2 waits at instruction 17 (RECV s3 <- c1)" with all
// that wait, ids out of range, a channel without its other end, members of a group that meet with
// different work.
Result<Simulation> Simulate(std::span<const ir::Program> programs, const SimulationCosts& costs);

// Forward and backward pieces are told apart by the executable's graph name: "f.." forward, "b.."
// backward (after the stage prefix "s<stage>/"), e.g. "s1/f", "s1/b", "s0/u0".
std::string ExecutablePiece(const ir::Executable& executable);  // "f", "b", "w", "u0", "z", "u0+1"
// What a piece is to people: "forward", "backward", "weight gradient" or "update", which also is
// what runs once before the forwards.
std::string_view PieceCategory(std::string_view piece);

}  // namespace meshwright::planner
