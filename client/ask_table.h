// What a session has asked and not heard the answer of.
//
// An ask is kept until its answer comes: where the connection breaks, it is sent again over the
// next one, under the same id. The controller does what it knows already only once, and keeps
// answers until they are acknowledged; acknowledgements go with the next ask, or in a message of
// their own where answers are large or many. Thread rule: one thread at a time. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "base/result.h"
#include "proto/client_messages.h"

namespace meshwright::client {

class AskTable {
 public:
  using Done = std::function<void(Result<proto::AskDone>)>;

  // An id that no ask of this session has, whatever is asked.
  uint64_t NextId() { return next_id_++; }
  // The id of the ask.
  uint64_t Add(proto::ClientAsk ask, Done done);
  // To send, with what is to be acknowledged; that counts as sent. REQUIRES: the ask is unanswered.
  proto::SessionAsk MessageOf(uint64_t id);
  // Who waits for the answer, which is to be acknowledged from now on; null: nobody, since it came
  // before.
  Done Answered(uint64_t id, int64_t answer_bytes);
  // Answers to acknowledge now, without waiting for the next ask; empty: none. They are open until
  // they have been sent: an ask that overtook them would find the controller without credit for it.
  std::vector<uint64_t> DueAcks();
  void AcksSent(size_t count);

  // Over a new connection: what is to be sent again, in the order in which it was asked. held: what
  // the controller has; answers among it that came already are acknowledged anew.
  std::vector<uint64_t> ToRepeat(const std::vector<uint64_t>& held);
  // Who waits for answers, in the order in which it was asked. Nothing is unanswered then.
  std::vector<Done> TakeAll();

  size_t unanswered() const { return asks_.size(); }
  // What the controller may count as not settled.
  size_t open() const { return asks_.size() + acks_on_their_way_; }

 private:
  // So many answers, or bytes of them, are acknowledged without an ask.
  static constexpr size_t kMostUnacknowledged = 16;
  static constexpr int64_t kMostUnacknowledgedBytes = 256 << 10;

  struct Waiting {
    proto::ClientAsk ask;
    Done done;
  };
  uint64_t next_id_ = 1;
  std::map<uint64_t, Waiting> asks_;
  std::vector<uint64_t> to_acknowledge_;
  size_t acks_on_their_way_ = 0;
  int64_t unacknowledged_bytes_ = 0;
};

}  // namespace meshwright::client
