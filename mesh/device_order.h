// The order in which jobs get devices.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "mesh/topology.h"

namespace meshwright::mesh {

// "w2" before "w10": digits compare as numbers.
bool NaturalLess(const std::string& a, const std::string& b);

// Neighbours are of one host, and of one worker; hosts with the most devices stand first.
void SortForPlacement(std::vector<Device>& devices);

}  // namespace meshwright::mesh
