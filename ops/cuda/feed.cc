// feed: the host reads the rows of a step into memory that the GPU's copies reach; the queue takes
// them from there. Every microbatch has a place of its own, which is read when the next step's rows
// come: a step ends before that.
#include <fmt/format.h>

#include <algorithm>

#include "ops/cuda/cuda.h"

namespace meshwright::ops::cuda {
namespace {

class Feed final : public Kernel {
 public:
  Feed(std::string source, ShardBlock block, std::unique_ptr<device::HostMemory> rows)
      : source_(std::move(source)), block_(std::move(block)), rows_(std::move(rows)) {}

  bool prepares() const override { return true; }

  Status Prepare(const RunContext& context) override {
    if (context.feed == nullptr) {
      return FailedPrecondition(
          fmt::format("feed '{}': this run has no data source; attach one to the job", source_));
    }
    const int64_t length = block_.local_dims[1];
    const int64_t first =
        context.step * block_.global_dims[0] + block_.Start(0, context.microbatch);
    const int64_t valid = block_.Valid(0, context.microbatch);
    int32_t* rows = RowsOfMicrobatch(context.microbatch);
    for (int64_t i = 0; i < valid; ++i) {
      MW_TRY(context.feed->ReadSample(
          source_, first + i, std::span<int32_t>(rows + i * length, static_cast<size_t>(length))));
    }
    std::fill(rows + valid * length, rows + block_.local_dims[0] * length, 0);
    return {};
  }

  Status Run(const RunContext& context, Inputs, Outputs outputs) override {
    return context.queue->CopyIn(outputs[0].data, RowsOfMicrobatch(context.microbatch),
                                 outputs[0].type->bytes());
  }

 private:
  int32_t* RowsOfMicrobatch(int32_t microbatch) const {
    auto* rows = reinterpret_cast<int32_t*>(rows_->data());
    return rows + microbatch * block_.local_dims[0] * block_.local_dims[1];
  }

  const std::string source_;
  const ShardBlock block_;
  const std::unique_ptr<device::HostMemory> rows_;  // of all microbatches
};

}  // namespace

KernelResult MakeFeed(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  const ir::TensorType& type = spec.outputs[0];
  if (type.dtype != ir::DType::kI32 || type.rank() != 2) {
    return Fail(InvalidArgument(
        fmt::format("feed: the result must be i32[rows, row_length], got {}", type.ToString())));
  }
  MW_ASSIGN_OR_RETURN(ShardBlock block, spec.BlockOf(type));
  MW_ASSIGN_OR_RETURN(auto rows,
                      maker.device.AllocateHost(type.bytes() * spec.coords.microbatches));
  return std::unique_ptr<Kernel>(
      std::make_unique<Feed>(spec.attrs.Str("source"), std::move(block), std::move(rows)));
}

}  // namespace meshwright::ops::cuda
