#include "report/otlp_spans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "base/text.h"

namespace meshwright::report {
namespace {

using client::StepMetrics;
using nlohmann::json;

RunFacts Facts() {
  RunFacts facts;
  facts.job = 3;
  facts.name = "gpt";
  facts.layout = "data=4";
  facts.begin_unix_s = 1.7e9;
  facts.submitted_unix_s = 1.7e9 - 2;
  facts.devices = 4;
  return facts;
}

StepMetrics StepAt(int64_t number, double seconds) {
  StepMetrics step;
  step.step = number;
  step.loss = 2.5;
  step.grad_norm = 1;
  step.lr = 0.5;
  step.tokens = 64;
  step.seconds = seconds;
  step.validation_loss = std::numeric_limits<double>::quiet_NaN();
  return step;
}

std::vector<json> SpansIn(const std::string& text) {
  std::vector<json> spans;
  for (const std::string& line : Split(text, '\n')) {
    if (line.empty()) continue;
    const json request = json::parse(line);
    for (const json& span : request["resourceSpans"][0]["scopeSpans"][0]["spans"]) {
      spans.push_back(span);
    }
  }
  return spans;
}

json AttributeOf(const json& span, const std::string& key) {
  for (const json& each : span["attributes"]) {
    if (each["key"] == key) return each["value"];
  }
  return {};
}

TEST(OtlpSpans, AreTheJobItsQueueAndItsSteps) {
  const std::string text = OtlpOf(Facts(), {StepAt(0, 0.5), StepAt(1, 0.25)});
  const json request = json::parse(text);
  const json& resource = request["resourceSpans"][0]["resource"];
  EXPECT_EQ(AttributeOf(resource, "service.name")["stringValue"], "meshwright");
  EXPECT_EQ(AttributeOf(resource, "meshwright.job.id")["intValue"], "3") << "integers are text";
  const std::vector<json> spans = SpansIn(text);
  ASSERT_EQ(spans.size(), 4U);
  EXPECT_EQ(spans[0]["name"], "job gpt");
  EXPECT_FALSE(spans[0].contains("parentSpanId"));
  EXPECT_EQ(spans[0]["startTimeUnixNano"], "1699999998000000000");
  EXPECT_EQ(spans[0]["endTimeUnixNano"], "1700000000750000000");
  EXPECT_EQ(spans[1]["name"], "queued");
  EXPECT_EQ(spans[1]["endTimeUnixNano"], "1700000000000000000");
  EXPECT_EQ(spans[3]["name"], "step");
  EXPECT_EQ(spans[3]["startTimeUnixNano"], "1700000000500000000");
  EXPECT_EQ(AttributeOf(spans[3], "meshwright.step")["intValue"], "2");
  EXPECT_EQ(AttributeOf(spans[3], "meshwright.loss")["doubleValue"], 2.5);
  EXPECT_TRUE(AttributeOf(spans[3], "meshwright.validation_loss").is_null()) << "it is no number";
  for (const json& span : spans) {
    EXPECT_EQ(span["traceId"], spans[0]["traceId"]);
    EXPECT_EQ(span["traceId"].get<std::string>().size(), 32U);
    EXPECT_EQ(span["spanId"].get<std::string>().size(), 16U);
    if (span != spans[0]) {
      EXPECT_EQ(span["parentSpanId"], spans[0]["spanId"]);
    }
  }
}

// A step that is done again has its number again, and is another span.
TEST(OtlpSpans, HaveNamesOfTheirOwnAndTheSameEachTime) {
  std::vector<StepMetrics> steps;
  for (size_t i = 0; i < 2 * kSpansOfLine; ++i) steps.push_back(StepAt(i % 7, 0.001));
  const std::string text = OtlpOf(Facts(), steps);
  EXPECT_EQ(text, OtlpOf(Facts(), steps));
  std::set<std::string> ids;
  for (const json& span : SpansIn(text)) ids.insert(span["spanId"]);
  EXPECT_EQ(ids.size(), steps.size() + 2);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << "a request has a bound";
  RunFacts other = Facts();
  other.job = 4;
  EXPECT_NE(SpansIn(OtlpOf(other, steps))[0]["traceId"], SpansIn(text)[0]["traceId"]);
}

}  // namespace
}  // namespace meshwright::report
