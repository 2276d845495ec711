#include "collective/cpu/tcp_peer.h"

#include <fmt/format.h>

namespace meshwright::collective {

TcpPeer::TcpPeer(PeerInfo info, FabricContext& context, TcpLoop& loop, PeerEvents events)
    : info_(std::move(info)), context_(context), loop_(loop), events_(std::move(events)) {}

void TcpPeer::SetState(State state) {
  state_ = state;
  events_.changed();
}

void TcpPeer::Offer(PeerOffer offer) {
  pipes_ = std::move(offer.pipes);
  entries_ = ListPipes(pipes_);
  boards_ = std::move(offer.boards);
  board_region_ = offer.board_region;
  boards_mapped_ = false;
  ++offered_round_;
  offer_sent_ = false;
  if (state_ == State::kIdle && info_.dial) {
    Dial();
  } else {
    Advance();
  }
}

void TcpPeer::Dial() {
  const FabricOptions& options = context_.options;
  const auto local = static_cast<size_t>(options.local_ranks.front());
  const Hello hello{options.cluster_id, options.secret, options.generation.value(),
                    options.members[local].process_id, info_.process_id};
  dialer_ = std::make_unique<TcpDialer>(
      loop_, info_.address, hello,
      TcpDialer::Callbacks{
          .welcomed = [this](TcpSocket socket) { ComeUp(std::move(socket), false); },
          .refused =
              [this](const Status& why) {
                events_.failed(why.WithContext(
                    fmt::format("{} at {} refused the connection", info_.name, info_.address)));
              },
          .attempt_failed = [this](const std::string& why) { events_.problem(why); }});
  SetState(State::kDialing);
  dialer_->Start();
}

void TcpPeer::Adopt(UniqueFd fd) {
  Result<TcpSocket> socket = AdoptSocket(loop_.io(), std::move(fd));
  if (!socket.has_value()) {
    events_.problem(socket.error().message());
    return;
  }
  if (state_ != State::kIdle || info_.dial) {
    const Bytes reply =
        EncodeReply({AlreadyExists("this process is already connected or dials itself"), 0});
    ErrorCode ignored;
    socket->non_blocking(true, ignored);
    socket->write_some(asio::buffer(reply), ignored);
    return;
  }
  ComeUp(std::move(*socket), true);
}

void TcpPeer::ComeUp(TcpSocket socket, bool welcome) {
  link_ = std::make_unique<TcpLink>(loop_, std::move(socket), *this);
  SetState(State::kUp);
  if (welcome) {
    const auto local = static_cast<size_t>(context_.options.local_ranks.front());
    link_->SendRaw(EncodeReply({OkStatus(), context_.options.members[local].process_id}));
  }
  link_->Start();
  if (const Status cause = context_.latch.status(); !cause.ok()) {
    SendAbort(cause);  // a late comer learns the cause at once
  }
  Advance();
}

void TcpPeer::SendAbort(const Status& cause) {
  if (dialer_ != nullptr && state_ == State::kDialing) {
    dialer_->Cancel();
  }
  if (state_ == State::kUp && !link_->closed()) {
    link_->SendAbort(cause);
  }
}

void TcpPeer::BeginClose() {
  if (dialer_ != nullptr && state_ == State::kDialing) {
    dialer_->Cancel();
  }
  if (state_ == State::kUp) {
    link_->SayGoodbye();
  }
}

void TcpPeer::OnPeerAbort(const Status& cause) { events_.failed(cause); }

void TcpPeer::OnGoodbye() {
  departed_.store(true);
  SetState(State::kDeparted);
  if (ready_round_ != offered_round_) {
    events_.failed(
        Unavailable(fmt::format("{} closed its fabric before it was connected", info_.name)));
  }
}

// The text is the same on every survivor, whether it saw an end of file or a reset.
void TcpPeer::OnLost(const Status& why) {
  SetState(State::kLost);
  if (why.code() == StatusCode::kUnavailable) {
    events_.failed(Unavailable(fmt::format("lost {}: its process or host died or was cut off; "
                                           "see that worker's log",
                                           info_.name))
                       .WithBlame(Blame::kInfra));
  } else {
    events_.failed(why.WithContext(fmt::format("connection to {}", info_.name)));
  }
}

void TcpPeer::OnClosed() { SetState(State::kDeparted); }

}  // namespace meshwright::collective
