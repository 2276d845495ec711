#include "client/fine_tuning.h"

#include <fmt/format.h>

#include <utility>

namespace meshwright::client {

Result<ir::JobRequest> WithFineTuning(ir::JobRequest job, const FineTuning& tuning) {
  for (ir::JobProgram& program : job.programs) {
    if (tuning.lora.rank > 0) {
      MW_ASSIGN_OR_RETURN(program.graph, ir::WithAdapters(program.graph, tuning.lora));
    }
    if (!program.trained) continue;
    MW_ASSIGN_OR_RETURN(program.graph, ir::WithParamGroups(program.graph, tuning.groups));
    MW_ASSIGN_OR_RETURN(program.graph, ir::WithLossTerms(program.graph, tuning.terms));
    if (tuning.average_decay != 0) {
      MW_ASSIGN_OR_RETURN(program.graph, ir::WithAverages(program.graph, tuning.average_decay));
    }
    if (ir::CountTrained(program.graph).trained > 0) continue;
    return Fail(InvalidArgument(
        fmt::format("all params of the job '{}' are frozen: there is nothing to train", job.name)));
  }
  MW_TRY(ir::ValidateJob(job));
  return job;
}

}  // namespace meshwright::client
