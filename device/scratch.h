// The disk that the devices of a worker may put state on.
//
// Thread rule: a plain value.
#pragma once

#include <cstdint>
#include <string>

namespace meshwright::device {

struct Scratch {
  std::string folder;       // empty: nothing can be on a disk
  int64_t limit_bytes = 0;  // of all devices together; 0: as the disk has room
  int64_t bytes_per_s = 0;  // copies of CPU devices take as long as at this rate; 0: as they take
};

}  // namespace meshwright::device
