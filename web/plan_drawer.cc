#include "web/plan_drawer.h"

#include <fmt/format.h>

#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "planner/forecast.h"
#include "report/plan_json.h"
#include "report/plan_svg.h"

namespace meshwright::web {

Status DrawPlan(const controller::MadePlan& made) {
  MW_ASSIGN_OR_RETURN(const planner::Forecast forecast,
                      planner::ForecastStep(*made.plan, made.topology));
  MW_TRY(WriteFileAtomic(fmt::format("{}/{}", made.job_dir, kPlanPicture),
                         report::PlanSvg(*made.plan, forecast, made.topology)));
  return WriteFileAtomic(fmt::format("{}/{}", made.job_dir, kPlanFigures),
                         report::MadePlanJson(*made.plan, forecast, made.topology));
}

void PlanDrawer::Draw(controller::MadePlan made) {
  thread_.Post([made = std::move(made)] {
    const Status status = DrawPlan(made);
    if (!status.ok()) {
      LogWarn(fmt::format("the plan in {} is not drawn: {}", made.job_dir, status.message()));
    }
  });
}

}  // namespace meshwright::web
