// What a search decided, kept for the next time that the same is asked.
//
// An entry has the decisions and what they were chosen from, not programs: the plan is made anew
// from the layout, checked as any other, so that a wrong entry cannot make a wrong program. Entries
// end with a checksum; one that does not hold, or that was written for another key, is a note and a
// search.
//
// Thread rule: FormatPlanEntry, ParsePlanEntry and PlanCacheKey are pure; a PlanCache may be used
// from any threads.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "search/find_layout.h"

namespace meshwright::search {

// Where entries are: small texts by key.
class PlanCache {
 public:
  virtual ~PlanCache() = default;
  // Errors: kNotFound: there is none; others: it cannot be read.
  virtual Result<std::string> Read(const std::string& key) const = 0;
  virtual Status Write(const std::string& key, std::string_view text) const = 0;
};

struct PlanEntry {
  planner::Layout layout;  // of the plan
  bool by_search = false;  // its shardings
  std::string note;        // what the search for shardings said
  FoundLayout found;
};

// 64 hexadecimal digits: job, what it pins, devices and links, time for the search.
std::string PlanCacheKey(const ir::JobRequest& job, const mesh::Topology& topology,
                         const FindOptions& options);

// Errors: kUnimplemented when a layout is not what its text says, so that it must not be kept.
Result<std::string> FormatPlanEntry(const std::string& key, const PlanEntry& entry);
// Parse(Format(x)) == x. Errors: kDataLoss naming what is wrong.
Result<PlanEntry> ParsePlanEntry(const std::string& key, std::string_view text);

}  // namespace meshwright::search
