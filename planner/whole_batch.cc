#include "planner/whole_batch.h"

#include <fmt/format.h>

namespace meshwright::planner {

std::string WholeBatchOf(const ir::JobRequest& job) {
  for (const ir::JobProgram& program : job.programs) {
    for (const ir::Node& node : program.graph.nodes) {
      if (node.attrs.Has("whole_batch")) return node.attrs.Str("whole_batch");
    }
  }
  return "";
}

Status CheckWholeBatch(const ir::JobRequest& job, const Layout& layout) {
  if (layout.microbatches == 1) return OkStatus();
  const std::string setting = WholeBatchOf(job);
  if (setting.empty()) return OkStatus();
  return InvalidField("parallel.microbatches",
                      fmt::format("is {}, and the loss is made of sums over the whole batch, which "
                                  "microbatches do not have; use microbatches=1, or {}",
                                  layout.microbatches, setting));
}

}  // namespace meshwright::planner
