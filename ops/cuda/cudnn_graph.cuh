// CudnnGraph: a graph of operations of cuDNN's backend interface, and its plan. For .cu files only.
//
//   CudnnGraph graph;
//   const auto s = graph.Tensor({.dims = ..., .strides = ..., .type = CUDNN_DATA_FLOAT});  //
//   inside graph.Matmul(q, k, s); MW_ASSIGN_OR_RETURN(auto plan, graph.Compile(where));
//
// The first error of a call is kept and returned by Compile(). Values that operations hand to each
// other inside of a kernel are virtual: they have no memory.
//
// Thread rule: one thread at a time. Source: cuDNN documentation, "Backend API".
#pragma once

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace meshwright::ops::cuda {

Status CudnnStatus(cudnnStatus_t status, const char* what);

// One descriptor of the library.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  ~CudnnDescriptor();
  CudnnDescriptor(const CudnnDescriptor&) = delete;
  CudnnDescriptor& operator=(const CudnnDescriptor&) = delete;

  void Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
           const void* values);
  template <typename T>
  void SetOne(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, T value) {
    Set(name, type, 1, &value);
  }
  void SetDescriptor(cudnnBackendAttributeName_t name, const CudnnDescriptor& other);
  // The first error so far.
  const Status& Finalize();

  cudnnBackendDescriptor_t get() const { return value_; }
  const Status& status() const { return status_; }

 private:
  cudnnBackendDescriptor_t value_ = nullptr;
  Status status_;
};

// What a graph is compiled for: a GPU of this process, or the properties of one that is not there.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  const CudnnDescriptor* properties = nullptr;
};

using CudnnDims = std::array<int64_t, 4>;

struct CudnnTensor {
  static constexpr int64_t kVirtual = 0;
  CudnnDims dims = {1, 1, 1, 1};
  CudnnDims strides = {1, 1, 1, 1};
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int64_t id = kVirtual;  // of memory that a run names
  bool by_value = false;  // the memory is the host's
  int64_t alignment_bytes = 16;
};

// A compiled graph.
struct CudnnPlan {
  std::unique_ptr<CudnnDescriptor> plan;
  int64_t workspace_bytes = 0;

  Status Run(cudnnHandle_t handle, std::span<const int64_t> ids, std::span<void* const> data,
             void* workspace) const;
};

class CudnnGraph {
 public:
  using Value = const CudnnDescriptor*;

  Value Tensor(const CudnnTensor& tensor);
  void Matmul(Value a, Value b, Value c);
  // `compute` is the type that the operation computes in.
  void Pointwise(cudnnPointwiseMode_t mode, std::span<const Value> operands, Value result,
                 cudnnDataType_t compute = CUDNN_DATA_FLOAT);
  // The index along a dim of every element of a value like x.
  void Index(int64_t dim, Value x, Value result);
  void Reduce(cudnnReduceTensorOp_t op, Value x, Value y);
  // The same elements in another order of dims.
  void Reshape(Value x, Value y);

  // Errors: kUnimplemented: no kernel of the library computes the graph.
  Result<CudnnPlan> Compile(const CudnnTarget& target);

 private:
  CudnnDescriptor& Add(cudnnBackendDescriptorType_t type);
  void Close(CudnnDescriptor& operation, bool is_operation);

  std::vector<std::unique_ptr<CudnnDescriptor>> descriptors_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  int64_t next_virtual_ = int64_t{1} << 20;
  Status status_;
};

}  // namespace meshwright::ops::cuda
