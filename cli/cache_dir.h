// Where this binary keeps what it can make again: measured profiles, decisions of planning.
//
// Thread rule: any threads at once, processes too: files are replaced as a whole.
#pragma once

#include <memory>
#include <string>

#include "search/plan_cache.h"

namespace meshwright::cli {

// $XDG_CACHE_HOME/meshwright/KIND or ~/.cache/...; empty without a home.
std::string CacheDir(const std::string& kind);

// "meshwright 0.1.0 of 8827776 bytes": another binary may decide otherwise.
std::string BuildDescription();

// `where`: "default": CacheDir("plans"); "off": null; else a folder. Entries of other binaries are
// not seen. Null also without a home.
std::shared_ptr<const search::PlanCache> OpenPlanCache(const std::string& where);

// Entries of `build` as files of a folder, which is made with the first one.
std::shared_ptr<const search::PlanCache> MakeFolderPlanCache(const std::string& folder,
                                                             const std::string& build);

}  // namespace meshwright::cli
