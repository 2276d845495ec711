#include "ops/cuda/sdpa_plan.cuh"

#include <vector>

namespace meshwright::ops::cuda {
namespace {

using Value = CudnnGraph::Value;

cudnnDataType_t TypeOf(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kBF16:
      return CUDNN_DATA_BFLOAT16;
    case ir::DType::kF16:
      return CUDNN_DATA_HALF;
    case ir::DType::kI32:
      return CUDNN_DATA_INT32;
    case ir::DType::kBool:
      return CUDNN_DATA_BOOLEAN;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

// Parts of an op start anywhere in lse, and at whole heads everywhere else.
int64_t AlignmentOf(const GraphTensor& tensor) {
  return tensor.name == SdpaName::kLse ? static_cast<int64_t>(sizeof(float)) : 16;
}

cudnnPointwiseMode_t ModeOf(GraphOp op) {
  switch (op) {
    case GraphOp::kMultiply:
      return CUDNN_POINTWISE_MUL;
    case GraphOp::kAdd:
      return CUDNN_POINTWISE_ADD;
    case GraphOp::kSubtract:
      return CUDNN_POINTWISE_SUB;
    case GraphOp::kDivide:
      return CUDNN_POINTWISE_DIV;
    case GraphOp::kExp:
      return CUDNN_POINTWISE_EXP;
    case GraphOp::kLog:
      return CUDNN_POINTWISE_LOG;
    case GraphOp::kNotLess:
      return CUDNN_POINTWISE_CMP_GE;
    default:
      return CUDNN_POINTWISE_BINARY_SELECT;
  }
}

void Add(CudnnGraph& graph, GraphOp op, const std::vector<Value>& operands, Value result) {
  switch (op) {
    case GraphOp::kMatmul:
      return graph.Matmul(operands[0], operands[1], result);
    case GraphOp::kRowIndex:
      return graph.Index(2, operands[0], result);
    case GraphOp::kColumnIndex:
      return graph.Index(3, operands[0], result);
    case GraphOp::kMax:
      return graph.Reduce(CUDNN_REDUCE_TENSOR_MAX, operands[0], result);
    case GraphOp::kSum:
      return graph.Reduce(CUDNN_REDUCE_TENSOR_ADD, operands[0], result);
    case GraphOp::kReshape:
      return graph.Reshape(operands[0], result);
    case GraphOp::kNotLess:
      return graph.Pointwise(ModeOf(op), operands, result, CUDNN_DATA_BOOLEAN);
    default:
      return graph.Pointwise(ModeOf(op), operands, result);
  }
}

}  // namespace

Result<CudnnPlan> PlanSdpa(const SdpaShape& shape, const CudnnTarget& target) {
  const SdpaGraph described = MakeSdpaGraph(shape);
  CudnnGraph graph;
  std::vector<Value> values;
  for (const GraphTensor& tensor : described.tensors) {
    values.push_back(graph.Tensor({.dims = tensor.dims,
                                   .strides = tensor.strides,
                                   .type = TypeOf(tensor.type),
                                   .id = static_cast<int64_t>(tensor.name),
                                   .by_value = tensor.name >= SdpaName::kScale,
                                   .alignment_bytes = AlignmentOf(tensor)}));
  }
  for (const GraphNode& node : described.nodes) {
    std::vector<Value> operands;
    for (const int operand : node.operands)
      operands.push_back(values[static_cast<size_t>(operand)]);
    Add(graph, node.op, operands, values[static_cast<size_t>(node.result)]);
  }
  return graph.Compile(target);
}

}  // namespace meshwright::ops::cuda
