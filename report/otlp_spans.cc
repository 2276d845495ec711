#include "report/otlp_spans.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/sha256.h"
#include "report/views_json.h"

namespace meshwright::report {
namespace {

using client::StepMetrics;
using OtlpJson = nlohmann::ordered_json;

constexpr int kInternal = 1;  // SPAN_KIND_INTERNAL

OtlpJson Attribute(const std::string& key, const std::string& value) {
  return {{"key", key}, {"value", {{"stringValue", value}}}};
}
// 64-bit integers are text in the JSON of Protocol Buffers.
OtlpJson Attribute(const std::string& key, int64_t value) {
  return {{"key", key}, {"value", {{"intValue", std::to_string(value)}}}};
}

// What is no number is not there.
void AddNumber(OtlpJson& attributes, const std::string& key, double value) {
  if (!std::isfinite(value)) return;
  attributes.push_back({{"key", key}, {"value", {{"doubleValue", value}}}});
}

// A moment of this era; what was never known is its beginning.
std::string Nanoseconds(double unix_s) {
  const bool known = std::isfinite(unix_s) && unix_s > 0 && unix_s < 9e9;
  return std::to_string(known ? static_cast<int64_t>(std::llround(unix_s * 1e6)) * 1000 : 0);
}

class SpanWriter {
 public:
  explicit SpanWriter(const RunFacts& facts)
      : facts_(facts),
        trace_(Sha256Hex(fmt::format("{}|{}|{:.3f}", facts.job, facts.name, facts.begin_unix_s))
                   .substr(0, 32)) {}

  // `parent`: its id; empty: the trace begins with it.
  void Add(const std::string& name, const std::string& id, const std::string& parent,
           std::pair<double, double> unix_s, OtlpJson attributes) {
    MW_CHECK(unix_s.first <= unix_s.second) << name << " ends before it begins";
    OtlpJson span = {{"traceId", trace_}, {"spanId", id}};
    if (!parent.empty()) span["parentSpanId"] = parent;
    span.update({{"name", name},
                 {"kind", kInternal},
                 {"startTimeUnixNano", Nanoseconds(unix_s.first)},
                 {"endTimeUnixNano", Nanoseconds(unix_s.second)},
                 {"attributes", std::move(attributes)}});
    spans_.push_back(std::move(span));
    if (spans_.size() == kSpansOfLine) EndLine();
  }
  std::string SpanId(const std::string& what) const {
    return Sha256Hex(trace_ + "|" + what).substr(0, 16);
  }
  std::string Finish() {
    EndLine();
    return std::move(text_);
  }

 private:
  void EndLine() {
    if (spans_.empty()) return;
    const OtlpJson resource = {
        {"attributes",
         {Attribute("service.name", "meshwright"), Attribute("meshwright.job.id", facts_.job),
          Attribute("meshwright.job.name", facts_.name),
          Attribute("meshwright.layout", facts_.layout)}}};
    const OtlpJson scope = {{"scope", {{"name", "meshwright"}}}, {"spans", std::move(spans_)}};
    text_ += JsonText({{"resourceSpans",
                        OtlpJson::array({{{"resource", resource},
                                          {"scopeSpans", OtlpJson::array({scope})}}})}}) +
             "\n";
    spans_ = OtlpJson::array();
  }

  const RunFacts& facts_;
  const std::string trace_;
  OtlpJson spans_ = OtlpJson::array();
  std::string text_;
};

double StepSeconds(const StepMetrics& step) {
  return std::isfinite(step.seconds) && step.seconds > 0 ? step.seconds : 0;
}

OtlpJson AttributesOf(const StepMetrics& step) {
  OtlpJson attributes = OtlpJson::array({Attribute("meshwright.step", step.step + 1)});
  AddNumber(attributes, "meshwright.loss", step.loss);
  AddNumber(attributes, "meshwright.grad_norm", step.grad_norm);
  AddNumber(attributes, "meshwright.lr", step.lr);
  AddNumber(attributes, "meshwright.tokens", step.tokens);
  AddNumber(attributes, "meshwright.validation_loss", step.validation_loss);
  for (const auto& [name, value] : step.values) {
    AddNumber(attributes, "meshwright.values." + name, value);
  }
  return attributes;
}

}  // namespace

std::string OtlpOf(const RunFacts& facts, const std::vector<StepMetrics>& steps) {
  SpanWriter writer(facts);
  double seconds = 0;
  for (const StepMetrics& step : steps) seconds += StepSeconds(step);
  const double begin = facts.begin_unix_s;
  const double waited = facts.submitted_unix_s > 0 ? facts.submitted_unix_s : begin;
  const double submitted = std::min(waited, begin);
  const std::string job = writer.SpanId("job");
  OtlpJson attributes =
      OtlpJson::array({Attribute("meshwright.steps", static_cast<int64_t>(steps.size()))});
  if (facts.devices > 0) attributes.push_back(Attribute("meshwright.devices", facts.devices));
  writer.Add("job " + facts.name, job, "", {submitted, begin + seconds}, std::move(attributes));
  writer.Add("queued", writer.SpanId("queued"), job, {submitted, begin}, OtlpJson::array());
  double at = begin;
  for (size_t i = 0; i < steps.size(); ++i) {
    const double end = at + StepSeconds(steps[i]);
    // By its place: after a failure a step is done again, under the same number.
    writer.Add("step", writer.SpanId(fmt::format("step {}", i)), job, {at, end},
               AttributesOf(steps[i]));
    at = end;
  }
  return writer.Finish();
}

}  // namespace meshwright::report
