#include "bench/grouped.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/half.h"
#include "bench/limits.h"
#include "device/cpu/memory.h"
#include "ops/kernel_spec.h"

namespace meshwright::bench {
namespace {

constexpr int kRuns = 15;

using ops::Tensor;

// A tensor of small numbers; of counts where it is i32. In memory as workers have it.
class Operand {
 public:
  static Result<std::unique_ptr<Operand>> Make(const ir::TensorType& type, int32_t count) {
    MW_ASSIGN_OR_RETURN(device::Mapping memory, device::Mapping::Make(type.bytes()));
    auto made = std::make_unique<Operand>(type, std::move(memory));
    std::byte* const to = made->memory_.data();
    for (int64_t i = 0; i < type.elements(); ++i) {
      const float number = static_cast<float>(i % 13 - 6) / 8;
      if (type.dtype == ir::DType::kI32) {
        std::memcpy(to + 4 * i, &count, 4);
      } else if (type.dtype == ir::DType::kF32) {
        std::memcpy(to + 4 * i, &number, 4);
      } else {
        const uint16_t half = FloatToBf16(number);
        std::memcpy(to + 2 * i, &half, 2);
      }
    }
    return made;
  }
  Operand(ir::TensorType type, device::Mapping memory)
      : type_(std::move(type)), memory_(std::move(memory)) {}
  Tensor tensor() { return {memory_.data(), &type_}; }

 private:
  ir::TensorType type_;
  device::Mapping memory_;
};

// The median of kRuns runs, one before them not counted.
template <typename Body>
Result<double> MedianSeconds(const Body& body) {
  std::vector<double> seconds;
  for (int run = 0; run <= kRuns; ++run) {
    const int64_t begin_ns = SystemClock().NowNs();
    MW_TRY(body());
    if (run > 0) seconds.push_back(static_cast<double>(SystemClock().NowNs() - begin_ns) * 1e-9);
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRuns / 2, seconds.end());
  return seconds[kRuns / 2];
}

// What the bytes of a tensor take alone: read, or written, from begin to end.
Result<double> PassSeconds(const ir::TensorType& type, bool writes) {
  MW_ASSIGN_OR_RETURN(const device::Mapping memory, device::Mapping::Make(type.bytes()));
  auto* const data = reinterpret_cast<uint64_t*>(memory.data());
  const int64_t count = type.bytes() / 8;
  uint64_t seen = 0;
  return MedianSeconds([&]() -> Status {
    if (writes) {
      std::fill_n(data, count, ++seen);
    } else {
      volatile uint64_t sum = std::reduce(data, data + count);
      seen += sum;
    }
    return OkStatus();
  });
}

Result<double> KernelSeconds(const ops::KernelSpec& spec, int64_t rows) {
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<ops::Kernel> kernel,
                      ops::MakeKernel(ops::Backend::kCpu, spec));
  std::vector<std::unique_ptr<Operand>> operands;
  const auto tensors =
      [&](const std::vector<ir::TensorType>& types) -> Result<std::vector<Tensor>> {
    std::vector<Tensor> made;
    for (const ir::TensorType& type : types) {
      MW_ASSIGN_OR_RETURN(std::unique_ptr<Operand> operand,
                          Operand::Make(type, static_cast<int32_t>(rows)));
      operands.push_back(std::move(operand));
      made.push_back(operands.back()->tensor());
    }
    return made;
  };
  MW_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs, tensors(spec.inputs));
  MW_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, tensors(spec.outputs));
  return MedianSeconds([&] { return kernel->Run({}, inputs, outputs); });
}

}  // namespace

Status PrintGroupedCase(const GroupedCase& grouped) {
  const ir::DType dtype = grouped.bf16 ? ir::DType::kBF16 : ir::DType::kF32;
  if (!HasProductsOf(dtype)) {
    return Unavailable("this processor has no products of bfloat16, which take AVX-512");
  }
  const int64_t all = grouped.experts * grouped.rows;
  const ir::TensorType x{dtype, {1, 1, all, grouped.d}};
  const ir::TensorType y{dtype, {1, 1, all, grouped.f}};
  const ir::TensorType counts{ir::DType::kI32, {1, grouped.experts}};
  const ir::TensorType w{dtype, {grouped.experts, grouped.d, grouped.f}};
  const ir::TensorType dw{ir::DType::kF32, w.dims};
  const ops::KernelSpec specs[] = {
      {ir::Op::kGroupedMatmul, {}, {x, counts, w}, {y}, {}},
      {ir::Op::kGroupedMatmul, {{"transposed", int64_t{1}}}, {y, counts, w}, {x}, {}},
      {ir::Op::kGroupedMatmulGrad, {{"dtype", "f32"}}, {x, counts, y}, {dw}, {}}};
  const MatmulShape shapes[] = {{all, grouped.f, grouped.d, false, false},
                                {all, grouped.d, grouped.f, false, true},
                                {grouped.d, grouped.f, all, true, false}};
  // Rows are few beside weights, which a device has or gets anew each time.
  const std::pair<const ir::TensorType&, bool> passes[] = {{w, false}, {w, false}, {dw, true}};
  std::vector<double> own, one, memory;
  for (const ops::KernelSpec& spec : specs) {
    MW_ASSIGN_OR_RETURN(const double seconds, KernelSeconds(spec, grouped.rows));
    own.push_back(seconds);
  }
  for (const MatmulShape& shape : shapes) one.push_back(MatmulSeconds(shape, dtype, 1));
  for (const auto& [type, writes] : passes) {
    MW_ASSIGN_OR_RETURN(const double seconds, PassSeconds(type, writes));
    memory.push_back(seconds);
  }
  const double seconds = std::reduce(own.begin(), own.end());
  double limit = 0;
  for (size_t i = 0; i < one.size(); ++i) limit += std::max(one[i], memory[i]);
  fmt::print(R"({{"grouped":[{:.6g}],"one":[{:.6g}],"memory":[{:.6g}],"gflop":{:.6g},)"
             R"("ratio":{:.4g},"limit_ratio":{:.4g}}})"
             "\n",
             fmt::join(own, ","), fmt::join(one, ","), fmt::join(memory, ","),
             6e-9 * static_cast<double>(all * grouped.d * grouped.f),
             std::reduce(one.begin(), one.end()) / seconds, limit / seconds);
  return OkStatus();
}

}  // namespace meshwright::bench
