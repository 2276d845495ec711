#include "search/check_job.h"

#include "planner/resolve_layout.h"
#include "planner/stages.h"
#include "search/sharding_pins.h"

namespace meshwright::search {

Status CheckJob(const ir::JobRequest& job) {
  MW_TRY(ir::ValidateJob(job));
  MW_TRY(planner::CheckPins(job.parallel, planner::LayerCount(job.main().graph)));
  return CheckShardingPins(job);
}

}  // namespace meshwright::search
