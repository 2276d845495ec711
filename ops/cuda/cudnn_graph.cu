#include "ops/cuda/cudnn_graph.cuh"

#include <utility>

namespace meshwright::ops::cuda {
namespace {

// Kernels that are tried, best first.
constexpr int64_t kMostCandidates = 8;

}  // namespace

Status CudnnStatus(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return OkStatus();
  char detail[512] = {};
  cudnnGetLastErrorString(detail, sizeof(detail));
  const std::string text = std::string(what) + ": " + cudnnGetErrorString(status) + ": " + detail;
  // 3000 to 3999: the library does not do this.
  return status / 1000 == 3 ? Unimplemented(text) : Internal(text);
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type)
    : status_(CudnnStatus(cudnnBackendCreateDescriptor(type, &value_),
                          "cudnnBackendCreateDescriptor")) {}

CudnnDescriptor::~CudnnDescriptor() {
  if (value_ != nullptr) cudnnBackendDestroyDescriptor(value_);
}

void CudnnDescriptor::Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                          int64_t count, const void* values) {
  if (!status_.ok()) return;
  Status set = CudnnStatus(cudnnBackendSetAttribute(value_, name, type, count, values),
                           "cudnnBackendSetAttribute");
  std::swap(status_, set);
}

void CudnnDescriptor::SetDescriptor(cudnnBackendAttributeName_t name,
                                    const CudnnDescriptor& other) {
  const cudnnBackendDescriptor_t value = other.get();
  Set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

const Status& CudnnDescriptor::Finalize() {
  if (!status_.ok()) return status_;
  Status done = CudnnStatus(cudnnBackendFinalize(value_), "cudnnBackendFinalize");
  std::swap(status_, done);
  return status_;
}

CudnnDescriptor& CudnnGraph::Add(cudnnBackendDescriptorType_t type) {
  descriptors_.push_back(std::make_unique<CudnnDescriptor>(type));
  return *descriptors_.back();
}

void CudnnGraph::Close(CudnnDescriptor& descriptor, bool is_operation) {
  Status closed = descriptor.Finalize();
  if (status_.ok()) std::swap(status_, closed);
  if (is_operation) operations_.push_back(descriptor.get());
}

CudnnGraph::Value CudnnGraph::Tensor(const CudnnTensor& tensor) {
  CudnnDescriptor& made = Add(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const bool is_virtual = tensor.id == CudnnTensor::kVirtual;
  made.SetOne(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, tensor.type);
  made.Set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, tensor.dims.data());
  made.Set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, tensor.strides.data());
  made.SetOne(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64,
              is_virtual ? next_virtual_++ : tensor.id);
  made.SetOne(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, tensor.alignment_bytes);
  made.SetOne(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual);
  made.SetOne(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, tensor.by_value);
  Close(made, false);
  return &made;
}

void CudnnGraph::Matmul(Value a, Value b, Value c) {
  CudnnDescriptor& kind = Add(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  kind.SetOne(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  Close(kind, false);
  CudnnDescriptor& operation = Add(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  operation.SetDescriptor(CUDNN_ATTR_OPERATION_MATMUL_ADESC, *a);
  operation.SetDescriptor(CUDNN_ATTR_OPERATION_MATMUL_BDESC, *b);
  operation.SetDescriptor(CUDNN_ATTR_OPERATION_MATMUL_CDESC, *c);
  operation.SetDescriptor(CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
  Close(operation, true);
}

void CudnnGraph::Pointwise(cudnnPointwiseMode_t mode, std::span<const Value> operands, Value result,
                           cudnnDataType_t compute) {
  CudnnDescriptor& kind = Add(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  kind.SetOne(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  kind.SetOne(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, compute);
  Close(kind, false);
  CudnnDescriptor& operation = Add(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.SetDescriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
  constexpr cudnnBackendAttributeName_t kPlaces[] = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                                     CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                                     CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
  for (size_t i = 0; i < operands.size(); ++i) operation.SetDescriptor(kPlaces[i], *operands[i]);
  operation.SetDescriptor(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, *result);
  Close(operation, true);
}

void CudnnGraph::Index(int64_t dim, Value x, Value result) {
  CudnnDescriptor& kind = Add(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  kind.SetOne(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, CUDNN_POINTWISE_GEN_INDEX);
  kind.SetOne(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_INT32);
  kind.SetOne(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, dim);
  Close(kind, false);
  CudnnDescriptor& operation = Add(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.SetDescriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
  operation.SetDescriptor(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *x);
  operation.SetDescriptor(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, *result);
  Close(operation, true);
}

void CudnnGraph::Reduce(cudnnReduceTensorOp_t op, Value x, Value y) {
  CudnnDescriptor& kind = Add(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  kind.SetOne(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, op);
  kind.SetOne(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  Close(kind, false);
  CudnnDescriptor& operation = Add(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  operation.SetDescriptor(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, *x);
  operation.SetDescriptor(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, *y);
  operation.SetDescriptor(CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
  Close(operation, true);
}

void CudnnGraph::Reshape(Value x, Value y) {
  CudnnDescriptor& operation = Add(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  operation.SetDescriptor(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, *x);
  operation.SetDescriptor(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, *y);
  Close(operation, true);
}

Result<CudnnPlan> CudnnGraph::Compile(const CudnnTarget& target) {
  if (!status_.ok()) return Fail(status_);
  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            static_cast<int64_t>(operations_.size()), operations_.data());
  if (target.handle != nullptr) {
    graph.SetOne(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
  }
  MW_TRY(graph.Finalize());
  CudnnDescriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.SetDescriptor(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristic.SetOne(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
  if (target.properties != nullptr) {
    heuristic.SetDescriptor(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.properties);
  }
  MW_TRY(heuristic.Finalize());
  std::vector<std::unique_ptr<CudnnDescriptor>> candidates;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < kMostCandidates; ++i) {
    candidates.push_back(std::make_unique<CudnnDescriptor>(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    raw.push_back(candidates.back()->get());
  }
  int64_t found = 0;
  MW_TRY(CudnnStatus(
      cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                               CUDNN_TYPE_BACKEND_DESCRIPTOR, kMostCandidates, &found, raw.data()),
      "cudnnBackendGetAttribute"));
  Status refused = Unimplemented("cuDNN has no kernel for the graph");
  for (int64_t i = 0; i < found; ++i) {
    CudnnPlan made{std::make_unique<CudnnDescriptor>(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR), 0};
    made.plan->SetDescriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                             *candidates[static_cast<size_t>(i)]);
    if (target.handle != nullptr) {
      made.plan->SetOne(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
    }
    if (target.properties != nullptr) {
      made.plan->SetDescriptor(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.properties);
    }
    refused = made.plan->Finalize();
    if (!refused.ok()) continue;
    int64_t count = 0;
    MW_TRY(CudnnStatus(
        cudnnBackendGetAttribute(made.plan->get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                 CUDNN_TYPE_INT64, 1, &count, &made.workspace_bytes),
        "cudnnBackendGetAttribute"));
    return made;
  }
  return Fail(Unimplemented(std::string(refused.message())));
}

Status CudnnPlan::Run(cudnnHandle_t handle, std::span<const int64_t> ids,
                      std::span<void* const> data, void* workspace) const {
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  const auto count = static_cast<int64_t>(ids.size());
  pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids.data());
  pack.Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, data.data());
  pack.SetOne(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  MW_TRY(pack.Finalize());
  return CudnnStatus(cudnnBackendExecute(handle, plan->get(), pack.get()), "cudnnBackendExecute");
}

}  // namespace meshwright::ops::cuda
