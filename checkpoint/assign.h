// Who writes what: every box of the state once, spread over the devices that hold it.
//
// A box that several devices hold in common is written by one of them, chosen by a hash of its
// tensor and place: with "the first" one host would write everything. A tensor that several stages
// hold, each cut in its own way, is taken from one of these stages.
//
// Thread rule: pure. REQUIRES programs by device.
#pragma once

#include <string>
#include <vector>

#include "ir/program.h"

namespace meshwright::checkpoint {

// Per device the names of persistent slots whose box it writes.
std::vector<std::vector<std::string>> AssignBoxes(const std::vector<ir::Program>& programs);

}  // namespace meshwright::checkpoint
