// Jobs, workers and steps as JSON: what `-o json` prints and what the controller's page and its
// /api/v1 answer, so that a field has one name. docs/cli.md lists them.
//
// Numbers that are none (JSON has no NaN) are null; texts that are no UTF-8 have their bad bytes
// replaced. Thread rule: pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "client/client.h"

namespace meshwright::report {

nlohmann::ordered_json JobObject(const client::JobInfo& job);
nlohmann::ordered_json WorkerObject(const client::WorkerInfo& worker);
nlohmann::ordered_json StepObject(const client::StepMetrics& step);
// Null where it is none.
nlohmann::ordered_json NumberOrNull(double value);

// indent: below 0: on one line.
std::string JsonText(const nlohmann::ordered_json& object, int indent = -1);

}  // namespace meshwright::report
