// Protobuf messages with every field filled by chance: seeds of converters, and calls of RPCs.
//
// Thread rule: pure functions.
#pragma once

#include <google/protobuf/message.h>

#include "tests/fuzz/mutate.h"

namespace meshwright::fuzz {

// Numbers are small, large, negative and none; texts are words that mean something somewhere,
// digests, paths, bytes that are no UTF-8 where the field is of bytes; of a oneof one is set.
void FillMessage(google::protobuf::Message& message, Random& random, int depth = 0);

}  // namespace meshwright::fuzz
