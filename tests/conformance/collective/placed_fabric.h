// PlacedFabric: a fabric of GPUs for tests that have their data on the host.
//
// Its groups and channels copy what they are given to the rank's device, call the fabric below,
// wait for the device and copy back: so they block as those of CPUs do, and one test runs on both.
//
// Thread rule: as Fabric. Ownership: owns the fabric below; devices and queues outlive it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "collective/communicator.h"
#include "collective/nccl/fabric.h"

namespace meshwright::collective {

std::unique_ptr<Fabric> MakePlacedFabric(std::unique_ptr<Fabric> below,
                                         std::vector<LocalRank> ranks);

}  // namespace meshwright::collective
