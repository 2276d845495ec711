// A real Prometheus, with the configuration and rules of deploy/prometheus, that scrapes a cluster
// on which a job runs: every query of the dashboards and rules has an answer.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "base/clock.h"
#include "base/file.h"
#include "base/mutex.h"
#include "base/text.h"
#include "tests/deploy/tools.h"
#include "tests/e2e/http_get.h"

namespace meshwright::testing {
namespace {

using ::testing::IsEmpty;

constexpr int64_t kStartMs = 60'000;
constexpr int64_t kDataMs = 90'000;

// A port that nobody has right now; Prometheus cannot be told to pick one.
int PortThatIsFree() {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(place);
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&place), bytes) != 0) return 0;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&place), &bytes) != 0) return 0;
  return ntohs(place.sin_port);
}

std::string Replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) {
    text.replace(at, what.size(), by);
  }
  return text;
}

std::string UrlEncoded(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<uint8_t>(c));
  }
  return out;
}

const char* const kScrapedJob = R"([job]
name = "scraped"
[model]
name = "gpt2"
dim = 32
n_layers = 2
n_heads = 4
vocab_size = 256
[training]
dataset_path = "text.txt"
global_batch_size = 8
seq_len = 16
steps = 1000000
[parallelism]
data_parallel_replicate_degree = 2
[validation]
interval = 50
batches = 1
[checkpoint]
enable = true
interval = 100
)";

// A cluster of two workers with a job that does not end, and a Prometheus that looks at it.
class ScrapedRun : public ::testing::Test {
 protected:
  void SetUp() override {
    MW_NEEDS("prometheus", "promtool");
    folder_.emplace(TempDir::Make("meshwright-scraped").value());
    std::string text;
    for (int i = 0; i < 5000; ++i) text += "The quick brown fox jumps over the lazy dog. ";
    ASSERT_TRUE(WriteFileAtomic(folder_->File("text.txt"), text).ok());
    ASSERT_TRUE(WriteFileAtomic(folder_->File("job.toml"), kScrapedJob).ok());
    const Answer up =
        Meshwright({"up", "--workers", "2", "--port", "0", "--metrics-port", "0", "--no-keep",
                    "--dir", folder_->File("run"), "--data-root", folder_->path(), "-o", "json"});
    ASSERT_TRUE(up.ok) << up.text;
    const auto cluster = nlohmann::json::parse(up.text.substr(up.text.find('{')));
    const Answer submitted = Meshwright({"submit", folder_->File("job.toml"), "--no-wait",
                                         "--address", cluster["address"].get<std::string>()});
    ASSERT_TRUE(submitted.ok) << submitted.text;
    StartPrometheus(cluster["metrics_address"].get<std::string>());
  }

  void TearDown() override {
    prometheus_.reset();
    if (folder_) (void)Meshwright({"down", "--dir", folder_->File("run")});
  }

  // With a profile of the machine, as mfu wants one.
  static Answer Meshwright(std::vector<std::string> args) {
    args.insert(args.begin(), MESHWRIGHT_BINARY);
    return Ask(std::move(args), {{"MESHWRIGHT_PROFILE", "cached"}}, kStartMs);
  }

  void StartPrometheus(const std::string& metrics_address) {
    std::string config = DeployFile("prometheus/prometheus.yml");
    config = Replaced(config, "127.0.0.1:7780", metrics_address);
    config = Replaced(config, "interval: 15s", "interval: 1s");
    ASSERT_TRUE(WriteFileAtomic(folder_->File("prometheus.yml"), config).ok());
    ASSERT_TRUE(
        WriteFileAtomic(folder_->File("rules.yml"), DeployFile("prometheus/rules.yml")).ok());
    address_ = fmt::format("127.0.0.1:{}", PortThatIsFree());
    SubprocessOptions options;
    options.args = {PathOf("prometheus"), "--config.file=" + folder_->File("prometheus.yml"),
                    "--storage.tsdb.path=" + folder_->File("tsdb"),
                    "--web.listen-address=" + address_, "--log.level=warn"};
    options.stderr_to = OutputTo::File(folder_->File("prometheus.log"));
    options.stdout_to = OutputTo::Discard();
    options.death_signal = SIGKILL;
    auto started = Subprocess::Start(options);
    ASSERT_TRUE(started.has_value()) << started.error();
    prometheus_ = std::move(*started);
  }

  nlohmann::json Api(const std::string& path) const {
    const std::string body = HttpGet(address_, "/api/v1/" + path);
    // The body may come in chunks, each with a length before it.
    const size_t begin = body.find('{');
    const size_t end = body.rfind('}');
    if (begin == std::string::npos || end == std::string::npos) return nlohmann::json::object();
    const std::string joined = std::regex_replace(body.substr(begin, end - begin + 1),
                                                  std::regex("\r\n[0-9a-f]+\r\n"), "");
    return nlohmann::json::parse(joined, nullptr, false);
  }

  bool HasData(const std::string& query) const {
    const nlohmann::json reply = Api("query?query=" + UrlEncoded(query));
    if (!reply.is_object() || reply.value("status", "") != "success") return false;
    return !reply["data"]["result"].empty();
  }

  // Those of the queries that have no answer when the time is over.
  std::set<std::string> WithoutData(std::set<std::string> queries) const {
    const Deadline deadline = Deadline::After(kDataMs);
    Mutex mutex;
    CondVar never;
    for (;;) {
      std::erase_if(queries, [&](const std::string& query) { return HasData(query); });
      if (queries.empty() || deadline.expired()) return queries;
      const MutexLock lock(mutex);
      (void)never.WaitFor(mutex, std::chrono::milliseconds(500));
    }
  }

  std::optional<TempDir> folder_;
  std::string address_;
  std::unique_ptr<Subprocess> prometheus_;
};

// With the variables filled in; of a variable's own query, what it lists.
void AddQueries(const nlohmann::json& node, std::set<std::string>& queries) {
  if (node.is_object()) {
    for (const auto& [key, value] : node.items()) {
      if (key == "expr") {
        queries.insert(std::regex_replace(value.get<std::string>(), std::regex("\\$\\w+"), ".*"));
      } else if (key == "definition") {
        queries.insert(std::regex_replace(value.get<std::string>(),
                                          std::regex("label_values\\((.+), (\\w+)\\)"),
                                          "count by ($2) ($1)"));
      } else {
        AddQueries(value, queries);
      }
    }
  } else if (node.is_array()) {
    for (const auto& value : node) AddQueries(value, queries);
  }
}

// This machine may have no GPU, and none of its processes need be a node_exporter.
bool IsOfAnotherMachine(const std::string& query) {
  return query.find("meshwright_gpu_") != std::string::npos ||
         query.find("node_filesystem") != std::string::npos;
}

TEST_F(ScrapedRun, EveryQueryOfDashboardsAndRulesHasAnAnswer) {
  if (IsSkipped() || HasFatalFailure()) return;
  std::set<std::string> queries;
  for (const char* board : {"fleet", "job", "worker"}) {
    AddQueries(nlohmann::json::parse(DeployFile(fmt::format("grafana/dashboards/{}.json", board))),
               queries);
  }
  // Alerts have none while all is well: but what they look at is there.
  const std::string rules = DeployFile("prometheus/rules.yml");
  const std::regex name("\\b(job_id:)?meshwright_[a-z_]+(:[a-z0-9]+)?|\\bup\\b");
  std::string expressions;
  for (const std::string& line : Split(rules, '\n')) {
    const bool text = line.find("description:") != std::string::npos ||
                      line.find("summary:") != std::string::npos ||
                      line.find("record:") != std::string::npos ||
                      std::string(Trim(line)).rfind('#', 0) == 0;
    if (!text) expressions += line + "\n";
  }
  for (auto it = std::sregex_iterator(expressions.begin(), expressions.end(), name);
       it != std::sregex_iterator(); ++it) {
    if (it->str() != "meshwright_slow_rank") queries.insert(it->str());
  }
  std::erase_if(queries, IsOfAnotherMachine);
  EXPECT_GE(queries.size(), 60u);
  EXPECT_THAT(WithoutData(queries), IsEmpty())
      << ReadFile(folder_->File("prometheus.log")).value_or("");

  const nlohmann::json groups = Api("rules")["data"]["groups"];
  int count = 0;
  for (const auto& group : groups) {
    for (const auto& rule : group["rules"]) {
      ++count;
      EXPECT_EQ(rule["health"], "ok") << rule.dump();
      const std::string state = rule.value("state", "");
      EXPECT_TRUE(state != "firing" || rule["name"] == "MeshwrightDiskFull" ||
                  rule["name"] == "MeshwrightWorkDiskFull")
          << "nothing is wrong here: " << rule.dump();
    }
  }
  EXPECT_GE(count, 20);
}

// A row of docs/metrics.md.
struct MetricRow {
  std::string type;
  std::set<std::string> labels;
};

std::map<std::string, MetricRow> MetricsOfTheManual() {
  std::map<std::string, MetricRow> rows;
  const std::string manual = ReadFile(MESHWRIGHT_SOURCE_DIR "/docs/metrics.md").value();
  for (const std::string& line : Split(manual, '\n')) {
    const std::vector<std::string> cells = Split(line, '|');
    if (cells.size() != 6 || cells[1].rfind(" `", 0) != 0) continue;
    MetricRow row;
    row.type = Trim(cells[2]);
    for (const std::string& label : Split(Replaced(cells[3], "`", ""), ',')) {
      if (!Trim(label).empty()) row.labels.insert(std::string(Trim(label)));
    }
    rows[std::string(Trim(Replaced(cells[1], "`", "")))] = row;
  }
  return rows;
}

// Of the target: Prometheus's own, and those of the controller's list. A label that both have gets
// "exported_" in front.
std::set<std::string> LabelsOf(const nlohmann::json& series) {
  static const std::set<std::string> of_target = {"__name__", "instance",        "job",
                                                  "le",       "meshwright_role", "host"};
  const bool of_worker = series.contains("meshwright_role");
  std::set<std::string> labels;
  for (const auto& [label, value] : series.items()) {
    if (label == "host" && !of_worker) labels.insert(label);
    if (label == "worker" && of_worker) continue;
    if (label == "exported_worker") labels.insert("worker");
    if (label != "exported_worker" && of_target.count(label) == 0) labels.insert(label);
  }
  return labels;
}

TEST_F(ScrapedRun, TheManualHasTheTypeAndTheLabelsOfEverySeries) {
  if (IsSkipped() || HasFatalFailure()) return;
  const std::set<std::string> first = {
      "meshwright_job_info", "meshwright_step_part_seconds", "meshwright_checkpoint_last_step",
      "meshwright_validation_loss", "meshwright_collective_bytes_total"};
  ASSERT_THAT(WithoutData(first), IsEmpty());
  const std::map<std::string, MetricRow> manual = MetricsOfTheManual();
  EXPECT_GE(manual.size(), 60u);
  const nlohmann::json types = Api("metadata")["data"];
  const nlohmann::json series =
      Api("series?match[]=" +
          UrlEncoded("{__name__=~\"(meshwright|process)_.*\",job!=\"node\"}"))["data"];
  std::set<std::string> seen;
  for (const auto& one : series) {
    std::string name = one["__name__"].get<std::string>();
    if (one.contains("le") || manual.count(name) == 0) {
      name = std::regex_replace(name, std::regex("_(bucket|sum|count)$"), "");
    }
    const auto row = manual.find(name);
    ASSERT_TRUE(row != manual.end()) << name << " is not in docs/metrics.md";
    seen.insert(name);
    EXPECT_EQ(types[name][0]["type"], row->second.type) << name;
    for (const std::string& label : LabelsOf(one)) {
      EXPECT_EQ(row->second.labels.count(label), 1u) << name << " has a label " << label;
    }
  }
  EXPECT_GE(seen.size(), 50u);
}

}  // namespace
}  // namespace meshwright::testing
