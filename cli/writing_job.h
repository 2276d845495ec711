// The job that a model writes text with: over pages where its texts can be kept in them, else by
// the program "predict", to which every token shows the whole text again.
//
// Thread rule: pure functions, but for a note on stderr.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "config/job_config.h"
#include "generation/paged_session.h"
#include "ir/job.h"
#include "proto/job_description.h"

namespace meshwright::cli {

struct WritingJob {
  ir::JobRequest job;
  int64_t positions = 0;                            // of a text
  std::optional<generation::PagedPlan> pages = {};  // none: the job has only "predict"
  // What a decoder reads first: the model has an encoder, which reads what is asked. None: the
  // model goes on with what is asked.
  std::optional<int32_t> start = {};
};

// Whether the model reads a source, and writes something of its own.
bool ReadsSources(const models::Model& model);

// Of a folder's model, for `texts` at once of config.train.sequence tokens, without its weights; of
// one that reads sources, for sources of so many tokens and texts of `written`.
Result<WritingJob> WritingJobOf(const config::JobConfig& config,
                                const config::PreparedJob& prepared, int64_t written,
                                int64_t texts);

// kUnimplemented where the model of the job's file is no writer of texts, naming what to ask it.
// alone: nor one that reads a source first.
Status CheckWrites(const ir::JobRequest& job, bool alone = false);
// Whether the job's model reads sources.
bool ReadsSources(const ir::JobRequest& job);

// Of a job that has ended, with the weights that it left. Errors: as client::PredictionOf.
Result<WritingJob> WritingJobOf(const proto::JobDescription& ended, int64_t id, int64_t texts);

}  // namespace meshwright::cli
