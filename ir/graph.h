// The graph: SSA, static shapes, immutable once built.
//
// Nodes are stored in a topological order (operands before users); ids are positions. A graph is
// made by ir::Builder or by parsing its text; ir/verify.h checks it. The same type says four
// things: the user's loss (logical), the whole training step (after autodiff), a stage's local SPMD
// piece with explicit collectives, and an executable inside a program.
//
// Thread rule: a finished graph is immutable and freely shared (std::shared_ptr<const Graph>).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/id_vector.h"
#include "base/ids.h"
#include "ir/attrs.h"
#include "ir/dtype.h"
#include "ir/op.h"

namespace meshwright::ir {

using Dims = std::vector<int64_t>;

struct TensorType {
  DType dtype = DType::kF32;
  Dims dims;

  int64_t elements() const {
    int64_t n = 1;
    for (int64_t d : dims) n *= d;
    return n;
  }
  int64_t bytes() const { return elements() * DTypeBytes(dtype); }
  int rank() const { return static_cast<int>(dims.size()); }
  std::string ToString() const;  // "f32[8,128]", scalars "f32[]"
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

// Where in a training step a node belongs. Forward and backward run per microbatch, update once per
// step.
enum class Phase : uint8_t { kForward, kBackward, kUpdate };

struct Node {
  Op op = Op::kInput;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  Attrs attrs;
  // Layer of the model (0-based, contiguous), -1: none. Pipeline stages are cut between layers. A
  // gradient node has the layer of the forward node that it differentiates.
  int layer = -1;
  Phase phase = Phase::kForward;
  friend bool operator==(const Node&, const Node&) = default;
};

struct Value {
  TensorType type;
  NodeId producer;
  friend bool operator==(const Value&, const Value&) = default;
};

// What a scalar output of several batches is. Within a batch the graph says what it is, and that
// does not depend on the layout.
enum class Reduction : uint8_t {
  kSum,   // the sum of what the batches gave out
  kMean,  // their mean; all batches of a program have as many rows
};

struct NamedValue {
  std::string name;
  ValueId value;
  Reduction reduction = Reduction::kSum;
  friend bool operator==(const NamedValue&, const NamedValue&) = default;
};

struct Graph {
  std::string name;
  std::vector<Node> nodes;
  std::vector<Value> values;
  std::vector<NamedValue> outputs;  // names are unique

  const Node& node(NodeId id) const { return nodes[CheckedIndex(id, nodes.size())]; }
  const Value& value(ValueId id) const { return values[CheckedIndex(id, values.size())]; }
  const TensorType& type(ValueId id) const { return value(id).type; }
  const Node& producer(ValueId id) const { return node(value(id).producer); }
  // The output's value, or an invalid id.
  ValueId Output(std::string_view output_name) const;
  // Nodes of one op, in order.
  std::vector<NodeId> NodesOf(Op op) const;
  // For every value the nodes that read it, in order; a node that reads it twice is listed once.
  IdVector<ValueId, std::vector<NodeId>> Users() const;

  friend bool operator==(const Graph&, const Graph&) = default;
};

// Position along each dim of the local block of a sharded tensor: see "Sharded dims" in ir/op.h.
struct ShardedDims {
  Dims global_dims;
  std::vector<std::vector<std::string>> dim_axes;  // per dim, major axis first
  // What the blocks are cut from, zeros behind the tensor's own elements; empty: the tensor itself.
  Dims padded_dims = {};

  // From the attributes {global_dims, dim_axes, padded_dims}; empty (whole) when absent.
  static ShardedDims FromAttrs(const Attrs& attrs);
  void ToAttrs(Attrs& attrs) const;
  bool whole() const { return global_dims.empty(); }
};

}  // namespace meshwright::ir
