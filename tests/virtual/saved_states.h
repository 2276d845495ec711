// Saves of one virtual cluster that another one loads, without workers and a controller.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/roots.h"
#include "tests/virtual/virtual_cluster.h"
#include "worker/checkpoint_files.h"
#include "worker/weights.h"

namespace meshwright::testing {

// The roles of workers and controller in a save: all ranks are those of one worker here.
class SavedStates {
 public:
  SavedStates();
  Status Save(VirtualCluster& cluster, int64_t step, const std::string& folder);
  Status Load(VirtualCluster& cluster, int64_t step, const std::string& folder);

 private:
  TempDir dir_;
  checkpoint::Roots roots_;
  worker::FolderFiles files_;
};

struct Trained {
  std::vector<double> losses;
  std::map<std::string, LogicalTensor> tensors;
};
// Steps [first, first + steps).
Result<Trained> TrainOn(VirtualCluster& cluster, int64_t first, int64_t steps);

// Losses and state within 1e-10 of one another; bitwise: they are the same.
void ExpectSameTraining(const Trained& expected, const Trained& actual, bool bitwise,
                        const std::string& what);

}  // namespace meshwright::testing
