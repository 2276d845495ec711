#include "controller/hang_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/table.h"
#include "base/text.h"

namespace meshwright::controller {
namespace {

constexpr size_t kMostRows = 32;
constexpr size_t kMostNumbers = 8;  // of ranks in a list

std::string SecondsText(int64_t ms) { return FormatDuration(static_cast<double>(ms) / 1000); }

// "1, 2, 3 and 5 more".
std::string RankList(const std::vector<int>& ranks) {
  if (ranks.empty()) return "none";
  const size_t count = std::min(ranks.size(), kMostNumbers);
  std::string text;
  for (size_t i = 0; i < count; ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  if (ranks.size() > count) text += fmt::format(" and {} more", ranks.size() - count);
  return text;
}

std::string NameOf(const HangRank& rank) {
  return fmt::format("rank {} (worker '{}', device {})", rank.rank, rank.worker, rank.device);
}

std::string PlaceText(const HangRank& rank) {
  if (!rank.known) return "nothing is known of where it is";
  if (!rank.in_step) {
    return fmt::format("behind step {} of program '{}': {}", rank.step, rank.program, rank.what);
  }
  return fmt::format("at instruction {}{} of step {} of program '{}' for {}", rank.instruction,
                     rank.what.empty() ? "" : fmt::format(" ({})", rank.what), rank.step,
                     rank.program, SecondsText(rank.since_ms));
}

std::string Head(const HangReport& report) {
  std::string text = fmt::format("job {} '{}' {}", report.job, report.name, report.state);
  if (!report.running) {
    return text + (report.message.empty() ? "" : fmt::format(": {}", report.message)) +
           "\nnothing of it runs now, so nothing hangs\n";
  }
  if (report.usual_step_s > 0) {
    text += fmt::format(", a step takes {}", FormatDuration(report.usual_step_s));
  }
  const bool known = std::any_of(report.ranks.begin(), report.ranks.end(),
                                 [](const HangRank& rank) { return rank.known; });
  if (!known) return text + "\nits devices have not said yet where they are\n";
  if (!report.stalled) {
    return text + fmt::format("\nit moves: the last time {} ago\n", SecondsText(report.still_ms));
  }
  return text + fmt::format("\nnothing has moved for {}\n", SecondsText(report.still_ms));
}

std::string SuspectText(const HangReport& report) {
  if (report.suspects.empty()) return "";
  std::string text;
  size_t named = 0;
  for (const HangRank& rank : report.ranks) {
    const bool suspect = std::find(report.suspects.begin(), report.suspects.end(), rank.rank) !=
                         report.suspects.end();
    if (!suspect || named == kMostNumbers) continue;
    text += fmt::format("{} {}, {}\n", named == 0 ? "suspect:" : "        ", NameOf(rank),
                        PlaceText(rank));
    ++named;
  }
  text += fmt::format("why:      {}\n", report.evidence);
  if (report.waiters > 0) {
    text += fmt::format("          {} of {} ranks {} for it\n", report.waiters, report.ranks.size(),
                        report.waiters == 1 ? "waits" : "wait");
  }
  return text + fmt::format("try:      {}\n", report.advice);
}

std::string CollectivesText(const HangReport& report) {
  std::string text;
  size_t shown = 0;
  for (const HangCollective& each : report.collectives) {
    if (++shown > kMostNumbers) break;
    text +=
        fmt::format("  call {} of group {} ({} members): in it {}; not come {}\n", each.call,
                    each.group, each.members.size(), RankList(each.inside), RankList(each.missing));
  }
  if (text.empty()) return "";
  const size_t rest = report.collectives.size() - std::min(report.collectives.size(), kMostNumbers);
  if (rest > 0) text += fmt::format("  and {} more\n", rest);
  return "collectives under way:\n" + text;
}

std::vector<std::string> Row(const HangRank& rank) {
  if (!rank.known) {
    return {fmt::format("{}", rank.rank),
            rank.worker,
            fmt::format("{}", rank.device),
            "-",
            "-",
            "unknown",
            "-",
            "-",
            "-",
            "-"};
  }
  const std::string what = rank.awaits_rows ? rank.what + " (reads rows)" : rank.what;
  return {fmt::format("{}", rank.rank),
          rank.worker,
          fmt::format("{}", rank.device),
          rank.pid > 0 ? fmt::format("{}", rank.pid) : "-",
          fmt::format("{}", rank.step),
          rank.in_step ? fmt::format("{} {}", rank.instruction, what) : rank.what,
          SecondsText(rank.since_ms),
          rank.thread,
          SecondsText(rank.heard_ms) + " ago",
          rank.waits_for.empty() ? "-" : RankList(rank.waits_for)};
}

// Suspects first, where not all fit.
std::string RanksText(const HangReport& report) {
  const std::set<int> suspects(report.suspects.begin(), report.suspects.end());
  std::vector<const HangRank*> order;
  for (const HangRank& rank : report.ranks) order.push_back(&rank);
  if (order.size() > kMostRows) {
    std::stable_sort(order.begin(), order.end(), [&](const HangRank* a, const HangRank* b) {
      return suspects.contains(a->rank) > suspects.contains(b->rank);
    });
  }
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < std::min(order.size(), kMostRows); ++i) rows.push_back(Row(*order[i]));
  std::string text = FormatTable(
      {"RANK", "WORKER", "DEVICE", "PID", "STEP", "AT", "FOR", "THREAD", "HEARD", "WAITS FOR"},
      rows);
  if (order.size() > kMostRows) {
    text += fmt::format("and {} more; all of them: -o json\n", order.size() - kMostRows);
  }
  return text;
}

}  // namespace

std::string FormatHang(const HangReport& report) {
  std::string text = Head(report);
  if (!report.running || report.ranks.empty()) return text;
  return text + SuspectText(report) + CollectivesText(report) + RanksText(report);
}

std::string HangJson(const HangReport& report) {
  nlohmann::json ranks = nlohmann::json::array();
  for (const HangRank& rank : report.ranks) {
    nlohmann::json each = {{"rank", rank.rank},
                           {"worker", rank.worker},
                           {"device", rank.device},
                           {"known", rank.known}};
    if (rank.known) {
      each.update({{"in_step", rank.in_step},
                   {"program", rank.program},
                   {"step", rank.step},
                   {"instruction", rank.instruction},
                   {"what", rank.what},
                   {"since_ms", rank.since_ms},
                   {"heard_ms_ago", rank.heard_ms},
                   {"pid", rank.pid > 0 ? nlohmann::json(rank.pid) : nlohmann::json()},
                   {"thread", rank.thread},
                   {"at_work", rank.at_work},
                   {"awaits_rows", rank.awaits_rows},
                   {"waits_for", rank.waits_for}});
    }
    ranks.push_back(std::move(each));
  }
  nlohmann::json collectives = nlohmann::json::array();
  for (const HangCollective& each : report.collectives) {
    collectives.push_back({{"group", each.group},
                           {"call", each.call},
                           {"members", each.members},
                           {"inside", each.inside},
                           {"missing", each.missing}});
  }
  const nlohmann::json all = {{"job", report.job},
                              {"name", report.name},
                              {"state", report.state},
                              {"message", report.message},
                              {"running", report.running},
                              {"stalled", report.stalled},
                              {"still_ms", report.still_ms},
                              {"stall_limit_ms", report.limit_ms},
                              {"usual_step_s", report.usual_step_s},
                              {"cause", HangCauseName(report.cause)},
                              {"suspects", report.suspects},
                              {"waiters", report.waiters},
                              {"evidence", report.evidence},
                              {"advice", report.advice},
                              {"collectives", collectives},
                              {"ranks", ranks}};
  return all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace meshwright::controller
