#include "tests/conformance/collective/placed_fabric.h"

#include <algorithm>
#include <mutex>

namespace meshwright::collective {
namespace {

constexpr int64_t kTimeoutMs = 60'000;

// Memory of one rank's device that holds a host buffer for one call.
class Place {
 public:
  Place(const LocalRank& rank, Fabric& fabric) : rank_(rank), fabric_(fabric) {}

  Result<std::byte*> Take(device::Queue& queue, const void* host, int64_t bytes) {
    if (memory_ == nullptr || memory_->bytes() < bytes) {
      MW_ASSIGN_OR_RETURN(memory_, rank_.device->Allocate({ir::MemoryKind::kOther, bytes}));
    }
    if (bytes > 0 && host != nullptr) MW_TRY(queue.CopyIn(memory_->data(), host, bytes));
    return memory_->data();
  }
  Status Give(device::Queue& queue, void* host, int64_t bytes) {
    MW_TRY(Wait(queue));
    return bytes > 0 ? queue.CopyOut(host, memory_->data(), bytes) : OkStatus();
  }
  Status Wait(device::Queue& queue) {
    return queue.Finish(::meshwright::Deadline::After(kTimeoutMs),
                        [this] { return fabric_.Poll(); });
  }
  const LocalRank& rank() const { return rank_; }

 private:
  const LocalRank rank_;
  Fabric& fabric_;
  std::unique_ptr<device::Memory> memory_;
};

class PlacedGroup final : public Group {
 public:
  PlacedGroup(Group& below, const LocalRank& rank, Fabric& fabric)
      : below_(below), input_(rank, fabric), output_(rank, fabric) {}

  int size() const override { return below_.size(); }
  int rank() const override { return below_.rank(); }
  const std::string& name() const override { return below_.name(); }
  Counters counters(Kind kind) const override { return below_.counters(kind); }
  int64_t ScratchBytes(Kind kind, int64_t count, ir::DType dtype,
                       Reduction reduction) const override {
    return below_.ScratchBytes(kind, count, dtype, reduction);
  }
  void SetScratch(std::byte* memory, int64_t bytes) override { below_.SetScratch(memory, bytes); }

  Status AllReduce(void* data, int64_t count, ir::DType dtype, Reduction reduction) override {
    return InPlace(data, count * ir::DTypeBytes(dtype),
                   [&](void* placed) { return below_.AllReduce(placed, count, dtype, reduction); });
  }
  Status Broadcast(void* data, int64_t count, ir::DType dtype, int root) override {
    return InPlace(data, count * ir::DTypeBytes(dtype),
                   [&](void* placed) { return below_.Broadcast(placed, count, dtype, root); });
  }
  Status AllGather(const void* input, void* output, int64_t count, ir::DType dtype) override {
    const int64_t bytes = count * ir::DTypeBytes(dtype);
    return Across({input, bytes}, {output, bytes * size()}, [&](const void* from, void* to) {
      return below_.AllGather(from, to, count, dtype);
    });
  }
  Status ReduceScatter(const void* input, void* output, int64_t count, ir::DType dtype,
                       Reduction reduction) override {
    const int64_t bytes = count * ir::DTypeBytes(dtype);
    return Across({input, bytes * size()}, {output, bytes}, [&](const void* from, void* to) {
      return below_.ReduceScatter(from, to, count, dtype, reduction);
    });
  }
  Status AllToAll(const void* input, void* output, int64_t count, ir::DType dtype) override {
    const int64_t bytes = count * ir::DTypeBytes(dtype) * size();
    return Across({input, bytes}, {output, bytes}, [&](const void* from, void* to) {
      return below_.AllToAll(from, to, count, dtype);
    });
  }
  Status RingShift(const void* input, void* output, int64_t count, ir::DType dtype,
                   int by) override {
    const int64_t bytes = count * ir::DTypeBytes(dtype);
    return Across({input, bytes}, {output, bytes}, [&](const void* from, void* to) {
      return below_.RingShift(from, to, count, dtype, by);
    });
  }

 private:
  using Source = std::pair<const void*, int64_t>;
  using Target = std::pair<void*, int64_t>;

  template <typename Call>
  Status InPlace(void* data, int64_t bytes, const Call& call) {
    device::Queue& queue = *input_.rank().collectives;
    MW_ASSIGN_OR_RETURN(std::byte* const placed, input_.Take(queue, data, bytes));
    MW_TRY(call(placed));
    return input_.Give(queue, data, bytes);
  }
  template <typename Call>
  Status Across(Source from, Target to, const Call& call) {
    device::Queue& queue = *input_.rank().collectives;
    MW_ASSIGN_OR_RETURN(std::byte* const input, input_.Take(queue, from.first, from.second));
    MW_ASSIGN_OR_RETURN(std::byte* const output, output_.Take(queue, nullptr, to.second));
    MW_TRY(call(input, output));
    return output_.Give(queue, to.first, to.second);
  }

  Group& below_;
  Place input_;
  Place output_;
};

class PlacedChannel final : public Channel {
 public:
  PlacedChannel(Channel& below, const LocalRank& rank, Fabric& fabric)
      : below_(below), place_(rank, fabric) {}

  Status Send(const void* data, int64_t bytes) override {
    device::Queue& queue = place_.rank().device->queue();
    MW_ASSIGN_OR_RETURN(std::byte* const placed, place_.Take(queue, data, bytes));
    MW_TRY(below_.Send(placed, bytes));
    return place_.Wait(queue);
  }
  Status Receive(void* data, int64_t bytes) override {
    device::Queue& queue = place_.rank().device->queue();
    MW_ASSIGN_OR_RETURN(std::byte* const placed, place_.Take(queue, nullptr, bytes));
    MW_TRY(below_.Receive(placed, bytes));
    return place_.Give(queue, data, bytes);
  }
  Counters counters() const override { return below_.counters(); }

 private:
  Channel& below_;
  Place place_;
};

class PlacedFabric final : public Fabric {
 public:
  PlacedFabric(std::unique_ptr<Fabric> below, std::vector<LocalRank> ranks)
      : below_(std::move(below)), ranks_(std::move(ranks)) {}
  // Memory of the calls goes when nothing that was given uses it any more.
  ~PlacedFabric() override {
    below_->Close();
    for (const LocalRank& rank : ranks_) {
      for (device::Queue* queue : {&rank.device->queue(), rank.collectives}) {
        (void)queue->Finish(::meshwright::Deadline::After(kTimeoutMs));
      }
    }
  }

  Result<std::map<int, Group*>> MakeGroup(const std::string& name,
                                          std::vector<int> ranks) override {
    MW_ASSIGN_OR_RETURN(auto groups, below_->MakeGroup(name, std::move(ranks)));
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [rank, group] : groups) {
      groups_.push_back(std::make_unique<PlacedGroup>(*group, Of(rank), *below_));
      group = groups_.back().get();
    }
    return groups;
  }
  Result<Ends> MakeChannel(const std::string& name, int from_rank, int to_rank, int capacity,
                           int64_t max_message_bytes) override {
    MW_ASSIGN_OR_RETURN(Ends ends,
                        below_->MakeChannel(name, from_rank, to_rank, capacity, max_message_bytes));
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto placed = [&](Channel* channel, int rank) -> Channel* {
      if (channel == nullptr) return nullptr;
      channels_.push_back(std::make_unique<PlacedChannel>(*channel, Of(rank), *below_));
      return channels_.back().get();
    };
    return Ends{placed(ends.sender, from_rank), placed(ends.receiver, to_rank)};
  }
  Status Share(const device::Memory& memory) override { return below_->Share(memory); }
  Result<std::string> Invitation() override { return below_->Invitation(); }
  Status Accept(const std::vector<std::string>& texts) override { return below_->Accept(texts); }
  Status Connect() override { return below_->Connect(); }
  void Abort(const Status& cause) override { below_->Abort(cause); }
  Status status() const override { return below_->status(); }
  Status Poll() override { return below_->Poll(); }
  bool Close() override { return below_->Close(); }
  const char* backend() const override { return below_->backend(); }
  const char* transport(int rank) const override { return below_->transport(rank); }

 private:
  const LocalRank& Of(int rank) const {
    return *std::find_if(ranks_.begin(), ranks_.end(),
                         [rank](const LocalRank& local) { return local.rank == rank; });
  }

  const std::unique_ptr<Fabric> below_;
  const std::vector<LocalRank> ranks_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<std::unique_ptr<Channel>> channels_;
};

}  // namespace

std::unique_ptr<Fabric> MakePlacedFabric(std::unique_ptr<Fabric> below,
                                         std::vector<LocalRank> ranks) {
  return std::make_unique<PlacedFabric>(std::move(below), std::move(ranks));
}

}  // namespace meshwright::collective
