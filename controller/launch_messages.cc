#include "controller/launch_messages.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "controller/input_rows.h"

namespace meshwright::controller {
namespace {

const PlannedDevice& DeviceOf(const MeshState& mesh, int rank) {
  const auto& devices = mesh.order.plan.devices;
  MW_CHECK(rank >= 0 && static_cast<size_t>(rank) < devices.size())
      << "rank " << rank << " of " << devices.size();
  return devices[static_cast<size_t>(rank)];
}

// The rows of an input that a worker's devices read; nothing: they read none of it.
std::optional<proto::LaunchInput> PartOf(const proto::NamedTensor& input, uint32_t index,
                                         const std::optional<RowRange>& rows) {
  if (!rows) return proto::LaunchInput{index, input.bytes};
  if (rows->count == 0) return std::nullopt;
  const int64_t all = input.type.dims[0];
  const size_t row_bytes = all == 0 ? 0 : input.bytes.size() / static_cast<size_t>(all);
  return proto::LaunchInput{index,
                            input.bytes.Part(static_cast<size_t>(rows->first) * row_bytes,
                                             static_cast<size_t>(rows->count) * row_bytes),
                            rows->first, all};
}

// Of a call, what goes to the worker that has the member's devices.
std::vector<proto::LaunchInput> InputsFor(const MeshState& mesh, const MeshMember& member,
                                          const proto::CallProgram& call, uint32_t program) {
  std::vector<const PlannedDevice*> devices;
  for (const int rank : member.ranks) devices.push_back(&DeviceOf(mesh, rank));
  const std::vector<std::string>& names = mesh.order.load.inputs;
  std::vector<proto::LaunchInput> inputs;
  for (const proto::NamedTensor& input : call.inputs) {
    const auto at =
        static_cast<uint32_t>(std::find(names.begin(), names.end(), input.name) - names.begin());
    auto part = PartOf(input, at, RowsRead(devices, program, at));
    if (part) inputs.push_back(*std::move(part));
  }
  return inputs;
}

// None named: all weights.
proto::ReadTensors ReadMessage(const MeshState& mesh, const MeshMember& member, LaunchSeq seq,
                               const proto::ReadState& read) {
  proto::ReadTensors message{mesh.order.gen, seq, {}};
  for (const int rank : member.ranks) {
    const PlannedDevice& device = DeviceOf(mesh, rank);
    const auto& all = read.names.empty() ? device.saved_slots : device.state_slots;
    proto::RankTiles tiles{rank, {}};
    for (const std::string& slot : all) {
      const bool wanted = read.names.empty() ||
                          std::find(read.names.begin(), read.names.end(), slot) != read.names.end();
      if (wanted) tiles.slots.push_back(slot);
    }
    if (!tiles.slots.empty()) message.ranks.push_back(std::move(tiles));
  }
  return message;
}

std::vector<proto::RankTiles> TilesOf(const MeshState& mesh, const MeshMember& member) {
  std::vector<proto::RankTiles> tiles;
  for (const int rank : member.ranks) {
    const auto& slots = DeviceOf(mesh, rank).state_slots;
    if (!slots.empty()) tiles.push_back(proto::RankTiles{rank, slots});
  }
  return tiles;
}

proto::Launch LaunchOf(const MeshState& mesh, LaunchSeq seq, const PlannedLaunch& launch,
                       const ir::StepRange& record) {
  proto::Launch message{mesh.order.gen, seq, ProgramIndex(mesh.order.plan, launch.program),
                        launch.first_step, launch.count};
  message.snapshot = launch.snapshot;
  message.record = record;
  return message;
}

proto::DownBody MessageOfDriver(const MeshState& mesh, const MeshMember& member, LaunchSeq seq,
                                const MeshWork& work) {
  const PlannedLaunch& launch = work.launch;
  const CheckpointOrder& order = mesh.order.checkpoints;
  switch (launch.kind) {
    case LaunchKind::kProgram:
      return LaunchOf(mesh, seq, launch, work.record);
    case LaunchKind::kRestore: {
      proto::RestoreState message{mesh.order.gen, seq, order.start.checkpoint, order.start.exclude};
      if (mesh.order.snapshots != nullptr) {
        SnapshotFiles files = FilesFor(*mesh.order.snapshots, member.worker);
        message.manifest = std::move(files.manifest);
        message.sources = std::move(files.sources);
      }
      return message;
    }
    case LaunchKind::kSave:
      return proto::SaveState{mesh.order.gen, seq, order.folder,
                              mesh.saves.current() ? mesh.saves.current()->temporary : "",
                              TilesOf(mesh, member)};
  }
  return {};
}

}  // namespace

std::vector<proto::DownBody> LaunchMessages(const MeshState& mesh, LaunchSeq seq,
                                            const MeshWork& work) {
  std::vector<proto::DownBody> messages;
  for (const MeshMember& member : mesh.members) {
    if (!work.client) {
      messages.push_back(MessageOfDriver(mesh, member, seq, work));
    } else if (const auto* call = std::get_if<proto::CallProgram>(&work.client->ask)) {
      proto::Launch message = LaunchOf(mesh, seq, work.launch, work.record);
      message.fetch = call->fetch;
      message.inputs = InputsFor(mesh, member, *call, message.program);
      messages.emplace_back(std::move(message));
    } else if (const auto* read = std::get_if<proto::ReadState>(&work.client->ask)) {
      messages.emplace_back(ReadMessage(mesh, member, seq, *read));
    } else if (const auto* write = std::get_if<proto::WriteState>(&work.client->ask)) {
      messages.emplace_back(proto::WriteTensors{mesh.order.gen, seq, write->tensors});
    }
  }
  return messages;
}

proto::SaveWeights SaveMessage(const MeshState& mesh, const MeshMember& member) {
  proto::SaveWeights save{mesh.order.gen, {}};
  for (const int rank : member.ranks) {
    const auto& slots = DeviceOf(mesh, rank).saved_slots;
    if (!slots.empty()) save.ranks.push_back(proto::RankTiles{rank, slots});
  }
  return save;
}

proto::LoadMesh LoadMessage(const MeshState& mesh, const MeshMember& member) {
  proto::LoadMesh load = mesh.order.load;
  for (size_t i = 0; i < member.ranks.size(); ++i) {
    const int rank = member.ranks[i];
    load.ranks.push_back(
        proto::RankPrograms{rank, member.local_devices[i], DeviceOf(mesh, rank).programs});
    if (!mesh.order.snapshot_slots.empty()) {
      load.ranks.back().snapshot_slots = mesh.order.snapshot_slots.at(static_cast<size_t>(rank));
    }
  }
  return load;
}

}  // namespace meshwright::controller
