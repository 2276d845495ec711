#include "report/plan_job.h"

#include <string>
#include <utility>

#include "mesh/measured_factors.h"

namespace meshwright::report {

Result<PlannedJob> PlanJob(config::PreparedJob prepared, const mesh::Topology& topology,
                           const search::FindOptions& options, const Clock& clock,
                           planner::PlanScope scope) {
  PlannedJob planned;
  planned.prepared = std::move(prepared);
  const ir::JobRequest& job = planned.prepared.request;
  MW_ASSIGN_OR_RETURN(planned.found, search::FindPlan(job, topology, options, clock, scope));
  for (std::string& note : mesh::MeasuredNotes(topology)) {
    planned.found.plan.notes.push_back(std::move(note));
  }
  MW_ASSIGN_OR_RETURN(planned.forecast, planner::ForecastStep(planned.plan(), topology));
  return planned;
}

}  // namespace meshwright::report
