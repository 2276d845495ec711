// Which experts a token takes, by each kind of router. Internal to client/experts.cc.
//
// Thread rule: that of the builder.
#pragma once

#include <string>

#include "client/experts.h"

namespace meshwright::client {

struct Routing {
  ValueId logits;   // [b, s, experts]
  ValueId shares;   // [b, s, experts]
  ValueId ids;      // i32[b, s, k]
  ValueId weights;  // [b, s, k]
  ValueId bias;     // [experts], of TopOfSigmoid; else invalid
  ValueId scores;   // [b, s, k], of ExpertChoice: what has room first; else invalid
};

Routing RouteTokens(Builder& builder, ValueId x, const std::string& name,
                    const ExpertOptions& options);

}  // namespace meshwright::client
