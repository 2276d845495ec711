// The part of every generated source that does not depend on the chain: element types, loads and
// stores, gates, random bits. The macros kLanes and WIDE_INDEX are defined before it.
//
// It is text for a compiler at run time, which has no headers: 16-bit floats are raw bits that the
// hardware converts on a GPU and plain code elsewhere, where tests compile it.
// Thread rule: constants.
#pragma once

namespace meshwright::ops::cuda {

extern const char* const kChainPrelude;

}  // namespace meshwright::ops::cuda
