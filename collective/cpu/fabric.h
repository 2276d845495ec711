// The Fabric of CPU devices: members of one host work on each other's memory where it is shared;
// other processes are reached through rings in shared memory or TCP (TcpTransport).
//
// A group is direct when all its members are on this host. Unless all are in this process, every
// pair of members gets pipes, too.
//
// Thread rule: as Fabric. Ownership: owns everything made from it.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "collective/communicator.h"
#include "collective/cpu/fabric_context.h"
#include "collective/cpu/pipe_channel.h"
#include "collective/cpu/pipe_group.h"
#include "collective/cpu/tcp_transport.h"

namespace meshwright::collective {

class CpuFabric final : public Fabric {
 public:
  // REQUIRES validated options.
  explicit CpuFabric(FabricOptions options);
  ~CpuFabric() override;
  Status Start(std::shared_ptr<Listener> listener);

  Result<std::map<int, Group*>> MakeGroup(const std::string& name, std::vector<int> ranks) override;
  Result<Ends> MakeChannel(const std::string& name, int from_rank, int to_rank, int capacity,
                           int64_t max_message_bytes) override;
  Status Share(const device::Memory& memory) override;
  Status Connect() override;
  void Abort(const Status& cause) override;
  Status status() const override { return context_.latch.status(); }
  const char* backend() const override { return "cpu"; }
  const char* transport(int rank) const override;

 private:
  // A pipe of which one or both ends are here.
  struct PipePlan {
    ManifestEntry entry = {};
    PipeSender* sender = nullptr;
    PipeReceiver* receiver = nullptr;
  };

  bool IsLocal(int rank) const;
  // All of `ranks` are processes of this host, as far as this one knows.
  bool OnThisHost(const std::vector<int>& ranks) const;
  Status MakePipeGroup(const std::string& name, const std::vector<int>& ranks,
                       std::map<int, Group*>* made) MW_REQUIRES(mutex_);
  Status MakeDirectGroup(const std::string& name, const std::vector<int>& ranks,
                         std::map<int, Group*>* made) MW_REQUIRES(mutex_);
  Status WireGroup(const std::string& name, const std::vector<int>& ranks,
                   const std::map<int, PipeGroup*>& ends) MW_REQUIRES(mutex_);
  Status WirePipe(const PipePlan& plan) MW_REQUIRES(mutex_);

  FabricContext context_;
  mutable Mutex mutex_;
  std::set<std::string> group_names_ MW_GUARDED_BY(mutex_);
  std::set<std::string> channel_names_ MW_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Group>> groups_ MW_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Channel>> channels_ MW_GUARDED_BY(mutex_);
  std::vector<Region> local_rings_ MW_GUARDED_BY(mutex_);
  Mutex connect_mutex_ MW_ACQUIRED_BEFORE(mutex_);  // one Connect() at a time
  std::atomic<bool> connecting_{false};             // Connect() was called
  std::unique_ptr<TcpTransport> transport_;  // null when all ranks are local; constant after Start
};

}  // namespace meshwright::collective
