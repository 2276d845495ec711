#include "tests/emulated/nccl.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "collective/cpu/reduce.h"

namespace meshwright::emulated {
namespace {

using nccl::CommHandle;
using nccl::DataType;
using nccl::RedOp;
using nccl::Transfer;

using Bytes = std::vector<std::byte>;

constexpr int kFirstWithSeveralCalls = 22700;  // of a thread, in progress

thread_local int group_depth = 0;

ir::DType DTypeOf(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return ir::DType::kF32;
    case DataType::kFloat64:
      return ir::DType::kF64;
    case DataType::kBfloat16:
      return ir::DType::kBF16;
    case DataType::kFloat16:
      return ir::DType::kF16;
    case DataType::kInt32:
      return ir::DType::kI32;
    case DataType::kInt64:
      return ir::DType::kI64;
    default:
      return ir::DType::kBool;
  }
}

// `count` elements from `offset` bytes of each input, combined in list order.
void Reduce(const std::vector<Bytes>& inputs, size_t offset, int64_t count, DataType type,
            collective::Reduction reduction, std::byte* output) {
  const auto kernel = collective::FindReduceKernel(DTypeOf(type), reduction).value();
  collective::Accumulator accumulator(count * nccl::DataTypeBytes(type));
  for (size_t i = 0; i < inputs.size(); ++i) {
    accumulator.Add(kernel, inputs[i].data() + offset, count, i == 0);
  }
  accumulator.Store(kernel, output, count);
}

}  // namespace

struct EmulatedNetwork::Collective {
  std::string what;
  std::vector<Bytes> inputs;  // by position
  int arrived = 0;
};

struct EmulatedNetwork::Message {
  Bytes data;
  bool sent = false;
  bool taken = false;
};

struct EmulatedNetwork::Split {
  struct Entry {
    int color = 0;
    int key = 0;
    CommHandle* slot = nullptr;
    bool share = false;
    Comm* child = nullptr;
  };
  std::map<int, Entry> entries;  // by position
  bool finished = false;
};

struct EmulatedNetwork::Clique {
  std::vector<Comm*> members;  // null: has not come
  int family = 0;
  bool share = false;
  std::map<uint64_t, Collective> collectives;
  std::map<std::pair<std::pair<int, int>, uint64_t>, Message> messages;
  std::map<uint64_t, Split> splits;
  std::map<std::pair<int, int>, std::set<int>> links;  // from, to -> who has used it
};

struct EmulatedNetwork::Comm {
  EmulatedNccl* library = nullptr;
  Clique* clique = nullptr;
  int position = 0;
  int polls = 0;  // still to be answered by kInProgress
  uint64_t collectives = 0;
  uint64_t splits = 0;
  uint64_t split_pending = 0;  // 0: none
  int32_t device = -1;         // -1: not known
  bool in_progress = false;    // as far as was asked
  std::thread::id begun_by;
  std::set<std::string> used;             // kinds of collectives
  std::set<std::string> connecting;       // kinds that wait for the others' first use
  std::set<std::pair<int, int>> linking;  // links that wait for the other end's first use
  std::map<int, uint64_t> sent;
  std::map<int, uint64_t> received;
  bool finalized = false;
  bool gone = false;  // aborted or destroyed
  bool aborted = false;
};

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

// ---- Transfers ----------------------------------------------------------------------------------

nccl::Code EmulatedNccl::Launch(Network::Comm& comm, const Transfer& transfer, Work work) {
  auto* stream = static_cast<Stream*>(transfer.stream);
  const uint64_t ticket = network_.next_ticket_++;
  Network::Lane& lane =
      network_.lanes_[{comm.clique->family, {&stream->driver(), stream->device()}}];
  lane.push_back(ticket);
  comm.polls = transfer_polls_;
  const nccl::Code code =
      stream->Push([this, stream, &comm, &lane, ticket, work = std::move(work)] {
        const std::lock_guard<std::mutex> lock(network_.mutex_);
        const bool done = comm.aborted || (lane.front() == ticket && work());
        stream->WaitForPeers(!done);
        if (done) std::erase(lane, ticket);
        return done;
      }) == device::cuda::kSuccess
          ? nccl::Code::kInProgress
          : nccl::Code::kUnhandledCudaError;
  if (code != nccl::Code::kInProgress) return code;
  const bool done = transfer_polls_ == 0 && comm.linking.empty() && comm.connecting.empty();
  return done ? nccl::Code::kSuccess : Begin(comm);
}

nccl::Code EmulatedNccl::Collect(const char* name, Kind kind, const Transfer& transfer, RedOp op,
                                 int root) {
  const std::lock_guard<std::mutex> lock(network_.mutex_);
  const nccl::Code code = Enter(name, transfer.comm);
  if (code != nccl::Code::kSuccess) return code;
  auto& comm = *static_cast<Network::Comm*>(transfer.comm);
  const size_t size = comm.clique->members.size();
  const auto position = static_cast<size_t>(comm.position);
  const auto width = static_cast<size_t>(nccl::DataTypeBytes(transfer.type));
  const size_t block = transfer.count * width;
  const bool wide = kind == Kind::kReduceScatter || kind == Kind::kAllToAll;
  const size_t given = wide ? block * size : block;
  Network::Collective& all = comm.clique->collectives[++comm.collectives];
  if (comm.used.insert(name).second) comm.connecting.insert(name);
  all.inputs.resize(size);
  const std::string what = std::string(name) + " of " + std::to_string(transfer.count);
  if (!all.what.empty() && all.what != what) network_.Blame(all.what + " meets " + what);
  all.what = what;
  const auto reduction =
      op == RedOp::kMax ? collective::Reduction::kMax : collective::Reduction::kSum;
  return Launch(comm, transfer, [=, &all, begun = false]() mutable {
    if (!begun) {
      const auto* input = static_cast<const std::byte*>(transfer.input);
      all.inputs[position] = Bytes(input, input + given);
      ++all.arrived;
      begun = true;
    }
    if (all.arrived < static_cast<int>(size)) return false;
    auto* output = static_cast<std::byte*>(transfer.output);
    const auto count = static_cast<int64_t>(transfer.count);
    switch (kind) {
      case Kind::kAllReduce:
        Reduce(all.inputs, 0, count, transfer.type, reduction, output);
        break;
      case Kind::kReduceScatter:
        Reduce(all.inputs, position * block, count, transfer.type, reduction, output);
        break;
      case Kind::kBroadcast:
        std::memcpy(output, all.inputs[static_cast<size_t>(root)].data(), block);
        break;
      case Kind::kAllGather:
      case Kind::kAllToAll:
        for (size_t i = 0; i < size; ++i) {
          const size_t from = kind == Kind::kAllToAll ? position * block : 0;
          std::memcpy(output + i * block, all.inputs[i].data() + from, block);
        }
        break;
    }
    return true;
  });
}

nccl::Code EmulatedNccl::AllReduce(const Transfer& transfer, RedOp op) {
  return Collect("AllReduce", Kind::kAllReduce, transfer, op);
}

nccl::Code EmulatedNccl::AllGather(const Transfer& transfer) {
  return Collect("AllGather", Kind::kAllGather, transfer);
}

nccl::Code EmulatedNccl::ReduceScatter(const Transfer& transfer, RedOp op) {
  return Collect("ReduceScatter", Kind::kReduceScatter, transfer, op);
}

nccl::Code EmulatedNccl::AllToAll(const Transfer& transfer, int) {
  return Collect("AllToAll", Kind::kAllToAll, transfer);
}

nccl::Code EmulatedNccl::Broadcast(const Transfer& transfer, int root) {
  return Collect("Broadcast", Kind::kBroadcast, transfer, RedOp::kSum, root);
}

void EmulatedNccl::Use(Network::Comm& comm, std::pair<int, int> link) {
  if (comm.clique->links[link].insert(comm.position).second) comm.linking.insert(link);
}

nccl::Code EmulatedNccl::Exchange(const Transfer& transfer, int to, int from) {
  const std::lock_guard<std::mutex> lock(network_.mutex_);
  const nccl::Code code = Enter("Exchange", transfer.comm);
  if (code != nccl::Code::kSuccess) return code;
  auto& comm = *static_cast<Network::Comm*>(transfer.comm);
  const size_t bytes = transfer.count * static_cast<size_t>(nccl::DataTypeBytes(transfer.type));
  Network::Message& out = comm.clique->messages[{{comm.position, to}, ++comm.sent[to]}];
  Network::Message& in = comm.clique->messages[{{from, comm.position}, ++comm.received[from]}];
  Use(comm, {comm.position, to});
  Use(comm, {from, comm.position});
  return Launch(comm, transfer, [=, &out, &in, this] {
    if (!out.sent) {
      const auto* input = static_cast<const std::byte*>(transfer.input);
      out.data = Bytes(input, input + bytes);
      out.sent = true;
    }
    if (!in.sent) return false;
    if (in.data.size() != bytes) network_.Blame("Exchange of another length than was sent");
    std::memcpy(transfer.output, in.data.data(), std::min(bytes, in.data.size()));
    in.taken = true;
    in.data = Bytes();
    return true;
  });
}

nccl::Code EmulatedNccl::Send(const Transfer& transfer, int peer) {
  const std::lock_guard<std::mutex> lock(network_.mutex_);
  const nccl::Code code = Enter("Send", transfer.comm);
  if (code != nccl::Code::kSuccess) return code;
  auto& comm = *static_cast<Network::Comm*>(transfer.comm);
  const size_t bytes = transfer.count * static_cast<size_t>(nccl::DataTypeBytes(transfer.type));
  Network::Message& message = comm.clique->messages[{{comm.position, peer}, ++comm.sent[peer]}];
  Use(comm, {comm.position, peer});
  return Launch(comm, transfer, [=, &message] {
    if (!message.sent) {
      const auto* input = static_cast<const std::byte*>(transfer.input);
      message.data = Bytes(input, input + bytes);
      message.sent = true;
    }
    return message.taken;
  });
}

nccl::Code EmulatedNccl::Recv(const Transfer& transfer, int peer) {
  const std::lock_guard<std::mutex> lock(network_.mutex_);
  const nccl::Code code = Enter("Recv", transfer.comm);
  if (code != nccl::Code::kSuccess) return code;
  auto& comm = *static_cast<Network::Comm*>(transfer.comm);
  const size_t bytes = transfer.count * static_cast<size_t>(nccl::DataTypeBytes(transfer.type));
  Network::Message& message = comm.clique->messages[{{peer, comm.position}, ++comm.received[peer]}];
  Use(comm, {peer, comm.position});
  return Launch(comm, transfer, [=, &message, this] {
    if (!message.sent) return false;
    if (message.data.size() != bytes) network_.Blame("Recv of another length than was sent");
    std::memcpy(transfer.output, message.data.data(), std::min(bytes, message.data.size()));
    message.taken = true;
    message.data = Bytes();
    return true;
  });
}

}  // namespace meshwright::emulated
