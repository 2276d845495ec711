// Supervisor: what happens to a child that has failed, stopped or fallen silent, as a table.
//
// A row says, for a kind of child and an event: restart it after a backoff, escalate (the
// supervisor's own supervisor decides), or give it up. Restarts have a budget: at most `restarts`
// within any `per_ms`; the one beyond gets the verdict `spent`. The backoff doubles with each
// restart within that time, from backoff_ms up to backoff_max_ms.
//
// Thread rule: one thread; time comes in with each call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace meshwright::actor {

enum class ChildEvent : uint8_t { kFailed, kStopped, kSilent };
enum class Verdict : uint8_t { kRestart, kEscalate, kGiveUp };
const char* Name(ChildEvent event);  // "failed"
const char* Name(Verdict verdict);   // "restart"

struct SupervisionRule {
  std::string child = {};  // a kind of child; "*": all that have no row for this event
  ChildEvent event = ChildEvent::kFailed;
  Verdict verdict = Verdict::kGiveUp;
  // Of kRestart:
  int64_t backoff_ms = 100;
  int64_t backoff_max_ms = 10'000;
  int restarts = 5;
  int64_t per_ms = 60'000;
  Verdict spent = Verdict::kGiveUp;
};
using SupervisionTable = std::vector<SupervisionRule>;

// Fails five times a minute at most; a child that ends on its own is not missed.
SupervisionTable DefaultSupervision();
// One row per line: "env failed restart 100..10000 ms, 5 per 60000 ms, then give up".
std::string FormatSupervision(const SupervisionTable& table);

struct Decision {
  Verdict verdict = Verdict::kGiveUp;
  int64_t after_ms = 0;  // of kRestart
  bool spent = false;    // the budget decided
};

class Supervisor {
 public:
  explicit Supervisor(SupervisionTable table = DefaultSupervision());

  // What to do. An event that no row names gives up.
  Decision On(uint64_t child, std::string_view kind, ChildEvent event, int64_t now_ms);
  // The restart that was decided last has happened, maybe later than it was to: that is when it
  // counts. Without this call it counts at the end of its backoff.
  void Restarted(uint64_t child, int64_t now_ms);
  // The child is gone for good.
  void Forget(uint64_t child) { restarts_.erase(child); }

  const SupervisionTable& table() const { return table_; }
  size_t children() const { return restarts_.size(); }

 private:
  const SupervisionRule* Find(std::string_view kind, ChildEvent event) const;

  const SupervisionTable table_;
  std::map<uint64_t, std::deque<int64_t>> restarts_;  // when, oldest first
};

}  // namespace meshwright::actor
