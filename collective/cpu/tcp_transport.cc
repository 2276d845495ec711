#include "collective/cpu/tcp_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "base/mutex.h"
#include "collective/cpu/fabric_port.h"
#include "collective/cpu/tcp_peer.h"

namespace meshwright::collective {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kCloseMs(2'000);       // for flushing committed messages
constexpr milliseconds kCloseAbortedMs(500);  // for flushing the cause
constexpr milliseconds kBroadcastMs(200);  // the loop never blocks; this is for a starved machine

}  // namespace

class TcpTransport::Impl final : public FabricPort {
 public:
  Impl(FabricContext& context, std::shared_ptr<FabricListener> listener);
  ~Impl() override;
  Status Register() { return listener_->Register(this); }

  Status AddPipe(int peer_rank, const PipeSpec& pipe);
  void AddBoard(BoardPlan plan) {
    const MutexLock lock(offer_mutex_);
    new_boards_.push_back(std::move(plan));
  }
  Status Connect(int64_t timeout_ms);
  void Broadcast(const Status& cause);
  const char* transport(int rank);

  const Identity& identity() const override { return identity_; }
  bool Expects(uint64_t process_id) const override { return peers_.count(process_id) > 0; }
  void Adopt(UniqueFd fd, const Hello& hello) override;
  void NoteRefusal(const Status& why) override;

 private:
  struct Peer {
    std::unique_ptr<TcpPeer> tcp;  // loop only
    uint32_t offered_round = 0;    // of the caller of Connect
  };

  // What the loop tells of a peer.
  struct Told {
    uint32_t ready_round = 0;
    bool boards_mapped = false;
    bool finished = true;
    const char* transport = "none";
    std::string problem;
  };

  // A board that this process offers, and the processes that it offers it to.
  struct HostedBoard {
    Board board;
    std::vector<uint64_t> processes;
  };

  void MakePeers();
  bool Hosts(const BoardPlan& plan);
  uint64_t ProcessOf(int rank) const;
  std::vector<HostedBoard> OfferBoards() MW_REQUIRES(offer_mutex_);
  // All rounds are ready.
  void DecideBoards(const std::vector<HostedBoard>& boards) MW_REQUIRES(mutex_);
  void Publish(uint64_t process_id);
  std::string DescribeMissing() MW_REQUIRES(mutex_);
  bool AllReady() MW_REQUIRES(mutex_);
  bool AllFinished() MW_REQUIRES(mutex_);

  FabricContext& context_;
  std::shared_ptr<FabricListener> listener_;
  Identity identity_;
  int own_first_ = -1;                 // rank
  std::vector<Region> board_regions_;  // of the caller of Connect
  TcpLoop loop_;
  // By process; the maps themselves are constant after construction.
  std::map<uint64_t, Peer> peers_;
  Mutex offer_mutex_;  // leaf lock
  std::map<uint64_t, PeerOffer> offers_ MW_GUARDED_BY(offer_mutex_);
  std::vector<BoardPlan> new_boards_ MW_GUARDED_BY(offer_mutex_);
  std::set<uint64_t> keys_ MW_GUARDED_BY(offer_mutex_);
  Mutex mutex_;  // leaf lock
  CondVar changed_;
  std::map<uint64_t, Told> told_ MW_GUARDED_BY(mutex_);
  std::string last_refusal_ MW_GUARDED_BY(mutex_);
};

TcpTransport::Impl::Impl(FabricContext& context, std::shared_ptr<FabricListener> listener)
    : context_(context), listener_(std::move(listener)), loop_([&context](const std::string& what) {
        context.abort(Internal(fmt::format("the network loop of the fabric failed: {}", what)));
      }) {
  const FabricOptions& options = context.options;
  const auto local = static_cast<size_t>(options.local_ranks.front());
  identity_ = {options.cluster_id, options.generation.value(), options.members[local].process_id,
               options.secret};
  MakePeers();
}

void TcpTransport::Impl::MakePeers() {
  const std::vector<Member>& members = context_.options.members;
  std::map<uint64_t, PeerInfo> infos;
  std::string own_host;
  for (size_t rank = 0; rank < members.size(); ++rank) {
    const Member& member = members[rank];
    if (member.process_id == identity_.process_id) {
      own_first_ = own_first_ < 0 ? static_cast<int>(rank) : own_first_;
      own_host = member.host_id;
      continue;
    }
    PeerInfo& info = infos[member.process_id];
    info.process_id = member.process_id;
    info.address = member.address;
    info.ranks.push_back(static_cast<int>(rank));
  }
  for (auto& [process_id, info] : infos) {
    const std::string& host = members[static_cast<size_t>(info.ranks[0])].host_id;
    info.name = context_.RanksName(info.ranks);
    info.dial = info.ranks[0] < own_first_;
    info.same_host = !host.empty() && host == own_host;
    PeerEvents events{.failed = [this](const Status& cause) { context_.abort(cause); },
                      .problem =
                          [this, process = process_id](const std::string& text) {
                            const MutexLock lock(mutex_);
                            told_.at(process).problem = text;
                          },
                      .changed = [this, process = process_id] { Publish(process); }};
    {
      const MutexLock lock(mutex_);
      told_.try_emplace(process_id);
    }
    peers_[process_id].tcp =
        std::make_unique<TcpPeer>(std::move(info), context_, loop_, std::move(events));
  }
}

TcpTransport::Impl::~Impl() {
  listener_->Unregister(this);
  loop_.Post([this] {
    for (auto& [id, peer] : peers_) {
      peer.tcp->BeginClose();
    }
  });
  {
    const MutexLock lock(mutex_);
    const auto due = steady_clock::now() + (context_.latch.stopped() ? kCloseAbortedMs : kCloseMs);
    while (!AllFinished() && changed_.WaitUntil(mutex_, due)) {
    }
  }
  loop_.Stop();
}

bool TcpTransport::Impl::AllFinished() {
  return std::all_of(told_.begin(), told_.end(),
                     [](const auto& entry) { return entry.second.finished; });
}

bool TcpTransport::Impl::AllReady() {
  for (const auto& [process, peer] : peers_) {
    if (told_.at(process).ready_round != peer.offered_round) return false;
  }
  return true;
}

void TcpTransport::Impl::Publish(uint64_t process_id) {
  const TcpPeer& tcp = *peers_.at(process_id).tcp;
  const MutexLock lock(mutex_);
  Told& told = told_.at(process_id);
  told.ready_round = tcp.ready_round();
  told.boards_mapped = tcp.boards_mapped();
  told.finished = tcp.finished();
  told.transport = tcp.transport();
  changed_.NotifyAll();
}

uint64_t TcpTransport::Impl::ProcessOf(int rank) const {
  return context_.options.members[static_cast<size_t>(rank)].process_id;
}

Status TcpTransport::Impl::AddPipe(int peer_rank, const PipeSpec& pipe) {
  const MutexLock lock(offer_mutex_);
  if (!keys_.insert(pipe.entry.key).second) {
    return AlreadyExists(
        fmt::format("{} from rank {} to rank {} has the key of another pipe; "
                    "choose another name",
                    pipe.entry.name, pipe.entry.from_rank, pipe.entry.to_rank));
  }
  offers_[ProcessOf(peer_rank)].pipes.push_back(pipe);
  return OkStatus();
}

bool TcpTransport::Impl::Hosts(const BoardPlan& plan) {
  return std::all_of(plan.peer_ranks.begin(), plan.peer_ranks.end(), [&](int rank) {
    return own_first_ < peers_.at(ProcessOf(rank)).tcp->info().ranks[0];
  });
}

// Puts each new board into the offers to its processes; those offered here share one new region.
std::vector<TcpTransport::Impl::HostedBoard> TcpTransport::Impl::OfferBoards() {
  int64_t bytes = 0;
  for (const BoardPlan& plan : new_boards_) {
    bytes += Hosts(plan) ? Board::Bytes(plan.members) : 0;
  }
  Region region;
  if (bytes > 0) {
    Result<Region> created = Region::CreateShared(bytes);
    region = created.has_value() ? std::move(*created) : Region();
  }
  std::vector<HostedBoard> hosted;
  int64_t offset = 0;
  for (BoardPlan& plan : new_boards_) {
    const bool host = Hosts(plan);
    if (host && region.data() == nullptr) {
      continue;  // no shared memory: the group uses its pipes
    }
    BoardSpec spec{PipeKey(plan.name, -1, -1), Board::Bytes(plan.members), host ? offset : -1,
                   plan.attach};
    if (host) {
      hosted.push_back({Board(region.data() + offset, plan.members), {}});
      plan.attach(region.data() + offset);
      offset += spec.bytes;
    }
    std::set<uint64_t> processes;
    for (const int rank : plan.peer_ranks) {
      processes.insert(ProcessOf(rank));
    }
    for (const uint64_t process : processes) {
      PeerOffer& offer = offers_[process];
      offer.boards.push_back(spec);
      offer.board_region = host ? region.handle() : offer.board_region;
    }
    if (host) {
      hosted.back().processes.assign(processes.begin(), processes.end());
    }
  }
  new_boards_.clear();
  board_regions_.push_back(std::move(region));
  return hosted;
}

void TcpTransport::Impl::DecideBoards(const std::vector<HostedBoard>& boards) {
  for (const HostedBoard& hosted : boards) {
    const bool all =
        std::all_of(hosted.processes.begin(), hosted.processes.end(),
                    [this](uint64_t id) MW_REQUIRES(mutex_) { return told_.at(id).boards_mapped; });
    StoreAndWake(hosted.board.state(),
                 static_cast<uint32_t>(all ? BoardState::kInUse : BoardState::kRefused));
  }
}

Status TcpTransport::Impl::Connect(int64_t timeout_ms) {
  std::vector<HostedBoard> boards;
  {
    const MutexLock lock(offer_mutex_);
    boards = OfferBoards();
    for (auto& [process, offer] : offers_) {
      if (offer.pipes.empty()) continue;
      Peer& peer = peers_.at(process);
      ++peer.offered_round;
      loop_.Post([tcp = peer.tcp.get(), offer = std::exchange(offer, {})]() mutable {
        tcp->Offer(std::move(offer));
      });
    }
  }
  const MutexLock lock(mutex_);
  const auto due = steady_clock::now() + milliseconds(timeout_ms);
  const auto ended = [&]() MW_REQUIRES(mutex_) {
    return AllReady() || !context_.latch.status().ok();
  };
  while (!ended() && changed_.WaitUntil(mutex_, due)) {
  }
  if (const Status cause = context_.latch.status(); !cause.ok()) {
    return cause;
  }
  if (!AllReady()) {
    return DeadlineExceeded(fmt::format("{} did not come within {} ms of connecting generation {}",
                                        DescribeMissing(), timeout_ms, identity_.generation));
  }
  board_regions_.back().CloseDescriptor();
  DecideBoards(boards);
  return OkStatus();
}

std::string TcpTransport::Impl::DescribeMissing() {
  std::vector<std::string> missing;
  for (const auto& [id, peer] : peers_) {
    const Told& told = told_.at(id);
    if (told.ready_round != peer.offered_round) {
      const PeerInfo& info = peer.tcp->info();
      missing.push_back(told.problem.empty() ? fmt::format("{} at {}", info.name, info.address)
                                             : fmt::format("{} at {} (last attempt: {})", info.name,
                                                           info.address, told.problem));
    }
  }
  const std::string refusal =
      last_refusal_.empty() ? ""
                            : fmt::format(" (a connection was refused here: {})", last_refusal_);
  return fmt::format("{}{}", fmt::join(missing, ", "), refusal);
}

void TcpTransport::Impl::Broadcast(const Status& cause) {
  const auto send = [this, cause] {
    for (auto& [id, peer] : peers_) {
      peer.tcp->SendAbort(cause);
    }
  };
  if (loop_.InLoop()) {
    send();
  } else {
    const auto done = std::make_shared<std::atomic<bool>>(false);
    loop_.Post([this, send, done] {
      send();
      const MutexLock lock(mutex_);
      done->store(true);
      changed_.NotifyAll();
    });
    const MutexLock lock(mutex_);
    const auto due = steady_clock::now() + kBroadcastMs;
    while (!done->load() && changed_.WaitUntil(mutex_, due)) {
    }
  }
  const MutexLock lock(mutex_);
  changed_.NotifyAll();  // Connect() looks at the latch
}

const char* TcpTransport::Impl::transport(int rank) {
  const MutexLock lock(mutex_);
  return told_.at(ProcessOf(rank)).transport;
}

void TcpTransport::Impl::Adopt(UniqueFd fd, const Hello& hello) {
  TcpPeer* peer = peers_.at(hello.from_process).tcp.get();
  loop_.Post([peer, fd = std::move(fd)]() mutable { peer->Adopt(std::move(fd)); });
}

void TcpTransport::Impl::NoteRefusal(const Status& why) {
  const MutexLock lock(mutex_);
  last_refusal_ = why.message();
}

TcpTransport::TcpTransport(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TcpTransport::~TcpTransport() = default;

Result<std::unique_ptr<TcpTransport>> TcpTransport::Make(FabricContext& context,
                                                         std::shared_ptr<Listener> listener) {
  auto of_fabrics = std::dynamic_pointer_cast<FabricListener>(std::move(listener));
  if (of_fabrics == nullptr) {
    return Fail(
        InvalidArgument("some ranks live in other processes: a listener from MakeListener() or "
                        "MakeRelayedListener() is needed"));
  }
  context.tls = of_fabrics->tls();
  auto impl = std::make_unique<Impl>(context, std::move(of_fabrics));
  MW_TRY(impl->Register());
  return std::unique_ptr<TcpTransport>(new TcpTransport(std::move(impl)));
}

Status TcpTransport::AddPipe(int peer_rank, const PipeSpec& pipe) {
  return impl_->AddPipe(peer_rank, pipe);
}
void TcpTransport::AddBoard(BoardPlan plan) { impl_->AddBoard(std::move(plan)); }
Status TcpTransport::Connect(int64_t timeout_ms) { return impl_->Connect(timeout_ms); }
void TcpTransport::Broadcast(const Status& cause) { impl_->Broadcast(cause); }
const char* TcpTransport::transport(int rank) const { return impl_->transport(rank); }

}  // namespace meshwright::collective
