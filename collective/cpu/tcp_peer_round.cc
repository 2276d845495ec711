// The rounds of TcpPeer: agreeing on pipes and attaching them.
#include <fmt/format.h>

#include "collective/cpu/tcp_peer.h"

namespace meshwright::collective {

bool TcpPeer::WantsSharedMemory() const {
  switch (context_.options.transport) {
    case Transport::kAuto:
      return info_.same_host;
    case Transport::kSharedMemory:
      return true;
    case Transport::kTcp:
      return false;
  }
  return false;
}

void TcpPeer::Advance() {
  if (state_ == State::kDeparted && ready_round_ != offered_round_) {
    events_.failed(Unavailable(fmt::format("{} closed its fabric", info_.name)));
  }
  if (state_ != State::kUp || ready_round_ == offered_round_) {
    return;
  }
  if (!info_.dial && !offer_sent_) {
    SendOffer();
  } else if (info_.dial && peer_offer_.has_value()) {
    const Manifest offer = std::move(*peer_offer_);
    peer_offer_.reset();
    AnswerOffer(offer);
  }
}

void TcpPeer::SendOffer() {
  Manifest offer{.round = offered_round_, .entries = entries_};
  region_note_.clear();
  if (WantsSharedMemory()) {
    Result<Region> region = Region::CreateShared(SharedRegionBytes(entries_));
    if (region.has_value()) {
      shared_ = std::move(*region);
      offer.offers_region = true;
      offer.region = shared_.handle();
    } else {
      region_note_ = region.error().message();
    }
  }
  offer.note = region_note_;
  if (WantsSharedMemory()) {
    if (ready_round_ == 0) {
      offer.memories = context_.memory.own().handles();
    }
    offer.board_region = board_region_;
    for (const BoardSpec& board : boards_) {
      if (board.offset >= 0) {
        offer.boards.push_back({board.key, board.offset});
      }
    }
  }
  offer_sent_ = true;
  link_->SendManifest(EncodeManifest(offer));
}

void TcpPeer::OnManifest(ByteView payload) {
  Result<Manifest> manifest = DecodeManifest(payload);
  if (!manifest.has_value()) {
    events_.failed(manifest.error().WithContext(fmt::format("connection to {}", info_.name)));
    return;
  }
  if (info_.dial) {
    peer_offer_ = std::move(*manifest);
    Advance();
  } else if (offer_sent_ && manifest->round == offered_round_ && ready_round_ != offered_round_) {
    CompleteOffer(*manifest);
  } else {
    events_.failed(DataLoss(fmt::format("{} answered round {}, this process is in round {}",
                                        info_.name, manifest->round, offered_round_)));
  }
}

// Dialing side.
void TcpPeer::AnswerOffer(const Manifest& offer) {
  Manifest answer{.round = offered_round_, .entries = entries_};
  Status status = ComparePipes(entries_, offer.entries, info_.name);
  if (status.ok() && offer.round != offered_round_) {
    status = DataLoss(fmt::format("{} offered round {}, this process is in round {}", info_.name,
                                  offer.round, offered_round_));
  }
  if (status.ok()) {
    const Status mapped = MapOffer(offer);
    answer.mapped_region = mapped.ok();
    answer.note = mapped.message();
    answer.mapped_boards = MapBoards(offer);
    if (ready_round_ == 0) {
      if (WantsSharedMemory()) {
        answer.memories = context_.memory.own().handles();
      }
      MapMemories(offer);
    }
    status = Attach(mapped.ok(), mapped.message());
  }
  if (!status.ok()) {
    events_.failed(status);
    return;
  }
  link_->SendManifest(EncodeManifest(answer));
  Ready();
}

// Boards that were offered but are not known here stay unused on both sides.
bool TcpPeer::MapBoards(const Manifest& offer) {
  if (!WantsSharedMemory() || offer.boards.empty()) {
    return false;
  }
  Result<Region> region = Region::OpenShared(offer.board_region);
  if (!region.has_value()) {
    return false;
  }
  size_t attached = 0;
  for (const BoardSpec& board : boards_) {
    for (const BoardEntry& entry : offer.boards) {
      const bool fits = entry.offset >= 0 && entry.offset % 64 == 0 &&
                        board.bytes <= region->bytes() &&
                        entry.offset <= region->bytes() - board.bytes;
      if (board.offset < 0 && entry.key == board.key && fits) {
        board.attach(region->data() + entry.offset);
        ++attached;
      }
    }
  }
  regions_.push_back(std::move(*region));
  return attached == offer.boards.size();
}

void TcpPeer::MapMemories(const Manifest& manifest) {
  PeerMemory memory{.complete = WantsSharedMemory(), .departed = &departed_};
  for (size_t i = 0; i < manifest.memories.size() && memory.complete; ++i) {
    Result<Region> region = Region::OpenShared(manifest.memories[i]);
    memory.complete = region.has_value();
    if (region.has_value()) {
      memory.regions.push_back(std::move(*region));
    }
  }
  context_.memory.AddPeer(info_.process_id, std::move(memory));
}

Status TcpPeer::MapOffer(const Manifest& offer) {
  if (!WantsSharedMemory()) {
    return FailedPrecondition("this side does not want shared memory");
  }
  if (!offer.offers_region) {
    return FailedPrecondition(
        fmt::format("{} offered none: {}", info_.name,
                    offer.note.empty() ? "it does not want shared memory" : offer.note));
  }
  if (offer.region.bytes < SharedRegionBytes(entries_)) {
    return DataLoss(fmt::format("{} offered {} bytes, {} are needed", info_.name,
                                offer.region.bytes, SharedRegionBytes(entries_)));
  }
  MW_ASSIGN_OR_RETURN(shared_, Region::OpenShared(offer.region));
  return OkStatus();
}

// Listening side.
void TcpPeer::CompleteOffer(const Manifest& answer) {
  Status status = ComparePipes(entries_, answer.entries, info_.name);
  if (status.ok()) {
    shared_.CloseDescriptor();
    const bool shared = answer.mapped_region && shared_.data() != nullptr;
    boards_mapped_ = answer.mapped_boards;
    if (ready_round_ == 0) {
      MapMemories(answer);
    }
    status = Attach(shared, region_note_.empty() ? answer.note : region_note_);
  }
  if (!status.ok()) {
    events_.failed(status);
    return;
  }
  Ready();
}

// note: why the pipes are not shared.
Status TcpPeer::Attach(bool shared, const std::string& note) {
  if (!shared && context_.options.transport == Transport::kSharedMemory) {
    return FailedPrecondition(fmt::format(
        "no shared memory with {}: {}; run both on one host and in one container, or use transport "
        "auto",
        info_.name, note));
  }
  std::vector<SlotRing> rings;
  if (shared) {
    rings = LayOutRings(shared_, entries_);
    regions_.push_back(std::move(shared_));
  }
  shared_ = Region();
  for (size_t i = 0; i < pipes_.size(); ++i) {
    PipeSpec& pipe = pipes_[i];
    PipeWiring wiring{.departed = &departed_};
    if (shared) {
      wiring.ring = rings[i];
      wiring.patience = context_.patience;
    } else {
      const ManifestEntry& entry = entries_[i];
      MW_ASSIGN_OR_RETURN(Region region, Region::Private(SlotRing::Bytes(entry.shape)));
      wiring.ring = SlotRing(region.data(), entry.shape);
      wiring.doorbell = pipe.sender != nullptr ? link_->AddOutgoing(entry.key, wiring.ring)
                                               : link_->AddIncoming(entry.key, wiring.ring);
      regions_.push_back(std::move(region));
    }
    if (pipe.sender != nullptr) {
      pipe.sender->Attach(wiring);
    } else {
      pipe.receiver->Attach(wiring);
    }
  }
  transport_ = shared ? "shared_memory" : "tcp";
  return OkStatus();
}

void TcpPeer::Ready() {
  ready_round_ = offered_round_;
  pipes_.clear();
  events_.changed();
}

}  // namespace meshwright::collective
