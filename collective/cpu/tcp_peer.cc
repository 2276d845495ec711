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
      loop_, info_.address, hello, context_.tls,
      TcpDialer::Callbacks{
          .welcomed = [this](TcpStream stream) { ComeUp(std::move(stream), false); },
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
  const bool secure = context_.tls != nullptr;
  if (state_ != State::kIdle || info_.dial) {
    if (secure) return;  // it closes, before it was believed
    const Bytes reply =
        EncodeReply({AlreadyExists("this process is already connected or dials itself"), 0});
    ErrorCode ignored;
    socket->non_blocking(true, ignored);
    socket->write_some(asio::buffer(reply), ignored);
    return;
  }
  if (secure) {
    AdoptSecurely(std::move(*socket));
  } else {
    ComeUp(TcpStream(std::move(*socket)), true);
  }
}

// The port has believed it; so must this process. Of two that are not through yet the later counts:
// who dials anew has given the other up.
void TcpPeer::AdoptSecurely(TcpSocket socket) {
  Result<std::unique_ptr<TlsSession>> session =
      ContextOf(context_.tls)->NewSession(TlsEnd::kListens);
  if (!session.has_value()) {
    events_.problem(session.error().message());
    return;
  }
  if (incoming_ != nullptr) incoming_->Close();
  incoming_ = std::make_unique<TcpStream>(std::move(socket), std::move(*session));
  incoming_->AsyncHandshake([this, number = ++incoming_number_](const Status& shaken) {
    if (number != incoming_number_ || state_ != State::kIdle) return;
    const std::unique_ptr<TcpStream> stream = std::move(incoming_);
    if (shaken.ok()) {
      ComeUp(std::move(*stream), true);
    } else {
      events_.problem(shaken.message());
    }
  });
}

void TcpPeer::ComeUp(TcpStream stream, bool welcome) {
  link_ = std::make_unique<TcpLink>(loop_, std::move(stream), *this);
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
