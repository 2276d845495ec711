// -o json: stable field names, one object per job, worker or step (report/views_json.h).
#include <nlohmann/json.hpp>

#include "cli/output.h"
#include "report/views_json.h"

namespace meshwright::cli {
namespace {

using Json = nlohmann::ordered_json;

Json ObjectsOf(const std::vector<client::JobInfo>& jobs) {
  Json array = Json::array();
  for (const client::JobInfo& job : jobs) array.push_back(report::JobObject(job));
  return array;
}

}  // namespace

std::string JobJson(const client::JobInfo& job) { return report::JsonText(report::JobObject(job)); }

std::string StepJson(const client::StepMetrics& step) {
  return report::JsonText(report::StepObject(step));
}

std::string LogJson(const std::string& line) { return report::JsonText(Json{{"line", line}}); }

std::string JobsJson(const std::vector<client::JobInfo>& jobs) {
  return report::JsonText(ObjectsOf(jobs), 2) + "\n";
}

std::string StatusJson(const std::vector<client::WorkerInfo>& workers,
                       const std::vector<client::JobInfo>& jobs) {
  Json array = Json::array();
  for (const client::WorkerInfo& worker : workers) array.push_back(report::WorkerObject(worker));
  return report::JsonText({{"workers", array}, {"jobs", ObjectsOf(jobs)}}, 2) + "\n";
}

}  // namespace meshwright::cli
