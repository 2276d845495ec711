#include "cli/folder_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/commands.h"
#include "cli/input_files.h"
#include "cli/output.h"
#include "client/data_files.h"
#include "config/starting_weights.h"
#include "formats/safetensors.h"
#include "formats/weight_notes.h"

namespace meshwright::cli {

bool IsJobId(const std::string& model) {
  return !model.empty() && model.size() < 10 &&
         std::all_of(model.begin(), model.end(), [](char c) { return c >= '0' && c <= '9'; });
}

Result<config::JobConfig> FolderConfig(const FolderModel& model, int64_t positions) {
  config::ConfigSource source;
  source.file = model.folder;
  source.text = fmt::format("[model]\nhf_path = {}\n[training]\nseq_len = {}\ndtype = \"{}\"\n",
                            nlohmann::json(model.folder).dump(), positions, model.dtype);
  source.overrides = model.overrides;
  source.environment_names = {};
  return config::ParseJobConfig(source);
}

namespace {

// What the file brings is not drawn before.
void LeaveUndrawn(ir::JobRequest& job) {
  for (ir::JobProgram& program : job.programs) {
    for (ir::Node& node : program.graph.nodes) {
      if (node.op == ir::Op::kParam && !formats::MayBeDrawn(node)) {
        node.attrs.Set("init", std::string("zeros"));
      }
    }
  }
}

}  // namespace

Result<ir::JobRequest> WithFolderWeights(client::Client& client, const config::JobConfig& config,
                                         ir::JobRequest job) {
  MW_ASSIGN_OR_RETURN(const config::StartingWeights found, config::FindStartingWeights(config));
  if (found.path.empty()) {
    return Fail(
        NotFound(fmt::format("{} has no model.safetensors, and a model that is "
                             "asked needs its weights",
                             config.hf_path)));
  }
  MW_ASSIGN_OR_RETURN(const WeightsFile weights, WeightsFile::Open(found));
  MW_ASSIGN_OR_RETURN(const auto file, formats::SafetensorsFile::Open(weights.path()));
  const Status fits = formats::CheckWeights(*file, job.main().graph);
  if (!fits.ok()) return Fail(fits);  // it names the file
  for (const std::string& note : formats::NotesOfWeights(*file, job.main().graph)) {
    fmt::print(stderr, "note: {}\n", note);
  }
  LeaveUndrawn(job);
  client::SendOptions options;
  options.upload = weights.is_temporary();
  MW_ASSIGN_OR_RETURN(client::SentFile sent, client::SendFile(client, weights.path(), options));
  job.init_weights = std::move(sent.file);
  return job;
}

int ReportUnopened(client::Client& client, const Status& why) {
  const int code = ReportError(why);
  const auto jobs = client.List();
  if (!jobs.has_value() || jobs->empty()) return code;
  const auto newest = std::max_element(
      jobs->begin(), jobs->end(),
      [](const client::JobInfo& a, const client::JobInfo& b) { return a.id < b.id; });
  const bool same =
      !newest->message.empty() && why.message().find(newest->message) != std::string::npos;
  return same && client::IsTerminal(newest->state) ? ExitCodeOfJob(*newest) : code;
}

}  // namespace meshwright::cli
