// ReplySlot: where the answer to one question goes. Answered exactly once: by Complete, or, when
// the slot is destroyed unanswered, with kAborted. So a question cannot be forgotten, whatever the
// actor does with its slot: answer at once, keep it for later, or fail.
//
// Thread rule: one thread at a time, as any value; the callback runs on that thread.
#pragma once

#include <functional>
#include <utility>

#include "base/result.h"

namespace meshwright::actor {

// The answer that says only that it was done.
struct Nothing {
  friend bool operator==(const Nothing&, const Nothing&) = default;
};

// What a slot that is destroyed unanswered says.
inline const Status& Forgotten() {
  static const Status status = Aborted("the actor ended before it answered");
  return status;
}

template <class Reply>
class ReplySlot {
 public:
  using Done = std::function<void(Result<Reply>)>;

  ReplySlot() = default;  // of a Tell: nobody waits
  explicit ReplySlot(Done done) : done_(std::move(done)) {}
  ReplySlot(ReplySlot&& other) noexcept : done_(std::exchange(other.done_, nullptr)) {}
  ReplySlot& operator=(ReplySlot&& other) noexcept {
    if (this != &other) {
      Drop();
      done_ = std::exchange(other.done_, nullptr);
    }
    return *this;
  }
  ~ReplySlot() { Drop(); }

  // Whether somebody waits and has not been answered.
  bool wanted() const { return done_ != nullptr; }
  // The first call counts; later ones, and those of a Tell, do nothing.
  void Complete(Result<Reply> reply) {
    if (const Done done = std::exchange(done_, nullptr)) done(std::move(reply));
  }

 private:
  void Drop() {
    if (done_) Complete(Fail(Forgotten()));
  }

  Done done_;
};

}  // namespace meshwright::actor
