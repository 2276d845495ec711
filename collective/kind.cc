#include <fmt/format.h>

#include "collective/communicator.h"

namespace meshwright::collective {

const char* KindName(Kind kind) {
  switch (kind) {
    case Kind::kAllReduce:
      return "all_reduce";
    case Kind::kAllGather:
      return "all_gather";
    case Kind::kReduceScatter:
      return "reduce_scatter";
    case Kind::kAllToAll:
      return "all_to_all";
    case Kind::kRingShift:
      return "ring_shift";
    case Kind::kBroadcast:
      return "broadcast";
    case Kind::kSendRecv:
      return "send_recv";
  }
  return "unknown";
}

Result<Transport> ParseTransport(const std::string& name) {
  if (name == "auto") return Transport::kAuto;
  if (name == "shm") return Transport::kSharedMemory;
  if (name == "tcp") return Transport::kTcp;
  return Fail(InvalidArgument(fmt::format("transport is '{}'; known: auto, shm, tcp", name)));
}

}  // namespace meshwright::collective
