// One other process of the mesh as a fabric sees it: the connection to it and the pipes that end
// there.
//
//   idle --offer, this side dials--> dialing --welcomed--> up --goodbye--> departed
//   idle --the peer dials in--------------------------> up --connection lost--> lost
//
// Every Connect() of the fabric that has new pipes is a round. The listening side of the pair sends
// the list of its new pipes, with a shared region if the policy wants one; the dialing side
// compares, maps, attaches and answers with its own list; then the listening side compares and
// attaches. In the first round each side maps the device memories that the other lists. Frames are
// in order, so each side's pipes are attached before the first message for them can arrive.
//
// Thread rule: loop thread only, but for departed(). Ownership: the transport owns it; destroyed
// after the loop stopped.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collective/cpu/rendezvous.h"
#include "collective/cpu/tcp_dialer.h"
#include "collective/cpu/tcp_link.h"
#include "collective/cpu/tcp_stream.h"

namespace meshwright::collective {

struct PeerInfo {
  uint64_t process_id = 0;
  std::vector<int> ranks;  // ascending
  std::string name;        // "rank 3 (worker-1)"
  std::string address;
  bool dial = false;  // this side dials: the peer's first rank is lower
  bool same_host = false;
};

// How a peer reports to its transport; called on the loop.
struct PeerEvents {
  std::function<void(const Status& cause)> failed;       // the fabric has to abort
  std::function<void(const std::string& text)> problem;  // worth telling when Connect() times out
  std::function<void()> changed;                         // ready round or state
};

class TcpPeer final : public TcpLink::Events {
 public:
  TcpPeer(PeerInfo info, FabricContext& context, TcpLoop& loop, PeerEvents events);

  const PeerInfo& info() const { return info_; }
  // What is new in one round. REQUIRES the previous round ready.
  void Offer(PeerOffer offer);
  // A connection that the listener authenticated.
  void Adopt(UniqueFd fd);
  void SendAbort(const Status& cause);
  void BeginClose();

  uint32_t ready_round() const { return ready_round_; }
  // The peer has mapped all boards that this side offered it in the last round.
  bool boards_mapped() const { return boards_mapped_; }
  bool finished() const { return state_ != State::kUp; }  // nothing left to flush
  // "none" before the first round, else "shared_memory" or "tcp": of the last round.
  const char* transport() const { return transport_; }

  void OnManifest(ByteView payload) override;
  void OnPeerAbort(const Status& cause) override;
  void OnGoodbye() override;
  void OnLost(const Status& why) override;
  void OnClosed() override;

 private:
  enum class State : uint8_t { kIdle, kDialing, kUp, kDeparted, kLost };

  void Dial();
  void AdoptSecurely(TcpSocket socket);
  void ComeUp(TcpStream stream, bool welcome);
  void SetState(State state);

  // Rounds.
  void Advance();
  void SendOffer();
  void AnswerOffer(const Manifest& offer);
  void CompleteOffer(const Manifest& answer);
  bool WantsSharedMemory() const;
  Status MapOffer(const Manifest& offer);
  bool MapBoards(const Manifest& offer);
  void MapMemories(const Manifest& manifest);
  Status Attach(bool shared, const std::string& note);
  void Ready();

  const PeerInfo info_;
  FabricContext& context_;
  TcpLoop& loop_;
  PeerEvents events_;
  State state_ = State::kIdle;
  std::unique_ptr<TcpDialer> dialer_;
  std::unique_ptr<TcpLink> link_;
  // A connection whose other end is not believed yet, and which of them it is.
  std::unique_ptr<TcpStream> incoming_;
  uint64_t incoming_number_ = 0;
  std::atomic<bool> departed_{false};

  uint32_t offered_round_ = 0;  // of this side
  uint32_t ready_round_ = 0;
  bool offer_sent_ = false;             // listening side
  std::vector<PipeSpec> pipes_;         // of the offered round, sorted
  std::vector<ManifestEntry> entries_;  // the same
  std::vector<BoardSpec> boards_;       // of the offered round
  RegionHandle board_region_;
  bool boards_mapped_ = false;
  std::optional<Manifest> peer_offer_;  // dialing side: came before our own Offer()
  std::string region_note_;             // why there is no shared region
  Region shared_;                       // of the current round, moved to regions_ when used
  std::vector<Region> regions_;
  const char* transport_ = "none";
};

}  // namespace meshwright::collective
