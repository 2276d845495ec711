// cuBLASLt. It computes with matrices stored by columns: a row-major matrix is its transpose there,
// so c^T = b^T a^T is what it is asked for, with nothing moved.
#include "ops/cuda/blas.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "ops/cuda/plugin_tools.h"
#include "ops/cuda/workspace.h"

namespace meshwright::ops::cuda {
namespace {

// Products of big matrices split their depth over so much at most.
constexpr uint64_t kMostWorkspaceBytes = uint64_t{32} << 20;

Status BlasStatus(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return OkStatus();
  const std::string text = std::string(what) + ": " + cublasLtGetStatusName(status);
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? Unimplemented(text) : Internal(text);
}

cudaDataType_t TypeOf(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kBF16:
      return CUDA_R_16BF;
    case ir::DType::kF16:
      return CUDA_R_16F;
    default:
      return CUDA_R_32F;
  }
}

cublasLtEpilogue_t EpilogueOf(BlasEpilogue epilogue) {
  switch (epilogue) {
    case BlasEpilogue::kBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case BlasEpilogue::kGelu:
      return CUBLASLT_EPILOGUE_GELU;
    case BlasEpilogue::kGeluAux:
      return CUBLASLT_EPILOGUE_GELU_AUX;
    case BlasEpilogue::kBiasGelu:
      return CUBLASLT_EPILOGUE_GELU_BIAS;
    case BlasEpilogue::kBiasGeluAux:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case BlasEpilogue::kGeluGrad:
      return CUBLASLT_EPILOGUE_DGELU;
    case BlasEpilogue::kGeluGradSum:
      return CUBLASLT_EPILOGUE_DGELU_BGRAD;
    default:
      return CUBLASLT_EPILOGUE_DEFAULT;
  }
}

bool ReadsBias(BlasEpilogue epilogue) {
  return epilogue == BlasEpilogue::kBias || epilogue == BlasEpilogue::kBiasGelu ||
         epilogue == BlasEpilogue::kBiasGeluAux || epilogue == BlasEpilogue::kGeluGradSum;
}

// A description of the library, destroyed with the object.
template <typename T, cublasStatus_t (*kDestroy)(T)>
class Described {
 public:
  Described() = default;
  ~Described() {
    if (value_ != nullptr) kDestroy(value_);
  }
  Described(const Described&) = delete;
  Described& operator=(const Described&) = delete;
  T* place() { return &value_; }
  T get() const { return value_; }

 private:
  T value_ = nullptr;
};

using Layout = Described<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Operation = Described<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Preference = Described<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

template <typename T>
Status SetOperation(const Operation& operation, cublasLtMatmulDescAttributes_t name, T value) {
  return BlasStatus(cublasLtMatmulDescSetAttribute(operation.get(), name, &value, sizeof(value)),
                    "cublasLtMatmulDescSetAttribute");
}

template <typename T>
Status SetPreference(const Preference& preference, cublasLtMatmulPreferenceAttributes_t name,
                     T value) {
  return BlasStatus(
      cublasLtMatmulPreferenceSetAttribute(preference.get(), name, &value, sizeof(value)),
      "cublasLtMatmulPreferenceSetAttribute");
}

// `rows` and `columns` as stored, row-major.
Status MakeLayout(Layout& layout, ir::DType dtype, int64_t rows, int64_t columns, int64_t row,
                  int64_t batch, int64_t batch_stride) {
  MW_TRY(BlasStatus(
      cublasLtMatrixLayoutCreate(layout.place(), TypeOf(dtype), static_cast<uint64_t>(columns),
                                 static_cast<uint64_t>(rows), row),
      "cublasLtMatrixLayoutCreate"));
  if (batch == 1) return OkStatus();
  const auto count = static_cast<int32_t>(batch);
  MW_TRY(BlasStatus(cublasLtMatrixLayoutSetAttribute(
                        layout.get(), CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)),
                    "cublasLtMatrixLayoutSetAttribute"));
  return BlasStatus(
      cublasLtMatrixLayoutSetAttribute(layout.get(), CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                       &batch_stride, sizeof(batch_stride)),
      "cublasLtMatrixLayoutSetAttribute");
}

class CublasLtPlan final : public BlasPlan {
 public:
  explicit CublasLtPlan(cublasLtHandle_t handle) : handle_(handle) {}

  Status Make(const BlasProduct& p) {
    MW_TRY(Describe(p));
    MW_TRY(DescribeEpilogue(p));
    return Choose(p);
  }

  int64_t workspace_bytes() const override {
    return WorkspaceBytes(static_cast<int64_t>(chosen_.workspaceSize));
  }

  // Addresses of bias and aux are part of the description: one Run() at a time.
  Status Run(const BlasMemory& memory, cudaStream_t stream) const {
    const MutexLock lock(mutex_);
    if (has_bias_) {
      MW_TRY(SetOperation(operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                          static_cast<const void*>(memory.bias)));
    }
    if (has_aux_) {
      MW_TRY(SetOperation(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, memory.aux));
    }
    void* const workspace = chosen_.workspaceSize == 0 ? nullptr : WorkspaceAt(memory.workspace);
    const float alpha = 1;
    const float beta = accumulate_ ? 1 : 0;
    return BlasStatus(
        cublasLtMatmul(handle_, operation_.get(), &alpha, memory.b, left_.get(), memory.a,
                       right_.get(), &beta, memory.c, result_.get(), memory.c, result_.get(),
                       &chosen_.algo, workspace, chosen_.workspaceSize, stream),
        "cublasLtMatmul");
  }

 private:
  Status Describe(const BlasProduct& p) {
    accumulate_ = p.accumulate;
    const cublasComputeType_t compute = p.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    MW_TRY(BlasStatus(cublasLtMatmulDescCreate(operation_.place(), compute, CUDA_R_32F),
                      "cublasLtMatmulDescCreate"));
    const auto transpose = [](bool yes) { return yes ? CUBLAS_OP_T : CUBLAS_OP_N; };
    MW_TRY(SetOperation(operation_, CUBLASLT_MATMUL_DESC_TRANSA, transpose(p.transpose_b)));
    MW_TRY(SetOperation(operation_, CUBLASLT_MATMUL_DESC_TRANSB, transpose(p.transpose_a)));
    const auto stored = [](bool transposed, int64_t rows, int64_t columns) {
      return transposed ? std::pair(columns, rows) : std::pair(rows, columns);
    };
    const auto [a_rows, a_columns] = stored(p.transpose_a, p.m, p.k);
    const auto [b_rows, b_columns] = stored(p.transpose_b, p.k, p.n);
    MW_TRY(MakeLayout(left_, p.operands, b_rows, b_columns, p.b_row, p.batch, p.b_batch));
    MW_TRY(MakeLayout(right_, p.operands, a_rows, a_columns, p.a_row, p.batch, p.a_batch));
    return MakeLayout(result_, p.result, p.m, p.n, p.c_row, p.batch, p.c_batch);
  }

  // Addresses are known later; the choice only looks at how they are aligned.
  Status DescribeEpilogue(const BlasProduct& p) {
    if (p.epilogue == BlasEpilogue::kNone) return OkStatus();
    const void* const aligned = reinterpret_cast<const void*>(p.alignment_bytes);
    has_bias_ = ReadsBias(p.epilogue);
    has_aux_ = p.aux_row != 0;
    MW_TRY(SetOperation(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE, EpilogueOf(p.epilogue)));
    if (has_bias_) {
      MW_TRY(SetOperation(operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, aligned));
      MW_TRY(SetOperation(operation_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
                          static_cast<int32_t>(TypeOf(p.result))));
    }
    if (!has_aux_) return OkStatus();
    MW_TRY(SetOperation(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aligned));
    return SetOperation(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.aux_row);
  }

  Status Choose(const BlasProduct& p) {
    Preference preference;
    MW_TRY(BlasStatus(cublasLtMatmulPreferenceCreate(preference.place()),
                      "cublasLtMatmulPreferenceCreate"));
    MW_TRY(
        SetPreference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMostWorkspaceBytes));
    // Parts of a depth that is split must not meet in a 16-bit result.
    MW_TRY(SetPreference(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                         static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)));
    const auto bytes = static_cast<uint32_t>(p.alignment_bytes);
    for (const auto name :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      MW_TRY(SetPreference(preference, name, bytes));
    }
    int found = 0;
    MW_TRY(BlasStatus(cublasLtMatmulAlgoGetHeuristic(handle_, operation_.get(), left_.get(),
                                                     right_.get(), result_.get(), result_.get(),
                                                     preference.get(), 1, &chosen_, &found),
                      "cublasLtMatmulAlgoGetHeuristic"));
    if (found == 0) return Unimplemented("cublasLtMatmulAlgoGetHeuristic: no kernel for a product");
    return BlasStatus(chosen_.state, "cublasLtMatmulAlgoGetHeuristic");
  }

  const cublasLtHandle_t handle_;
  Operation operation_;
  Layout left_;   // b
  Layout right_;  // a
  Layout result_;
  bool accumulate_ = false;
  bool has_bias_ = false;
  bool has_aux_ = false;
  cublasLtMatmulHeuristicResult_t chosen_ = {};
  mutable Mutex mutex_;  // of operation_, once the plan is made
};

class CublasLt final : public Blas {
 public:
  // Handles are not destroyed: at the end of a process the runtime may be gone before them.
  Result<const BlasPlan*> Plan(const BlasProduct& product) override {
    int device = 0;
    if (const cudaError_t code = cudaGetDevice(&device); code != cudaSuccess) {
      return Fail(Internal(std::string("cudaGetDevice: ") + cudaGetErrorName(code)));
    }
    const MutexLock lock(mutex_);
    const auto [place, is_new] = plans_.try_emplace({device, product});
    Entry& entry = place->second;
    if (is_new) entry = Make(device, product);
    if (entry.status.ok()) return entry.plan.get();
    Status failed = entry.status;
    if (failed.code() != StatusCode::kUnimplemented) plans_.erase(place);  // may go another time
    return Fail(std::move(failed));
  }

  Status Run(const BlasPlan& plan, const BlasMemory& memory,
             device::cuda::StreamHandle stream) override {
    return static_cast<const CublasLtPlan&>(plan).Run(memory, static_cast<cudaStream_t>(stream));
  }

 private:
  // What the library refuses is refused once.
  struct Entry {
    std::unique_ptr<const BlasPlan> plan;
    Status status;
  };

  Entry Make(int device, const BlasProduct& product) MW_REQUIRES(mutex_) {
    cublasLtHandle_t& handle = handles_[device];
    if (handle == nullptr) {
      Status status = BlasStatus(cublasLtCreate(&handle), "cublasLtCreate");
      if (!status.ok()) return {nullptr, std::move(status)};
    }
    auto plan = std::make_unique<CublasLtPlan>(handle);
    Status status = plan->Make(product);
    return {std::move(plan), std::move(status)};
  }

  Mutex mutex_;
  std::map<int, cublasLtHandle_t> handles_ MW_GUARDED_BY(mutex_);  // by device
  std::map<std::pair<int, BlasProduct>, Entry> plans_ MW_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Blas> MakeCublasLt() { return std::make_unique<CublasLt>(); }

}  // namespace meshwright::ops::cuda
