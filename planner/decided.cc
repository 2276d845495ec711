#include "planner/decided.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/check.h"
#include "ir/parallel_pins.h"
#include "planner/host_update.h"

namespace meshwright::planner {

void WriteDecided(const ir::JobRequest& job, const ir::JobRequest& asked,
                  const mesh::Topology& topology, Plan& plan) {
  MW_CHECK(asked.parallel.host_update >= 0) << "how much the host renews is not decided";
  plan.decided = asked.parallel;
  const ir::OverlapMode overlap = plan.Main().front().overlap;
  if (overlap != ir::OverlapMode::kByDevice) {
    plan.decided.overlap = overlap == ir::OverlapMode::kOn;
  }
  if (job.parallel.host_update < 0 && asked.parallel.optimizer_memory == "host") {
    plan.notes.push_back(HostUpdateNote(asked, topology));
  }
}

void PinMemories(const Plan& plan, ir::ParallelSpec& spec) {
  constexpr std::string_view kDecided[] = {
      "overlap",          "optimizer_memory",   "weights_memory",
      "gradients_memory", "activations_memory", "offload_chunk_bytes",
      "host_update"};
  for (const ir::Pin& pin : ir::Pins()) {
    const bool decided =
        std::find(std::begin(kDecided), std::end(kDecided), pin.name) != std::end(kDecided);
    if (decided) ir::CopyPin(pin, plan.decided, spec);
  }
}

}  // namespace meshwright::planner
