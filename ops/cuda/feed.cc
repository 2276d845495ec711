// feed: the host reads the rows of a step into memory that the GPU's copies reach; the queue takes
// them from there. Every microbatch has a place of its own, which is read when the next step's rows
// come: a step ends before that.
#include <memory>
#include <utility>

#include "ops/cuda/cuda.h"
#include "ops/feed_rows.h"

namespace meshwright::ops::cuda {
namespace {

class Feed final : public Kernel {
 public:
  Feed(FeedRows rows, std::unique_ptr<device::HostMemory> memory)
      : rows_(std::move(rows)), memory_(std::move(memory)) {}

  bool prepares() const override { return true; }

  Status Prepare(const RunContext& context) override {
    return rows_.Read(context, PlaceOf(context.microbatch));
  }

  Status Run(const RunContext& context, Inputs, Outputs outputs) override {
    return context.queue->CopyIn(outputs[0].data, PlaceOf(context.microbatch), rows_.bytes());
  }

 private:
  std::byte* PlaceOf(int32_t microbatch) const {
    return memory_->data() + microbatch * rows_.bytes();
  }

  const FeedRows rows_;
  const std::unique_ptr<device::HostMemory> memory_;  // of all microbatches
};

}  // namespace

KernelResult MakeFeed(const Maker& maker) {
  MW_ASSIGN_OR_RETURN(FeedRows rows, FeedRows::Of(maker.spec));
  MW_ASSIGN_OR_RETURN(auto memory,
                      maker.device.AllocateHost(rows.bytes() * maker.spec.coords.microbatches));
  return std::unique_ptr<Kernel>(std::make_unique<Feed>(std::move(rows), std::move(memory)));
}

}  // namespace meshwright::ops::cuda
