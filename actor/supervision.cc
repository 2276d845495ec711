#include "actor/supervision.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace meshwright::actor {

const char* Name(ChildEvent event) {
  switch (event) {
    case ChildEvent::kFailed:
      return "failed";
    case ChildEvent::kStopped:
      return "stopped";
    case ChildEvent::kSilent:
      return "silent";
  }
  return "unknown";
}

const char* Name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kRestart:
      return "restart";
    case Verdict::kEscalate:
      return "escalate";
    case Verdict::kGiveUp:
      return "give up";
  }
  return "unknown";
}

SupervisionTable DefaultSupervision() {
  return {{.child = "*", .event = ChildEvent::kFailed, .verdict = Verdict::kRestart},
          {.child = "*", .event = ChildEvent::kSilent, .verdict = Verdict::kRestart},
          {.child = "*", .event = ChildEvent::kStopped, .verdict = Verdict::kGiveUp}};
}

std::string FormatSupervision(const SupervisionTable& table) {
  std::string text;
  for (const SupervisionRule& rule : table) {
    text += fmt::format("{} {} {}", rule.child, Name(rule.event), Name(rule.verdict));
    if (rule.verdict == Verdict::kRestart) {
      text += fmt::format(" {}..{} ms, {} per {} ms, then {}", rule.backoff_ms, rule.backoff_max_ms,
                          rule.restarts, rule.per_ms, Name(rule.spent));
    }
    text += '\n';
  }
  return text;
}

Supervisor::Supervisor(SupervisionTable table) : table_(std::move(table)) {
  for (const SupervisionRule& rule : table_) {
    MW_CHECK(rule.backoff_ms >= 0 && rule.backoff_max_ms >= rule.backoff_ms && rule.restarts >= 0 &&
             rule.per_ms > 0 && rule.spent != Verdict::kRestart)
        << FormatSupervision({rule});
  }
}

const SupervisionRule* Supervisor::Find(std::string_view kind, ChildEvent event) const {
  const SupervisionRule* general = nullptr;
  for (const SupervisionRule& rule : table_) {
    if (rule.event != event) continue;
    if (rule.child == kind) return &rule;
    if (rule.child == "*") general = &rule;
  }
  return general;
}

Decision Supervisor::On(uint64_t child, std::string_view kind, ChildEvent event, int64_t now_ms) {
  const SupervisionRule* rule = Find(kind, event);
  if (rule == nullptr) return {};
  if (rule->verdict != Verdict::kRestart) return {rule->verdict, 0, false};
  std::deque<int64_t>& times = restarts_[child];
  while (!times.empty() && times.front() <= now_ms - rule->per_ms) times.pop_front();
  if (times.size() >= static_cast<size_t>(rule->restarts)) return {rule->spent, 0, true};
  // Beyond 40 doublings every backoff has reached its bound.
  const int doublings = static_cast<int>(std::min<size_t>(times.size(), 40));
  int64_t after_ms = rule->backoff_ms;
  for (int i = 0; i < doublings && after_ms < rule->backoff_max_ms; ++i) after_ms *= 2;
  after_ms = std::min(after_ms, rule->backoff_max_ms);
  times.push_back(now_ms + after_ms);
  return {Verdict::kRestart, after_ms, false};
}

void Supervisor::Restarted(uint64_t child, int64_t now_ms) {
  const auto it = restarts_.find(child);
  if (it != restarts_.end() && !it->second.empty()) it->second.back() = now_ms;
}

}  // namespace meshwright::actor
