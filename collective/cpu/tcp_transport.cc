#include "collective/cpu/tcp_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>

#include "base/check.h"
#include "collective/cpu/tcp_listener.h"
#include "collective/cpu/tcp_peer.h"

namespace meshwright::collective {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kCloseMs(2'000);       // for flushing committed messages
constexpr milliseconds kCloseAbortedMs(500);  // for flushing the cause
constexpr milliseconds kBroadcastMs(200);  // the loop never blocks; this is for a starved machine

}  // namespace

class TcpTransport::Impl final : public FabricPort {
 public:
  Impl(FabricContext& context, std::shared_ptr<TcpListener> listener);
  ~Impl() override;
  Status Register() { return listener_->Register(this); }

  Status AddPipe(int peer_rank, const PipeSpec& pipe);
  void AddBoard(BoardPlan plan) { new_boards_.push_back(std::move(plan)); }
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
    PeerOffer offer;               // of the caller of AddPipe and Connect
    uint32_t offered_round = 0;    // likewise
    // Guarded by mutex_: what the loop tells.
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
  std::vector<HostedBoard> OfferBoards();
  void DecideBoards(const std::vector<HostedBoard>& boards);
  void Publish(Peer& peer);
  Peer& PeerOf(int rank);
  std::string DescribeMissing();
  template <typename Done>
  bool WaitFor(std::unique_lock<std::mutex>& lock, milliseconds timeout, const Done& done) {
    return changed_.wait_for(lock, timeout, done);
  }

  FabricContext& context_;
  std::shared_ptr<TcpListener> listener_;
  Identity identity_;
  int own_first_ = -1;                 // rank
  std::vector<BoardPlan> new_boards_;  // of the caller of AddBoard and Connect
  std::vector<Region> board_regions_;  // likewise
  TcpLoop loop_;
  std::map<uint64_t, Peer> peers_;  // by process; the map itself is constant after construction
  std::set<uint64_t> keys_;
  std::mutex mutex_;  // leaf lock
  std::condition_variable changed_;
  std::string last_refusal_;  // guarded by mutex_
};

TcpTransport::Impl::Impl(FabricContext& context, std::shared_ptr<TcpListener> listener)
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
    Peer& peer = peers_[process_id];
    PeerEvents events{.failed = [this](const Status& cause) { context_.abort(cause); },
                      .problem =
                          [this, &peer](const std::string& text) {
                            const std::lock_guard<std::mutex> lock(mutex_);
                            peer.problem = text;
                          },
                      .changed = [this, &peer] { Publish(peer); }};
    peer.tcp = std::make_unique<TcpPeer>(std::move(info), context_, loop_, std::move(events));
  }
}

TcpTransport::Impl::~Impl() {
  listener_->Unregister(this);
  loop_.Post([this] {
    for (auto& [id, peer] : peers_) {
      peer.tcp->BeginClose();
    }
  });
  std::unique_lock<std::mutex> lock(mutex_);
  WaitFor(lock, context_.latch.stopped() ? kCloseAbortedMs : kCloseMs, [this] {
    return std::all_of(peers_.begin(), peers_.end(),
                       [](const auto& entry) { return entry.second.finished; });
  });
  lock.unlock();
  loop_.Stop();
}

void TcpTransport::Impl::Publish(Peer& peer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  peer.ready_round = peer.tcp->ready_round();
  peer.boards_mapped = peer.tcp->boards_mapped();
  peer.finished = peer.tcp->finished();
  peer.transport = peer.tcp->transport();
  changed_.notify_all();
}

TcpTransport::Impl::Peer& TcpTransport::Impl::PeerOf(int rank) {
  return peers_.at(context_.options.members[static_cast<size_t>(rank)].process_id);
}

Status TcpTransport::Impl::AddPipe(int peer_rank, const PipeSpec& pipe) {
  if (!keys_.insert(pipe.entry.key).second) {
    return AlreadyExists(
        fmt::format("{} from rank {} to rank {} has the key of another pipe; "
                    "choose another name",
                    pipe.entry.name, pipe.entry.from_rank, pipe.entry.to_rank));
  }
  PeerOf(peer_rank).offer.pipes.push_back(pipe);
  return OkStatus();
}

bool TcpTransport::Impl::Hosts(const BoardPlan& plan) {
  return std::all_of(plan.peer_ranks.begin(), plan.peer_ranks.end(),
                     [&](int rank) { return own_first_ < PeerOf(rank).tcp->info().ranks[0]; });
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
      processes.insert(PeerOf(rank).tcp->info().process_id);
    }
    for (const uint64_t process : processes) {
      PeerOffer& offer = peers_.at(process).offer;
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

// REQUIRES mutex_, all rounds ready.
void TcpTransport::Impl::DecideBoards(const std::vector<HostedBoard>& boards) {
  for (const HostedBoard& hosted : boards) {
    const bool all = std::all_of(hosted.processes.begin(), hosted.processes.end(),
                                 [this](uint64_t id) { return peers_.at(id).boards_mapped; });
    StoreAndWake(hosted.board.state(),
                 static_cast<uint32_t>(all ? BoardState::kInUse : BoardState::kRefused));
  }
}

Status TcpTransport::Impl::Connect(int64_t timeout_ms) {
  const std::vector<HostedBoard> boards = OfferBoards();
  for (auto& [id, peer] : peers_) {
    if (!peer.offer.pipes.empty()) {
      ++peer.offered_round;
      loop_.Post([tcp = peer.tcp.get(), offer = std::exchange(peer.offer, {})]() mutable {
        tcp->Offer(std::move(offer));
      });
    }
  }
  std::unique_lock<std::mutex> lock(mutex_);
  const auto all_ready = [this] {
    return std::all_of(peers_.begin(), peers_.end(), [](const auto& entry) {
      return entry.second.ready_round == entry.second.offered_round;
    });
  };
  const bool ended = WaitFor(lock, milliseconds(timeout_ms),
                             [&] { return all_ready() || !context_.latch.status().ok(); });
  if (const Status cause = context_.latch.status(); !cause.ok()) {
    return cause;
  }
  if (!ended) {
    return DeadlineExceeded(fmt::format("{} did not come within {} ms of connecting generation {}",
                                        DescribeMissing(), timeout_ms, identity_.generation));
  }
  board_regions_.back().CloseDescriptor();
  DecideBoards(boards);
  return OkStatus();
}

// REQUIRES mutex_.
std::string TcpTransport::Impl::DescribeMissing() {
  std::vector<std::string> missing;
  for (const auto& [id, peer] : peers_) {
    if (peer.ready_round != peer.offered_round) {
      const PeerInfo& info = peer.tcp->info();
      missing.push_back(peer.problem.empty() ? fmt::format("{} at {}", info.name, info.address)
                                             : fmt::format("{} at {} (last attempt: {})", info.name,
                                                           info.address, peer.problem));
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
      const std::lock_guard<std::mutex> lock(mutex_);
      done->store(true);
      changed_.notify_all();
    });
    std::unique_lock<std::mutex> lock(mutex_);
    WaitFor(lock, kBroadcastMs, [&] { return done->load(); });
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  changed_.notify_all();  // Connect() looks at the latch
}

const char* TcpTransport::Impl::transport(int rank) {
  Peer& peer = PeerOf(rank);
  const std::lock_guard<std::mutex> lock(mutex_);
  return peer.transport;
}

void TcpTransport::Impl::Adopt(UniqueFd fd, const Hello& hello) {
  TcpPeer* peer = peers_.at(hello.from_process).tcp.get();
  loop_.Post([peer, fd = std::move(fd)]() mutable { peer->Adopt(std::move(fd)); });
}

void TcpTransport::Impl::NoteRefusal(const Status& why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  last_refusal_ = why.message();
}

TcpTransport::TcpTransport(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TcpTransport::~TcpTransport() = default;

Result<std::unique_ptr<TcpTransport>> TcpTransport::Make(FabricContext& context,
                                                         std::shared_ptr<Listener> listener) {
  auto tcp_listener = std::dynamic_pointer_cast<TcpListener>(std::move(listener));
  if (tcp_listener == nullptr) {
    return Fail(InvalidArgument(
        "some ranks live in other processes: a listener from MakeListener() is needed"));
  }
  auto impl = std::make_unique<Impl>(context, std::move(tcp_listener));
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
