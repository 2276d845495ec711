// predict on whole rows, as the job's model is trained on them: texts of JSON lines, images of
// files and folders. Labels need not be there.
//
// Thread rule: reads and writes files, on threads of its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/data_spec.h"
#include "ir/job.h"

namespace meshwright::cli {

// The rows, all of which are of the validation; nothing: the model is trained on windows of tokens,
// or the files are arrays already. Errors: as MakeRowFiles and MakeImageRows.
Result<std::optional<ir::DataStream>> RowsToAsk(const ir::JobRequest& job,
                                                const std::vector<std::string>& paths);

}  // namespace meshwright::cli
