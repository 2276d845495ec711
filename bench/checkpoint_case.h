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
  // Medians of the rounds, until the slowest of the processes is done.
  double load_seconds = 0;    // opening and manifest included
  double read_seconds = 0;    // the same files, read and thrown away
  double digest_seconds = 0;  // digests of as many bytes, which lie in a core's cache
};
// Writes a checkpoint of so many bytes below `folder` first. Errors: those of the disk.
Result<LoadCase> RunLoadCase(const std::string& folder, int64_t bytes, int readers, int rounds);

// Seconds to check that so many boxes cover a tensor exactly; the median.
double CoverSeconds(int64_t boxes, int rounds);

}  // namespace meshwright::bench
