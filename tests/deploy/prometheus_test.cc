// The configuration, rules and dashboard of deploy/prometheus and deploy/grafana.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "base/file.h"
#include "base/text.h"
#include "controller/states.h"
#include "tests/deploy/tools.h"

namespace meshwright::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::set<std::string> Matches(const std::string& text, const std::string& pattern, int group = 0) {
  std::set<std::string> found;
  const std::regex regex(pattern);
  for (auto it = std::sregex_iterator(text.begin(), text.end(), regex);
       it != std::sregex_iterator(); ++it) {
    found.insert((*it)[static_cast<size_t>(group)]);
  }
  return found;
}

// The metrics that controllers and workers have, as their sources name them.
std::set<std::string> MetricsOfTheCode() {
  std::set<std::string> metrics;
  for (const char* room : {"base", "controller", "worker"}) {
    for (const auto& entry :
         std::filesystem::directory_iterator(std::string(MESHWRIGHT_SOURCE_DIR) + "/" + room)) {
      if (entry.path().extension() != ".cc") continue;
      const std::string text = ReadFile(entry.path().string()).value();
      metrics.merge(Matches(text, "\"((meshwright|process)_[a-z_]+)\"", 1));
    }
  }
  return metrics;
}

// Those that expressions name and that nobody has.
std::set<std::string> UnknownMetrics(const std::string& expressions) {
  const std::set<std::string> metrics = MetricsOfTheCode();
  const std::set<std::string> recorded =
      Matches(DeployFile("prometheus/rules.yml"), "record: ([a-z0-9_:]+)", 1);
  std::set<std::string> unknown;
  for (const std::string& name :
       Matches(expressions, "\\b([a-z_]+:)?(meshwright|process)_[a-z_]+(:[a-z0-9]+)?")) {
    const std::string family = std::regex_replace(name, std::regex("_(bucket|sum|count)$"), "");
    if (metrics.count(name) + metrics.count(family) + recorded.count(name) == 0) {
      unknown.insert(name);
    }
  }
  return unknown;
}

// The states that selectors name and that no job, worker or device has.
std::set<std::string> UnknownStates(const std::string& expressions) {
  std::set<std::string> states = {"queued",    "planning", "starting",  "running",
                                  "succeeded", "failed",   "cancelled", "recovering",
                                  "paused",    "busy",     "free",      "unavailable"};
  for (int i = 0; i < controller::kWorkerStateCount; ++i) {
    std::string name = controller::Name(static_cast<controller::WorkerState>(i));
    for (char& c : name) c = static_cast<char>(std::tolower(c));
    states.insert(name);
  }
  std::set<std::string> unknown;
  for (const std::string& choice : Matches(expressions, "state=~?\"([a-z|]+)\"", 1)) {
    for (const std::string& state : Split(choice, '|')) {
      if (states.count(state) == 0) unknown.insert(state);
    }
  }
  return unknown;
}

std::string Expressions(const nlohmann::json& node) {
  std::string all;
  if (node.is_object()) {
    for (const auto& [key, value] : node.items()) {
      const bool expression = (key == "expr" || key == "definition") && value.is_string();
      all += expression ? value.get<std::string>() + "\n" : Expressions(value);
    }
  } else if (node.is_array()) {
    for (const auto& value : node) all += Expressions(value);
  }
  return all;
}

TEST(PrometheusRules, PassPromtoolAndTheirUnitTests) {
  MW_NEEDS("promtool");
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"check", "config", "prometheus.yml"},
        {"check", "config", "--syntax-only", "prometheus-tls.yml"},  // its files are the user's
        {"check", "rules", "rules.yml"},
        {"test", "rules", "rules_test.yml"}}) {
    std::vector<std::string> args = words;
    args.insert(args.begin(), "promtool");
    args.back() = DeployPath("prometheus/" + args.back());
    const Answer answer = Ask(args);
    EXPECT_TRUE(answer.ok) << answer.text;
  }
}

TEST(PrometheusRules, EveryAlertIsTestedAndHasItsPartOfTheManual) {
  const std::string rules = DeployFile("prometheus/rules.yml");
  const std::string tests = DeployFile("prometheus/rules_test.yml");
  const std::string manual = ReadFile(MESHWRIGHT_SOURCE_DIR "/docs/operations.md").value();
  const std::set<std::string> alerts = Matches(rules, "alert: (\\w+)", 1);
  EXPECT_GE(alerts.size(), 5u);
  for (const std::string& alert : alerts) {
    EXPECT_THAT(tests, HasSubstr("alertname: " + alert + "\n        exp_alerts:")) << alert;
    EXPECT_THAT(manual, HasSubstr("### " + alert + "\n")) << alert;
    std::string anchor = alert;
    for (char& c : anchor) c = static_cast<char>(std::tolower(c));
    EXPECT_THAT(rules, HasSubstr("docs/operations.md#" + anchor + "\n")) << alert;
  }
}

// docs/metrics.md, by name.
TEST(Metrics, AreAllInTheManualAndNoOthersAre) {
  const std::string manual = ReadFile(MESHWRIGHT_SOURCE_DIR "/docs/metrics.md").value();
  std::set<std::string> code = MetricsOfTheCode();
  code.erase("meshwright_role");  // a label of the controller's list of workers
  EXPECT_EQ(Matches(manual, "\n\\| `((meshwright|process)_[a-z_]+)` \\|", 1), code);
}

TEST(PrometheusRules, NameMetricsAndStatesThatThereAre) {
  const std::string rules = DeployFile("prometheus/rules.yml");
  EXPECT_THAT(UnknownMetrics(rules), IsEmpty());
  EXPECT_THAT(UnknownStates(rules), IsEmpty());
  EXPECT_THAT(UnknownMetrics("rate(meshwright_such_total[1m])"), ::testing::SizeIs(1));
  EXPECT_THAT(UnknownStates("meshwright_jobs{state=~\"running|such\"}"), ::testing::SizeIs(1));
}

class GrafanaDashboard : public ::testing::TestWithParam<const char*> {
 protected:
  static nlohmann::json Board() {
    return nlohmann::json::parse(DeployFile(fmt::format("grafana/dashboards/{}.json", GetParam())));
  }
};
INSTANTIATE_TEST_SUITE_P(All, GrafanaDashboard, ::testing::Values("fleet", "job", "worker"));

TEST_P(GrafanaDashboard, NamesMetricsAndStatesThatThereAre) {
  const std::string expressions = Expressions(Board());
  EXPECT_THAT(UnknownMetrics(expressions), IsEmpty());
  EXPECT_THAT(UnknownStates(expressions), IsEmpty());
  EXPECT_GE(Matches(expressions, "meshwright_[a-z_]+").size(), 15u);
}

TEST_P(GrafanaDashboard, HasPanelsThatGrafanaTellsApart) {
  const auto board = Board();
  EXPECT_EQ(board["uid"], fmt::format("meshwright-{}", GetParam()));
  std::set<int> ids;
  for (const auto& panel : board["panels"]) {
    EXPECT_TRUE(ids.insert(panel["id"].get<int>()).second) << panel["title"];
    EXPECT_FALSE(panel["targets"].empty()) << panel["title"];
    const auto& place = panel["gridPos"];
    EXPECT_LE(place["x"].get<int>() + place["w"].get<int>(), 24) << panel["title"];
  }
}

// Prometheus itself judges the expressions: as recorded rules, with the variables filled in.
TEST_P(GrafanaDashboard, HasExpressionsThatPrometheusReads) {
  MW_NEEDS("promtool");
  const auto board = Board();
  std::string rules = "groups:\n  - name: dashboard\n    rules:\n";
  int count = 0;
  for (const auto& panel : board["panels"]) {
    for (const auto& target : panel["targets"]) {
      const std::string expression =
          std::regex_replace(target["expr"].get<std::string>(), std::regex("\\$\\w+"), ".*");
      rules += fmt::format("      - record: panel:number{}\n        expr: {}\n", count++,
                           nlohmann::json(expression).dump());
    }
  }
  const TempDir folder = TempDir::Make().value();
  ASSERT_TRUE(WriteFileAtomic(folder.File("rules.yml"), rules).ok());
  const Answer answer = Ask({"promtool", "check", "rules", folder.File("rules.yml")});
  EXPECT_TRUE(answer.ok) << answer.text;
  EXPECT_THAT(answer.text, HasSubstr(fmt::format("{} rules found", count)));
}

}  // namespace
}  // namespace meshwright::testing
