#include "web/cluster.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "controller/await.h"
#include "controller/control_loop.h"
#include "controller/hang_text.h"
#include "controller/state_dir.h"

namespace meshwright::web {
namespace {

using controller::Await;
using controller::ControlLoop;
using controller::Core;

class ControllerCluster final : public Cluster {
 public:
  explicit ControllerCluster(const controller::SiteParts& parts) : parts_(parts) {}

  Result<ClusterState> Look() override {
    MW_ASSIGN_OR_RETURN(ClusterState state, Await<ClusterState>([this](auto done) {
                          controller::LookAt<ClusterState>(*parts_.loop, See, std::move(done));
                        }));
    MW_ASSIGN_OR_RETURN(state.workers, Await<std::vector<proto::WorkerInfo>>([this](auto done) {
                          parts_.loop->Workers(std::move(done));
                        }));
    return state;
  }

  Result<ClusterState> Tiles() override {
    return Await<ClusterState>([this](auto done) {
      const auto see = [](const Core& core) -> Result<ClusterState> {
        ClusterState state = Jobs(core);
        state.workers = core.WorkerTiles();
        return state;
      };
      controller::LookAt<ClusterState>(*parts_.loop, see, std::move(done));
    });
  }

  Result<proto::JobInfo> Job(int64_t job) override {
    return Await<proto::JobInfo>([&](auto done) { parts_.loop->Get(job, std::move(done)); });
  }

  Result<controller::JobStory> Story(int64_t job) override {
    return Await<controller::JobStory>([&](auto done) {
      const auto see = [job](const Core& core) { return core.Story(JobId(job)); };
      controller::LookAt<controller::JobStory>(*parts_.loop, see, std::move(done));
    });
  }

  Result<StepsNews> Steps(int64_t job, int64_t from) override {
    const ControlLoop::WatchId watch = parts_.loop->NewWatchId();
    // A watcher that has seen nothing of the job's info is answered at once, unless the job's
    // history is being read.
    const controller::WatchCursor cursor{job, from, INT64_MAX, -1};
    auto news = Await<ControlLoop::News>(
        [&](auto done) { parts_.loop->Watch(watch, cursor, std::move(done)); });
    if (!news) {
      parts_.loop->Unwatch(watch);
      return Fail(news.error());
    }
    StepsNews steps;
    steps.next = news->cursor.steps;
    steps.caught_up = news->update.steps.empty() || news->caught_up;
    steps.steps = std::move(news->update.steps);
    return steps;
  }

  Result<std::vector<controller::EventRecord>> Events(int64_t job, int64_t most) override {
    return parts_.store->Events(job, most);
  }

  Result<std::string> FileEnd(int64_t job, const std::string& name, int64_t most) override {
    MW_ASSIGN_OR_RETURN(const MemoryMappedFile file,
                        MemoryMappedFile::Open(parts_.dir->job_dir(job) + "/" + name));
    const std::string_view text = file.text();
    const size_t bytes = std::min(text.size(), static_cast<size_t>(most));
    return std::string(text.substr(text.size() - bytes));
  }

  Result<controller::LogAnswer> WorkerLog(const controller::LogQuestion& question) override {
    if (parts_.logs == nullptr) return Fail(Unimplemented("this controller keeps no logs"));
    const auto ask = [this](const controller::LogQuestion& asked) {
      return Await<controller::LogAnswer>(
          [&](auto done) { parts_.logs->Ask(asked, std::move(done)); });
    };
    Result<controller::LogAnswer> answer = ask(question);
    // Who looks at a page waits less long for a worker than it may take.
    if (answer.has_value() || answer.error().code() != StatusCode::kUnavailable) return answer;
    controller::LogQuestion of_kept = question;
    of_kept.kept = true;
    return ask(of_kept);
  }

  Result<std::string> Hang(int64_t job) override {
    MW_ASSIGN_OR_RETURN(
        const controller::HangReport report, Await<controller::HangReport>([&](auto done) {
          const controller::Now now{SystemClock().NowMs(), SystemClock().UnixMs()};
          const auto see = [job, now](const Core& core) { return core.Hang(JobId(job), now); };
          controller::LookAt<controller::HangReport>(*parts_.loop, see, std::move(done));
        }));
    return controller::HangJson(report);
  }

  Status Order(int64_t job, JobOrder order) override {
    const auto make = [job, order](controller::CallId call) -> controller::Event {
      const JobId id(job);
      switch (order) {
        case JobOrder::kStop:
          return controller::CancelJob{call, id};
        case JobOrder::kPause:
          return controller::PauseJob{call, id};
        case JobOrder::kResume:
          return controller::ResumeJob{call, id};
        case JobOrder::kCheckpoint:
          break;
      }
      return controller::SaveJob{call, id};
    };
    const auto answer = Await<bool>([&](auto done) {
      parts_.loop->Order(make, [done](Status status) {
        if (status.ok()) return done(true);
        done(Fail(std::move(status)));
      });
    });
    return answer ? OkStatus() : answer.error();
  }

 private:
  static ClusterState Jobs(const Core& core) {
    ClusterState state;
    state.cluster_id = core.options().cluster_id;
    state.term = core.options().term.value();
    state.jobs = core.Jobs();
    return state;
  }

  static Result<ClusterState> See(const Core& core) {
    ClusterState state = Jobs(core);
    state.device_jobs = core.DeviceJobs();
    state.device_runs = core.DeviceRuns();
    return state;
  }

  const controller::SiteParts parts_;
};

}  // namespace

std::unique_ptr<Cluster> ClusterOf(const controller::SiteParts& parts) {
  return std::make_unique<ControllerCluster>(parts);
}

}  // namespace meshwright::web
