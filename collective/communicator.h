// Collective and point-to-point transfers between the devices of one mesh.
//
// A Fabric connects the devices ("ranks", 0-based positions in the job's device list) of one mesh
// generation. Each process of the mesh owns one Fabric that speaks for its local ranks; the
// transport to a peer rank is picked by location: same process -> memory, same host -> shared
// memory, otherwise TCP.
//
// Group: an ordered list of ranks that run collectives together; its reduction order is the list
// order, so results are bitwise repeatable and equal on all members. Channel: an ordered, bounded
// pipe from one rank to another for SEND/RECV; Send blocks only while `capacity` messages are
// unreceived.
//
// Completion: each call returns exactly once, within its deadline where it has one. When a rank
// dies, a peer closes, a deadline passes or Abort() is called, every blocked and later call of the
// fabric returns the first cause, which names the rank.
//
// Equal calls: members that run different operations on a group, or different counts, get kInternal
// naming both.
//
// Devices with queues: calls put their work into the device's queues and return; the buffers belong
// to the work until the queue has got there, and failures may show in later calls or in Poll().
// What such a fabric cannot promise is said in its header (nccl/fabric.h).
//
// Thread rule: Group and Channel methods block and are called by threads of the owning device; one
// call at a time per Group object and per Channel end. Fabric methods are thread-safe.
// Ownership: groups and channels belong to the Fabric and live as long as it.
// Equivalents: Fabric ~ ncclComm world + bootstrap, Group ~ ncclCommSplit, Channel ~ a directed
// ncclSend/ncclRecv pair.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "collective/tls.h"
#include "device/device.h"
#include "ir/dtype.h"

namespace meshwright::collective {

// How all_reduce and reduce_scatter combine. kLogSumExp: log(exp(a) + exp(b)), -inf is its zero.
enum class Reduction : uint8_t { kSum, kMax, kLogSumExp };

enum class Kind : uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kRingShift,
  kBroadcast,
  kSendRecv
};
inline constexpr int kKindCount = 7;
const char* KindName(Kind kind);  // "all_reduce", ...

// Calls, bytes put on the wire by this rank and seconds spent. Bytes follow the closed forms for q
// ranks and n bytes of full tensor, totals over the group: all-reduce 2(q-1)n; all-gather,
// reduce-scatter, broadcast (q-1)n; all-to-all (q-1)/q n; ring shift of n bytes a member q n; send
// n.
struct Counters {
  int64_t calls = 0;
  int64_t bytes = 0;
  double seconds = 0;
};

class Group {
 public:
  virtual ~Group() = default;
  virtual int size() const = 0;
  virtual int rank() const = 0;  // position of the calling device in the group
  virtual const std::string& name() const = 0;

  // In place; every member passes the same count.
  virtual Status AllReduce(void* data, int64_t count, ir::DType dtype, Reduction reduction) = 0;
  // input: `count` elements; output: size()*count, member i's block at i*count. output may not
  // alias input.
  virtual Status AllGather(const void* input, void* output, int64_t count, ir::DType dtype) = 0;
  // input: size()*count elements; output: the reduced block rank() of `count` elements; it may be
  // the block rank() of input, but no other part of it.
  virtual Status ReduceScatter(const void* input, void* output, int64_t count, ir::DType dtype,
                               Reduction reduction) = 0;
  // input and output: size() blocks of `count` elements; block j of the input goes to member j. No
  // aliasing.
  virtual Status AllToAll(const void* input, void* output, int64_t count, ir::DType dtype) = 0;
  // The members are a ring: each sends to the member `by` positions behind it and receives from the
  // one `by` before it; 0 < by < size(), or any number in a group of one, which copies. No
  // aliasing.
  virtual Status RingShift(const void* input, void* output, int64_t count, ir::DType dtype,
                           int by) = 0;
  // root: position in the group. In place.
  virtual Status Broadcast(void* data, int64_t count, ir::DType dtype, int root) = 0;

  // Memory of the device that such a call needs besides its buffers: what a fabric with queues
  // takes for log-sum-exp.
  virtual int64_t ScratchBytes(Kind /*kind*/, int64_t /*count*/, ir::DType /*dtype*/,
                               Reduction /*reduction*/) const {
    return 0;
  }
  // Memory for the most that any call needs; it outlives the last one. Groups whose calls go into
  // one queue may share it. Without it memory is allocated in the first call, which waits for the
  // device. Called before the first call.
  virtual void SetScratch(std::byte* /*memory*/, int64_t /*bytes*/) {}

  virtual Counters counters(Kind kind) const = 0;
};

class Channel {
 public:
  virtual ~Channel() = default;
  // Copies `bytes` out of data; returns when the data may be overwritten. REQUIRES bytes <=
  // max_message_bytes.
  virtual Status Send(const void* data, int64_t bytes) = 0;
  // Blocks until the next message; kInternal if its length is not `bytes`.
  virtual Status Receive(void* data, int64_t bytes) = 0;
  virtual Counters counters() const = 0;
};

// Where a rank lives.
struct Member {
  std::string worker;       // name for messages, e.g. "worker-2"
  std::string address;      // host:port of the worker's data listener
  std::string host_id;      // equal host_id: shared memory can be mapped between the processes
  uint64_t process_id = 0;  // unique per process (incarnation); equal: same process
};

enum class Transport : uint8_t { kAuto, kSharedMemory, kTcp };  // kAuto: by location
// "auto", "shm", "tcp". Errors: kInvalidArgument naming what was given and what is known.
Result<Transport> ParseTransport(const std::string& name);

struct FabricOptions {
  std::vector<Member> members;   // one per rank
  std::vector<int> local_ranks;  // ranks that live in this process
  std::string cluster_id;        // handshake identity; a stranger or an old generation is refused
  MeshGeneration generation{0};
  std::string secret;  // 128-bit per-generation secret, checked in every TCP handshake
  Transport transport =
      Transport::kAuto;  // kTcp/kSharedMemory force it for all ranks of other processes
  int64_t connect_timeout_ms = 30'000;
  // Deadline of every single Group/Channel call; 0: none, a call ends with its peers or by Abort().
  // A peer that died is noticed without it, and one that is slow must not be ended by it, so it is
  // for those who have nobody that watches over the peers.
  int64_t operation_timeout_ms = 60'000;
};

// What to do about a call that ended at its deadline; for messages.
inline constexpr const char* kLongerDeadline =
    "where it is alive and computes, start the workers without --collective-timeout-s";

class Fabric {
 public:
  virtual ~Fabric() = default;

  // Collective over the processes of `ranks` only in the sense of naming: no traffic happens here;
  // connections are made by Connect(). `name` identifies the group on all members
  // ("stage0/tensor/0"); `ranks` is equal on all of them. Returns one Group for each local rank
  // that is a member, keyed by rank.
  virtual Result<std::map<int, Group*>> MakeGroup(const std::string& name,
                                                  std::vector<int> ranks) = 0;

  // The local end(s) of a directed channel; sender or receiver (or both) must be local. `name` is
  // unique per fabric.
  struct Ends {
    Channel* sender = nullptr;    // set when from_rank is local
    Channel* receiver = nullptr;  // set when to_rank is local
  };
  virtual Result<Ends> MakeChannel(const std::string& name, int from_rank, int to_rank,
                                   int capacity, int64_t max_message_bytes) = 0;

  // Peers of this host may from now on read and write `memory` of a local device in place, which
  // spares groups a copy; nothing for private memory, and for peers that cannot map it. The memory
  // outlives the last call on the fabric's groups. Errors: kFailedPrecondition after Connect().
  virtual Status Share(const device::Memory& memory) = 0;

  // What this process tells the others before Connect(), and what all of them told: the controller
  // carries it, one text per process in any order. Where peers meet by address alone it is empty.
  // Errors of Accept(): kFailedPrecondition when processes do not fit together, naming both.
  virtual Result<std::string> Invitation() { return std::string(); }
  virtual Status Accept(const std::vector<std::string>& /*invitations*/) { return OkStatus(); }

  // Establishes every connection that the groups and channels made so far need; returns when all
  // peers are connected. May be called again after more were made, by all processes concerned. A
  // failure aborts the fabric. Errors: kDeadlineExceeded naming the ranks that did not come,
  // kUnauthenticated on a wrong secret or generation, kInvalidArgument when two processes made
  // different groups or channels.
  virtual Status Connect() = 0;

  // First cause wins. Wakes every blocked call and tells the peers. Safe from any thread, also from
  // a signal-free callback of the control plane.
  virtual void Abort(const Status& cause) = 0;
  virtual Status status() const = 0;  // OK or the abort cause
  // As status(), after looking for failures that no call has met yet. Cheap: to be asked all the
  // time by who waits for a device's queue.
  virtual Status Poll() { return status(); }

  // Ends it, orderly with the peers unless it was aborted: waits a bounded time until nothing of it
  // is in the devices any more. No group or channel may be used afterwards; devices, queues and
  // shared memory may go. False: something of it did not end, and devices may be at work for it for
  // ever: they and their memory must stay. Again: the same answer. The destructor calls it.
  virtual bool Close() { return true; }

  // What moves the bytes of its groups and channels, for metrics: "cpu", "nccl".
  virtual const char* backend() const = 0;

  // How `rank` is reached: "memory" (this process), "shared_memory", "tcp", "nccl", or "none"
  // before the first Connect() with a group or channel that needs it.
  virtual const char* transport(int rank) const = 0;
};

// Listens for the data connections of one process; fabrics of several generations share it.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual int port() const = 0;
  // What its connections speak, and those that its fabrics make; null: plain.
  virtual std::shared_ptr<Tls> tls() const = 0;
};
// Null where there is no listener.
inline std::shared_ptr<Tls> TlsOf(const std::shared_ptr<Listener>& listener) {
  return listener == nullptr ? nullptr : listener->tls();
}
// bind_address: "127.0.0.1" or "0.0.0.0"; port 0 picks one. Errors: kUnavailable naming the port in
// use.
Result<std::shared_ptr<Listener>> MakeListener(const std::string& bind_address, int port,
                                               std::shared_ptr<Tls> tls = nullptr);

// listener may be null when all ranks are local.
Result<std::unique_ptr<Fabric>> MakeCpuFabric(FabricOptions options,
                                              std::shared_ptr<Listener> listener);

// Host identity: boot id + network and mount namespace, so containers and network namespaces count
// as hosts.
std::string LocalHostId();

}  // namespace meshwright::collective
