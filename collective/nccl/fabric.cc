#include "collective/nccl/fabric.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <set>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "collective/arguments.h"
#include "collective/nccl/channel.h"
#include "collective/nccl/group.h"
#include "collective/nccl/invitation.h"
#include "collective/nccl/setup.h"

namespace meshwright::collective::nccl {
namespace {

constexpr int64_t kFinalizeTimeoutMs = 5'000;
constexpr int64_t kPollIntervalMs = 10;

class NcclFabric final : public Fabric {
 public:
  NcclFabric(std::shared_ptr<Context> context, std::vector<Local> locals, Combiner& combiner);
  ~NcclFabric() override { (void)NcclFabric::Close(); }
  // Asks for versions, and ids if rank 0 is here.
  Status Start(const NcclParts& parts);

  Result<std::map<int, Group*>> MakeGroup(const std::string& name, std::vector<int> ranks) override;
  Result<Ends> MakeChannel(const std::string& name, int from_rank, int to_rank, int capacity,
                           int64_t max_message_bytes) override;
  Status Share(const device::Memory& memory) override;
  Result<std::string> Invitation() override { return FormatInvitation(invitation_); }
  Status Accept(const std::vector<std::string>& invitations) override;
  Status Connect() override;
  void Abort(const Status& cause) override;
  Status status() const override { return context_->fabric.latch.status(); }
  Status Poll() override;
  bool Close() override;
  const char* backend() const override { return "nccl"; }
  const char* transport(int rank) const override;

 private:
  const FabricOptions& options() const { return context_->fabric.options; }
  Local* Find(int rank);
  // All that were made; they live as long as the fabric.
  std::vector<NcclGroup*> Groups() const;
  std::vector<NcclChannel*> Channels() const;
  Status ConnectAll() MW_REQUIRES(connect_mutex_);
  Status AttachAll();
  Status FinalizeAll();
  bool DrainChannels(const HostDeadline& deadline);

  const std::shared_ptr<Context> context_;
  Combiner& combiner_;
  nccl::Invitation invitation_;  // of this process; immutable after Start()
  std::atomic<bool> aborting_{false};
  std::atomic<bool> connecting_{false};  // Connect() was called
  std::atomic<bool> connected_{false};
  std::atomic<int64_t> next_poll_ms_{0};
  Mutex close_mutex_ MW_ACQUIRED_BEFORE(connect_mutex_, mutex_);
  bool closed_ MW_GUARDED_BY(close_mutex_) = false;
  bool ended_ MW_GUARDED_BY(close_mutex_) = false;  // Close() left nothing in the devices

  // Of the communicators' making. Close(), which comes behind it, uses what is made without.
  Mutex connect_mutex_ MW_ACQUIRED_BEFORE(mutex_);
  std::vector<Local> locals_;
  Setup setup_;
  std::set<std::vector<int>> known_ MW_GUARDED_BY(connect_mutex_);  // with a communicator

  mutable Mutex mutex_;
  std::vector<UniqueId> ids_ MW_GUARDED_BY(mutex_);
  std::set<std::string> group_names_ MW_GUARDED_BY(mutex_);
  std::set<std::string> channel_names_ MW_GUARDED_BY(mutex_);
  std::vector<Link> pending_ MW_GUARDED_BY(mutex_);
  std::vector<std::pair<int, NcclGroup*>> pending_groups_
      MW_GUARDED_BY(mutex_);  // by index of the local rank
  std::vector<std::pair<int, NcclChannel*>> pending_channels_ MW_GUARDED_BY(mutex_);  // likewise
  std::vector<std::unique_ptr<NcclGroup>> groups_ MW_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<NcclChannel>> channels_ MW_GUARDED_BY(mutex_);
};

NcclFabric::NcclFabric(std::shared_ptr<Context> context, std::vector<Local> locals,
                       Combiner& combiner)
    : context_(std::move(context)),
      combiner_(combiner),
      locals_(std::move(locals)),
      setup_(*context_, locals_) {
  context_->fabric.abort = [this](const Status& cause) { Abort(cause); };
  std::vector<int> all(options().members.size());
  std::iota(all.begin(), all.end(), 0);
  known_.insert(all);
}

Status NcclFabric::Start(const NcclParts& parts) {
  invitation_.worker = options().members[static_cast<size_t>(locals_[0].rank)].worker;
  for (const Local& local : locals_) invitation_.ranks.push_back(local.rank);
  invitation_.generation = static_cast<int64_t>(options().generation.value());
  invitation_.driver = parts.cuda_driver;
  invitation_.runtime = parts.cuda_runtime;
  Library& library = context_->library;
  Code code = library.GetVersion(&invitation_.nccl);
  const int ids = locals_[0].rank == 0 ? IdCount(static_cast<int>(options().members.size())) : 0;
  for (int i = 0; i < ids && code == Code::kSuccess; ++i) {
    code = library.GetUniqueId(&invitation_.ids.emplace_back());
  }
  return code == Code::kSuccess
             ? OkStatus()
             : ErrorOf(library, code, fmt::format("{}: starting NCCL", invitation_.worker));
}

bool NcclFabric::Close() {
  const MutexLock lock(close_mutex_);
  if (std::exchange(closed_, true)) return ended_;
  if (const Status done = FinalizeAll(); done.ok()) {
    context_->StartDestroy();
  } else {
    // Again when another thread began it: that may not have got to the communicators yet.
    Abort(done.WithContext("closing the fabric"));
    context_->StartAbort();
  }
  const auto deadline = HostDeadline::After(context_->timing.end_ms);
  ended_ = context_->AwaitEnd(deadline.remaining_ms());
  if (!ended_) LogError("NCCL did not end its communicators in time; their memory stays taken");
  ended_ = ended_ && DrainChannels(deadline);
  for (NcclGroup* group : Groups()) group->Release(!ended_);
  for (NcclChannel* channel : Channels()) channel->Release(!ended_);
  setup_.Release(!ended_);
  return ended_;
}

Status NcclFabric::FinalizeAll() {
  MW_TRY(status());
  const HostDeadline sent = context_->OperationDeadline();
  for (NcclChannel* channel : Channels()) {
    MW_TRY(channel->Drain(sent, [this] { return Poll(); }));
  }
  return setup_.Finalize(context_->After(kFinalizeTimeoutMs));
}

// What an abort ends leaves the queues soon, but not at once: no memory is freed under it.
bool NcclFabric::DrainChannels(const HostDeadline& deadline) {
  const bool drained = std::ranges::all_of(Channels(), [&](NcclChannel* channel) {
    return channel->Drain(deadline, [] { return OkStatus(); }).code() !=
           StatusCode::kDeadlineExceeded;
  });
  if (!drained) LogError("channels did not end their work in time; their memory stays taken");
  return drained;
}

std::vector<NcclGroup*> NcclFabric::Groups() const {
  const MutexLock lock(mutex_);
  std::vector<NcclGroup*> all;
  for (const auto& group : groups_) all.push_back(group.get());
  return all;
}

std::vector<NcclChannel*> NcclFabric::Channels() const {
  const MutexLock lock(mutex_);
  std::vector<NcclChannel*> all;
  for (const auto& channel : channels_) all.push_back(channel.get());
  return all;
}

Local* NcclFabric::Find(int rank) {
  const auto it = std::find_if(locals_.begin(), locals_.end(),
                               [rank](const Local& local) { return local.rank == rank; });
  return it == locals_.end() ? nullptr : &*it;
}

Result<std::map<int, Group*>> NcclFabric::MakeGroup(const std::string& name,
                                                    std::vector<int> ranks) {
  const MutexLock lock(mutex_);
  MW_TRY(CheckGroup(options(), name, ranks));
  if (!group_names_.insert(name).second) {
    return Fail(AlreadyExists(fmt::format("this fabric already has a group {}", name)));
  }
  std::map<int, Group*> made;
  for (size_t i = 0; i < ranks.size(); ++i) {
    Local* local = Find(ranks[i]);
    if (local == nullptr) continue;
    groups_.push_back(std::make_unique<NcclGroup>(name, ranks, static_cast<int>(i), *context_,
                                                  *local, combiner_));
    made.emplace(ranks[i], groups_.back().get());
    if (ranks.size() == 1) continue;
    pending_groups_.emplace_back(static_cast<int>(local - locals_.data()), groups_.back().get());
  }
  if (!made.empty() && ranks.size() > 1) {
    pending_.push_back({Link::Kind::kGroup, name, std::move(ranks), 0, 0});
  }
  return made;
}

Result<Fabric::Ends> NcclFabric::MakeChannel(const std::string& name, int from_rank, int to_rank,
                                             int capacity, int64_t max_message_bytes) {
  const MutexLock lock(mutex_);
  MW_TRY(CheckChannel(options(), {name, from_rank, to_rank, capacity, max_message_bytes}));
  if (from_rank == to_rank) {
    return Fail(InvalidArgument(
        fmt::format("channel {}: NCCL does not send from rank {} to itself", name, from_rank)));
  }
  if (!channel_names_.insert(name).second) {
    return Fail(AlreadyExists(fmt::format("this fabric already has a channel {}", name)));
  }
  const NcclChannel::Shape shape{name, capacity, max_message_bytes};
  const auto add = [&](std::unique_ptr<NcclChannel> end, const Local* local) MW_REQUIRES(mutex_) {
    channels_.push_back(std::move(end));
    pending_channels_.emplace_back(static_cast<int>(local - locals_.data()),
                                   channels_.back().get());
    return channels_.back().get();
  };
  Ends ends;
  if (const Local* local = Find(from_rank)) {
    ends.sender = add(std::make_unique<NcclSender>(*context_, *local, shape), local);
  }
  if (const Local* local = Find(to_rank)) {
    ends.receiver = add(std::make_unique<NcclReceiver>(*context_, *local, shape), local);
  }
  pending_.push_back(
      {Link::Kind::kChannel, name, {from_rank, to_rank}, capacity, max_message_bytes});
  return ends;
}

// NCCL maps memory of the same host itself.
Status NcclFabric::Share(const device::Memory& /*memory*/) {
  if (!connecting_.load()) return OkStatus();
  return FailedPrecondition("share memory before Connect(), which tells the peers of it");
}

Status NcclFabric::Accept(const std::vector<std::string>& invitations) {
  std::vector<nccl::Invitation> parsed;
  for (const std::string& text : invitations) {
    MW_ASSIGN_OR_RETURN(parsed.emplace_back(), ParseInvitation(text));
  }
  MW_ASSIGN_OR_RETURN(std::vector<UniqueId> ids,
                      CheckInvitations(parsed, static_cast<int>(options().members.size())));
  const MutexLock lock(mutex_);
  ids_ = std::move(ids);
  return OkStatus();
}

Status NcclFabric::Connect() {
  const MutexLock lock(connect_mutex_);
  if (const Status cause = status(); !cause.ok()) return cause;
  const Status done = ConnectAll();
  if (done.ok()) return done;
  Abort(done);
  return status();
}

Status NcclFabric::ConnectAll() {
  const bool first = !connecting_.exchange(true);
  const HostDeadline deadline = context_->ConnectDeadline(first);
  if (options().members.size() == 1) return OkStatus();
  std::vector<Link> own;
  std::vector<UniqueId> ids;
  {
    const MutexLock lock(mutex_);
    own.swap(pending_);
    ids = ids_;
  }
  if (ids.empty()) {
    return FailedPrecondition("Connect() needs the invitations of all processes: Accept() first");
  }
  if (first) MW_TRY(setup_.InitWorld(ids, deadline));
  MW_ASSIGN_OR_RETURN(const auto declarations, setup_.Exchange(own, deadline));
  MW_ASSIGN_OR_RETURN(const auto links, MergeLinks(declarations, [this](int rank) {
                        return context_->fabric.RankName(rank);
                      }));
  MW_TRY(setup_.Split(PlanSplits(links, &known_), deadline));
  MW_TRY(AttachAll());
  connected_.store(true);
  return OkStatus();
}

Status NcclFabric::AttachAll() {
  const MutexLock lock(mutex_);
  for (const auto& [index, group] : std::exchange(pending_groups_, {})) {
    group->Attach(locals_[static_cast<size_t>(index)].groups.at(group->member_ranks()));
  }
  for (const auto& [index, channel] : std::exchange(pending_channels_, {})) {
    MW_TRY(channel->Attach(locals_[static_cast<size_t>(index)].channels.at(channel->name())));
  }
  return OkStatus();
}

void NcclFabric::Abort(const Status& cause) {
  const Status given = cause.ok() ? Cancelled("the fabric was aborted without a cause") : cause;
  (void)context_->fabric.latch.Record(given);
  context_->fabric.latch.Publish();
  if (!aborting_.exchange(true)) context_->StartAbort();
}

// While communicators are being made their maker looks at them.
Status NcclFabric::Poll() {
  const int64_t now_ms = context_->timing.clock->NowMs();
  int64_t next_ms = next_poll_ms_.load();
  if (now_ms < next_ms ||
      !next_poll_ms_.compare_exchange_strong(next_ms, now_ms + kPollIntervalMs)) {
    return status();
  }
  if (!connect_mutex_.TryLock()) return status();
  const MutexLock lock(connect_mutex_, AdoptLock{});
  for (Comm* comm : context_->comms()) {
    if (const Status state = comm->Check(); !state.ok()) {
      Abort(state);
      break;
    }
  }
  return status();
}

const char* NcclFabric::transport(int rank) const {
  if (rank < 0 || rank >= static_cast<int>(options().members.size())) return "none";
  const std::vector<int>& local = options().local_ranks;
  if (local.size() == 1 && local[0] == rank) return "memory";
  return connected_.load() ? "nccl" : "none";
}

Result<std::vector<Local>> CheckLocals(const FabricOptions& options, std::vector<LocalRank> ranks) {
  std::sort(ranks.begin(), ranks.end(),
            [](const LocalRank& a, const LocalRank& b) { return a.rank < b.rank; });
  std::vector<Local> locals;
  std::vector<int> given;
  for (const LocalRank& rank : ranks) {
    if (rank.device == nullptr || rank.collectives == nullptr) {
      return Fail(InvalidArgument(fmt::format("rank {} has no device or no queue", rank.rank)));
    }
    given.push_back(rank.rank);
    Local& local = locals.emplace_back();
    local.rank = rank.rank;
    local.device = rank.device;
    local.queue = rank.collectives;
  }
  if (given == options.local_ranks) return locals;
  return Fail(
      InvalidArgument(fmt::format("local_ranks are {}, devices were given for {}",
                                  fmt::join(options.local_ranks, ","), fmt::join(given, ","))));
}

}  // namespace
}  // namespace meshwright::collective::nccl

namespace meshwright::collective {

Result<std::unique_ptr<Fabric>> MakeNcclFabric(FabricOptions options, std::vector<LocalRank> ranks,
                                               const NcclParts& parts) {
  MW_TRY(CheckOptions(options));
  std::sort(options.local_ranks.begin(), options.local_ranks.end());
  MW_ASSIGN_OR_RETURN(std::vector<nccl::Local> locals,
                      nccl::CheckLocals(options, std::move(ranks)));
  auto context = std::make_shared<nccl::Context>(parts.library, std::move(options), parts.timing);
  auto fabric =
      std::make_unique<nccl::NcclFabric>(std::move(context), std::move(locals), parts.combiner);
  MW_TRY(fabric->Start(parts));
  return std::unique_ptr<Fabric>(std::move(fabric));
}

}  // namespace meshwright::collective
