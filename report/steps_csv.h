// The steps of a run as a table of comma-separated values (RFC 4180), both ways.
//
//   step,loss,grad_norm,lr,tokens,seconds,validation_loss,"a,b"
//   0,2,1.25,0.5,4096,0.25,,7
// A field that a step lacks is empty. The columns behind validation_loss are values that the job's
// own programs report.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "client/client.h"

namespace meshwright::report {

std::string CsvOf(const std::vector<client::StepMetrics>& steps);

// Whether the text begins as such a table does.
bool IsCsvOfSteps(std::string_view text);
// Columns may be in any order, and lines end as spreadsheets end them. What is no step is left out,
// and so is a last line that is still being written.
std::vector<client::StepMetrics> ParseCsvSteps(std::string_view text);

}  // namespace meshwright::report
