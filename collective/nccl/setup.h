// Makes the communicators of a mesh: the world, and what is split from it.
//
// The world shares its connections and buffers with its children, which so cost little; NCCL then
// lets only one of the family run at a time on a device, in the order of the calls. That suits
// groups, which run in one queue per rank anyhow. It would ruin channels, where a message may wait
// for its receiver for long: they are split from `wires`, a child of the world that shares nothing
// with its own children. So a kernel of the groups and one of each channel end may be on a device
// at once, waiting for peers. NCCL would give each up to 32 thread blocks, which computing and each
// other then lack; those of channels have 4 at most, on both ends.
//
// Each new communicator is warmed up: groups sum 8 bytes, channels send 8. NCCL connects peers at
// the first use, which needs both of them on the host: without this the first Send would wait for
// the receiver's call.
//
// Local ranks of one process make their calls between GroupStart() and GroupEnd().
//
// Thread rule: one thread, while no other uses the local ranks' queues. Ownership: refers to all.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collective/nccl/comm.h"
#include "collective/nccl/context.h"
#include "collective/nccl/split_plan.h"
#include "device/device.h"

namespace meshwright::collective::nccl {

// One rank of this process.
struct Local {
  int rank = 0;
  device::Device* device = nullptr;
  device::Queue* queue = nullptr;  // of collectives
  Comm* world = nullptr;
  Comm* wires = nullptr;                     // made with the first channel
  std::map<std::vector<int>, Comm*> groups;  // by ranks
  std::map<std::string, Comm*> channels;     // by name
  // A word on both sides, for small exchanges.
  std::unique_ptr<device::Memory> word;
  std::unique_ptr<device::HostMemory> host_word;
};

class Setup {
 public:
  Setup(Context& context, std::vector<Local>& locals) : context_(context), locals_(locals) {}

  // Errors of all: kDeadlineExceeded, what NCCL or a device says, the fabric's cause.
  Status InitWorld(std::span<const UniqueId> ids, const HostDeadline& deadline);
  // Gathers what every process declares: the longest one's length, then all of them, padded to it.
  Result<std::vector<Declaration>> Exchange(const std::vector<Link>& own,
                                            const HostDeadline& deadline);
  Status Split(const SplitPlan& plan, const HostDeadline& deadline);
  // An orderly end of all communicators, together with the peers.
  Status Finalize(const HostDeadline& deadline);
  // Gives the words back, and what an Exchange() that failed left: freeing waits for the device, so
  // that it comes after the abort. `leak`: forgets them instead, the device still uses them.
  void Release(bool leak);

 private:
  // The members of one round here; null where a rank has no part.
  using Members = std::vector<Comm*>;
  struct Family {
    Comm* Local::*parent = nullptr;
    CommOptions options;
    const char* prefix = "";  // of names
  };

  // Calls `call` for every local rank with its device in use, as one group of calls.
  Status Together(const char* what, FunctionRef<Status(Local&)> call);
  // Waits until the queues of all local ranks are done.
  Status Finish(const char* what, const HostDeadline& deadline);
  Status MakeWords();
  Result<Members> SplitRound(const Round& round, const Family& family,
                             const HostDeadline& deadline);
  Status MakeWires(const HostDeadline& deadline);
  Status WarmGroups(const Members& members, const HostDeadline& deadline);
  Status WarmChannels(const Members& members, const HostDeadline& deadline);
  // Writes the words of the members, calls, waits and reads the words.
  Status WithWords(const Members& members, FunctionRef<int64_t(const Comm&)> value_of,
                   const HostDeadline& deadline,
                   FunctionRef<Code(const Comm&, const Transfer&)> call);
  int64_t WordOf(size_t local) const;
  Result<int64_t> MaxOverWorld(int64_t value, const HostDeadline& deadline);
  Members Worlds() const;

  Context& context_;
  std::vector<Local>& locals_;
  // Of Exchange(), by local rank.
  std::vector<std::unique_ptr<device::Memory>> gathered_;
  std::vector<std::unique_ptr<device::HostMemory>> gathered_on_host_;
};

}  // namespace meshwright::collective::nccl
