#include "collective/nccl/setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace meshwright::collective::nccl {
namespace {

constexpr int64_t kWordBytes = 8;
constexpr CommOptions kOfGroups{.split_share = true};
constexpr CommOptions kOfWires{.split_share = false, .max_ctas = 4};
constexpr int64_t kChannelWord = 0x6d77'6368'616e'6e65;

// What the queue says now, without waiting.
Result<bool> Ready(device::Queue& queue) {
  bool waits = false;
  const Status status = queue.Finish(HostDeadline::After(0), [&] {
    waits = true;
    return Cancelled("looked once");
  });
  if (!status.ok() && !waits) return Fail(status);
  return !waits;
}

// One block per rank. By process: the ranks of one have its process id.
Result<std::vector<Declaration>> ParseBlocks(const std::vector<Member>& members,
                                             const std::byte* blocks, int64_t block_bytes) {
  std::vector<Declaration> declarations;
  std::map<uint64_t, size_t> index;
  for (size_t rank = 0; rank < members.size(); ++rank) {
    const auto [it, added] = index.emplace(members[rank].process_id, declarations.size());
    if (added) declarations.emplace_back();
    Declaration& declaration = declarations[it->second];
    declaration.ranks.push_back(static_cast<int>(rank));
    const std::byte* from = blocks + static_cast<int64_t>(rank) * block_bytes;
    int64_t length = 0;
    std::memcpy(&length, from, sizeof(length));
    if (length < 0 || length > block_bytes - kWordBytes) {
      return Fail(DataLoss(fmt::format("{} gave a list of groups and channels of {} bytes",
                                       members[rank].worker, length)));
    }
    MW_ASSIGN_OR_RETURN(std::vector<Link> links,
                        DecodeLinks({reinterpret_cast<const char*>(from + kWordBytes),
                                     static_cast<size_t>(length)}));
    if (!links.empty()) declaration.links = std::move(links);
  }
  return declarations;
}

}  // namespace

Status Setup::Together(const char* what, FunctionRef<Status(Local&)> call) {
  const CallGate::Pass pass(context_.gate);
  if (!pass) return context_.fabric.latch.status();
  const auto judge = [&](Code code) {
    return code == Code::kSuccess || code == Code::kInProgress
               ? OkStatus()
               : ErrorOf(context_.library, code,
                         fmt::format("{}: {}", context_.fabric.RankName(locals_[0].rank), what));
  };
  MW_TRY(judge(context_.library.GroupStart()));
  Status failed;
  for (Local& local : locals_) {
    failed = local.device->EnterThread();
    if (failed.ok()) failed = call(local);
    if (!failed.ok()) break;
  }
  const Code ended = context_.library.GroupEnd();
  // An abort that went on without waiting for this call has not seen what came with it.
  if (context_.fabric.latch.stopped()) context_.StartAbort();
  return failed.ok() ? judge(ended) : failed;
}

Status Setup::Finish(const char* what, const HostDeadline& deadline) {
  HostWait wait(context_, deadline);
  while (true) {
    bool all = true;
    for (Local& local : locals_) {
      MW_ASSIGN_OR_RETURN(const bool ready, Ready(*local.queue));
      all = all && ready;
    }
    if (all) return OkStatus();
    for (Comm* comm : context_.comms()) MW_TRY(comm->Check());
    MW_TRY(wait.Pause([&] {
      return fmt::format("{}: {} did not end: a peer has not come",
                         context_.fabric.RankName(locals_[0].rank), what);
    }));
  }
}

Status Setup::MakeWords() {
  for (Local& local : locals_) {
    MW_ASSIGN_OR_RETURN(local.word, local.device->Allocate({ir::MemoryKind::kOther, kWordBytes}));
    MW_ASSIGN_OR_RETURN(local.host_word, local.device->AllocateHost(kWordBytes));
  }
  return OkStatus();
}

Status Setup::InitWorld(std::span<const UniqueId> ids, const HostDeadline& deadline) {
  const auto size = static_cast<int>(context_.fabric.options.members.size());
  for (Local& local : locals_) {
    local.world = &context_.Add(std::make_unique<Comm>(
        context_, Comm::Shape{"world", local.rank, local.rank, size, local.device}));
  }
  MW_TRY(Together("making the world", [&](Local& local) {
    Comm& world = *local.world;
    world.Started();
    const Code code = ids.size() > 1 ? context_.library.CommInitRankScalable(
                                           world.slot(), size, ids, local.rank, kOfGroups)
                                     : context_.library.CommInitRankConfig(
                                           world.slot(), size, ids[0], local.rank, kOfGroups);
    return world.Judge("making it", code);
  }));
  for (Local& local : locals_) MW_TRY(local.world->Await("making it", deadline));
  MW_TRY(MakeWords());
  std::vector<int> all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  for (Local& local : locals_) local.groups[all] = local.world;
  return WarmGroups(Worlds(), deadline);
}

Setup::Members Setup::Worlds() const {
  Members worlds;
  for (const Local& local : locals_) worlds.push_back(local.world);
  return worlds;
}

Status Setup::WithWords(const Members& members, FunctionRef<int64_t(const Comm&)> value_of,
                        const HostDeadline& deadline,
                        FunctionRef<Code(const Comm&, const Transfer&)> call) {
  const auto comm_of = [&](const Local& local) {
    return members[static_cast<size_t>(&local - locals_.data())];
  };
  for (Local& local : locals_) {
    const Comm* comm = comm_of(local);
    if (comm == nullptr) continue;
    const int64_t value = value_of(*comm);
    std::memcpy(local.host_word->data(), &value, sizeof(value));
    MW_TRY(local.queue->CopyIn(local.word->data(), local.host_word->data(), kWordBytes));
  }
  MW_TRY(Together("warming up", [&](Local& local) {
    Comm* comm = comm_of(local);
    if (comm == nullptr) return OkStatus();
    return comm->Judge("warming up", call(*comm, {.input = local.word->data(),
                                                  .output = local.word->data(),
                                                  .count = 1,
                                                  .type = DataType::kInt64,
                                                  .comm = comm->handle(),
                                                  .stream = local.queue->native()}));
  }));
  for (Comm* comm : members) {
    if (comm != nullptr) MW_TRY(comm->Await("warming up", deadline));
  }
  for (Local& local : locals_) {
    if (comm_of(local) == nullptr) continue;
    MW_TRY(local.queue->CopyOut(local.host_word->data(), local.word->data(), kWordBytes));
  }
  return Finish("the warm-up", deadline);
}

int64_t Setup::WordOf(size_t local) const {
  int64_t value = 0;
  std::memcpy(&value, locals_[local].host_word->data(), sizeof(value));
  return value;
}

Status Setup::WarmGroups(const Members& members, const HostDeadline& deadline) {
  const auto one = [](const Comm&) { return int64_t{1}; };
  MW_TRY(WithWords(members, one, deadline, [&](const Comm&, const Transfer& transfer) {
    return context_.library.AllReduce(transfer, RedOp::kSum);
  }));
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i] == nullptr || WordOf(i) == members[i]->size()) continue;
    return Internal(fmt::format("{}: the sum of {} ones is {}",
                                context_.NameOf(members[i]->rank(), members[i]->name()),
                                members[i]->size(), WordOf(i)));
  }
  return OkStatus();
}

Status Setup::WarmChannels(const Members& members, const HostDeadline& deadline) {
  const auto value_of = [](const Comm& comm) { return comm.position() == 0 ? kChannelWord : 0; };
  MW_TRY(WithWords(members, value_of, deadline, [&](const Comm& comm, const Transfer& word) {
    return comm.position() == 0 ? context_.library.Send(word, 1) : context_.library.Recv(word, 0);
  }));
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i] == nullptr || WordOf(i) == kChannelWord) continue;
    return Internal(fmt::format("{}: {:x} was sent, {:x} came",
                                context_.NameOf(members[i]->rank(), members[i]->name()),
                                kChannelWord, WordOf(i)));
  }
  return OkStatus();
}

Result<int64_t> Setup::MaxOverWorld(int64_t value, const HostDeadline& deadline) {
  const auto own = [value](const Comm&) { return value; };
  MW_TRY(WithWords(Worlds(), own, deadline, [&](const Comm&, const Transfer& transfer) {
    return context_.library.AllReduce(transfer, RedOp::kMax);
  }));
  return WordOf(0);
}

// A block is an i64 length and so many bytes. The first local rank speaks for its process.
Result<std::vector<Declaration>> Setup::Exchange(const std::vector<Link>& own,
                                                 const HostDeadline& deadline) {
  const std::string text = EncodeLinks(own);
  MW_ASSIGN_OR_RETURN(const int64_t longest,
                      MaxOverWorld(static_cast<int64_t>(text.size()), deadline));
  if (longest == 0) return std::vector<Declaration>();
  const int64_t block = device::AlignUp(kWordBytes + longest, kWordBytes);
  const int64_t total = block * locals_[0].world->size();
  for (Local& local : locals_) {
    MW_ASSIGN_OR_RETURN(auto both, local.device->Allocate({ir::MemoryKind::kOther, block + total}));
    MW_ASSIGN_OR_RETURN(auto pinned, local.device->AllocateHost(total));
    const bool speaks = &local == &locals_.front();
    const int64_t length = speaks ? static_cast<int64_t>(text.size()) : 0;
    std::memcpy(pinned->data(), &length, sizeof(length));
    std::memcpy(pinned->data() + kWordBytes, text.data(), static_cast<size_t>(length));
    MW_TRY(local.queue->CopyIn(both->data(), pinned->data(), block));
    gathered_.push_back(std::move(both));
    gathered_on_host_.push_back(std::move(pinned));
  }
  MW_TRY(Together("gathering groups and channels", [&](Local& local) {
    std::byte* data = gathered_[static_cast<size_t>(&local - locals_.data())]->data();
    return local.world->Judge("gathering",
                              context_.library.AllGather({.input = data,
                                                          .output = data + block,
                                                          .count = static_cast<size_t>(block),
                                                          .type = DataType::kUint8,
                                                          .comm = local.world->handle(),
                                                          .stream = local.queue->native()}));
  }));
  for (Local& local : locals_) MW_TRY(local.world->Await("gathering", deadline));
  const std::byte* const blocks = gathered_[0]->data() + block;
  MW_TRY(locals_[0].queue->CopyOut(gathered_on_host_[0]->data(), blocks, total));
  MW_TRY(Finish("gathering groups and channels", deadline));
  auto declarations =
      ParseBlocks(context_.fabric.options.members, gathered_on_host_[0]->data(), block);
  gathered_.clear();
  gathered_on_host_.clear();
  return declarations;
}

Result<Setup::Members> Setup::SplitRound(const Round& round, const Family& family,
                                         const HostDeadline& deadline) {
  Members made;
  MW_TRY(Together("splitting", [&](Local& local) {
    const int color = round.ColorOf(local.rank);
    Comm* comm = nullptr;
    CommHandle* slot = nullptr;
    if (color < 0) {
      slot = context_.Spare();
    } else {
      const Part& part = round.parts[static_cast<size_t>(color)];
      comm = &context_.Add(std::make_unique<Comm>(
          context_, Comm::Shape{family.prefix + part.name, local.rank, round.KeyOf(local.rank),
                                static_cast<int>(part.ranks.size()), local.device}));
      comm->Started();
      slot = comm->slot();
    }
    made.push_back(comm);
    Comm& parent = *(local.*family.parent);
    const Code code =
        context_.library.CommSplit(parent.handle(), color < 0 ? kNoColor : color,
                                   std::max(0, round.KeyOf(local.rank)), slot, family.options);
    return parent.Judge("splitting", code);
  }));
  // The parent first: only then is the child's handle there.
  for (Local& local : locals_) MW_TRY((local.*family.parent)->Await("splitting", deadline));
  for (Comm* comm : made) {
    if (comm != nullptr) MW_TRY(comm->Await("making it", deadline));
  }
  return made;
}

Status Setup::MakeWires(const HostDeadline& deadline) {
  if (locals_[0].wires != nullptr) return OkStatus();
  const auto size = context_.fabric.options.members.size();
  Part all{"wires", std::vector<int>(size)};
  std::iota(all.ranks.begin(), all.ranks.end(), 0);
  MW_ASSIGN_OR_RETURN(const Members wires,
                      SplitRound({{all}}, {&Local::world, kOfWires, ""}, deadline));
  for (size_t i = 0; i < locals_.size(); ++i) locals_[i].wires = wires[i];
  return OkStatus();
}

Status Setup::Split(const SplitPlan& plan, const HostDeadline& deadline) {
  for (const Round& round : plan.groups) {
    MW_ASSIGN_OR_RETURN(const Members made,
                        SplitRound(round, {&Local::world, kOfGroups, "of group "}, deadline));
    MW_TRY(WarmGroups(made, deadline));
    for (size_t i = 0; i < locals_.size(); ++i) {
      const int color = round.ColorOf(locals_[i].rank);
      if (color < 0) continue;
      locals_[i].groups[round.parts[static_cast<size_t>(color)].ranks] = made[i];
    }
  }
  if (!plan.channels.empty()) MW_TRY(MakeWires(deadline));
  for (const Round& round : plan.channels) {
    MW_ASSIGN_OR_RETURN(const Members made,
                        SplitRound(round, {&Local::wires, kOfWires, "of channel "}, deadline));
    MW_TRY(WarmChannels(made, deadline));
    for (size_t i = 0; i < locals_.size(); ++i) {
      const int color = round.ColorOf(locals_[i].rank);
      if (color < 0) continue;
      locals_[i].channels[round.parts[static_cast<size_t>(color)].name] = made[i];
    }
  }
  return OkStatus();
}

// Children first: they may use what their parents have. One group of calls, since up to 2.26 a
// thread may have one call in progress.
Status Setup::Finalize(const HostDeadline& deadline) {
  std::vector<Comm*> comms = context_.comms();
  if (comms.empty()) return OkStatus();
  std::reverse(comms.begin(), comms.end());
  const auto finalize = [&](Local& local) {
    Status status;
    for (Comm* comm : comms) {
      if (status.ok() && comm->rank() == local.rank) status = comm->Finalize();
    }
    return status;
  };
  MW_TRY(Together("finalizing", finalize));
  for (Comm* comm : comms) MW_TRY(comm->Await("finalizing", deadline));
  return OkStatus();
}

void Setup::Release(bool leak) {
  for (Local& local : locals_) {
    if (local.word != nullptr) gathered_.push_back(std::move(local.word));
    if (local.host_word != nullptr) gathered_on_host_.push_back(std::move(local.host_word));
  }
  if (leak) {
    for (auto& memory : gathered_) (void)memory.release();
    for (auto& memory : gathered_on_host_) (void)memory.release();
  }
  gathered_.clear();
  gathered_on_host_.clear();
}

}  // namespace meshwright::collective::nccl
