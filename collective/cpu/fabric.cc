#include "collective/cpu/fabric.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <thread>

#include "collective/arguments.h"
#include "collective/cpu/direct_group.h"

namespace meshwright::collective {
namespace {

// Spinning only helps when nobody needs the core: at most one rank per core. A process that may use
// fewer cores than the host has ranks has them for itself when they are as many as its own ranks.
Patience ChoosePatience(const FabricOptions& options) {
  const auto local = static_cast<size_t>(options.local_ranks.front());
  const std::string& host = options.members[local].host_id;
  const auto on_host = std::count_if(options.members.begin(), options.members.end(),
                                     [&](const Member& member) { return member.host_id == host; });
  const auto own = static_cast<ptrdiff_t>(options.local_ranks.size());
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const bool known = sched_getaffinity(0, sizeof(allowed), &allowed) == 0;
  const auto cores = static_cast<ptrdiff_t>(std::thread::hardware_concurrency());
  const auto usable = known ? static_cast<ptrdiff_t>(CPU_COUNT(&allowed)) : cores;
  const bool enough = on_host <= usable || (own == usable && on_host <= cores);
  return enough ? kOwnCore : kSharedCore;
}

}  // namespace

Result<std::unique_ptr<Fabric>> MakeCpuFabric(FabricOptions options,
                                              std::shared_ptr<Listener> listener) {
  MW_TRY(CheckOptions(options));
  std::sort(options.local_ranks.begin(), options.local_ranks.end());
  auto fabric = std::make_unique<CpuFabric>(std::move(options));
  MW_TRY(fabric->Start(std::move(listener)));
  return fabric;
}

CpuFabric::CpuFabric(FabricOptions options) {
  context_.operation_timeout_ms = options.operation_timeout_ms;
  context_.patience = ChoosePatience(options);
  context_.options = std::move(options);
  context_.abort = [this](const Status& cause) { Abort(cause); };
}

CpuFabric::~CpuFabric() = default;  // the transport goes first: it is the last member

Status CpuFabric::Start(std::shared_ptr<Listener> listener) {
  if (context_.options.local_ranks.size() < context_.options.members.size()) {
    MW_ASSIGN_OR_RETURN(transport_, TcpTransport::Make(context_, std::move(listener)));
  }
  return OkStatus();
}

bool CpuFabric::IsLocal(int rank) const {
  const std::vector<int>& local = context_.options.local_ranks;
  return std::binary_search(local.begin(), local.end(), rank);
}

Result<std::map<int, Group*>> CpuFabric::MakeGroup(const std::string& name,
                                                   std::vector<int> ranks) {
  const MutexLock lock(mutex_);
  MW_TRY(CheckGroup(context_.options, name, ranks));
  if (group_names_.count(name) > 0) {
    return Fail(AlreadyExists(fmt::format("this fabric already has a group {}", name)));
  }
  const auto local =
      std::count_if(ranks.begin(), ranks.end(), [this](int rank) { return IsLocal(rank); });
  std::map<int, Group*> made;
  group_names_.insert(name);
  if (local > 0 && OnThisHost(ranks)) {
    MW_TRY(MakeDirectGroup(name, ranks, &made));
  } else if (local > 0) {
    MW_TRY(MakePipeGroup(name, ranks, &made));
  }
  return made;
}

bool CpuFabric::OnThisHost(const std::vector<int>& ranks) const {
  const FabricOptions& options = context_.options;
  const auto local = static_cast<size_t>(options.local_ranks.front());
  const std::string& host = options.members[local].host_id;
  return std::all_of(ranks.begin(), ranks.end(), [&](int rank) {
    const bool same_host =
        !host.empty() && options.members[static_cast<size_t>(rank)].host_id == host;
    return IsLocal(rank) || options.transport == Transport::kSharedMemory ||
           (options.transport == Transport::kAuto && same_host);
  });
}

Status CpuFabric::MakeDirectGroup(const std::string& name, const std::vector<int>& ranks,
                                  std::map<int, Group*>* made) {
  const auto size = static_cast<int>(ranks.size());
  const auto team = std::make_shared<DirectTeam>();
  team->one_process =
      std::all_of(ranks.begin(), ranks.end(), [this](int rank) { return IsLocal(rank); });
  BoardPlan plan{.name = fmt::format("group {}", name), .members = size};
  plan.attach = [team, size](std::byte* memory) { team->board = Board(memory, size); };
  if (team->one_process) {
    MW_ASSIGN_OR_RETURN(team->memory, Region::Private(Board::Bytes(size)));
    plan.attach(team->memory.data());
  }
  std::map<int, PipeGroup*> ends;  // by position
  for (int i = 0; i < size; ++i) {
    const int rank = ranks[static_cast<size_t>(i)];
    if (!IsLocal(rank)) {
      plan.peer_ranks.push_back(rank);
      continue;
    }
    std::unique_ptr<PipeGroup> staged;
    if (!team->one_process) {
      staged = std::make_unique<PipeGroup>(name, ranks, i, context_);
      ends.emplace(i, staged.get());
    }
    groups_.push_back(
        std::make_unique<DirectGroup>(name, ranks, i, context_, team, std::move(staged)));
    made->emplace(rank, groups_.back().get());
  }
  if (team->one_process) {
    return OkStatus();
  }
  transport_->AddBoard(std::move(plan));
  return WireGroup(name, ranks, ends);
}

Status CpuFabric::MakePipeGroup(const std::string& name, const std::vector<int>& ranks,
                                std::map<int, Group*>* made) {
  std::map<int, PipeGroup*> ends;  // by position
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (IsLocal(ranks[i])) {
      auto group = std::make_unique<PipeGroup>(name, ranks, static_cast<int>(i), context_);
      ends.emplace(static_cast<int>(i), group.get());
      made->emplace(ranks[i], group.get());
      groups_.push_back(std::move(group));
    }
  }
  return WireGroup(name, ranks, ends);
}

// A pipe for each pair of which one end is here; `ends` by position.
Status CpuFabric::WireGroup(const std::string& name, const std::vector<int>& ranks,
                            const std::map<int, PipeGroup*>& ends) {
  const auto size = static_cast<int>(ranks.size());
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      const auto sender = ends.find(from);
      const auto receiver = ends.find(to);
      if (from == to || (sender == ends.end() && receiver == ends.end())) {
        continue;
      }
      PipePlan plan{.entry = {.from_rank = ranks[static_cast<size_t>(from)],
                              .to_rank = ranks[static_cast<size_t>(to)],
                              .shape = kGroupPipeShape,
                              .name = fmt::format("group {}", name)}};
      plan.sender = sender == ends.end() ? nullptr : &sender->second->sender(to);
      plan.receiver = receiver == ends.end() ? nullptr : &receiver->second->receiver(from);
      MW_TRY(WirePipe(plan));
    }
  }
  return OkStatus();
}

// Both ends here: one ring, usable at once. Otherwise the transport attaches the end in Connect().
Status CpuFabric::WirePipe(const PipePlan& plan) {
  ManifestEntry entry = plan.entry;
  entry.key = PipeKey(entry.name, entry.from_rank, entry.to_rank);
  if (plan.sender == nullptr || plan.receiver == nullptr) {
    const int peer_rank = plan.sender == nullptr ? entry.from_rank : entry.to_rank;
    return transport_->AddPipe(peer_rank, {entry, plan.sender, plan.receiver});
  }
  MW_ASSIGN_OR_RETURN(Region region, Region::Private(SlotRing::Bytes(entry.shape)));
  const PipeWiring wiring{.ring = SlotRing(region.data(), entry.shape),
                          .patience = context_.patience};
  local_rings_.push_back(std::move(region));
  plan.sender->Attach(wiring);
  plan.receiver->Attach(wiring);
  return OkStatus();
}

Result<Fabric::Ends> CpuFabric::MakeChannel(const std::string& name, int from_rank, int to_rank,
                                            int capacity, int64_t max_message_bytes) {
  const MutexLock lock(mutex_);
  MW_TRY(CheckChannel(context_.options, {name, from_rank, to_rank, capacity, max_message_bytes}));
  if (channel_names_.count(name) > 0) {
    return Fail(AlreadyExists(fmt::format("this fabric already has a channel {}", name)));
  }
  channel_names_.insert(name);
  PipePlan plan{.entry = {.from_rank = from_rank,
                          .to_rank = to_rank,
                          .shape = {capacity, max_message_bytes},
                          .name = fmt::format("channel {}", name)}};
  Ends ends;
  if (IsLocal(from_rank)) {
    auto sender = std::make_unique<SendChannel>(name, to_rank, max_message_bytes, context_);
    plan.sender = &sender->pipe();
    ends.sender = sender.get();
    channels_.push_back(std::move(sender));
  }
  if (IsLocal(to_rank)) {
    auto receiver = std::make_unique<ReceiveChannel>(name, from_rank, context_);
    plan.receiver = &receiver->pipe();
    ends.receiver = receiver.get();
    channels_.push_back(std::move(receiver));
  }
  MW_TRY(WirePipe(plan));
  return ends;
}

Status CpuFabric::Share(const device::Memory& memory) {
  if (connecting_.load()) {
    return FailedPrecondition("share memory before Connect(), which tells the peers of it");
  }
  if (memory.shared() != nullptr) {
    context_.memory.Share(*memory.shared(), memory.data());
  }
  return OkStatus();
}

Status CpuFabric::Connect() {
  const MutexLock connect_lock(connect_mutex_);
  connecting_.store(true);
  if (const Status cause = status(); !cause.ok()) {
    return cause;
  }
  if (transport_ == nullptr) {
    return OkStatus();
  }
  const Status connected = transport_->Connect(context_.options.connect_timeout_ms);
  if (!connected.ok()) {
    Abort(connected);
    return status();
  }
  return OkStatus();
}

void CpuFabric::Abort(const Status& cause) {
  const Status given = cause.ok() ? Cancelled("the fabric was aborted without a cause") : cause;
  if (context_.latch.Record(given) && transport_ != nullptr) {
    transport_->Broadcast(given);
  }
  context_.latch.Publish();
}

const char* CpuFabric::transport(int rank) const {
  if (rank < 0 || rank >= static_cast<int>(context_.options.members.size())) {
    return "none";
  }
  return IsLocal(rank) ? "memory" : transport_->transport(rank);
}

}  // namespace meshwright::collective
