// WaitingAsks: asks of all clients of a job that are not taken yet, in their order, and their
// bytes.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>

#include "base/ids.h"
#include "proto/client_messages.h"

namespace meshwright::controller {

using SeatId = Id<struct SeatTag, uint64_t>;  // of a client: controller/client_desk.h

struct ClientAsk {
  SeatId seat;
  uint64_t id = 0;
  proto::ClientAsk ask;
};

class WaitingAsks {
 public:
  void Add(ClientAsk ask);
  // The first one of a seat that may go on, or nothing.
  std::optional<ClientAsk> Take(const std::function<bool(SeatId)>& may_go_on);
  void Drop(SeatId seat);
  void DropAll();
  // Of the inputs and values in them.
  int64_t bytes() const { return bytes_; }

 private:
  std::deque<ClientAsk> asks_;
  int64_t bytes_ = 0;
};

}  // namespace meshwright::controller
