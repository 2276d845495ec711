// Which rows of what clients bring a device reads.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "controller/events.h"
#include "ir/program.h"

namespace meshwright::controller {

// By input, which is an index of `inputs`; no entry: the program may read all of it, as it is one
// value or comes in microbatches. count 0: it reads nothing of it.
std::map<uint32_t, RowRange> InputRowsOf(const ir::Program& program,
                                         const std::vector<std::string>& inputs);

// The smallest range with all rows that `devices` read; nothing: all of the input.
std::optional<RowRange> RowsRead(const std::vector<const PlannedDevice*>& devices, uint32_t program,
                                 uint32_t input);

}  // namespace meshwright::controller
