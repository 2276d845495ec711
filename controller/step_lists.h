// StepLists: what the devices of a mesh run, as far as a diagnosis needs it: of each instruction
// its op and whom it speaks with, and nothing of tensors.
//
// Thread rule: values; shared where they are kept, since they never change.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ir/program.h"

namespace meshwright::controller {

// One device's program.
struct StepList {
  struct Item {
    ir::Opcode op = ir::Opcode::kFree;
    int32_t microbatch = 0;  // RUN
    int32_t ref = 0;         // RUN: of `runs`; SEND, RECV: of `channels`
  };
  struct Channel {
    std::string name;  // equal at both ends
    int peer = 0;
    int64_t capacity = 1;
  };
  int stage = 0;
  std::vector<Item> items;  // one per instruction
  std::vector<Channel> channels;
  std::vector<std::string> runs;  // names of its executables
};

class StepLists {
 public:
  StepLists() = default;
  // By name of the program, in the order of the ranks.
  explicit StepLists(const std::map<std::string, std::vector<ir::Program>, std::less<>>& programs);

  // program: its name, or the beginning of it. Null: there is none.
  const StepList* Find(std::string_view program, int rank) const;

 private:
  std::map<std::string, std::vector<StepList>, std::less<>> lists_;
};

// "RUN stage0/f of microbatch 2", "RECV from rank 1"; empty beyond the last.
std::string NameItem(const StepList& list, int64_t instruction);
// Of the instructions before `instruction`, those with this op on the channel of this name.
int64_t CountBefore(const StepList& list, ir::Opcode op, std::string_view channel,
                    int64_t instruction);
int64_t CountAll(const StepList& list, ir::Opcode op, std::string_view channel);

}  // namespace meshwright::controller
