// LoadedExecutable: an executable with its kernels made and its collectives tied to groups.
//
// One object serves all RUNs of the executable; a Call is one RUN with every operand and result
// resolved to an address. Run() does no allocation and no lookup. On a GPU the nodes of a call are
// put into queues instead (worker/queued_step.h), and updates of many weights are one kernel.
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
#include "worker/device_memory.h"
#include "worker/first_cause.h"
#include "worker/instruction_counter.h"
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
    std::byte* collective_scratch = nullptr;  // of scratch(binding), 64-byte aligned, as these:
    std::byte* bucket_scratch = nullptr;
    std::byte* scratch = nullptr;
  };
  struct Copy {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    int64_t bytes = 0;
  };
  struct Call {
    std::vector<ops::Tensor> tensors;  // per node its operands, then its results
    std::vector<Copy> copies;          // after the last node
    std::byte* collective_scratch = nullptr;
    std::byte* bucket_scratch = nullptr;
    std::byte* kernel_scratch = nullptr;

    std::byte* ScratchOf(const CollectiveNode& node) const {
      return node.bucket() ? bucket_scratch : collective_scratch;
    }
  };
  struct Node {
    std::vector<NodeId> ids;                     // several: equal updates in one kernel
    std::unique_ptr<ops::Kernel> kernel;         // or
    std::unique_ptr<CollectiveNode> collective;  // one of them
    collective::Group* group = nullptr;          // of a collective of several devices
    GroupMark* mark = nullptr;                   // of the group; null: nobody asks
    size_t operands = 0;
    size_t results = 0;
  };

  // counter: that Run() will get. Errors: kUnimplemented naming an op without kernel,
  // kInvalidArgument naming the node.
  static Result<std::unique_ptr<LoadedExecutable>> Load(const ir::Program& program,
                                                        std::shared_ptr<const ir::Graph> graph,
                                                        const ops::Target& target, Links& links,
                                                        InstructionCounter& counter);

  const ir::Graph& graph() const { return *graph_; }
  RunBinding Bind(std::span<const SlotId> inputs, std::span<const SlotId> outputs) const;
  // That of kernels first, then the binding's own.
  ScratchNeed scratch(const RunBinding& binding) const {
    return {collective_scratch_bytes_, kernel_scratch_bytes_ + binding.scratch_bytes,
            bucket_scratch_bytes_};
  }
  Call Resolve(const RunBinding& binding, const Areas& areas) const;

  // The most that any group needs of the device's memory, and memory that all may use.
  int64_t group_scratch_bytes() const { return group_scratch_bytes_; }
  void SetGroupScratch(std::byte* memory, int64_t bytes);

  const std::vector<Node>& nodes() const { return nodes_; }
  std::string NodeName(const Node& node) const { return NameOf(node.ids[0]); }

  // Stops between nodes when `cause` does, with its status. Errors name the node.
  Status Run(const Call& call, const ops::RunContext& context, const FirstCause& cause,
             InstructionCounter& counter);

 private:
  LoadedExecutable(std::shared_ptr<const ir::Graph> graph)
      : graph_(std::move(graph)), workspace_(ir::PlanWorkspace(*graph_)) {}
  Status AddNode(const ir::Program& program, std::vector<NodeId> ids, const ops::Target& target,
                 Links& links, InstructionCounter& counter);
  std::string NameOf(NodeId id) const;
  // Its RUNs in the program: what the slots are there.
  struct BoundRun {
    RunBinding binding;
    const ir::Instruction* run = nullptr;
  };
  std::vector<BoundRun> RunsIn(const ir::Program& program) const;
  // `first` and the updates behind it that one kernel of the target may do with it.
  std::vector<NodeId> EqualUpdates(NodeId first, const ops::Target& target,
                                   const std::vector<BoundRun>& runs) const;
  bool UpdatesInPlace(const ir::Node& node, const std::vector<BoundRun>& runs) const;

  const std::shared_ptr<const ir::Graph> graph_;
  const ir::WorkspacePlan workspace_;
  std::vector<Node> nodes_;
  int64_t collective_scratch_bytes_ = 0;  // but for buckets
  int64_t bucket_scratch_bytes_ = 0;
  int64_t kernel_scratch_bytes_ = 0;
  int64_t group_scratch_bytes_ = 0;
};

}  // namespace meshwright::worker
