#include "controller/launches_under_way.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace meshwright::controller {
namespace {

// One that was asked for and is not spoken of was not taken.
void AddSnapshot(const proto::SnapshotTaken& of_member, LaunchResult& result) {
  if (!result.launch.snapshot) return;
  proto::SnapshotTaken& all = result.snapshot;
  all.step = result.launch.first_step + result.launch.count;
  all.seconds = std::max(all.seconds, of_member.seconds);
  all.bytes = std::max(all.bytes, of_member.bytes);
  if (!all.error.ok()) return;
  all.error = of_member.error;
  if (all.error.ok() && of_member.step != all.step) {
    all.error = proto::MakeError(
        proto::ErrorKind::kProtocol,
        Internal(fmt::format("a member has a snapshot of step {}", of_member.step)));
  }
}

}  // namespace

LaunchSeq LaunchesUnderWay::Add(PlannedLaunch launch, std::optional<AskId> ask, size_t members) {
  MW_CHECK(members >= 1) << "a launch of '" << launch.program << "' on nobody";
  Launch& added = launches_.emplace_back();
  added.seq = LaunchSeq(next_seq_++);
  added.launch = std::move(launch);
  added.ask = ask;
  added.reports.resize(members);
  return added.seq;
}

void LaunchesUnderWay::StartAt(LaunchSeq next) {
  MW_CHECK(launches_.empty() && next.value() >= 1) << "launch " << next << " is the first one";
  next_seq_ = next.value();
}

void LaunchesUnderWay::Keep(std::vector<proto::DownBody> messages) {
  MW_CHECK(!launches_.empty() && messages.size() == launches_.back().reports.size())
      << messages.size() << " messages";
  launches_.back().messages = std::move(messages);
}

std::vector<proto::DownBody> LaunchesUnderWay::Unheard(size_t member, LaunchSeq heard) const {
  std::vector<proto::DownBody> messages;
  for (const Launch& launch : launches_) {
    if (launch.seq <= heard || launch.messages.empty()) continue;
    messages.push_back(launch.messages[member]);
  }
  return messages;
}

Status LaunchesUnderWay::Report(size_t member, proto::LaunchDone report) {
  const auto it = std::find_if(launches_.begin(), launches_.end(),
                               [&](const Launch& each) { return each.seq == report.launch_seq; });
  if (it == launches_.end()) return NotFound("no such launch is under way");
  MW_CHECK(member < it->reports.size()) << "member " << member << " of " << it->reports.size();
  if (it->reports[member]) return NotFound("the launch was reported before");
  if (static_cast<int64_t>(report.reports.size()) != it->launch.count) {
    return InvalidArgument(
        fmt::format("{} steps of a launch of {}", report.reports.size(), it->launch.count));
  }
  it->reports[member] = std::move(report);
  return OkStatus();
}

std::optional<LaunchResult> LaunchesUnderWay::TakeComplete() {
  if (launches_.empty()) return std::nullopt;
  Launch& front = launches_.front();
  const bool complete = std::all_of(front.reports.begin(), front.reports.end(),
                                    [](const auto& report) { return report.has_value(); });
  if (!complete) return std::nullopt;
  LaunchResult result{std::move(front.launch), front.ask, {}, {}};
  result.reports.resize(static_cast<size_t>(result.launch.count));
  for (size_t member = 0; member < front.reports.size(); ++member) {
    std::optional<proto::LaunchDone>& report = front.reports[member];
    result.recorded.push_back({member, report->round, report->begin_ns, report->round.said_ns,
                               std::move(report->recorded)});
    for (size_t i = 0; i < result.reports.size(); ++i) {
      proto::StepReport& merged = result.reports[i];
      const proto::StepReport& of_member = report->reports[i];
      merged.step = result.launch.first_step + static_cast<int64_t>(i);
      merged.seconds = std::max(merged.seconds, of_member.seconds);
      merged.values.insert(of_member.values.begin(), of_member.values.end());
      merged.busy.insert(merged.busy.end(), of_member.busy.begin(), of_member.busy.end());
    }
    for (proto::TensorTile& tile : report->tensors) result.tensors.push_back(std::move(tile));
    AddSnapshot(report->snapshot, result);
  }
  launches_.pop_front();
  return result;
}

}  // namespace meshwright::controller
