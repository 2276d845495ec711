#include "controller/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace meshwright::controller {

using proto::ErrorKind;

bool Run::Uses(const std::string& worker) const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [&](const RankPlace& rank) { return rank.worker == worker; });
}

std::vector<RankPlace> Run::TakeRanks(const PlannedJob& plan) {
  std::vector<RankPlace> reserved = std::move(ranks_);
  std::vector<bool> used(reserved.size(), false);
  ranks_.clear();
  for (size_t rank = 0; rank < plan.devices.size(); ++rank) {
    const size_t at = plan.placement.empty() ? rank : static_cast<size_t>(plan.placement[rank]);
    MW_CHECK(at < reserved.size() && !used[at])
        << "rank " << rank << " takes device " << at << " of " << reserved.size();
    ranks_.push_back(reserved[at]);
    used[at] = true;
  }
  std::vector<RankPlace> left;
  for (size_t i = 0; i < reserved.size(); ++i) {
    if (!used[i]) left.push_back(std::move(reserved[i]));
  }
  return left;
}

void Run::StartFrom(RunStart start) {
  MW_CHECK(!mesh_) << "run " << number_ << " has begun";
  start_ = std::move(start);
}

void Run::Begin(MeshGeneration mesh, std::unique_ptr<Driver> driver) {
  MW_CHECK(!mesh_ && driver != nullptr) << "run " << number_ << " begins twice";
  mesh_ = mesh;
  driver_ = std::move(driver);
}

std::optional<MeshWork> Run::NextWork(TakeAsk take_ask) {
  if (halt_) return WorkOfDriver();
  std::optional<MeshWork> work = ask_is_next_ ? WorkOfClients(take_ask) : WorkOfDriver();
  if (!work) work = ask_is_next_ ? WorkOfDriver() : WorkOfClients(take_ask);
  if (work) ask_is_next_ = !ask_is_next_;
  return work;
}

Status Run::Resume(const std::vector<ResumedLaunch>& launches, bool from_first) {
  MW_TRY(driver_->Resume(launches, from_first));
  initialised_ = !launches.empty() || !from_first;
  return OkStatus();
}

std::optional<MeshWork> Run::WorkOfDriver() {
  std::optional<PlannedLaunch> next = driver_->Next();
  if (!next) return std::nullopt;
  MW_CHECK(next->count >= 1 || next->kind != LaunchKind::kProgram)
      << "a launch of " << next->count << " steps of '" << next->program << "'";
  MW_CHECK(next->program != ir::kStepProgram || next->first_step >= start_.point.step)
      << "run " << number_ << " began at step " << start_.point.step << ", not at "
      << next->first_step;
  initialised_ = true;
  return MeshWork{*std::move(next), std::nullopt};
}

std::optional<MeshWork> Run::WorkOfClients(TakeAsk take_ask) {
  if (!initialised_) return std::nullopt;
  std::optional<ClientAsk> taken = take_ask(call_steps_);
  if (!taken) return std::nullopt;
  MeshWork work;
  work.launch.count = 0;
  if (const auto* call = std::get_if<proto::CallProgram>(&taken->ask)) {
    int64_t& next_step = call_steps_[call->program];
    const int64_t step = call->step.value_or(next_step);
    next_step = step + 1;
    work.launch = PlannedLaunch{call->program, step, 1};
  }
  work.client = ClientWork{{taken->seat, taken->id}, std::move(taken->ask)};
  return work;
}

// A driver hears of its own launches, and of the steps that its client made.
std::optional<DriverNews> Run::OnLaunched(const LaunchResult& result) {
  restored_ = restored_ || result.launch.kind == LaunchKind::kRestore;
  const bool is_heard = !result.ask || result.launch.program == ir::kStepProgram;
  if (!is_heard) return std::nullopt;
  return driver_->On(result.launch, result.reports);
}

Status CheckPlacement(const PlannedJob& plan, size_t reserved) {
  if (plan.devices.empty() || plan.devices.size() > reserved) {
    return Internal(
        fmt::format("the plan has {} devices, {} were reserved", plan.devices.size(), reserved));
  }
  if (plan.placement.empty()) return OkStatus();
  std::vector<int> places = plan.placement;
  std::sort(places.begin(), places.end());
  const bool distinct = std::adjacent_find(places.begin(), places.end()) == places.end();
  if (distinct && places.size() == plan.devices.size() && places.front() >= 0 &&
      places.back() < static_cast<int>(reserved)) {
    return OkStatus();
  }
  return Internal(fmt::format("the plan places {} ranks on devices that were not reserved",
                              plan.placement.size()));
}

}  // namespace meshwright::controller
