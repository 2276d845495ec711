// predict over a data set: every row of some files goes through the program once, in order, and
// what comes out is written to a file.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/args.h"
#include "cli/predict_rows.h"
#include "client/session.h"
#include "report/prediction.h"

namespace meshwright::cli {

// How many rows were written. format: of the job's data, for files whose name does not say theirs.
// Errors: those of data::DescribeFiles and data::Source; kInvalidArgument: an input of the program
// that the files do not have, an output that is not by rows, a name of the file to write that says
// no format; those of the session; of the disk.
Result<int64_t> PredictFile(client::Session& session, const PredictArgs& args,
                            const std::string& format);

// The same of whole rows. Where they have classes, a line has "label" and "probability" of the
// likeliest, too.
Result<int64_t> PredictRecords(client::Session& session, const PredictArgs& args,
                               const AskedRows& rows);

// The classes of the first of these rows, the likeliest first. Errors: as above.
Result<std::vector<report::Likely>> PredictClasses(client::Session& session,
                                                   const PredictArgs& args, const AskedRows& rows);

// The same of texts, a row each (cli/predict_lines.h): a language model's loss and what comes next.
// Of a text that is longer than the window the last tokens count. Errors: kFailedPrecondition: the
// program is none of a language model; else as above.
Result<int64_t> PredictTexts(client::Session& session, const PredictArgs& args,
                             std::vector<std::vector<int32_t>> texts);

}  // namespace meshwright::cli
