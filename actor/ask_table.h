// AskTable: the questions of a place that wait for an answer. Taking a question out of the table is
// the right to complete it, so each completes exactly once: by the reply, by its deadline, or by
// the end of the one who was asked, whichever comes first.
//
// Thread rule: thread-safe; completions run on the caller's thread, outside of the lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "actor/address.h"
#include "actor/frame.h"
#include "base/mutex.h"
#include "base/result.h"

namespace meshwright::actor {

using AskId = Id<struct AskTag, uint64_t>;

// A question's end, whatever the type of its answer.
class PendingAsk {
 public:
  virtual ~PendingAsk() = default;
  virtual void Fail(Status status) = 0;
  virtual void AnswerFrame(const Frame& frame) = 0;
};

template <class Reply>
class TypedAsk final : public PendingAsk {
 public:
  using Done = std::function<void(Result<Reply>)>;
  using Decode = std::function<Result<Reply>(const Frame&)>;
  // decode: of answers from another place that are no errors; null: none can come from there.
  TypedAsk(Done done, Decode decode) : done_(std::move(done)), decode_(std::move(decode)) {}
  void Fail(Status status) override { done_(meshwright::Fail(std::move(status))); }
  void AnswerFrame(const Frame& frame) override {
    if (frame.code != StatusCode::kOk) return Fail(frame.status());
    done_(decode_(frame));
  }
  void Answer(Result<Reply> reply) { done_(std::move(reply)); }

 private:
  const Done done_;
  const Decode decode_;
};

class AskTable {
 public:
  // bound: of the questions that may wait at once.
  explicit AskTable(size_t bound) : bound_(bound) {}

  struct Deadline {
    int64_t due_ms = 0;       // on the place's clock
    int64_t deadline_ms = 0;  // as it was asked, for the message
  };
  // Errors: kResourceExhausted; the question is then failed already.
  std::optional<AskId> Add(std::unique_ptr<PendingAsk> ask, const Address& asked,
                           Deadline deadline);
  // Nothing when it is completed already.
  std::unique_ptr<PendingAsk> Take(AskId id);
  // False when it was too late.
  bool Fail(AskId id, Status status);
  template <class Reply>
  bool Answer(AskId id, Result<Reply> reply) {
    const std::unique_ptr<PendingAsk> ask = Take(id);
    if (!ask) return false;
    static_cast<TypedAsk<Reply>&>(*ask).Answer(std::move(reply));
    return true;
  }

  // Ends what is due. The next due time; nothing when no question waits.
  std::optional<int64_t> ExpireDue(int64_t now_ms);
  // Ends all that were asked of a place.
  void FailPlace(PlaceId place, const Status& cause);
  void FailAll(const Status& status);

  size_t size() const;

 private:
  struct Entry {
    std::unique_ptr<PendingAsk> ask;
    Address asked;
    Deadline deadline;
  };
  // REQUIRES an entry of this id.
  Entry TakeEntry(uint64_t id) MW_REQUIRES(mutex_);

  const size_t bound_;
  mutable Mutex mutex_;
  std::map<uint64_t, Entry> asks_ MW_GUARDED_BY(mutex_);
  std::set<std::pair<int64_t, uint64_t>> by_due_ MW_GUARDED_BY(mutex_);  // (due_ms, id)
  uint64_t next_id_ MW_GUARDED_BY(mutex_) = 1;
};

}  // namespace meshwright::actor
