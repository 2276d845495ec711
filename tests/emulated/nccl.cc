#include "tests/emulated/nccl.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "tests/emulated/nccl_network.h"

namespace meshwright::emulated {
namespace {

using nccl::CommHandle;
using nccl::Transfer;

constexpr int kFirstWithSeveralCalls = 22700;  // of a thread, in progress

thread_local int group_depth = 0;

}  // namespace

EmulatedNetwork::EmulatedNetwork() = default;
EmulatedNetwork::~EmulatedNetwork() = default;

std::vector<std::string> EmulatedNetwork::misuse() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return misuse_;
}

int EmulatedNetwork::alive() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int>(
      std::count_if(comms_.begin(), comms_.end(), [](const auto& comm) { return !comm->gone; }));
}

EmulatedNetwork::Clique& EmulatedNetwork::MakeClique(int size, int family, bool share) {
  auto clique = std::make_unique<Clique>();
  clique->members.resize(static_cast<size_t>(size));
  clique->family = family;
  clique->share = share;
  cliques_.push_back(std::move(clique));
  return *cliques_.back();
}

// All members of the parent came: makes the children.
void EmulatedNetwork::FinishSplit(Clique& parent, Split& split) {
  std::map<int, std::vector<std::pair<int, int>>> colors;  // color -> (key, position)
  for (const auto& [position, entry] : split.entries) {
    if (entry.color >= 0) colors[entry.color].emplace_back(entry.key, position);
  }
  for (auto& [color, members] : colors) {
    std::sort(members.begin(), members.end());
    const auto size = static_cast<int>(members.size());
    const bool share = split.entries[members[0].second].share;
    Clique& clique = MakeClique(size, parent.share ? parent.family : next_family_++, share);
    for (int i = 0; i < size; ++i) {
      Split::Entry& entry = split.entries[members[static_cast<size_t>(i)].second];
      auto comm = std::make_unique<Comm>();
      comm->library =
          parent.members[static_cast<size_t>(members[static_cast<size_t>(i)].second)]->library;
      comm->device =
          parent.members[static_cast<size_t>(members[static_cast<size_t>(i)].second)]->device;
      comm->clique = &clique;
      comm->position = i;
      comm->polls = 1;
      clique.members[static_cast<size_t>(i)] = comm.get();
      entry.child = comm.get();
      comms_.push_back(std::move(comm));
    }
  }
  split.finished = true;
}

// ---- Set-up of the test -------------------------------------------------------------------------

void EmulatedNccl::Fail(const std::string& call, nccl::Code code, int skip, int times) {
  const std::lock_guard<std::mutex> lock(network_.mutex_);
  failures_[call] = {code, skip, times};
}

void EmulatedNccl::FailAsync(nccl::Code code) {
  const std::lock_guard<std::mutex> lock(network_.mutex_);
  async_ = code;
  last_error_ = "emulated asynchronous failure";
}

void EmulatedNccl::set_polls(int making, int transfer) {
  const std::lock_guard<std::mutex> lock(network_.mutex_);
  making_polls_ = making;
  transfer_polls_ = transfer;
}

void EmulatedNccl::After(const std::string& call, std::function<void()> hook) {
  const std::lock_guard<std::mutex> lock(network_.mutex_);
  hooks_[call] = std::move(hook);
}

void EmulatedNccl::RunHook(const std::string& call) {
  std::function<void()> hook;
  {
    const std::lock_guard<std::mutex> lock(network_.mutex_);
    const auto it = hooks_.find(call);
    if (it == hooks_.end()) return;
    hook = std::move(it->second);
    hooks_.erase(it);
  }
  hook();
}

std::vector<EmulatedNccl::Call> EmulatedNccl::calls() const {
  const std::lock_guard<std::mutex> lock(network_.mutex_);
  return calls_;
}

int EmulatedNccl::count(const std::string& name) const {
  const std::lock_guard<std::mutex> lock(network_.mutex_);
  return static_cast<int>(std::count_if(calls_.begin(), calls_.end(),
                                        [&](const Call& call) { return call.name == name; }));
}

nccl::Code EmulatedNccl::Begin(Network::Comm& comm) {
  comm.in_progress = true;
  comm.begun_by = std::this_thread::get_id();
  network_.begun_[std::this_thread::get_id()].push_back(&comm);
  return nccl::Code::kInProgress;
}

// A call within a group is part of what GroupStart() began.
void EmulatedNccl::CheckNothingBegun(const std::string& name) {
  if (name == "CommGetAsyncError" || name == "CommAbort" || name == "GroupEnd") return;
  if (group_depth > 0) return;
  std::vector<const Network::Comm*>& begun = network_.begun_[std::this_thread::get_id()];
  std::erase_if(begun, [](const auto* comm) {
    return comm->gone || !comm->in_progress || comm->begun_by != std::this_thread::get_id();
  });
  if (version_ < kFirstWithSeveralCalls && !begun.empty()) {
    network_.Blame(name + " while the thread's last call is in progress");
  }
}

// What makes a stream tells its device.
int32_t EmulatedNccl::DeviceInUse() const {
  device::cuda::StreamHandle stream = nullptr;
  if (driver_ == nullptr || driver_->MakeStream(&stream, false) != device::cuda::kSuccess) {
    return -1;
  }
  const int32_t in_use = static_cast<Stream*>(stream)->device();
  (void)driver_->DestroyStream(stream);
  return in_use;
}

void EmulatedNccl::CheckDevice(const char* name, const Network::Comm& comm, int32_t in_use) {
  if (in_use < 0 || comm.device < 0 || in_use == comm.device) return;
  network_.Blame(std::string(name) + " of device " + std::to_string(comm.device) +
                 " in a thread of device " + std::to_string(in_use));
}

nccl::Code EmulatedNccl::Enter(const std::string& name, CommHandle handle) {
  calls_.push_back({name, handle, std::this_thread::get_id(), {}});
  CheckNothingBegun(name);
  if (const auto* comm = static_cast<const Network::Comm*>(handle)) {
    if (comm->gone) {
      network_.Blame(name + " on a communicator that is gone");
      return nccl::Code::kInvalidUsage;
    }
    const bool asks = name == "CommGetAsyncError" || name == "CommAbort";
    if (!asks && (comm->polls > 0 || comm->split_pending > 0 || !comm->linking.empty() ||
                  !comm->connecting.empty())) {
      network_.Blame(name + " on a communicator that is in progress");
    }
  }
  const auto it = failures_.find(name);
  if (it == failures_.end()) return nccl::Code::kSuccess;
  if (it->second.skip > 0) {
    --it->second.skip;
    return nccl::Code::kSuccess;
  }
  const nccl::Code code = it->second.code;
  if (--it->second.times <= 0) failures_.erase(it);
  last_error_ = "emulated failure of " + name;
  return code;
}

// ---- Communicators ------------------------------------------------------------------------------

nccl::Code EmulatedNccl::GetVersion(int* version) {
  const std::lock_guard<std::mutex> lock(network_.mutex_);
  *version = version_;
  return Enter("GetVersion", nullptr);
}

nccl::Code EmulatedNccl::GetUniqueId(nccl::UniqueId* id) {
  const std::lock_guard<std::mutex> lock(network_.mutex_);
  const int64_t number = network_.next_id_++;
  std::memcpy(id->bytes, &number, sizeof(number));
  return Enter("GetUniqueId", nullptr);
}

nccl::Code EmulatedNccl::Join(CommHandle* handle, const nccl::UniqueId& id,
                              const Joining& joining) {
  Network::Clique*& clique = network_.by_id_[std::string(id.bytes, sizeof(id.bytes))];
  if (clique == nullptr) {
    clique =
        &network_.MakeClique(joining.ranks, network_.next_family_++, joining.options.split_share);
  }
  calls_.back().options = joining.options;
  auto comm = std::make_unique<Network::Comm>();
  comm->library = this;
  comm->clique = clique;
  comm->position = joining.rank;
  comm->device = joining.device;
  comm->polls = making_polls_;
  clique->members[static_cast<size_t>(joining.rank)] = comm.get();
  std::atomic_ref<CommHandle>(*handle).store(comm.get());  // an abort may look for it
  network_.comms_.push_back(std::move(comm));
  return Begin(*network_.comms_.back());
}

nccl::Code EmulatedNccl::CommInitRankConfig(CommHandle* comm, int ranks, const nccl::UniqueId& id,
                                            int rank, const nccl::CommOptions& options) {
  const int32_t device = DeviceInUse();
  const std::lock_guard<std::mutex> lock(network_.mutex_);
  const nccl::Code code = Enter("CommInitRankConfig", nullptr);
  return code == nccl::Code::kSuccess ? Join(comm, id, {ranks, rank, device, options}) : code;
}

nccl::Code EmulatedNccl::CommInitRankScalable(CommHandle* comm, int ranks,
                                              std::span<const nccl::UniqueId> ids, int rank,
                                              const nccl::CommOptions& options) {
  const int32_t device = DeviceInUse();
  const std::lock_guard<std::mutex> lock(network_.mutex_);
  const nccl::Code code = Enter("CommInitRankScalable", nullptr);
  return code == nccl::Code::kSuccess ? Join(comm, ids[0], {ranks, rank, device, options}) : code;
}

nccl::Code EmulatedNccl::CommSplit(CommHandle parent_handle, int color, int key, CommHandle* slot,
                                   const nccl::CommOptions& options) {
  const std::lock_guard<std::mutex> lock(network_.mutex_);
  const nccl::Code code = Enter("CommSplit", parent_handle);
  if (code != nccl::Code::kSuccess) return code;
  auto& parent = *static_cast<Network::Comm*>(parent_handle);
  parent.split_pending = ++parent.splits;
  parent.polls = making_polls_;
  Network::Split& split = parent.clique->splits[parent.split_pending];
  split.entries[parent.position] = {color, key, slot, options.split_share, nullptr};
  calls_.back().options = options;
  if (split.entries.size() == parent.clique->members.size()) {
    network_.FinishSplit(*parent.clique, split);
  }
  return Begin(parent);
}

nccl::Code EmulatedNccl::StateOf(Network::Comm& comm) {
  const std::vector<Network::Comm*>& members = comm.clique->members;
  const auto all = [&](auto of) { return std::all_of(members.begin(), members.end(), of); };
  if (!all([](const auto* member) { return member != nullptr; })) return nccl::Code::kInProgress;
  std::erase_if(comm.connecting, [&](const std::string& kind) {
    return all([&](const auto* member) { return member->used.count(kind) > 0; });
  });
  if (!comm.connecting.empty()) return nccl::Code::kInProgress;
  std::erase_if(comm.linking,
                [&](const auto& link) { return comm.clique->links[link].size() == 2; });
  if (!comm.linking.empty()) return nccl::Code::kInProgress;
  if (comm.finalized) {
    const bool ended = all([](const auto* member) { return member->finalized || member->gone; });
    return ended ? nccl::Code::kSuccess : nccl::Code::kInProgress;
  }
  if (comm.split_pending > 0 && !comm.clique->splits[comm.split_pending].finished) {
    return nccl::Code::kInProgress;
  }
  if (comm.polls > 0) {
    --comm.polls;
    return nccl::Code::kInProgress;
  }
  if (comm.split_pending > 0) {
    const auto& entry = comm.clique->splits[comm.split_pending].entries[comm.position];
    std::atomic_ref<CommHandle>(*entry.slot).store(entry.child);
    comm.split_pending = 0;
  }
  return async_;
}

nccl::Code EmulatedNccl::CommGetAsyncError(CommHandle handle, nccl::Code* state) {
  nccl::Code code = nccl::Code::kSuccess;
  {
    const std::lock_guard<std::mutex> lock(network_.mutex_);
    auto& comm = *static_cast<Network::Comm*>(handle);
    code = Enter("CommGetAsyncError", handle);
    if (code == nccl::Code::kSuccess) *state = StateOf(comm);
    comm.in_progress = code == nccl::Code::kSuccess && *state == nccl::Code::kInProgress;
  }
  RunHook("CommGetAsyncError");
  return code;
}

nccl::Code EmulatedNccl::CommFinalize(CommHandle comm) {
  const std::lock_guard<std::mutex> lock(network_.mutex_);
  const nccl::Code code = Enter("CommFinalize", comm);
  if (code != nccl::Code::kSuccess) return code;
  static_cast<Network::Comm*>(comm)->finalized = true;
  return Begin(*static_cast<Network::Comm*>(comm));
}

nccl::Code EmulatedNccl::CommDestroy(CommHandle handle) {
  const int32_t device = DeviceInUse();
  nccl::Code code = nccl::Code::kSuccess;
  {
    const std::lock_guard<std::mutex> lock(network_.mutex_);
    auto& comm = *static_cast<Network::Comm*>(handle);
    code = Enter("CommDestroy", handle);
    CheckDevice("CommDestroy", comm, device);
    if (!comm.finalized) network_.Blame("CommDestroy, not finalized");
    comm.gone = true;
  }
  RunHook("CommDestroy");
  return code;
}

nccl::Code EmulatedNccl::CommAbort(CommHandle handle) {
  const int32_t device = DeviceInUse();
  std::unique_lock<std::mutex> lock(network_.mutex_);
  const nccl::Code code = Enter("CommAbort", handle);
  auto& comm = *static_cast<Network::Comm*>(handle);
  CheckDevice("CommAbort", comm, device);
  ++network_.aborts_;
  network_.aborting_.notify_all();
  if (!network_.aborting_.wait_for(lock, std::chrono::seconds(2),
                                   [&] { return network_.aborts_ >= aborts_together_; })) {
    network_.Blame("CommAbort waits for the abort of another communicator");
  }
  comm.gone = true;
  comm.aborted = true;
  return code;
}

std::string EmulatedNccl::GetErrorString(nccl::Code code) {
  switch (code) {
    case nccl::Code::kSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case nccl::Code::kRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "emulated error";
  }
}

std::string EmulatedNccl::GetLastError(CommHandle) {
  const std::lock_guard<std::mutex> lock(network_.mutex_);
  return last_error_;
}

nccl::Code EmulatedNccl::GroupStart() {
  nccl::Code code = nccl::Code::kSuccess;
  {
    const std::lock_guard<std::mutex> lock(network_.mutex_);
    code = Enter("GroupStart", nullptr);
    if (code == nccl::Code::kSuccess) ++group_depth;
  }
  RunHook("GroupStart");
  return code;
}

nccl::Code EmulatedNccl::GroupEnd() {
  const std::lock_guard<std::mutex> lock(network_.mutex_);
  if (--group_depth < 0) network_.Blame("GroupEnd without GroupStart");
  const nccl::Code code = Enter("GroupEnd", nullptr);
  return code == nccl::Code::kSuccess ? nccl::Code::kInProgress : code;
}

}  // namespace meshwright::emulated
