// A tiny symbolic interpreter of programs, written apart from the verifier, to say whether two
// lists mean the same.
//
// Elements have 4 bytes. Every 4 bytes of a device's memory hold a hash of how they were computed.
// RUN hashes its graph over the hashes of its inputs, FREE poisons, the workspace is overwritten by
// every RUN, collectives mix the operands of all members in rank order, channels are bounded and
// block. Nothing is checked on the way: a wrong list gives other hashes, a hang or a protocol
// error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/program.h"

namespace meshwright::ir::testing {

struct Meaning {
  bool finished = false;          // false: hang or protocol error
  std::vector<uint64_t> results;  // persistent slots of all devices, then reported slots
  friend bool operator==(const Meaning&, const Meaning&) = default;
};

// `interleaving` seeds the order in which ready devices take steps; it must not change the meaning.
Meaning Interpret(const std::vector<Program>& programs, uint64_t interleaving);

}  // namespace meshwright::ir::testing
