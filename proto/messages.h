// What controller, workers and clients tell each other, as plain values.
//
// Only proto/convert.h knows their encoding. Up: worker -> controller. Down: controller -> worker.
// Every message of a mesh names its generation; others are dropped. Thread rule: values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "ir/job.h"
#include "ir/program.h"
#include "proto/actor_messages.h"
#include "proto/errors.h"
#include "proto/launch_done.h"
#include "proto/log_messages.h"
#include "proto/mesh_marks.h"
#include "proto/resume_messages.h"
#include "proto/state_messages.h"
#include "proto/tensors.h"
#include "proto/views.h"

namespace meshwright::proto {

inline constexpr uint32_t kProtocolMajor = 2;
inline constexpr uint32_t kProtocolMinor = 0;
inline constexpr const char* kVersion = "0.1.0";
inline constexpr int64_t kChunkBytes = 1 << 20;
inline constexpr int64_t kMaxMessageBytes = 4 << 20;

// ---- Up -----------------------------------------------------------------------------------------

struct Register {
  std::string name;
  Incarnation incarnation{0};
  int32_t devices = 0;
  int64_t memory_bytes = 0;  // per device
  std::string address;       // host:port of the data listener
  std::string host_id;
  std::string version;
  uint32_t protocol_major = kProtocolMajor;
  uint32_t protocol_minor = kProtocolMinor;
  std::string metrics_address;
  std::string cluster_id;  // of the last controller; empty on first contact
  Term max_term{0};
  std::string device_profile;      // text of mesh/device_profile.h; empty: not measured
  int32_t threads_per_device = 0;  // 0: not said
  int32_t host_cores = 0;          // that its devices may use; 0: not said
  std::vector<int32_t> cpus = {};  // their numbers on the host; empty: not said
  std::string device_kind = {};    // "cpu", "cuda"; empty: cpu
  std::string device_name = {};    // "NVIDIA H200"; empty: nothing to say
  std::vector<ir::DataRoot> data_roots = {};
  std::vector<std::string> actor_types = {};  // of host actors that its binary has
  std::vector<ir::DataRoot> checkpoint_roots = {};
  std::vector<HeldMesh> meshes = {};
  int64_t host_memory_bytes = 0;  // that its processes may take on its host; 0: not known
  int64_t disk_bytes = 0;         // that its jobs may have on its disk; 0: not known
  bool no_scratch_dir = false;    // they have no disk; false: they may, older workers do not say
  bool keeps_log = false;         // it answers FetchLog
  friend bool operator==(const Register&, const Register&) = default;
};

// device_kind, "cpu" when it says none.
std::string KindOf(const Register& info);

struct Heartbeat {
  std::vector<MeshMarks> meshes;  // whose processes run
  friend bool operator==(const Heartbeat&, const Heartbeat&) = default;
};

struct Loaded {
  MeshGeneration mesh_gen{0};
  RuntimeError error;
  std::string invitation = {};  // what the others need to connect to this process
  friend bool operator==(const Loaded&, const Loaded&) = default;
};

struct CommUp {
  MeshGeneration mesh_gen{0};
  RuntimeError error;
  friend bool operator==(const CommUp&, const CommUp&) = default;
};

struct WeightsSaved {
  MeshGeneration mesh_gen{0};
  RuntimeError error;
  friend bool operator==(const WeightsSaved&, const WeightsSaved&) = default;
};

// The generation's devices, memory and connections on this worker are free again.
struct MeshReleased {
  MeshGeneration mesh_gen{0};
  friend bool operator==(const MeshReleased&, const MeshReleased&) = default;
};

struct MeshError {
  MeshGeneration mesh_gen{0};
  RuntimeError error;
  friend bool operator==(const MeshError&, const MeshError&) = default;
};

// It is told to stop. Its jobs are saved and moved meanwhile, and it hears Drained.
struct Leave {
  std::string reason;
  int64_t drain_ms = 0;  // how long it stays for that; 0: it goes at once
  RuntimeError error;    // what of its own makes it go; none: it was asked to
  friend bool operator==(const Leave&, const Leave&) = default;
};
using UpBody =
    std::variant<Register, Heartbeat, Loaded, CommUp, LaunchDone, WeightsSaved, MeshReleased,
                 MeshError, Leave, ActorReply, ActorEvent, StateSaved, CheckpointCommitted,
                 SnapshotsHeld, SnapshotCopied, ResumeMesh, LogLines, LogPiece>;
struct UpMessage {
  Term term{0};  // of the session; 0 in Register
  UpBody body;
  friend bool operator==(const UpMessage&, const UpMessage&) = default;
};

// The message in its envelope.
UpMessage MakeUp(Term term, UpBody body);
UpMessage MakeHeartbeat(Term term, std::vector<MeshMarks> meshes = {});

// ---- Down ---------------------------------------------------------------------------------------

struct Welcome {
  std::string cluster_id;
  int64_t heartbeat_ms = 1000;
  int64_t worker_lost_ms = 6000;
  std::vector<MeshGeneration> meshes = {};  // of Register's, that go on
  bool takes_logs = true;                   // LogLines may come
  friend bool operator==(const Welcome&, const Welcome&) = default;
};

struct Member {
  std::string worker;
  std::string address;
  std::string host_id;
  uint64_t process_id = 0;
  friend bool operator==(const Member&, const Member&) = default;
};

struct RankPrograms {
  int32_t rank = 0;
  int32_t local_device = 0;
  std::vector<ir::BlobRef> programs;             // in the order of LoadMesh.programs
  std::vector<std::string> snapshot_slots = {};  // of the state, that its snapshots have
  friend bool operator==(const RankPrograms&, const RankPrograms&) = default;
};

struct LoadMesh {
  MeshGeneration mesh_gen{0};
  JobId job{0};
  std::string cluster_id;
  std::string secret;
  uint64_t seed = 0;
  std::vector<Member> members;        // one per rank of the whole mesh
  std::vector<std::string> programs;  // their names; launches say an index
  std::vector<std::string> inputs;    // that launches bring, by index
  std::vector<RankPrograms> ranks;    // of this worker
  ir::DataSpec data;
  int64_t sequence = 0;
  int64_t vocabulary = 0;  // tokens are below it; 0: not checked
  ir::FileRef init_weights;
  ir::BlobRef graph;            // text of the main program's graph: names and layouts of the params
  bool tf32 = false;            // ir::TrainSpec's
  int64_t orphan_grace_ms = 0;  // how long it is held without a session
  std::string files_key = {};   // by which it reaches checkpoints that lie with the controller
  friend bool operator==(const LoadMesh&, const LoadMesh&) = default;
};

struct Connect {
  MeshGeneration mesh_gen{0};
  std::vector<std::string> invitations = {};  // of all members, in their order
  friend bool operator==(const Connect&, const Connect&) = default;
};

// All rows of an input that comes from a client.
struct LaunchInput {
  uint32_t input = 0;  // index in LoadMesh.inputs
  SharedBytes bytes;
  int64_t first_row = 0, rows = 0;  // bytes are those from first_row on of `rows`; 0: all
  friend bool operator==(const LaunchInput&, const LaunchInput&) = default;
};

struct Launch {
  MeshGeneration mesh_gen{0};
  LaunchSeq launch_seq{0};
  uint32_t program = 0;  // index in LoadMesh.programs
  int64_t first_step = 0;
  int64_t count = 1;
  std::vector<LaunchInput> inputs = {};
  Fetch fetch = Fetch::kNothing;  // comes back with the reports; of one step only
  bool snapshot = false;          // of the state behind the last step
  ir::StepRange record = {};      // of its steps, those in which devices write down what they do
  ir::ClockRound round = {};      // heard_ns is the worker's to say
  friend bool operator==(const Launch&, const Launch&) = default;
};

struct SaveWeights {
  MeshGeneration mesh_gen{0};
  std::vector<RankTiles> ranks;  // of this worker
  friend bool operator==(const SaveWeights&, const SaveWeights&) = default;
};

// Tiles of the state, answered by a LaunchDone with this launch_seq.
struct ReadTensors {
  MeshGeneration mesh_gen{0};
  LaunchSeq launch_seq{0};
  std::vector<RankTiles> ranks;  // of this worker
  friend bool operator==(const ReadTensors&, const ReadTensors&) = default;
};

// Whole tensors of the state, of which every worker takes what it holds; answered in the same way.
struct WriteTensors {
  MeshGeneration mesh_gen{0};
  LaunchSeq launch_seq{0};
  std::vector<NamedTensor> tensors;
  friend bool operator==(const WriteTensors&, const WriteTensors&) = default;
};

struct AbortMesh {
  MeshGeneration mesh_gen{0};
  RuntimeError cause;
  friend bool operator==(const AbortMesh&, const AbortMesh&) = default;
};

struct ReleaseMesh {
  MeshGeneration mesh_gen{0};
  friend bool operator==(const ReleaseMesh&, const ReleaseMesh&) = default;
};

// No job needs the worker that leaves any more.
struct Drained {
  friend bool operator==(const Drained&, const Drained&) = default;
};

using DownBody = std::variant<Welcome, LoadMesh, Connect, Launch, SaveWeights, AbortMesh,
                              ReleaseMesh, ReadTensors, WriteTensors, SpawnActor, ActorMessage,
                              StopActor, SaveState, RestoreState, CommitCheckpoint, QuerySnapshots,
                              DropSnapshots, CopySnapshot, Drained, FetchLog>;
struct DownMessage {
  Term term{0};
  DownBody body;
  friend bool operator==(const DownMessage&, const DownMessage&) = default;
};

// Short names for counters and logs: "LaunchDone", "AbortMesh".
const char* KindName(const UpBody& body);
const char* KindName(const DownBody& body);

// A tile of a weight in logical layout.
struct WeightTile {
  MeshGeneration mesh_gen{0};
  std::string param;
  ir::DType dtype = ir::DType::kF32;
  ir::Box box;
  std::vector<std::byte> data;
};

}  // namespace meshwright::proto
