// EmulatedNccl: NCCL between the emulated devices of one process, for tests of everything above it.
//
// One EmulatedNetwork joins the libraries of all processes of a mesh (which are threads here). A
// collective is a function in each member's stream that ends when all members' have begun; data
// goes through the host, since a device's memory can be touched only while a function of that
// device runs. Sums are made in list order, so that results are those of the CPU fabric. A send
// ends when its receive has taken the data: nothing is buffered.
//
// As in NCCL: calls return kInProgress and must be polled; a split shows the child's handle when
// the parent leaves kInProgress; communicators that share run one at a time on a device, in the
// order of their calls; peers connect at the first use, of each kind of collective too, which is in
// progress until all have called; up to 2.26 a thread may have one call, or group of calls, in
// progress at a time; ending a communicator makes its device the thread's; finalizing ends when all
// members do it; after an abort, streams go on. What NCCL leaves undefined (a call on what is gone,
// or in progress, or that does not fit the peer's) is written down in misuse().
//
// Thread rule: thread-safe. Ownership: the network outlives its libraries, both outlive the
// drivers' work.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collective/nccl/combine.h"
#include "collective/nccl/library.h"
#include "tests/emulated/driver.h"

namespace meshwright::emulated {

namespace nccl = collective::nccl;

class EmulatedNccl;

class EmulatedNetwork {
 public:
  EmulatedNetwork();
  ~EmulatedNetwork();
  // What was done that NCCL does not allow.
  std::vector<std::string> misuse() const;
  // Communicators that were made and not destroyed or aborted.
  int alive() const;

 private:
  friend class EmulatedNccl;
  struct Collective;
  struct Message;
  struct Clique;
  struct Comm;
  struct Split;
  // Launches of communicators that share, on one device.
  using Lane = std::deque<uint64_t>;

  Clique& MakeClique(int size, int family, bool share);
  void Blame(const std::string& what) { misuse_.push_back(what); }
  void FinishSplit(Clique& parent, Split& split);

  mutable std::mutex mutex_;  // guards everything; taken before the drivers' mutexes
  std::condition_variable aborting_;
  int aborts_ = 0;
  std::vector<std::string> misuse_;
  int64_t next_id_ = 1;
  int next_family_ = 1;
  uint64_t next_ticket_ = 1;
  std::map<std::string, Clique*> by_id_;
  std::map<std::thread::id, std::vector<const Comm*>> begun_;  // calls by thread
  std::map<std::pair<int, std::pair<const void*, int32_t>>, Lane> lanes_;
  std::vector<std::unique_ptr<Clique>> cliques_;
  std::vector<std::unique_ptr<Comm>> comms_;
};

class EmulatedNccl final : public nccl::Library {
 public:
  struct Call {
    std::string name;
    const void* comm = nullptr;
    std::thread::id thread;
    nccl::CommOptions options;  // of what makes a communicator
  };

  explicit EmulatedNccl(EmulatedNetwork& network) : network_(network) {}

  // The next `times` calls of this name ("AllReduce", "CommSplit", ...) after `skip` good ones
  // fail.
  void Fail(const std::string& call, nccl::Code code, int skip = 0, int times = 1);
  // What CommGetAsyncError says of all ready communicators of this process from now on.
  void FailAsync(nccl::Code code);
  // Runs `hook` at the end of the next call of this name, in its thread and without locks.
  void After(const std::string& call, std::function<void()> hook);
  // Whose devices threads have in use: looked at by what makes and ends communicators.
  void set_driver(EmulatedDriver& driver) { driver_ = &driver; }
  void set_version(int version) { version_ = version; }
  void set_log_path(const std::string& path) { log_path_ = path; }
  // How often CommGetAsyncError says kInProgress after making a communicator, and after a transfer.
  void set_polls(int making, int transfer);
  // CommAbort comes back when so many are inside it; after 2 s without them that is misuse.
  void set_aborts_together(int count) { aborts_together_ = count; }
  std::vector<Call> calls() const;
  int count(const std::string& name) const;

  nccl::Code GetVersion(int* version) override;
  nccl::Code GetUniqueId(nccl::UniqueId* id) override;
  nccl::Code CommInitRankConfig(nccl::CommHandle* comm, int ranks, const nccl::UniqueId& id,
                                int rank, const nccl::CommOptions& options) override;
  nccl::Code CommInitRankScalable(nccl::CommHandle* comm, int ranks,
                                  std::span<const nccl::UniqueId> ids, int rank,
                                  const nccl::CommOptions& options) override;
  nccl::Code CommSplit(nccl::CommHandle parent, int color, int key, nccl::CommHandle* comm,
                       const nccl::CommOptions& options) override;
  nccl::Code CommFinalize(nccl::CommHandle comm) override;
  nccl::Code CommDestroy(nccl::CommHandle comm) override;
  nccl::Code CommAbort(nccl::CommHandle comm) override;
  nccl::Code CommGetAsyncError(nccl::CommHandle comm, nccl::Code* state) override;
  std::string GetErrorString(nccl::Code code) override;
  std::string GetLastError(nccl::CommHandle comm) override;
  nccl::Code GroupStart() override;
  nccl::Code GroupEnd() override;
  nccl::Code AllReduce(const nccl::Transfer& transfer, nccl::RedOp op) override;
  nccl::Code AllGather(const nccl::Transfer& transfer) override;
  nccl::Code ReduceScatter(const nccl::Transfer& transfer, nccl::RedOp op) override;
  nccl::Code AllToAll(const nccl::Transfer& transfer, int ranks) override;
  nccl::Code Broadcast(const nccl::Transfer& transfer, int root) override;
  nccl::Code Exchange(const nccl::Transfer& transfer, int to, int from) override;
  nccl::Code Send(const nccl::Transfer& transfer, int peer) override;
  nccl::Code Recv(const nccl::Transfer& transfer, int peer) override;
  std::string log_path() const override { return log_path_; }

 private:
  using Network = EmulatedNetwork;
  enum class Kind : uint8_t { kAllReduce, kAllGather, kReduceScatter, kAllToAll, kBroadcast };
  struct Failure {
    nccl::Code code = nccl::Code::kSuccess;
    int skip = 0;
    int times = 0;
  };

  // Writes the call down; the code that it must fail with. REQUIRES the network's lock.
  nccl::Code Enter(const std::string& name, nccl::CommHandle comm);
  struct Joining {
    int ranks = 0;
    int rank = 0;
    int32_t device = -1;
    nccl::CommOptions options;
  };
  nccl::Code Join(nccl::CommHandle* comm, const nccl::UniqueId& id, const Joining& joining);
  // A call on it returns kInProgress.
  nccl::Code Begin(Network::Comm& comm);
  void CheckNothingBegun(const std::string& name);
  // What After() asked for. Without the network's lock.
  void RunHook(const std::string& call);
  // The device of the calling thread, -1 without a driver. Without the network's lock.
  int32_t DeviceInUse() const;
  void CheckDevice(const char* name, const Network::Comm& comm, int32_t in_use);
  nccl::Code Collect(const char* name, Kind kind, const nccl::Transfer& transfer,
                     nccl::RedOp op = nccl::RedOp::kSum, int root = 0);
  // Puts work into the stream, behind what shares with its communicator on the device.
  nccl::Code Launch(Network::Comm& comm, const nccl::Transfer& transfer, Work work);
  nccl::Code StateOf(Network::Comm& comm);
  // The first use of a link, at which its ends connect.
  static void Use(Network::Comm& comm, std::pair<int, int> link);

  EmulatedNetwork& network_;
  int version_ = 22809;
  std::string log_path_;
  int making_polls_ = 2;
  int transfer_polls_ = 1;
  int aborts_together_ = 0;
  nccl::Code async_ = nccl::Code::kSuccess;
  std::string last_error_;
  std::vector<Call> calls_;
  std::map<std::string, Failure> failures_;
  std::map<std::string, std::function<void()>> hooks_;
  EmulatedDriver* driver_ = nullptr;
};

// The combining kernel, on the host.
class EmulatedCombiner final : public nccl::Combiner {
 public:
  Status LogSumExp(const nccl::CombineArgs& args, device::Queue& queue) override;
};

}  // namespace meshwright::emulated
