// Conversions of messages about logs.
//
// Thread rule: pure functions. What is beyond the bounds of proto/log_messages.h is cut.
#pragma once

#include "proto/log_messages.h"
#include "proto/meshwright.pb.h"

namespace meshwright::proto {

v1::LogLines Encode(const LogLines& m);
LogLines Decode(const v1::LogLines& wire);
v1::FetchLog Encode(const FetchLog& m);
FetchLog Decode(const v1::FetchLog& wire);
v1::LogPiece Encode(const LogPiece& m);
LogPiece Decode(const v1::LogPiece& wire);

}  // namespace meshwright::proto
