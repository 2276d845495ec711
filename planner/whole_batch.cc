#include "planner/whole_batch.h"

#include <fmt/format.h>

namespace meshwright::planner {

std::string WholeBatchOf(const ir::JobRequest& job) {
  for (const ir::JobProgram& program : job.programs) {
    for (const ir::Node& node : program.graph.nodes) {
      if (node.attrs.Has(kWholeBatchAttr)) return node.attrs.Str(kWholeBatchAttr);
    }
  }
  return "";
}

Status CheckWholeBatch(const ir::JobRequest& job, const Layout& layout) {
  if (layout.microbatches == 1 || layout.pipeline == 1) return OkStatus();
  const std::string setting = WholeBatchOf(job);
  if (setting.empty()) return OkStatus();
  return InvalidField("parallel.microbatches",
                      fmt::format("is {}, and the loss is made of sums over the whole batch, which "
                                  "microbatches do not have in a pipeline of {} stages; use "
                                  "microbatches=1, pipeline=1, or {}",
                                  layout.microbatches, layout.pipeline, setting));
}

}  // namespace meshwright::planner
