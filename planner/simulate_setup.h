// What a simulation knows before time starts: instruction lists checked, channels paired by name,
// groups of the collectives of every executable resolved. Room-internal to planner/simulate.
//
// Thread rule: values; the tables point into the programs, which outlive them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/program.h"

namespace meshwright::planner {

struct SimExecutable {
  std::string piece;  // ExecutablePiece
  double cost_s = 0;  // of one RUN on this device
  int group = -1;     // index into SimSetup::groups; -1: no collectives
};

// Devices that meet in the collectives of one executable: all that differ only in its axes.
struct SimGroup {
  std::vector<int> members;  // positions in the list of programs, ascending
};

struct SimChannel {
  std::string name;
  int capacity = 1;
  int sender = -1;  // positions in the list of programs
  int receiver = -1;
};

struct SimSetup {
  std::vector<std::vector<SimExecutable>> executables;  // [program][executable]
  std::vector<std::vector<int>> channel_of;             // [program][channel] -> index into channels
  std::vector<SimChannel> channels;
  std::vector<SimGroup> groups;
};

struct SimulationCosts;

// Errors: kInvalidArgument naming device and instruction or channel.
Result<SimSetup> MakeSimSetup(std::span<const ir::Program> programs, const SimulationCosts& costs);

// Bytes of a SEND's or RECV's tile.
int64_t MessageBytes(const ir::Program& program, const ir::Instruction& instruction);

}  // namespace meshwright::planner
