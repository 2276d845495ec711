#include "controller/waiting_asks.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "controller/client_asks.h"

namespace meshwright::controller {

void WaitingAsks::Add(ClientAsk ask) {
  bytes_ += BytesOf(ask.ask);
  asks_.push_back(std::move(ask));
}

std::optional<ClientAsk> WaitingAsks::Take(const std::function<bool(SeatId)>& may_go_on) {
  const auto next = std::find_if(asks_.begin(), asks_.end(),
                                 [&](const ClientAsk& ask) { return may_go_on(ask.seat); });
  if (next == asks_.end()) return std::nullopt;
  ClientAsk taken = std::move(*next);
  asks_.erase(next);
  bytes_ -= BytesOf(taken.ask);
  MW_CHECK(bytes_ >= 0) << bytes_ << " bytes wait";
  return taken;
}

void WaitingAsks::Drop(SeatId seat) {
  std::erase_if(asks_, [&](const ClientAsk& ask) {
    if (ask.seat != seat) return false;
    bytes_ -= BytesOf(ask.ask);
    return true;
  });
}

void WaitingAsks::DropAll() {
  asks_.clear();
  bytes_ = 0;
}

}  // namespace meshwright::controller
