// A simulated cluster in which time passes while a job works: it has more steps than anyone waits
// for.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {

inline constexpr int64_t kWhileMs = 3000;  // that a run works before it returns

// Workers of one device each, and a job that never comes to its end.
struct Works {
  SimCluster cluster;
  int64_t job = 0;

  explicit Works(int workers, const std::vector<std::string>& hosts = {}, uint64_t seed = 1)
      : cluster(Options(), seed) {
    for (int i = 0; i < workers; ++i) {
      const auto index = static_cast<size_t>(i);
      cluster.AddWorker("w" + std::to_string(i), 1, index < hosts.size() ? hosts[index] : "host-a");
    }
    cluster.Settle();
  }
  ~Works() {
    if (!::testing::Test::HasFailure()) return;
    for (const std::string& line : cluster.lines(job)) std::cerr << "  " << line << "\n";
  }
  Works(const Works&) = delete;
  Works& operator=(const Works&) = delete;
  static CoreOptions Options() {
    CoreOptions options = SimCluster::DefaultOptions();
    options.plan_ahead_ms = 500;
    options.return_after_ms = kWhileMs;
    return options;
  }
  static ir::JobRequest Request(int64_t data, int64_t tensor = 1) {
    ir::JobRequest request = SimCluster::MakeJob(data, tensor, 1, 1'000'000);
    request.fault_tolerance.snapshot_every = 0;
    request.checkpoint.enable = true;
    request.checkpoint.interval = 0;
    return request;
  }
  void Run(const ir::JobRequest& request, int64_t ms = 2000) {
    job = cluster.Submit(request);
    Work(ms);
    ASSERT_EQ(Info().state, proto::JobState::kRunning);
  }
  // Time passes, in which some steps are done.
  void Work(int64_t ms) {
    for (int64_t passed = 0; passed < ms; passed += 100) {
      for (int i = 0; i < 40 && cluster.DeliverOne(); ++i) {
      }
      cluster.Advance(100);
    }
  }
  void Lose(const std::string& worker) {
    cluster.Kill(worker);
    Work(200);
  }
  proto::JobInfo Info() const { return cluster.Info(job); }
  bool Runs() const { return Info().state == proto::JobState::kRunning; }
  bool Said(const std::string& text) {
    const auto& lines = cluster.lines(job);
    return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
      return line.find(text) != std::string::npos;
    });
  }
  int64_t Count(const std::string& text) {
    const auto& lines = cluster.lines(job);
    return std::count_if(lines.begin(), lines.end(), [&](const std::string& line) {
      return line.find(text) != std::string::npos;
    });
  }
  std::vector<std::string> MembersOfLastMesh() const {
    std::vector<std::string> workers;
    for (const proto::Member& member : cluster.last_load->members) workers.push_back(member.worker);
    return workers;
  }
  size_t asked() const { return cluster.planned_ahead.size(); }
};

}  // namespace meshwright::controller
