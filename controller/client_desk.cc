#include "controller/client_desk.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace meshwright::controller {
namespace {

Status NoSeat(size_t taken) {
  return ResourceExhausted(
      fmt::format("{} sessions are open on this job, the most at once; close some, or wait until "
                  "those that were lost are given up",
                  taken));
}

Status NoCredit(size_t open) {
  return ResourceExhausted(fmt::format(
      "{} asks of this session are unanswered, the most at once, or were not acknowledged", open));
}

Status NoRoom(int64_t waiting_bytes, int64_t bytes, int64_t most_bytes) {
  return ResourceExhausted(fmt::format(
      "{} bytes wait for the job already, {} more are beyond the {} that are kept; wait "
      "for answers",
      waiting_bytes, bytes, most_bytes));
}

}  // namespace

ClientDesk::Seat* ClientDesk::SeatOf(ClientId client) {
  const auto it = streams_.find(client);
  return it == streams_.end() ? nullptr : &seats_.at(it->second);
}

// ---- Who is there ----

Result<std::optional<ClientId>> ClientDesk::Attach(ClientId client, const std::string& name) {
  const auto known = std::find_if(seats_.begin(), seats_.end(), [&](const auto& entry) {
    return !name.empty() && entry.second.name == name;
  });
  if (known != seats_.end()) {
    const std::optional<ClientId> before = std::exchange(known->second.stream, client);
    if (before) streams_.erase(*before);
    streams_.emplace(client, known->first);
    return before;
  }
  if (seats_.size() >= limits_.seats) {
    return Fail(NoSeat(seats_.size()));
  }
  const SeatId seat(next_seat_++);
  seats_[seat].name = name;
  seats_[seat].stream = client;
  streams_.emplace(client, seat);
  return std::optional<ClientId>();
}

bool ClientDesk::Detach(ClientId client, int64_t expires_ms) {
  const auto it = streams_.find(client);
  if (it == streams_.end()) return false;
  Seat& seat = seats_.at(it->second);
  if (seat.name.empty()) {
    waiting_.Drop(it->second);
    seat.unanswered.clear();
  }
  seat.stream.reset();
  seat.expires_ms = expires_ms;
  streams_.erase(it);
  return true;
}

bool ClientDesk::Leave(ClientId client) {
  const auto it = streams_.find(client);
  if (it == streams_.end()) return false;
  Remove(seats_.find(it->second));
  return true;
}

void ClientDesk::Remove(Seats::iterator seat) {
  waiting_.Drop(seat->first);
  if (seat->second.stream) streams_.erase(*seat->second.stream);
  seats_.erase(seat);
}

bool ClientDesk::Expire(int64_t now_ms) {
  const size_t before = seats_.size();
  for (auto it = seats_.begin(); it != seats_.end();) {
    const auto seat = it++;
    if (!seat->second.stream && seat->second.expires_ms <= now_ms) Remove(seat);
  }
  return before > 0 && seats_.empty();
}

bool ClientDesk::Knows(const std::string& name) const {
  return !name.empty() && std::any_of(seats_.begin(), seats_.end(),
                                      [&](const auto& entry) { return entry.second.name == name; });
}

std::vector<ClientId> ClientDesk::clients() const {
  std::vector<ClientId> all;
  for (const auto& [client, seat] : streams_) all.push_back(client);
  return all;
}

// ---- What was asked ----

Status ClientDesk::Offer(ClientId client, uint64_t id, proto::ClientAsk ask,
                         const ir::JobRequest& job, const StateNames& state) {
  Seat* const seat = SeatOf(client);
  if (seat == nullptr) return FailedPrecondition("the session is not open");
  if (seat->kept.Has(id) || seat->unanswered.contains(id)) {
    if (!seat->name.empty()) return OkStatus();
    return AlreadyExists(fmt::format("ask {} is unanswered already", id));
  }
  const size_t open = seat->unanswered.size() + seat->kept.size();
  if (open >= static_cast<size_t>(limits_.credits)) {
    return NoCredit(open);
  }
  const int64_t bytes = BytesOf(ask);
  if (waiting_.bytes() + bytes > limits_.waiting_bytes) {
    return NoRoom(waiting_.bytes(), bytes, limits_.waiting_bytes);
  }
  MW_TRY(CheckAsk(ask, job, state));
  seat->unanswered.insert(id);
  waiting_.Add({streams_.at(client), id, std::move(ask)});
  return OkStatus();
}

void ClientDesk::Acknowledge(ClientId client, const std::vector<uint64_t>& ids) {
  if (Seat* const seat = SeatOf(client)) seat->kept.Acknowledge(ids);
}

std::vector<uint64_t> ClientDesk::Held(ClientId client) {
  const Seat* const seat = SeatOf(client);
  if (seat == nullptr) return {};
  std::vector<uint64_t> held = seat->kept.ids();
  held.insert(held.end(), seat->unanswered.begin(), seat->unanswered.end());
  return held;
}

std::vector<proto::ClientDown> ClientDesk::Missed(ClientId client, std::optional<uint64_t> id) {
  const Seat* const seat = SeatOf(client);
  return seat == nullptr ? std::vector<proto::ClientDown>() : seat->kept.Of(id);
}

std::optional<ClientAsk> ClientDesk::Take() {
  // A session whose answers fill what is kept for it waits; the others go on.
  return waiting_.Take(
      [&](SeatId seat) { return seats_.at(seat).kept.bytes() < limits_.kept_bytes; });
}

std::optional<ClientId> ClientDesk::Answer(SeatId seat, uint64_t id, const proto::ClientDown& news,
                                           int64_t bytes) {
  const auto it = seats_.find(seat);
  if (it == seats_.end() || it->second.unanswered.erase(id) == 0) return std::nullopt;
  return Keep(it->second, id, news, bytes);
}

std::optional<ClientId> ClientDesk::Refuse(ClientId client, uint64_t id,
                                           const proto::ClientDown& news) {
  Seat* const seat = SeatOf(client);
  if (seat == nullptr || seat->unanswered.contains(id)) return std::nullopt;
  return Keep(*seat, id, news, 0);
}

// A client that asks more than it may has no claim to refusals that are kept.
std::optional<ClientId> ClientDesk::Keep(Seat& seat, uint64_t id, const proto::ClientDown& news,
                                         int64_t bytes) const {
  const bool room =
      seat.unanswered.size() + seat.kept.size() < static_cast<size_t>(limits_.credits);
  if (!seat.name.empty() && room) seat.kept.Add(id, news, bytes);
  return seat.stream;
}

std::vector<std::pair<SeatId, uint64_t>> ClientDesk::DropAll() {
  std::vector<std::pair<SeatId, uint64_t>> all;
  for (const auto& [id, seat] : seats_) {
    for (const uint64_t ask : seat.unanswered) all.emplace_back(id, ask);
  }
  waiting_.DropAll();
  return all;
}

}  // namespace meshwright::controller
