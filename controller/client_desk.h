// The clients of one job and what they have asked: in order, done once, answered exactly once.
//
// A client has a **seat**. One that gave its session a name keeps it while its stream is broken:
// what it asked is carried out, answers are kept until it says that they have come, and a stream
// with the same name takes the seat again. To a seat without a name nobody comes back: what waits
// is dropped, what was taken is carried out, since it may have changed the state already.
//
// Bounds: a seat has at most DeskLimits::credits asks that are unanswered, or whose answers are
// kept; nothing more is taken of it while its kept answers have DeskLimits::kept_bytes. Whoever
// does not come back in its time loses the seat. Thread rule: one thread. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "controller/client_asks.h"
#include "controller/kept_answers.h"
#include "controller/waiting_asks.h"
#include "ir/job.h"
#include "proto/client_messages.h"

namespace meshwright::controller {

using ClientId = Id<struct ClientTag, uint64_t>;  // a stream

struct DeskLimits {
  int32_t credits = 64;                        // asks of a client that are not settled
  int64_t waiting_bytes = int64_t{256} << 20;  // of all that waits
  int64_t kept_bytes = int64_t{64} << 20;      // of a seat's answers; the last ones may exceed it
  size_t seats = 256;                          // of a job
};

class ClientDesk {
 public:
  explicit ClientDesk(DeskLimits limits = {}) : limits_(limits) {}

  // name: of the session, "": none. The stream that had the seat till now, if there is one. Errors:
  // kResourceExhausted: no seat is free.
  Result<std::optional<ClientId>> Attach(ClientId client, const std::string& name);
  // The stream has broken: the seat is kept until `expires_ms`. False: it was not attached.
  bool Detach(ClientId client, int64_t expires_ms);
  // The client has finished. False: it was not attached.
  bool Leave(ClientId client);
  // Those that were to come back by now lose their seats. True: nobody has one since then.
  bool Expire(int64_t now_ms);
  // Nobody has a seat.
  bool empty() const { return seats_.empty(); }
  // A session of that name has a seat.
  bool Knows(const std::string& name) const;
  // Whose streams are attached; others may come back.
  std::vector<ClientId> clients() const;

  // Checks the ask against the job and keeps it. What is known already is not kept twice: its
  // answer, if there is one, is told again (Missed). Errors: as CheckAsk; kResourceExhausted: more
  // than credits or bytes allow. kAlreadyExists: an id that is unanswered, of a session without a
  // name, which is a defect of the client.
  Status Offer(ClientId client, uint64_t id, proto::ClientAsk ask, const ir::JobRequest& job,
               const StateNames& state);
  // These answers have come: they are not kept any more.
  void Acknowledge(ClientId client, const std::vector<uint64_t>& ids);
  // Asks of the seat that are unanswered, or whose answers are kept.
  std::vector<uint64_t> Held(ClientId client);
  // Answers that are kept for the client, in the order in which they were given; of one ask, or of
  // all.
  std::vector<proto::ClientDown> Missed(ClientId client, std::optional<uint64_t> id = std::nullopt);

  // The next ask to carry out, or nothing. It counts as unanswered until Answer().
  std::optional<ClientAsk> Take();
  // Keeps the answer where the session has a name. Who is to be told, if somebody is there.
  std::optional<ClientId> Answer(SeatId seat, uint64_t id, const proto::ClientDown& news,
                                 int64_t bytes);
  // The same of an ask that Offer refused.
  std::optional<ClientId> Refuse(ClientId client, uint64_t id, const proto::ClientDown& news);

  // Everything that is unanswered: it is owed a failure. Nothing waits any more.
  std::vector<std::pair<SeatId, uint64_t>> DropAll();
  const DeskLimits& limits() const { return limits_; }

 private:
  struct Seat {
    std::string name;
    std::optional<ClientId> stream;
    int64_t expires_ms = 0;  // without a stream
    std::set<uint64_t> unanswered;
    KeptAnswers kept;
  };
  using Seats = std::map<SeatId, Seat>;

  Seat* SeatOf(ClientId client);
  void Remove(Seats::iterator seat);
  std::optional<ClientId> Keep(Seat& seat, uint64_t id, const proto::ClientDown& news,
                               int64_t bytes) const;

  const DeskLimits limits_;
  uint64_t next_seat_ = 1;
  Seats seats_;
  std::map<ClientId, SeatId> streams_;
  WaitingAsks waiting_;
};

}  // namespace meshwright::controller
