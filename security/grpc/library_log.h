// What gRPC says of itself goes where this process logs (base/log.h), at the level debug: a
// handshake that fails, or an address that nobody listens at, is told to whoever called, and a
// stranger who knocks at a port is no news. Whoever sets GRPC_VERBOSITY wants to see it: then it is
// info. A check of gRPC that fails ends the process, and is an error.
//
// Thread rule: any thread; the first call counts. Lines come on gRPC's threads.
#pragma once

namespace meshwright::security {

void TakeGrpcLog();

}  // namespace meshwright::security
