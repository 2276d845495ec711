// What reading a checkpoint costs beyond reading its bytes, and what it costs to know that boxes
// cover a tensor.
//
// The readers are processes, as workers are: each reads its share of every tensor, checks the
// digests of what it reads and copies it to where a device would have it.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace meshwright::bench {

struct LoadCase {
  int64_t bytes = 0;
  double load_seconds =
      0;  // median of the rounds: the slowest reader, opening and manifest included
  double read_seconds = 0;  // of the same files, read and thrown away by as many processes
};
// Writes a checkpoint of so many bytes below `folder` first. Errors: those of the disk.
Result<LoadCase> RunLoadCase(const std::string& folder, int64_t bytes, int readers, int rounds);

// Seconds to check that so many boxes cover a tensor exactly; the median.
double CoverSeconds(int64_t boxes, int rounds);

}  // namespace meshwright::bench
