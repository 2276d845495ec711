#include "worker/mesh_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/text.h"
#include "ir/text.h"
#include "proto/largest.h"
#include "worker/available_memory.h"

namespace meshwright::worker {
namespace {

using proto::ErrorKind;

constexpr int64_t kGpuConnectTimeoutMs = 300'000;

// Cores of local device `device`, of those of the worker.
std::vector<int> CoresOf(const HostResources& resources, int device) {
  const auto threads = resources.threads_per_device;
  MW_CHECK(device >= 0 && static_cast<size_t>((device + 1) * threads) <= resources.cores.size())
      << "device " << device << " of " << resources.cores.size() << " cores";
  const auto first = resources.cores.begin() + static_cast<ptrdiff_t>(device) * threads;
  return {first, first + threads};
}

// What the mesh does with a message.
MeshDoing DoingOf(const proto::LoadMesh&) { return MeshDoing::kLoading; }
MeshDoing DoingOf(const proto::Connect&) { return MeshDoing::kConnecting; }
MeshDoing DoingOf(const proto::ReadTensors&) { return MeshDoing::kReading; }
MeshDoing DoingOf(const proto::WriteTensors&) { return MeshDoing::kWriting; }
MeshDoing DoingOf(const proto::SaveWeights&) { return MeshDoing::kSaving; }
MeshDoing DoingOf(const proto::SaveState&) { return MeshDoing::kReading; }
MeshDoing DoingOf(const proto::RestoreState&) { return MeshDoing::kWriting; }
template <typename Other>
MeshDoing DoingOf(const Other&) {
  return MeshDoing::kRunning;
}

void Note(const HostResources& resources, MeshDoing doing) {
  if (resources.record != nullptr) resources.record->SetDoing(doing);
}

const checkpoint::Roots& RootsOf(const HostResources& resources) {
  static const checkpoint::Roots kNone;
  return resources.checkpoint_roots == nullptr ? kNone : *resources.checkpoint_roots;
}

// What each local rank keeps in snapshots.
std::vector<proto::RankTiles> SnapshotTiles(const proto::LoadMesh& message) {
  std::vector<proto::RankTiles> tiles;
  for (const proto::RankPrograms& rank : message.ranks) {
    tiles.push_back({rank.rank, rank.snapshot_slots});
  }
  return tiles;
}

void PutBusy(const std::vector<RankBusy>& ranks, std::vector<proto::StepReport>& reports) {
  for (const RankBusy& busy : ranks) {
    MW_CHECK(busy.seconds.empty() || busy.seconds.size() == reports.size())
        << "busy seconds of rank " << busy.rank;
    for (size_t i = 0; i < busy.seconds.size(); ++i) {
      reports[i].busy.push_back({busy.rank, busy.seconds[i]});
    }
  }
}

}  // namespace

MeshHost::MeshHost(const HostResources& resources, MeshGeneration mesh_gen, Report report,
                   std::function<void()> released)
    : resources_(resources),
      mesh_gen_(mesh_gen),
      report_(std::move(report)),
      released_(std::move(released)),
      snapshot_memory_(resources.snapshot_memory),
      loop_(scheduler_, kMailbox,
            [this](const Message& message) {
              std::visit(
                  [this](const auto& body) {
                    Note(resources_, DoingOf(body));
                    On(body);
                    Note(resources_, MeshDoing::kIdle);
                  },
                  message);
            }),
      let_go_(loop_.Reserve()) {}

MeshHost::~MeshHost() {
  Abort(Cancelled("the worker drops the mesh"));
  thread_.Stop();
}

// ---- Messages -----------------------------------------------------------------------------------

void MeshHost::Take(proto::DownBody message) {
  if (const auto* abort = std::get_if<proto::AbortMesh>(&message)) {
    return Abort(abort->cause.ToStatus());
  }
  if (std::holds_alternative<proto::ReleaseMesh>(message)) return Release();
  if (auto* launch = std::get_if<proto::Launch>(&message)) {
    launch->round.heard_ns = SystemClock().NowNs();
  }
  std::visit(
      [this](auto& body) {
        if constexpr (requires { On(body); }) Offer(std::move(body));
      },
      message);
}

void MeshHost::Offer(Message message) {
  if (loop_.Offer(std::move(message)) != actor::Offered::kFull) return;
  const Status full = ResourceExhausted(fmt::format(
      "{} messages wait for mesh generation {}, the most at once", kMailbox, mesh_gen_.value()));
  Say(proto::MeshError{mesh_gen_, Error(ErrorKind::kProtocol, full)});
}

void MeshHost::OfferLetGo() {
  const MutexLock lock(mutex_);
  if (!let_go_) return;
  (void)loop_.Offer(std::move(*let_go_), LetGo{});
  let_go_.reset();
}

void MeshHost::On(const proto::LoadMesh& message) {
  if (aborted()) return;
  proto::Loaded loaded{mesh_gen_, {}, {}};
  const Status status = Guarded("loading", [&]() -> Status {
    MW_TRY(LoadOnThread(message));
    MW_ASSIGN_OR_RETURN(loaded.invitation, runtime_->Invitation());
    return OkStatus();
  });
  loaded.error = Error(ErrorKind::kLoadFailed, status);
  if (status.ok()) {
    LogInfo(fmt::format("mesh {}: {} of its ranks loaded, with the programs {}", mesh_gen_.value(),
                        message.ranks.size(), Join(message.programs, ", ")));
  }
  Say(std::move(loaded));
  CheckDevices(status);
}

void MeshHost::On(const proto::Connect& message) {
  if (aborted()) return;
  const Status status = Guarded("connecting", [&] {
    return runtime_ ? runtime_->Connect(message.invitations)
                    : FailedPrecondition("connect before the programs were loaded");
  });
  Say(proto::CommUp{mesh_gen_, Error(ErrorKind::kConnectFailed, status)});
  CheckDevices(status);
}

void MeshHost::On(const proto::Launch& message) {
  RunInOrder(message.launch_seq, "the launch", [&](proto::LaunchDone& done) {
    done.round = message.round;
    return LaunchOnThread(message, done);
  });
}

void MeshHost::On(const proto::ReadTensors& message) {
  RunInOrder(message.launch_seq, "reading the state",
             [&](proto::LaunchDone& done) { return ReadOnThread(message, done); });
}

void MeshHost::On(const proto::WriteTensors& message) {
  RunInOrder(message.launch_seq, "writing the state",
             [&](proto::LaunchDone&) { return WriteOnThread(message); });
}

void MeshHost::On(const proto::SaveWeights& message) {
  if (aborted()) return;
  const Status status = Guarded("saving", [&] { return SaveOnThread(message); });
  Say(proto::WeightsSaved{mesh_gen_, Error(ErrorKind::kSaveFailed, status)});
  CheckDevices(status);
}

void MeshHost::On(const proto::SaveState& message) {
  RunInOrder(message.launch_seq, "copying the state", [&](proto::LaunchDone&) {
    return runtime_ ? Saver().Save(message, state_, *runtime_)
                    : FailedPrecondition("save before the programs were loaded");
  });
}

void MeshHost::On(const proto::RestoreState& message) {
  RunInOrder(message.launch_seq, "restoring the state", [&](proto::LaunchDone&) {
    return runtime_ ? RestoreState(message, *files_, cluster_id_, state_, *runtime_,
                                   collective::TlsOf(resources_.listener))
                    : FailedPrecondition("restore before the programs were loaded");
  });
}

void MeshHost::On(const proto::CommitCheckpoint& message) {
  if (!aborted()) Saver().Commit(message);
}

void MeshHost::Release() { OfferLetGo(); }

void MeshHost::Abort(const Status& cause) {
  std::shared_ptr<JobRuntime> runtime;
  {
    const MutexLock lock(mutex_);
    if (aborted_.exchange(true)) return;
    abort_cause_ = cause;
    runtime = runtime_;
  }
  if (runtime) runtime->Abort(cause);
  runtime.reset();
  OfferLetGo();
}

void MeshHost::RefreshMetrics() {
  const MutexLock lock(mutex_);
  if (runtime_) resources_.metrics->Observe(mesh_gen_.value(), runtime_->Stats(), local_devices_);
}

// ---- On the thread ----

Status MeshHost::LoadOnThread(const proto::LoadMesh& message) {
  if (runtime_) return FailedPrecondition("the mesh is loaded already");
  MW_ASSIGN_OR_RETURN(RuntimeOptions options, MakeOptions(message));
  state_ = CollectStateSlots(options.programs);
  cluster_id_ = message.cluster_id;
  files_ = std::make_unique<AllCheckpointFiles>(RootsOf(resources_), *resources_.link,
                                                proto::MeshKey{mesh_gen_, message.files_key},
                                                [this] { return aborted(); });
  std::vector<int> devices;
  for (const proto::RankPrograms& rank : message.ranks) devices.push_back(rank.local_device);
  taker_.emplace(resources_.worker, std::move(snapshot_memory_), SnapshotTiles(message),
                 [] { return AvailableMemoryBytes(); });
  if (!message.init_weights.empty()) MW_TRY(OpenInitialWeights(message));
  MW_ASSIGN_OR_RETURN(auto runtime, JobRuntime::Load(std::move(options)));
  const MutexLock lock(mutex_);
  runtime_ = std::move(runtime);
  local_devices_ = std::move(devices);
  // An abort that came while it was loading found no runtime to stop.
  if (aborted_) runtime_->Abort(abort_cause_);
  return OkStatus();
}

Result<RuntimeOptions> MeshHost::MakeOptions(const proto::LoadMesh& message) {
  RuntimeOptions options;
  for (const proto::RankPrograms& rank : message.ranks) {
    if (rank.local_device < 0 || rank.local_device >= resources_.devices) {
      return Fail(InvalidArgument(fmt::format("rank {} is placed on device {}, there are {}",
                                              rank.rank, rank.local_device, resources_.devices)));
    }
    if (rank.programs.size() != message.programs.size()) {
      return Fail(InvalidArgument(fmt::format("rank {} has {} programs, the mesh {}", rank.rank,
                                              rank.programs.size(), message.programs.size())));
    }
    for (size_t i = 0; i < rank.programs.size(); ++i) {
      MW_ASSIGN_OR_RETURN(ir::Program program,
                          FetchProgram(rank.programs[i], rank.rank, message.programs[i]));
      options.programs.push_back(std::move(program));
    }
    options.fabric.local_ranks.push_back(rank.rank);
    if (resources_.gpus.driver != nullptr) {
      options.gpus.indices.push_back(
          resources_.gpus.indices[static_cast<size_t>(rank.local_device)]);
    } else if (!resources_.cores.empty()) {
      options.cpus.push_back(CoresOf(resources_, rank.local_device));
    }
  }
  MW_TRY(OpenData(message, options.programs));
  for (const proto::Member& member : message.members) {
    options.fabric.members.push_back(
        {member.worker, member.address, member.host_id, member.process_id});
  }
  options.fabric.cluster_id = message.cluster_id;
  options.fabric.generation = mesh_gen_;
  options.fabric.secret = message.secret;
  options.fabric.transport = resources_.transport;
  options.fabric.operation_timeout_ms = resources_.collective_timeout_ms;
  options.listener = resources_.listener;
  options.feed = feed_.get();
  options.record = resources_.record;
  options.seed = message.seed;
  options.threads_per_device = resources_.threads_per_device;
  // On GPUs plans use less than there is (worker/gpus.cc): scratch of kernels and rings of
  // channels, which plans do not know, take of the rest.
  options.memory_limit_bytes = resources_.gpus.driver == nullptr ? resources_.memory_bytes : 0;
  options.host_link_bytes_per_s = resources_.host_link_bytes_per_s;
  options.scratch = resources_.scratch;
  options.host_memory_bytes = AvailableMemoryBytes();
  options.gpus.driver = resources_.gpus.driver;
  options.gpus.toolkit = message.tf32 ? resources_.gpus.tf32_toolkit : resources_.gpus.toolkit;
  options.gpus.nccl = resources_.gpus.nccl;
  options.gpus.combiner = resources_.gpus.combiner;
  options.gpus.no_nccl = resources_.gpus.no_nccl;
  options.gpus.drain_timeout_ms = resources_.gpu_drain_timeout_ms;
  // Making communicators of many hosts takes minutes at first.
  if (resources_.gpus.driver != nullptr) options.fabric.connect_timeout_ms = kGpuConnectTimeoutMs;
  return options;
}

Status MeshHost::OpenData(const proto::LoadMesh& message,
                          const std::vector<ir::Program>& programs) {
  programs_ = message.programs;
  inputs_ = message.inputs;
  if (!message.data.streams.empty() || !message.data.blob.sha256.empty()) {
    MW_ASSIGN_OR_RETURN(const FeedTypes types, FeedTypesOf(programs, inputs_));
    MW_ASSIGN_OR_RETURN(
        data_, DataFeed::Open(message.data, {message.sequence, message.seed, message.vocabulary},
                              types, Places()));
    MW_ASSIGN_OR_RETURN(auto actors, StartActors(message, programs));
    data_->SetActors(std::move(actors));
  }
  feed_ = std::make_unique<JobFeed>(data_.get(), inputs_);
  return OkStatus();
}

Result<std::unique_ptr<ActorFeed>> MeshHost::StartActors(const proto::LoadMesh& message,
                                                         const std::vector<ir::Program>& programs) {
  const std::vector<ir::DataStream>& streams = message.data.streams;
  ActorFeedOptions options;
  MW_ASSIGN_OR_RETURN(options.rows, FeedRowsOf(programs, streams));
  options.job = message.job;
  options.host = resources_.host_actors;
  options.seed = message.seed;
  options.sequence = message.sequence;
  options.vocabulary = message.vocabulary;
  options.cancelled = [this] { return aborted(); };
  return ActorFeed::Start(streams, std::move(options));
}

// Files may be opened until the job ends: those that do not stay open are opened again.
FilePlaces MeshHost::Places() const {
  return {resources_.blobs, resources_.roots, [this] { return aborted(); }};
}

Result<ir::Program> MeshHost::FetchProgram(const ir::BlobRef& blob, int rank,
                                           const std::string& name) {
  MW_ASSIGN_OR_RETURN(std::string text, resources_.blobs->Read(blob, [this] { return aborted(); }));
  auto program = ir::ParseProgram(text);
  if (!program.has_value()) {
    return Fail(program.error().WithContext(fmt::format("program {}/{}", name, rank)));
  }
  if (program->name != name || program->device.value() != rank) {
    return Fail(InvalidArgument(fmt::format("the program for {}/{} is {}/{}", name, rank,
                                            program->name, program->device.value())));
  }
  return std::move(*program);
}

void MeshHost::RunInOrder(LaunchSeq launch_seq, const char* what,
                          const std::function<Status(proto::LaunchDone&)>& work) {
  const uint64_t seq = launch_seq.value();
  if (aborted() || seq <= last_seq_) return;  // a repeated launch has been answered
  if (seq != last_seq_ + 1) {
    const Status gap =
        Internal(fmt::format("launch {} came after launch {}: one is missing", seq, last_seq_));
    Say(proto::MeshError{mesh_gen_, Error(ErrorKind::kProtocol, gap)});
    return;
  }
  last_seq_ = seq;
  proto::LaunchDone done{mesh_gen_, launch_seq, {}, {}, {}};
  done.begin_ns = SystemClock().NowNs();
  const Status status = Guarded(what, [&] { return work(done); });
  done.error = Error(ErrorKind::kStepFailed, status);
  if (!done.error.ok()) {
    done.reports.clear();
    done.tensors.clear();
  }
  if (resources_.metrics != nullptr) resources_.metrics->ObserveLaunch(done);
  done.round.said_ns = SystemClock().NowNs();
  Say(std::move(done));
  CheckDevices(status);
}

Status MeshHost::LaunchOnThread(const proto::Launch& message, proto::LaunchDone& done) {
  if (!runtime_) return FailedPrecondition("launch before the programs were loaded");
  if (message.program >= programs_.size()) {
    return InvalidArgument(
        fmt::format("launch of program {}, the mesh has {}", message.program, programs_.size()));
  }
  if (message.fetch != proto::Fetch::kNothing && message.count != 1) {
    return InvalidArgument(
        fmt::format("tensors of {} steps are asked for at once; one is possible", message.count));
  }
  const std::string& program = programs_[message.program];
  MW_TRY(StageInputs(message));
  MW_ASSIGN_OR_RETURN(
      auto steps, runtime_->Launch({program, message.first_step, message.count, message.record}));
  feed_->Clear();
  for (StepReport& step : steps) {
    done.reports.push_back(proto::StepReport{step.step, step.seconds, std::move(step.values), {}});
  }
  PutBusy(runtime_->Busy(), done.reports);
  done.recorded = runtime_->TakeRecorded();
  if (message.fetch != proto::Fetch::kNothing) {
    MW_ASSIGN_OR_RETURN(done.tensors, ReadOutputs(program, message.fetch));
  }
  const bool initialised = program == ir::kInitProgram;
  if (initialised && initial_weights_) MW_TRY(FillInitialWeights());
  if (!message.snapshot) return OkStatus();
  Note(resources_, MeshDoing::kSnapshot);
  done.snapshot = taker_->Take(message.first_step + message.count, state_, *runtime_);
  return OkStatus();
}

Status MeshHost::StageInputs(const proto::Launch& message) {
  MW_CHECK(feed_ != nullptr) << "mesh " << mesh_gen_ << " was loaded without a feed";
  for (const proto::LaunchInput& input : message.inputs) {
    if (input.input >= inputs_.size()) {
      return InvalidArgument(
          fmt::format("a launch brings input {}, the mesh has {}", input.input, inputs_.size()));
    }
    MW_TRY(feed_->Stage(inputs_[input.input], input.bytes, input.first_row, input.rows));
  }
  return OkStatus();
}

Result<std::vector<proto::TensorTile>> MeshHost::ReadOutputs(const std::string& program,
                                                             proto::Fetch fetch) {
  MW_ASSIGN_OR_RETURN(std::vector<OutputBlock> blocks, runtime_->ReadOutputs(program));
  std::vector<proto::TensorTile> tiles;
  for (OutputBlock& block : blocks) {
    proto::TensorTile tile{std::move(block.name), std::move(block.type), std::move(block.box),
                           std::move(block.bytes)};
    tiles.push_back(fetch == proto::Fetch::kLargest ? proto::LargestOf(std::move(tile))
                                                    : std::move(tile));
  }
  return tiles;
}

Status MeshHost::ReadOnThread(const proto::ReadTensors& message, proto::LaunchDone& done) {
  if (!runtime_) return FailedPrecondition("read before the programs were loaded");
  MW_ASSIGN_OR_RETURN(done.tensors, ReadTiles(message.ranks, state_, *runtime_));
  return OkStatus();
}

Status MeshHost::WriteOnThread(const proto::WriteTensors& message) {
  if (!runtime_) return FailedPrecondition("write before the programs were loaded");
  return WriteTensors(message.tensors, state_, *runtime_);
}

Status MeshHost::SaveOnThread(const proto::SaveWeights& message) {
  if (!runtime_) return FailedPrecondition("save before the programs were loaded");
  const auto source = MakeTileSource(mesh_gen_, message.ranks, state_, *runtime_);
  return resources_.link->PutTiles([this] { return aborted(); }, source);
}

StateSaver& MeshHost::Saver() {
  if (!saver_) {
    MW_CHECK(files_ != nullptr) << "a save of mesh " << mesh_gen_ << ", which is not loaded";
    saver_ = std::make_unique<StateSaver>(resources_.worker, *files_,
                                          [this](proto::UpBody body) { Say(std::move(body)); });
  }
  return *saver_;
}

// With the programs: a download within the first launch would be held against the collectives'
// deadline of the peers that have the file already.
Status MeshHost::OpenInitialWeights(const proto::LoadMesh& message) {
  const auto cancelled = [this] { return aborted(); };
  InitialWeights initial;
  initial.name = message.init_weights.blob.name;
  MW_ASSIGN_OR_RETURN(std::string text, resources_.blobs->Read(message.graph, cancelled));
  MW_ASSIGN_OR_RETURN(initial.loss, ir::ParseGraph(text));
  MW_ASSIGN_OR_RETURN(initial.file, OpenWeights(Places(), message.init_weights));
  initial_weights_ = std::move(initial);
  return OkStatus();
}

// After the init program, which fills every weight.
Status MeshHost::FillInitialWeights() {
  MW_CHECK(initial_weights_.has_value() && runtime_ != nullptr)
      << "mesh " << mesh_gen_ << " has no weights to fill in";
  const InitialWeights initial = *std::exchange(initial_weights_, std::nullopt);
  return LoadWeights(*initial.file, initial.loss, state_, *runtime_)
      .WithContext(fmt::format("initial weights '{}'", initial.name));
}

void MeshHost::ReleaseOnThread() {
  if (gone_) return;
  gone_ = true;
  Note(resources_, MeshDoing::kReleasing);
  RefreshMetrics();
  std::shared_ptr<JobRuntime> runtime;
  {
    const MutexLock lock(mutex_);
    runtime = std::move(runtime_);
  }
  // The controller must not take the worker for free before it hears that a device is lost.
  saver_.reset();
  if (runtime) TellLost(runtime->Close());
  runtime.reset();
  feed_.reset();
  data_.reset();
  resources_.metrics->Forget(mesh_gen_.value());
  report_(proto::MeshReleased{mesh_gen_});
  released_();
}

// Without a runtime it is the load that failed, and what it says of hardware is said of a device of
// this worker; later causes may be another's.
void MeshHost::CheckDevices(const Status& failure) {
  if (failure.ok()) return;
  if (runtime_) return TellLost(runtime_->DeviceStatus());
  if (failure.blame() == Blame::kHardware) TellLost(failure);
}

void MeshHost::TellLost(const Status& lost) {
  if (lost.ok() || !resources_.device_lost || std::exchange(lost_told_, true)) return;
  resources_.device_lost(lost);
}

void MeshHost::Say(proto::UpBody body) {
  if (!aborted()) report_(std::move(body));
}

proto::RuntimeError MeshHost::Error(ErrorKind kind, const Status& status) const {
  if (!status.ok()) {
    LogWarn(fmt::format("mesh {}: {}: {}", mesh_gen_.value(), proto::ErrorKindName(kind),
                        status.message()));
  }
  return proto::MakeError(kind, status.WithContext(fmt::format("worker '{}'", resources_.worker)),
                          resources_.worker);
}

}  // namespace meshwright::worker
