// Streams of several data sets become one: its parts (ir/data_spec.h).
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/data_spec.h"

namespace meshwright::data {

// A data set as DescribeFiles made it: what it has to train on is taken.
struct NamedStream {
  std::string name;
  int64_t weight = 1;  // as ir::DataPart
  ir::DataStream stream;
};

// training: what is trained on; validation: files of its own, or none. A set that is alone has no
// part: it is the stream. Errors: kInvalidArgument naming both sets: they do not have the same
// fields. REQUIRES one set to train on.
Result<ir::DataStream> JoinStreams(std::vector<NamedStream> training,
                                   std::vector<NamedStream> validation);

}  // namespace meshwright::data
