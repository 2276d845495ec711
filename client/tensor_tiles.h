// Tensors out of the blocks that devices hold.
//
// Thread rule: pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/session.h"
#include "proto/messages.h"

namespace meshwright::client {

// Errors: kDataLoss naming a tensor that the blocks do not cover exactly once, or a block that does
// not fit its tensor.
Result<std::map<std::string, Tensor>> AssembleTiles(const std::vector<proto::TensorTile>& tiles);

}  // namespace meshwright::client
