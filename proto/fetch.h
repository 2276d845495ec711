// Which tensors come back of a call.
//
// Thread rule: values.
#pragma once

namespace meshwright::proto {

// What comes back of the tensors that a program gives out.
enum class Fetch {
  kNothing,
  kAll,
  kLargest,  // of each row of a tensor of reals [.., n]; other tensors come whole
};

}  // namespace meshwright::proto
