// The Fabric of CPU devices: members of one process work on each other's memory, other processes
// are reached through shared memory or TCP (TcpTransport).
//
// A group is direct (memory only) when all its members are local, else every pair of members gets
// pipes.
//
// Thread rule: as Fabric. Ownership: owns everything made from it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

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
  Status Connect() override;
  void Abort(const Status& cause) override;
  Status status() const override { return context_.latch.status(); }
  const char* transport(int rank) const override;

 private:
  // A pipe of which one or both ends are here.
  struct PipePlan {
    ManifestEntry entry = {};
    PipeSender* sender = nullptr;
    PipeReceiver* receiver = nullptr;
  };

  bool IsLocal(int rank) const;
  Status CheckGroup(const std::string& name, const std::vector<int>& ranks) const;
  Status CheckChannel(const std::string& name, int from_rank, int to_rank, int capacity,
                      int64_t max_message_bytes) const;
  Status MakePipeGroup(const std::string& name, const std::vector<int>& ranks,
                       std::map<int, Group*>* made);
  void MakeDirectGroup(const std::string& name, const std::vector<int>& ranks,
                       std::map<int, Group*>* made);
  Status WirePipe(const PipePlan& plan);

  FabricContext context_;
  mutable std::mutex mutex_;  // of what follows
  std::set<std::string> group_names_;
  std::set<std::string> channel_names_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<std::unique_ptr<Channel>> channels_;
  std::vector<Region> local_rings_;
  std::mutex connect_mutex_;                 // taken before mutex_
  std::unique_ptr<TcpTransport> transport_;  // null when all ranks are local; constant after Start
};

}  // namespace meshwright::collective
