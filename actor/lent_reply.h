// LentReply: a slot of a question whose answer, where nobody gives one, may still be chosen by the
// one that lent it.
//
// Thread rule: as ReplySlot. Ownership: shared by the lender and the slot; the last one answers.
#pragma once

#include <memory>
#include <utility>

#include "actor/reply.h"

namespace meshwright::actor {

template <class Reply>
class LentReply {
 public:
  explicit LentReply(ReplySlot<Reply> reply) : reply_(std::move(reply)) {}
  ~LentReply() { reply_.Complete(Fail(why_)); }
  LentReply(const LentReply&) = delete;
  LentReply& operator=(const LentReply&) = delete;

  // The slot to hand on, with `lent` the lender's share; of a question that nobody asked: both are
  // empty. Takes `reply`.
  static ReplySlot<Reply> Lend(ReplySlot<Reply>& reply, std::shared_ptr<LentReply>& lent) {
    if (!reply.wanted()) return {};
    lent = std::make_shared<LentReply>(std::move(reply));
    return ReplySlot<Reply>([lent](Result<Reply> answer) {
      const bool forgotten = !answer.has_value() && answer.error() == Forgotten();
      if (!forgotten) lent->reply_.Complete(std::move(answer));
    });
  }

  // What the question is answered with if nobody does. REQUIRES to be the only owner.
  void set_why(Status why) { why_ = std::move(why); }

 private:
  ReplySlot<Reply> reply_;
  Status why_ = Forgotten();
};

}  // namespace meshwright::actor
