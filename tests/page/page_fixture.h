// A real cluster whose controller has its page, for tests of it.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "tests/e2e/process_cluster.h"
#include "tests/page/http_ask.h"

namespace meshwright::testing {

inline constexpr int64_t kLong = 1'000'000;  // steps of a job that does not end by itself

class PageFixture : public ::testing::Test {
 protected:
  void Begin(std::vector<std::string> controller_args = {}) {
    ProcessClusterOptions options;
    options.workers = 2;
    options.controller_args = std::move(controller_args);
    auto cluster = ProcessCluster::Start(options);
    ASSERT_TRUE(cluster.has_value()) << cluster.error();
    cluster_ = *std::move(cluster);
  }

  // Where the page is, as the controller's folder says it.
  int port() const {
    const std::string text = ReadFile(cluster_->state_dir() + "/ports").value_or("");
    const std::vector<std::string> words = Split(Trim(text), ' ');
    return words.size() == 2 ? std::stoi(words[1]) : 0;
  }
  std::string Url(const std::string& path = "/") const {
    return fmt::format("http://127.0.0.1:{}{}", port(), path);
  }

  // A job of so many steps that saves its state where it is told to.
  int64_t Submit(const std::string& name, int64_t steps,
                 const std::string& optimizer_memory = "device") {
    ir::JobRequest job = ByteJob(2, 1, 1, steps);
    job.parallel.optimizer_memory = optimizer_memory;
    job.name = name;
    job.checkpoint.enable = true;
    job.checkpoint.interval = 1'000'000;
    const auto id = cluster_->Submit(std::move(job), SampleText(20'000));
    EXPECT_TRUE(id.has_value()) << id.error();
    return id.value_or(0);
  }

  HttpAnswer Get(const std::string& path, const std::string& headers = "") const {
    return AskHttp(port(), {.method = "GET", .path = path, .headers = headers});
  }
  HttpAnswer Post(const std::string& path, const std::string& headers = "",
                  const std::string& body = "") const {
    return AskHttp(port(), {.method = "POST", .path = path, .headers = headers, .body = body});
  }
  // Asks until there is an answer: plans are drawn beside the run, and a controller that has just
  // been started may have another port.
  nlohmann::json AwaitJson(const std::string& path) const {
    const Deadline deadline = Deadline::After(30'000);
    HttpAnswer answer = Get(path);
    while (answer.code != 200 && !deadline.expired()) answer = Get(path);
    return nlohmann::json::parse(answer.body, nullptr, false);
  }
  nlohmann::json Json(const std::string& path) const {
    return nlohmann::json::parse(Get(path).body, nullptr, false);
  }

  std::unique_ptr<ProcessCluster> cluster_;
};

}  // namespace meshwright::testing
