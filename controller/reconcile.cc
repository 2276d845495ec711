#include "controller/reconcile.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"

namespace meshwright::controller {
namespace {

Status Misfit(const std::string& worker, const std::string& what) {
  return Aborted(fmt::format("what worker '{}' was told does not fit: {}", worker, what));
}

// Its launches follow one another, and those that are done come first.
Status CheckOrder(const std::string& worker, const proto::ResumeMesh& said) {
  uint64_t seq = said.first_seq.value();
  if (seq < 1) return Misfit(worker, "launches before the first one");
  for (const proto::ToldLaunch& launch : said.launches) {
    if (launch.seq.value() != seq) {
      return Misfit(worker, fmt::format("launch {} in the place of {}", launch.seq.value(), seq));
    }
    ++seq;
  }
  seq = said.first_seq.value();
  for (const proto::LaunchDone& done : said.done) {
    if (done.launch_seq.value() != seq || done.launch_seq > HeardBy(said)) {
      return Misfit(worker, fmt::format("launch {} is done in the place of {}",
                                        done.launch_seq.value(), seq));
    }
    ++seq;
  }
  return OkStatus();
}

Result<ResumedLaunch> LaunchOf(const proto::ToldLaunch& told, const MeshOrder& order) {
  switch (told.kind) {
    case proto::ToldKind::kSave:
      return ResumedLaunch{{"", told.first_step, 0, LaunchKind::kSave}, false};
    case proto::ToldKind::kRestore:
      return ResumedLaunch{
          {"", std::max<int64_t>(0, order.checkpoints.start.step), 0, LaunchKind::kRestore}, false};
    case proto::ToldKind::kRead:
    case proto::ToldKind::kWrite:
      return ResumedLaunch{{"", 0, 0, LaunchKind::kProgram}, true};
    case proto::ToldKind::kProgram:
      break;
  }
  if (told.program >= order.plan.programs.size() || told.count < 1) {
    return Fail(Aborted(fmt::format("launch {} of program {}, {} steps", told.seq.value(),
                                    told.program, told.count)));
  }
  return ResumedLaunch{
      {order.plan.programs[told.program], told.first_step, told.count, LaunchKind::kProgram},
      told.asked};
}

// As one of the members knows the launch, and the others agree.
Result<ResumedLaunch> Agree(uint64_t seq, const MeshOrder& order,
                            const std::vector<MeshMember>& members) {
  const proto::ToldLaunch* known = nullptr;
  bool all = true;
  for (const MeshMember& member : members) {
    const proto::ResumeMesh& said = *member.held;
    if (HeardBy(said).value() < seq) {
      all = false;
      continue;
    }
    const proto::ToldLaunch& told = said.launches[seq - said.first_seq.value()];
    if (known != nullptr && !(*known == told)) {
      return Fail(Misfit(member.worker, fmt::format("launch {} is another one elsewhere", seq)));
    }
    known = &told;
  }
  MW_CHECK(known != nullptr) << "nobody knows launch " << seq;
  MW_ASSIGN_OR_RETURN(ResumedLaunch launch, LaunchOf(*known, order));
  if (launch.asked && !all) {
    return Fail(Aborted(fmt::format("launch {} is a client's, and what it brought is lost", seq)));
  }
  // Who holds the snapshots of a start is not on record.
  const bool of_memory = launch.launch.kind == LaunchKind::kRestore && order.snapshots == nullptr &&
                         order.checkpoints.start.checkpoint.path.empty();
  if (of_memory && !all) {
    return Fail(Aborted(fmt::format(
        "launch {} restores from snapshots, and not all workers were told of it", seq)));
  }
  return launch;
}

}  // namespace

LaunchSeq HeardBy(const proto::ResumeMesh& said) {
  return LaunchSeq(said.first_seq.value() + said.launches.size() - 1);
}

Result<KnownLaunches> Reconcile(const MeshOrder& order, const std::vector<MeshMember>& members) {
  uint64_t first = 1, last = 0;
  for (const MeshMember& member : members) {
    MW_CHECK(member.held.has_value()) << "worker " << member.worker << " has said nothing";
    MW_TRY(CheckOrder(member.worker, *member.held));
    first = std::max(first, member.held->first_seq.value());
    last = std::max(last, HeardBy(*member.held).value());
  }
  for (const MeshMember& member : members) {
    const proto::ResumeMesh& said = *member.held;
    if (said.first_seq.value() + said.done.size() >= first) continue;
    return Fail(Misfit(member.worker, fmt::format("it has not done launch {}, which others have "
                                                  "forgotten",
                                                  said.first_seq.value() + said.done.size())));
  }
  KnownLaunches known{LaunchSeq(first), {}};
  for (uint64_t seq = first; seq <= last; ++seq) {
    MW_ASSIGN_OR_RETURN(ResumedLaunch launch, Agree(seq, order, members));
    known.launches.push_back(std::move(launch));
  }
  return known;
}

}  // namespace meshwright::controller
