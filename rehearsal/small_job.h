// A job that has a plan, at a size that this process can run: the same model, layout, schedule and
// ways to split, of small widths, few layers, short rows and few of them, in f64.
//
// A size that some product of the layout's degrees divides is made smaller to one that the same
// products divide, and no others: what is split, replicated or padded in the plan is so in the
// small job, too. Kept are degrees, schedule, chunks, ZeRO, sequence parallelism, shardings that
// are pinned or were searched, whether keys go round a ring, the number of gradient buckets, and
// per part of the model the ways to recompute; microbatches keep what they leave over when shared
// out over the stages. What a job says of devices, data and starting weights has no part in it.
//
// Thread rule: pure functions, except for reading the model folder that the configuration names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/job_config.h"
#include "planner/plan.h"

namespace meshwright::rehearsal {

struct SmallSize {
  std::string name;  // "layers", "width"
  int64_t of_job = 0;
  int64_t small = 0;
};

struct SmallJob {
  ir::JobRequest job;
  planner::Layout layout;
  std::vector<SmallSize> sizes;  // that changed
  std::string model_summary;
  int64_t vocabulary = 0;
};

// The smallest number from `least` on that has the same common divisor with `degrees` as n; n where
// that is no smaller.
int64_t SmallLike(int64_t n, int64_t degrees, int64_t least);

// `plan`: of the job that `config` describes, of which `model` was made. `by_search`: its shardings
// are the search's. Errors: those of making the small model, naming the size.
Result<SmallJob> MakeSmallJob(const config::JobConfig& config, const models::Model& model,
                              const planner::Plan& plan, bool by_search);

// The small job as one device runs it: no layout, nothing fused, nothing computed again.
ir::JobRequest OnOneDevice(ir::JobRequest small);

}  // namespace meshwright::rehearsal
