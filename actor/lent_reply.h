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

  // The slot to hand on.
  static ReplySlot<Reply> SlotOf(const std::shared_ptr<LentReply>& lent) {
    return ReplySlot<Reply>([lent](Result<Reply> reply) {
      const bool forgotten = !reply.has_value() && reply.error() == Forgotten();
      if (!forgotten) lent->reply_.Complete(std::move(reply));
    });
  }

  // What the question is answered with if nobody does. REQUIRES to be the only owner.
  void set_why(Status why) { why_ = std::move(why); }

 private:
  ReplySlot<Reply> reply_;
  Status why_ = Forgotten();
};

}  // namespace meshwright::actor
