// One connection to a peer process: it carries the messages of all pipes that go by TCP, tells of
// the peer's abort or departure, and its end is how the death of the peer is noticed (also when the
// pipes go through shared memory).
//
// Flow control is by credit: a pipe's sender has at most `slots` messages that the receiver has not
// consumed, so the receiving loop always has a slot to read into, never stops reading, and sees the
// end of the connection at once. Messages are cut into fragments of kMaxFragmentBytes and the pipes
// take turns, so a long message delays a short one of another pipe by one fragment. Payloads are
// sent from and read into the slots.
//
// Thread rule: loop thread only, but for the doorbells. Ownership: rings and events outlive the
// link.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "collective/cpu/pipe.h"
#include "collective/cpu/tcp_loop.h"
#include "collective/cpu/tcp_stream.h"
#include "collective/cpu/wire.h"

namespace meshwright::collective {

class TcpLink {
 public:
  class Events {
   public:
    virtual ~Events() = default;
    virtual void OnManifest(ByteView payload) = 0;
    virtual void OnPeerAbort(const Status& cause) = 0;
    virtual void OnGoodbye() = 0;
    // The connection broke or carried nonsense (kDataLoss); it is closed.
    virtual void OnLost(const Status& why) = 0;
    // Our goodbye was answered; it is closed.
    virtual void OnClosed() = 0;
  };

  TcpLink(TcpLoop& loop, TcpStream stream, Events& events);
  void Start();

  // Handshake bytes, before any frame.
  void SendRaw(Bytes bytes);
  void SendManifest(const Bytes& payload);
  // Drops queued data: nobody waits for it any more. The write is tried before this returns.
  void SendAbort(const Status& cause);
  // Sends goodbye after everything queued; the peer answers by closing.
  void SayGoodbye();
  void Close();
  bool closed() const { return closed_; }

  // The ring's consumer (outgoing) or producer (incoming) becomes this link.
  Doorbell* AddOutgoing(uint64_t key, SlotRing ring);
  Doorbell* AddIncoming(uint64_t key, SlotRing ring);

 private:
  struct Outgoing final : Doorbell {
    Outgoing(TcpLink& owner, uint64_t pipe_key, SlotRing slots)
        : link(owner), key(pipe_key), ring(slots) {}
    void Ring() override;
    TcpLink& link;
    const uint64_t key;
    const SlotRing ring;
    std::atomic<bool> rung{false};
    bool queued = false;    // in ready_
    uint64_t started = 0;   // messages handed to the socket, the last one maybe in part
    int64_t offset = 0;     // bytes of message `started` that were handed over
    uint64_t written = 0;   // messages the socket has taken completely
    uint64_t credited = 0;  // messages the receiver has consumed
  };
  struct Incoming final : Doorbell {
    Incoming(TcpLink& owner, uint64_t pipe_key, SlotRing slots)
        : link(owner), key(pipe_key), ring(slots) {}
    void Ring() override;
    TcpLink& link;
    const uint64_t key;
    const SlotRing ring;
    std::atomic<bool> rung{false};
    bool queued = false;    // in credits_due_
    uint64_t received = 0;  // complete messages
    int64_t offset = 0;     // bytes of the message being received
    uint32_t credited = 0;  // ring's tail as told to the sender
  };
  static constexpr size_t kBatchFrames = 16;

  // Writing.
  void QueueControl(FrameType type, const Bytes& payload);
  void QueueData(Outgoing& pipe);
  void QueueCredit(Incoming& pipe);
  void WriteBatch();
  void AddFrame(const FrameHeader& header, const std::byte* payload);
  void AddFragment(Outgoing& pipe);
  void OnWritten(const ErrorCode& error);
  static void ReleaseSlots(Outgoing& pipe);

  // Reading.
  void ReadMore();
  void ReadBody(std::byte* target, size_t bytes);
  void Parse();
  Result<std::byte*> PrepareBody();
  Result<std::byte*> PrepareFragment();
  Status FinishFrame();
  Status OnCredit();
  void Lose(const Status& why);
  void OnReadError(const ErrorCode& error);

  TcpLoop& loop_;
  TcpStream stream_;
  Events& events_;
  bool closed_ = false;
  bool aborting_ = false;
  bool goodbye_wanted_ = false;
  bool goodbye_sent_ = false;

  std::map<uint64_t, std::unique_ptr<Outgoing>> outgoing_;
  std::map<uint64_t, std::unique_ptr<Incoming>> incoming_;

  bool writing_ = false;
  std::deque<Bytes> control_;
  std::deque<Incoming*> credits_due_;
  std::deque<Outgoing*> ready_;
  std::vector<Bytes> control_in_flight_;
  std::vector<Outgoing*> finished_in_flight_;  // messages whose last byte is in the batch
  std::array<std::array<uint8_t, kFrameHeaderBytes>, kBatchFrames> headers_{};
  size_t frames_in_flight_ = 0;
  std::vector<asio::const_buffer> buffers_;

  std::vector<std::byte> staging_;
  size_t staging_begin_ = 0;
  size_t staging_end_ = 0;
  FrameHeader frame_;  // being received
  Bytes payload_;      // of a frame that is not data
};

}  // namespace meshwright::collective
