// A cluster that a test writes down.
//
// Thread rule: thread-safe, but for what the test changes while it is looked at.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "web/cluster.h"

namespace meshwright::web {

class FakeCluster : public Cluster {
 public:
  ClusterState state;
  std::map<int64_t, std::vector<proto::StepMetrics>> steps;
  std::vector<controller::EventRecord> events;
  std::map<std::string, std::string> files;  // "7/plan.svg"
  std::vector<std::pair<int64_t, JobOrder>> orders;
  Status refuses;
  controller::LogQuestion asked;
  size_t most_steps = 10'000;  // in an answer

  void AddJob(int64_t id, proto::JobState job_state) {
    proto::JobInfo job;
    job.id = id;
    job.name = "job-" + std::to_string(id);
    job.state = job_state;
    job.steps = 100;
    state.jobs.insert(state.jobs.begin(), job);
  }
  void AddWorker(const std::string& name, int devices, int busy) {
    proto::WorkerInfo worker;
    worker.name = name;
    worker.host = "host";
    worker.state = "READY";
    worker.devices = devices;
    worker.busy_devices = busy;
    state.workers.push_back(worker);
  }
  void AddSteps(int64_t job, int count) {
    for (int i = 0; i < count; ++i) {
      proto::StepMetrics step;
      step.step = static_cast<int64_t>(steps[job].size());
      step.loss = 5.0 - 0.001 * static_cast<double>(step.step);
      step.tokens = 100;
      step.seconds = 0.1;
      steps[job].push_back(step);
    }
  }

  Result<ClusterState> Look() override { return state; }
  Result<ClusterState> Tiles() override { return state; }
  Result<proto::JobInfo> Job(int64_t job) override {
    for (const proto::JobInfo& info : state.jobs) {
      if (info.id == job) return info;
    }
    return Fail(NotFound("there is no job " + std::to_string(job)));
  }
  Result<controller::JobStory> Story(int64_t job) override {
    MW_TRY(Job(job));
    controller::JobStory story;
    story.recoveries = 2;
    story.ranks = {{"w0", 1}};
    return story;
  }
  Result<StepsNews> Steps(int64_t job, int64_t from) override {
    MW_TRY(Job(job));
    const auto& all = steps[job];
    StepsNews news;
    const size_t begin = std::min(all.size(), static_cast<size_t>(from));
    const size_t end = std::min(all.size(), begin + most_steps);
    news.steps.assign(all.begin() + static_cast<std::ptrdiff_t>(begin),
                      all.begin() + static_cast<std::ptrdiff_t>(end));
    news.next = static_cast<int64_t>(end);
    news.caught_up = end == all.size();
    return news;
  }
  Result<std::vector<controller::EventRecord>> Events(int64_t job, int64_t most) override {
    std::vector<controller::EventRecord> found;
    for (const controller::EventRecord& event : events) {
      if (job == 0 || event.job == job) found.push_back(event);
    }
    const auto count = std::min<size_t>(found.size(), static_cast<size_t>(most));
    found.erase(found.begin(), found.end() - static_cast<std::ptrdiff_t>(count));
    return found;
  }
  Result<std::string> FileEnd(int64_t job, const std::string& name, int64_t most) override {
    const auto found = files.find(std::to_string(job) + "/" + name);
    if (found == files.end()) return Fail(NotFound(name));
    const std::string& text = found->second;
    return text.substr(text.size() - std::min(text.size(), static_cast<size_t>(most)));
  }
  Result<controller::LogAnswer> WorkerLog(const controller::LogQuestion& question) override {
    asked = question;
    const auto found = files.find(question.worker + "/log");
    if (found == files.end()) return Fail(NotFound("no log of " + question.worker));
    return controller::LogAnswer{{found->second, 77, true}, !question.kept, ""};
  }
  Result<std::string> Hang(int64_t job) override {
    MW_TRY(Job(job));
    return std::string("{\"stalled\":false}\n");
  }
  Status Order(int64_t job, JobOrder order) override {
    if (!refuses.ok()) return refuses;
    orders.emplace_back(job, order);
    return OkStatus();
  }
};

}  // namespace meshwright::web
