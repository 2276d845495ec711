#include "tests/emulated/blas.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/half.h"
#include "ops/cuda/workspace.h"
#include "tests/emulated/driver.h"

namespace meshwright::emulated {
namespace {

using ops::cuda::BlasEpilogue;
using ops::cuda::BlasMemory;
using ops::cuda::BlasProduct;

// Spoiled by every product, so that nobody keeps anything in it.
constexpr int64_t kWorkspaceBytes = 256;

class EmulatedPlan final : public ops::cuda::BlasPlan {
 public:
  explicit EmulatedPlan(const BlasProduct& product) : product_(product) {}
  int64_t workspace_bytes() const override { return ops::cuda::WorkspaceBytes(kWorkspaceBytes); }
  const BlasProduct& product() const { return product_; }

 private:
  const BlasProduct product_;
};

double Read(const void* data, ir::DType dtype, int64_t i) {
  switch (dtype) {
    case ir::DType::kBF16:
      return static_cast<double>(Bf16ToFloat(static_cast<const uint16_t*>(data)[i]));
    case ir::DType::kF16:
      return static_cast<double>(F16ToFloat(static_cast<const uint16_t*>(data)[i]));
    default:
      return static_cast<double>(static_cast<const float*>(data)[i]);
  }
}

void Write(void* data, ir::DType dtype, int64_t i, double value) {
  const float rounded = static_cast<float>(value);
  switch (dtype) {
    case ir::DType::kBF16:
      static_cast<uint16_t*>(data)[i] = FloatToBf16(rounded);
      return;
    case ir::DType::kF16:
      static_cast<uint16_t*>(data)[i] = FloatToF16(rounded);
      return;
    default:
      static_cast<float*>(data)[i] = rounded;
  }
}

constexpr double kScale = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double kCubic = 0.044715;

double Gelu(double x) { return 0.5 * x * (1 + std::tanh(kScale * (x + kCubic * x * x * x))); }
double GeluSlope(double x) {
  const double t = std::tanh(kScale * (x + kCubic * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kScale * (1 + 3 * kCubic * x * x);
}

bool HasAux(BlasEpilogue epilogue) {
  return epilogue == BlasEpilogue::kGeluAux || epilogue == BlasEpilogue::kBiasGeluAux ||
         epilogue == BlasEpilogue::kGeluGrad || epilogue == BlasEpilogue::kGeluGradSum;
}

class Product {
 public:
  Product(const BlasProduct& product, const BlasMemory& memory) : p_(product), memory_(memory) {}

  void Run() const {
    std::memset(ops::cuda::WorkspaceAt(memory_.workspace), 0xff, kWorkspaceBytes);
    std::vector<double> sums(static_cast<size_t>(p_.n));
    for (int64_t batch = 0; batch < p_.batch; ++batch) {
      const std::vector<double> rows =
          Vectors(memory_.a, batch * p_.a_batch, p_.m, p_.a_row, p_.transpose_a);
      const std::vector<double> columns =
          Vectors(memory_.b, batch * p_.b_batch, p_.n, p_.b_row, !p_.transpose_b);
      for (int64_t row = 0; row < p_.m; ++row) {
        for (int64_t column = 0; column < p_.n; ++column) {
          const int64_t at = batch * p_.c_batch + row * p_.c_row + column;
          double sum = Dot(rows.data() + row * p_.k, columns.data() + column * p_.k, p_.k);
          if (p_.accumulate) sum += Read(memory_.c, p_.result, at);
          sum = Finish(sum, row, column);
          sums[static_cast<size_t>(column)] += sum;
          Write(memory_.c, p_.result, at, sum);
        }
      }
    }
    if (p_.epilogue != BlasEpilogue::kGeluGradSum) return;
    for (int64_t column = 0; column < p_.n; ++column) {
      Write(memory_.bias, p_.result, column, sums[static_cast<size_t>(column)]);
    }
  }

 private:
  // The operand's `count` vectors of length k one after the other: read once, not for every entry
  // of the product. strided: neighbours in a vector are a stride apart, not vectors.
  std::vector<double> Vectors(const void* data, int64_t begin, int64_t count, int64_t stride,
                              bool strided) const {
    std::vector<double> values(static_cast<size_t>(count * p_.k));
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t k = 0; k < p_.k; ++k) {
        const int64_t at = begin + (strided ? k * stride + i : i * stride + k);
        values[static_cast<size_t>(i * p_.k + k)] = Read(data, p_.operands, at);
      }
    }
    return values;
  }

  static double Dot(const double* a, const double* b, int64_t length) {
    double sum = 0;
    for (int64_t k = 0; k < length; ++k) sum += a[k] * b[k];
    return sum;
  }

  double Finish(double x, int64_t row, int64_t column) const {
    const int64_t aux = row * p_.aux_row + column;
    const auto bias = [&] { return Read(memory_.bias, p_.result, column); };
    const auto keep = [&](double value) {
      Write(memory_.aux, p_.result, aux, value);
      return value;
    };
    switch (p_.epilogue) {
      case BlasEpilogue::kNone:
        return x;
      case BlasEpilogue::kBias:
        return x + bias();
      case BlasEpilogue::kGelu:
        return Gelu(x);
      case BlasEpilogue::kGeluAux:
        return Gelu(keep(x));
      case BlasEpilogue::kBiasGelu:
        return Gelu(x + bias());
      case BlasEpilogue::kBiasGeluAux:
        return Gelu(keep(x + bias()));
      case BlasEpilogue::kGeluGrad:
      case BlasEpilogue::kGeluGradSum:
        return x * GeluSlope(Read(memory_.aux, p_.result, aux));
    }
    return x;
  }

  const BlasProduct& p_;
  const BlasMemory& memory_;
};

bool IsAligned(const void* address, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(bytes) == 0;
}

}  // namespace

Result<const ops::cuda::BlasPlan*> EmulatedBlas::Plan(const BlasProduct& product) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool rows = product.a_row >= (product.transpose_a ? product.m : product.k) &&
                    product.b_row >= (product.transpose_b ? product.k : product.n) &&
                    product.c_row >= product.n;
  if (!rows) return Fail(Internal("CUBLAS_STATUS_INVALID_VALUE: a row longer than its stride"));
  const bool has_epilogue = product.epilogue != BlasEpilogue::kNone;
  if (has_epilogue && (refuse_epilogues_ || product.accumulate || product.batch != 1)) {
    return Fail(Unimplemented("CUBLAS_STATUS_NOT_SUPPORTED"));
  }
  if (HasAux(product.epilogue) && product.aux_row % 8 != 0) {
    return Fail(Unimplemented("CUBLAS_STATUS_NOT_SUPPORTED: rows of the aux"));
  }
  std::unique_ptr<ops::cuda::BlasPlan>& plan = plans_[product];
  if (plan == nullptr) plan = std::make_unique<EmulatedPlan>(product);
  return plan.get();
}

Status EmulatedBlas::Run(const ops::cuda::BlasPlan& plan, const BlasMemory& memory,
                         device::cuda::StreamHandle stream) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++runs_;
  }
  const BlasProduct& product = static_cast<const EmulatedPlan&>(plan).product();
  for (const void* address : {memory.a, memory.b, static_cast<const void*>(memory.c)}) {
    if (!IsAligned(address, product.alignment_bytes)) {
      return Internal("CUBLAS_STATUS_INVALID_VALUE: an address is not aligned");
    }
  }
  const device::cuda::Code code = static_cast<Stream*>(stream)->Push([product, memory] {
    Product(product, memory).Run();
    return true;
  });
  return code == device::cuda::kSuccess ? OkStatus() : Internal("CUBLAS_STATUS_EXECUTION_FAILED");
}

void EmulatedBlas::RefuseEpilogues(bool refuse) {
  const std::lock_guard<std::mutex> lock(mutex_);
  refuse_epilogues_ = refuse;
}

int EmulatedBlas::plans() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int>(plans_.size());
}

int EmulatedBlas::epilogues() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  int count = 0;
  for (const auto& [product, plan] : plans_) {
    if (product.epilogue != BlasEpilogue::kNone) ++count;
  }
  return count;
}

int EmulatedBlas::runs() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return runs_;
}

}  // namespace meshwright::emulated
