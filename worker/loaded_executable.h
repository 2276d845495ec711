// LoadedExecutable: an executable with its kernels made and its collectives tied to groups.
//
// One object serves all RUNs of the executable; a Call is one RUN with every operand and result
// resolved to an address. Run() does no allocation and no lookup.
//
// Thread rule: Load on the control thread, Run on the device's own thread. Ownership: keeps its
// graph alive; the kernels' tensors point at the graph's types.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "ir/program.h"
#include "ops/kernel.h"
#include "worker/collective_node.h"
#include "worker/first_cause.h"
#include "worker/links.h"
#include "worker/run_binding.h"

namespace meshwright::worker {

class LoadedExecutable {
 public:
  // Start addresses of the areas that a RunBinding speaks of.
  struct Areas {
    std::vector<std::byte*> inputs;
    std::vector<std::byte*> outputs;
    std::byte* workspace = nullptr;
    std::byte* scratch = nullptr;  // scratch_bytes(binding), 64-byte aligned
  };
  struct Copy {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    int64_t bytes = 0;
  };
  struct Call {
    std::vector<ops::Tensor> tensors;  // per node its operands, then its results
    std::vector<Copy> copies;          // after the last node
    std::byte* scratch = nullptr;
  };

  // Errors: kUnimplemented naming an op without kernel, kInvalidArgument naming the node.
  static Result<std::unique_ptr<LoadedExecutable>> Load(const ir::Program& program,
                                                        std::shared_ptr<const ir::Graph> graph,
                                                        ops::Backend backend, Links& links);

  const ir::Graph& graph() const { return *graph_; }
  RunBinding Bind(std::span<const SlotId> inputs, std::span<const SlotId> outputs) const;
  // Collective scratch first, then the binding's own.
  int64_t scratch_bytes(const RunBinding& binding) const {
    return collective_scratch_bytes_ + binding.scratch_bytes;
  }
  Call Resolve(const RunBinding& binding, const Areas& areas) const;

  // Stops between nodes when `cause` does, with its status. Errors name the node.
  Status Run(const Call& call, const ops::RunContext& context, const FirstCause& cause);

 private:
  struct LoadedNode {
    NodeId id;
    std::unique_ptr<ops::Kernel> kernel;         // or
    std::unique_ptr<CollectiveNode> collective;  // one of them
    size_t operands = 0;
    size_t results = 0;
  };

  LoadedExecutable(std::shared_ptr<const ir::Graph> graph)
      : graph_(std::move(graph)), workspace_(ir::PlanWorkspace(*graph_)) {}
  Status AddNode(const ir::Program& program, NodeId id, ops::Backend backend, Links& links);
  std::string NodeName(NodeId id) const;

  const std::shared_ptr<const ir::Graph> graph_;
  const ir::WorkspacePlan workspace_;
  std::vector<LoadedNode> nodes_;
  int64_t collective_scratch_bytes_ = 0;
};

}  // namespace meshwright::worker
