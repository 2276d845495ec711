// What the program verifier knows about executables and meshes before anything runs. Internal to
// ir/.
//
// Facts of an executable are the same on all devices of a stage and are computed once per graph.
// Thread rule: built on one thread, then immutable. Facts point into the graph, which must outlive
// them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/program.h"

namespace meshwright::ir {

// When an executable runs, told by its nodes (ir/verify.h, rule 1).
// A sweep runs for all microbatches before the first of those that run per microbatch: nodes with
// the attr sweep (planner/router_sweep.h).
enum class Cadence : uint8_t { kOnceBefore, kSweep, kPerMicrobatch, kOnceAfter };

inline bool RunsPerMicrobatch(Cadence cadence) {
  return cadence == Cadence::kSweep || cadence == Cadence::kPerMicrobatch;
}

struct CollectiveFact {
  int node = 0;
  Op op = Op::kAllReduce;
  std::vector<std::string> axes;
  std::string signature;  // op, attributes and operand types: equal on all members
  int64_t ratio = 1;      // group size that the shapes imply; 0: any
};

struct ExecutableFacts {
  const Graph* graph = nullptr;
  Cadence cadence = Cadence::kPerMicrobatch;
  std::vector<ValueId> inputs;  // results of the `input` nodes, in order
  std::vector<std::string> input_names;
  std::vector<CollectiveFact> collectives;  // in node order
  IdVector<ValueId, std::vector<NodeId>> users;
  InPlaceChains chains;
  OperandTimes times;
  int64_t workspace_bytes = 0;

  const TensorType& input_type(size_t i) const { return graph->type(inputs[i]); }
  const TensorType& output_type(size_t i) const { return graph->type(graph->outputs[i].value); }
  // Whether output `o` may replace input `i` in its slot: nothing reads the input after the node
  // that first writes the output, and that node is safe in place.
  bool MayReplace(size_t i, size_t o) const;
};

// Verifies the graph and collects its facts.
Result<std::shared_ptr<const ExecutableFacts>> CollectFacts(const Graph& graph);

// Devices that share all coordinates of `program` except those of `axes`, ascending. Errors:
// kInvalidArgument: unknown axis.
Result<std::vector<int>> GroupOf(const Program& program, const std::vector<std::string>& axes);

// Offsets and sizes written out: a whole box becomes zeros and the dims. Errors: kInvalidArgument:
// outside `dims`.
Result<Box> ResolveBox(const Box& box, const Dims& dims);

// Static checks of one program that need no peer: header, slots, executables, operands of every
// instruction, how often each executable runs. `facts` has one entry per executable. Errors name
// program and instruction.
Status CheckProgram(const Program& program,
                    const std::vector<std::shared_ptr<const ExecutableFacts>>& facts,
                    int64_t memory_budget_bytes);

// "program step/3" and "program step/3, instruction 17 (SEND s7 -> c0)".
std::string ProgramPlace(const Program& program);
std::string InstructionPlace(const Program& program, size_t index);

}  // namespace meshwright::ir
