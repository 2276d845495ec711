#include "controller/standings.h"

#include <array>
#include <utility>

#include "base/check.h"

namespace meshwright::controller {
namespace {

struct StandingRow {
  Standing from;
  StandingEvent event;
  Standing to;
};
using S = Standing;
using SE = StandingEvent;
constexpr StandingRow kStandingTable[] = {
    {S::kOpen, SE::kCordon, S::kCordoned},      {S::kOpen, SE::kDrain, S::kDraining},
    {S::kOpen, SE::kBlamed, S::kQuarantined},   {S::kCordoned, SE::kDrain, S::kDraining},
    {S::kCordoned, SE::kUncordon, S::kOpen},    {S::kDraining, SE::kDrain, S::kDraining},
    {S::kDraining, SE::kEmptied, S::kDrained},  {S::kDraining, SE::kUncordon, S::kOpen},
    {S::kDrained, SE::kUncordon, S::kOpen},     {S::kQuarantined, SE::kDrain, S::kDraining},
    {S::kQuarantined, SE::kUncordon, S::kOpen},
};

}  // namespace

const char* Name(Standing standing) {
  static constexpr std::array<const char*, kStandingCount> kNames = {"OPEN", "CORDONED", "DRAINING",
                                                                     "DRAINED", "QUARANTINED"};
  return kNames[static_cast<size_t>(standing)];
}

std::optional<Standing> Next(Standing from, StandingEvent event) {
  for (const StandingRow& row : kStandingTable) {
    if (row.from == from && row.event == event) return row.to;
  }
  return std::nullopt;
}

Standings::Standings(std::vector<StandingRecord> stored) {
  for (StandingRecord& record : stored) {
    if (record.standing == Standing::kOpen) continue;
    std::string worker = record.worker;
    records_[std::move(worker)] = std::move(record);
  }
}

const StandingRecord* Standings::Of(const std::string& worker) const {
  const auto it = records_.find(worker);
  return it == records_.end() ? nullptr : &it->second;
}

std::optional<StandingRecord> Standings::Apply(StandingRecord record, StandingEvent event) {
  MW_CHECK(!record.worker.empty()) << "a standing of nobody";
  const StandingRecord* const before = Of(record.worker);
  const auto next = Next(before == nullptr ? Standing::kOpen : before->standing, event);
  if (!next) return std::nullopt;
  record.standing = *next;
  if (*next == Standing::kOpen) {
    records_.erase(record.worker);
  } else {
    records_[record.worker] = record;
  }
  return record;
}

}  // namespace meshwright::controller
