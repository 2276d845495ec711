// What operators and faults have said of workers, by name: who gets no new work, and who gives away
// the work that it has.
//
// A standing is of a name, not of a process: it is there before the worker joins and after it is
// gone, and is on disk before anyone acts on it. Which one follows which is a table. Thread rule:
// values; the core's thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace meshwright::controller {

enum class Standing : uint8_t {
  kOpen = 0,
  kCordoned = 1,     // gets nothing new
  kDraining = 2,     // what runs there goes on elsewhere
  kDrained = 3,      // nothing runs there
  kQuarantined = 4,  // its host has failed several times; what runs there goes on
};
inline constexpr int kStandingCount = 5;
const char* Name(Standing standing);  // "OPEN", "CORDONED", ...

enum class StandingEvent : uint8_t { kCordon, kDrain, kEmptied, kBlamed, kUncordon };
// Nothing: the event changes nothing.
std::optional<Standing> Next(Standing from, StandingEvent event);

struct StandingRecord {
  std::string worker;
  Standing standing = Standing::kOpen;
  int64_t since_unix_ms = 0;
  int64_t until_unix_ms = 0;  // kDraining: then what is left is ended
  std::string why;            // for people
  friend bool operator==(const StandingRecord&, const StandingRecord&) = default;
};

class Standings {
 public:
  Standings() = default;
  explicit Standings(std::vector<StandingRecord> stored);

  const StandingRecord* Of(const std::string& worker) const;  // null: it is open
  bool IsOpen(const std::string& worker) const { return Of(worker) == nullptr; }
  // Puts what becomes of the worker in the place of what was, and returns it; nothing where the
  // event changes nothing. `record` has the worker, the time and the reason.
  std::optional<StandingRecord> Apply(StandingRecord record, StandingEvent event);
  const std::map<std::string, StandingRecord>& all() const { return records_; }  // not open

 private:
  std::map<std::string, StandingRecord> records_;
};

}  // namespace meshwright::controller
