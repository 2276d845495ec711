// Run: one attempt at a job, from the devices that are reserved for it to its end.
//
//   placed --> planned (it has a mesh generation and a driver) --> ended, well or with a cause
//
// A job has one run at a time. A run has at most one mesh, which outlives it until every member has
// let go; another run of the same job would have a number, a generation and ranks of its own, and
// may begin meanwhile. What becomes of a job whose run has failed is JudgeFailure's to say
// (controller/recovery.h), and nobody else's.
//
// While its mesh works, the run says what comes next: its driver and its clients take turns, so
// that neither can keep the other waiting. Thread rule: the core's thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "controller/driver.h"
#include "controller/events.h"
#include "controller/halt.h"
#include "controller/mesh_work.h"
#include "controller/snapshot_start.h"

namespace meshwright::controller {

// A device that is the run's: reserved, and then by rank.
struct RankPlace {
  std::string worker;
  int local_device = 0;
  friend bool operator==(const RankPlace&, const RankPlace&) = default;
};

// A plan, and where it runs or ran: the device of each rank.
struct SeatedPlan {
  PlannedJob plan;
  std::vector<RankPlace> ranks;
};

// Where the state of a run comes from.
struct RunStart {
  ir::StartPoint point;                            // empty: it is initialised
  std::shared_ptr<const SnapshotStart> snapshots;  // that `point` is of; null: it is none of memory
};

// By program: the next step of those that clients call.
using CallSteps = std::map<std::string, int64_t>;
// The next ask of a client that can be carried out now, or nothing.
using TakeAsk = FunctionRef<std::optional<ClientAsk>(const CallSteps&)>;

class Run {
 public:
  // number: from 1 within its job.
  Run(int number, std::vector<RankPlace> reserved, ir::StartPoint start = {})
      : number_(number), ranks_(std::move(reserved)), start_{std::move(start), nullptr} {}

  int number() const { return number_; }
  const std::vector<RankPlace>& ranks() const { return ranks_; }
  // None while it is planned, and where nobody was told of it.
  const std::optional<MeshGeneration>& mesh() const { return mesh_; }
  bool Uses(const std::string& worker) const;
  const RunStart& start() const { return start_; }
  // REQUIRES that it has no mesh yet.
  void StartFrom(RunStart start);
  // Whether its state is that of the start.
  bool restored() const { return restored_; }

  // Keeps what the plan takes, in the order of its ranks; the rest is free again. REQUIRES that the
  // plan fits (CheckPlacement).
  std::vector<RankPlace> TakeRanks(const PlannedJob& plan);
  // It has a mesh from now on.
  void Begin(MeshGeneration mesh, std::unique_ptr<Driver> driver);
  // Its mesh is none: what was to be written before anyone was told of it could not be.
  void Unmesh() { mesh_.reset(); }

  // ---- REQUIRES that it has begun ----
  std::optional<MeshWork> NextWork(TakeAsk take_ask);
  // A launch has come to its end. No news: it is none of the driver's. Not OK in them: the run
  // cannot go on.
  std::optional<DriverNews> OnLaunched(const LaunchResult& result);
  // As Driver::Resume.
  Status Resume(const std::vector<ResumedLaunch>& launches, bool from_first);
  // It is over: what its driver held back. None has begun: nothing.
  DriverNews Abandon() { return driver_ ? driver_->Abandon() : DriverNews{}; }
  Driver& driver() { return *driver_; }
  // Why it ends before its job does, while it comes to that: clients wait meanwhile. Changed by
  // controller/core_halts.h, and nobody else.
  std::optional<Halt>& halt() { return halt_; }
  const std::optional<Halt>& halt() const { return halt_; }
  bool HaltsFor(HaltFor what) const { return halt_ && halt_->what == what; }
  // Its clients have finished.
  void Close() { driver_->Close(); }
  bool done() const { return driver_->done(); }

 private:
  std::optional<MeshWork> WorkOfDriver();
  std::optional<MeshWork> WorkOfClients(TakeAsk take_ask);

  int number_;
  std::vector<RankPlace> ranks_;
  RunStart start_;
  bool restored_ = false;
  std::optional<MeshGeneration> mesh_;
  std::unique_ptr<Driver> driver_;
  std::optional<Halt> halt_;
  bool initialised_ = false;  // the driver's first launch, which fills the state, is issued
  bool ask_is_next_ = false;
  CallSteps call_steps_;
};

// Every rank of the plan has a reserved device of its own. Errors: kInternal.
Status CheckPlacement(const PlannedJob& plan, size_t reserved);

}  // namespace meshwright::controller
