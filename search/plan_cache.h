// What a search decided, kept for the next time that the same is asked.
//
// An entry has the decisions and what they were chosen from, not programs: the plan is made anew
// from the layout, checked as any other, so that a wrong entry cannot make a wrong program. Entries
// end with a checksum; one that does not hold, or that was written for another key, is a note and a
// search.
//
// What plans depend on is a fingerprint: a short text that is equal when it is equal.
//
// Thread rule: fingerprints, FormatPlanEntry, ParsePlanEntry and PlanCacheKey are pure; a PlanCache
// may be used from any threads.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "ir/job.h"
#include "mesh/topology.h"
#include "search/find_layout.h"

namespace meshwright::search {

// Model, batch, sequence, types and optimizer: all of a job that the planner reads but
// JobRequest::parallel. 64 hexadecimal digits, as of all of these.
std::string JobFingerprint(const ir::JobRequest& job);

// What a job pins and leaves open.
std::string ParallelFingerprint(const ir::ParallelSpec& parallel);

// Devices with their memory, profiles and hosts, and the links. Names of workers and hosts do not
// count: which devices are together does.
std::string TopologyFingerprint(const mesh::Topology& topology);

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
