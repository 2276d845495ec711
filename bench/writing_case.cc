#include "bench/writing_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "base/median.h"
#include "cli/folder_job.h"
#include "client/client.h"
#include "generation/paged_session.h"

namespace meshwright::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kSeed = 1;

double Since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double Quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double place = share * static_cast<double>(values.size() - 1);
  return values[static_cast<size_t>(place + 0.5)];
}

struct Opened {
  std::unique_ptr<client::Client> client;
  std::unique_ptr<client::Session> session;
  generation::PagedPlan plan;
  int64_t vocabulary = 0;
};

Result<Opened> Open(const WritingCaseOptions& options) {
  Opened opened;
  client::Client::Options at;
  at.address = options.address;
  MW_ASSIGN_OR_RETURN(opened.client, client::Client::Connect(at));
  const int64_t positions =
      std::max(options.prompt_tokens, options.late_prompt_tokens) + options.new_tokens;
  cli::FolderModel folder;
  folder.folder = options.folder;
  folder.overrides = options.overrides;
  MW_ASSIGN_OR_RETURN(const config::JobConfig config, cli::FolderConfig(folder, positions));
  MW_ASSIGN_OR_RETURN(const config::PreparedJob prepared, config::PrepareJob(config));
  opened.vocabulary = prepared.model.vocabulary;
  generation::PagedOptions pages;
  pages.positions = positions;
  pages.texts = options.texts + (options.late_prompt_tokens > 0 ? 1 : 0);
  pages.tokens = std::max(options.step_tokens, pages.texts);
  MW_ASSIGN_OR_RETURN(opened.plan, generation::PlanPages(pages));
  MW_ASSIGN_OR_RETURN(ir::JobRequest job,
                      generation::PagedJob(prepared.request, prepared.model.functions, opened.plan,
                                           "bench writing"));
  MW_ASSIGN_OR_RETURN(job, generation::WithHalfWeights(std::move(job)));
  MW_ASSIGN_OR_RETURN(job, cli::WithFolderWeights(*opened.client, config, std::move(job)));
  MW_ASSIGN_OR_RETURN(opened.session, opened.client->OpenSession(job));
  return opened;
}

// Texts that are written, and when each got its tokens.
class Watch {
 public:
  // Both outlive it.
  Watch(const WritingCaseOptions& options, const Opened& opened)
      : options_(options),
        vocabulary_(opened.vocabulary),
        random_(kSeed),
        engine_(opened.plan.limits(), generation::StepsOf(*opened.session, opened.plan)) {}

  Status Add(int64_t prompt_tokens, int64_t new_tokens) {
    generation::Request request;
    for (int64_t i = 0; i < prompt_tokens; ++i) {
      request.prompt.push_back(
          static_cast<int32_t>(random_() % static_cast<uint64_t>(vocabulary_)));
    }
    request.max_new_tokens = new_tokens;
    const size_t text = told_.size();
    told_.emplace_back();
    const auto tell = [this, text](int32_t) {
      told_[text].push_back(Since(begin_));
      return true;
    };
    MW_TRY(engine_.Add(std::move(request), {tell, {}, {}}));
    return OkStatus();
  }

  // All texts and, in the middle of them, the late one.
  Result<WritingCase> Run() {
    WritingCase result;
    for (int64_t i = 0; i < options_.texts; ++i) {
      MW_TRY(Add(options_.prompt_tokens, options_.new_tokens));
    }
    while (!AllBegan()) MW_TRY(Step());
    result.prompt_seconds = Since(begin_);
    const bool has_late = options_.late_prompt_tokens > 0;
    const int64_t quiet_steps = has_late ? options_.new_tokens / 4 : options_.new_tokens - 1;
    std::vector<double> seconds;
    for (int64_t i = 0; i < quiet_steps && !engine_.idle(); ++i) {
      MW_ASSIGN_OR_RETURN(const double step_s, Step());
      seconds.push_back(step_s);
    }
    result.steps = static_cast<int64_t>(seconds.size());
    for (const double step_s : seconds) result.decode_seconds += step_s;
    result.decode_tokens = result.steps * options_.texts;
    result.step_median_s = Median(seconds);
    const double quiet_end = Since(begin_);
    result.gap_median_s = Median(Gaps(result.prompt_seconds, quiet_end));
    if (!has_late) return result;
    MW_TRY(Add(options_.late_prompt_tokens, 1));
    while (!AllBegan()) MW_TRY(Step());
    const double late_end = Since(begin_);
    const std::vector<double> gaps = Gaps(quiet_end, late_end);
    result.late_seconds = late_end - quiet_end;
    result.late_gap_median_s = Median(gaps);
    result.late_gap_p99_s = Quantile(gaps, 0.99);
    return result;
  }

 private:
  Result<double> Step() {
    const Clock::time_point begin = Clock::now();
    MW_TRY(engine_.Step());
    return Since(begin);
  }

  bool AllBegan() const {
    return std::all_of(told_.begin(), told_.end(), [](const auto& told) { return !told.empty(); });
  }

  // Between two tokens of a text, of those that came in (begin_s, end_s].
  std::vector<double> Gaps(double begin_s, double end_s) const {
    std::vector<double> gaps;
    for (const std::vector<double>& told : told_) {
      for (size_t i = 1; i < told.size(); ++i) {
        if (told[i] > begin_s && told[i] <= end_s) gaps.push_back(told[i] - told[i - 1]);
      }
    }
    return gaps;
  }

  const WritingCaseOptions& options_;
  const int64_t vocabulary_;
  std::mt19937_64 random_;
  generation::Engine engine_;
  const Clock::time_point begin_ = Clock::now();
  std::vector<std::vector<double>> told_;  // of each text, when its tokens came
};

}  // namespace

Result<WritingCase> RunWritingCase(const WritingCaseOptions& options) {
  MW_ASSIGN_OR_RETURN(Opened opened, Open(options));
  // The first calls load programs and touch pages.
  WritingCaseOptions warm = options;
  warm.late_prompt_tokens = 0;
  warm.new_tokens = 4;
  MW_TRY(Watch(warm, opened).Run());
  MW_ASSIGN_OR_RETURN(const WritingCase result, Watch(options, opened).Run());
  MW_TRY(opened.session->Close());
  return result;
}

std::string FormatWritingCase(const WritingCase& result) {
  return fmt::format(
      R"({{"steps":{},"prompt_seconds":{:.9g},"decode_seconds":{:.9g},"decode_tokens":{},)"
      R"("step_median_seconds":{:.9g},"gap_median_seconds":{:.9g},"late_seconds":{:.9g},)"
      R"("late_gap_median_seconds":{:.9g},"late_gap_p99_seconds":{:.9g}}})",
      result.steps, result.prompt_seconds, result.decode_seconds, result.decode_tokens,
      result.step_median_s, result.gap_median_s, result.late_seconds, result.late_gap_median_s,
      result.late_gap_p99_s);
}

}  // namespace meshwright::bench
