// Mailbox: the typed, bounded queue in front of one owner.
//
// Offer never blocks: a full mailbox says so, and the sender decides. A sender that must not fail
// later (the end of work that it has begun) takes a Credit first: the right to one place, which
// counts against the bound until it is used or dropped. So depth + credits <= bound, always.
//
// All memory is taken when the mailbox is made. Thread rule: thread-safe; order is that of the
// offers. Ownership: outlives its credits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"

namespace meshwright::actor {

enum class Offered : uint8_t { kTaken, kFull, kClosed };

template <class Message>
class Mailbox {
 public:
  class Credit {
   public:
    Credit(Credit&& other) noexcept : mailbox_(std::exchange(other.mailbox_, nullptr)) {}
    Credit& operator=(Credit&&) = delete;
    ~Credit() {
      if (mailbox_ != nullptr) mailbox_->DropCredit();
    }

   private:
    friend class Mailbox;
    explicit Credit(Mailbox* mailbox) : mailbox_(mailbox) {}
    Mailbox* mailbox_;
  };

  // REQUIRES bound >= 1.
  explicit Mailbox(size_t bound) : bound_(bound), slots_(bound) {
    MW_CHECK(bound >= 1) << "a mailbox of 0";
  }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // The message is left as it was unless kTaken.
  [[nodiscard]] Offered Offer(Message&& message) {
    const MutexLock lock(mutex_);
    if (closed_) return Offered::kClosed;
    if (depth_ + credits_ >= bound_) return Offered::kFull;
    Push(std::move(message));
    return Offered::kTaken;
  }
  // Uses the credit up; never kFull.
  [[nodiscard]] Offered Offer(Credit credit, Message&& message) {
    MW_CHECK(credit.mailbox_ == this) << "a credit of another mailbox";
    credit.mailbox_ = nullptr;
    const MutexLock lock(mutex_);
    --credits_;
    if (closed_) return Offered::kClosed;
    Push(std::move(message));
    return Offered::kTaken;
  }
  // Nothing when the mailbox is full or closed.
  [[nodiscard]] std::optional<Credit> Reserve() {
    const MutexLock lock(mutex_);
    if (closed_ || depth_ + credits_ >= bound_) return std::nullopt;
    ++credits_;
    return Credit(this);
  }

  // The oldest message; nothing when there is none.
  std::optional<Message> Take() {
    const MutexLock lock(mutex_);
    if (depth_ == 0) return std::nullopt;
    return Pop();
  }
  // All that wait, oldest first; the mailbox stays open.
  std::vector<Message> Drain() {
    const MutexLock lock(mutex_);
    return PopAll();
  }
  // Refuses messages from now on and returns those that wait.
  std::vector<Message> Close() {
    const MutexLock lock(mutex_);
    closed_ = true;
    return PopAll();
  }

  size_t bound() const { return bound_; }
  size_t depth() const {
    const MutexLock lock(mutex_);
    return depth_;
  }
  size_t credits() const {
    const MutexLock lock(mutex_);
    return credits_;
  }

 private:
  void Push(Message&& message) MW_REQUIRES(mutex_) {
    slots_[(first_ + depth_) % bound_].emplace(std::move(message));
    ++depth_;
  }
  std::optional<Message> Pop() MW_REQUIRES(mutex_) {
    std::optional<Message> taken = std::exchange(slots_[first_], std::nullopt);
    first_ = (first_ + 1) % bound_;
    --depth_;
    return taken;
  }
  std::vector<Message> PopAll() MW_REQUIRES(mutex_) {
    std::vector<Message> all;
    while (depth_ > 0) all.push_back(*Pop());
    return all;
  }
  void DropCredit() {
    const MutexLock lock(mutex_);
    --credits_;
  }

  mutable Mutex mutex_;
  const size_t bound_;
  std::vector<std::optional<Message>> slots_ MW_GUARDED_BY(mutex_);  // a ring
  size_t first_ MW_GUARDED_BY(mutex_) = 0;
  size_t depth_ MW_GUARDED_BY(mutex_) = 0;
  size_t credits_ MW_GUARDED_BY(mutex_) = 0;
  bool closed_ MW_GUARDED_BY(mutex_) = false;
};

}  // namespace meshwright::actor
