#include "cli/checkpoint_place.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "base/file.h"
#include "checkpoint/folder.h"
#include "cli/connect.h"
#include "data/roots.h"

namespace meshwright::cli {
namespace {

namespace fs = std::filesystem;

bool IsNumber(const std::string& text) {
  return !text.empty() && text.size() < 19 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The files of a checkpoint that lies with the controller.
class RemoteSource final : public checkpoint::ByteSource {
 public:
  explicit RemoteSource(const CheckpointPlace& place)
      : remote_(place.remote), job_(place.job), step_(place.step) {}
  Status Read(const std::string& file, int64_t offset, std::span<std::byte> into) override {
    return remote_->Read(job_, step_, file, offset, into).WithContext(file);
  }
  Result<std::string> ReadAll(const std::string& file) override {
    return remote_->ReadAll(job_, step_, file);
  }

 private:
  const std::shared_ptr<client::Checkpoints> remote_;
  const int64_t job_;
  const int64_t step_;
};

Result<CheckpointPlace> AtController(int64_t id, const ir::FolderRef& folder,
                                     const GlobalArgs& global) {
  MW_ASSIGN_OR_RETURN(const client::Client::Options options, ClientOptions(global));
  CheckpointPlace place;
  place.remote = client::Checkpoints::Connect(options);
  MW_ASSIGN_OR_RETURN(const std::string root, place.remote->Root());
  place.folder = root + "/" + folder.path;
  place.job = id;
  place.below = folder;
  return place;
}

}  // namespace

// The folder of a job, where this machine has it at the path at which a worker has it.
Result<CheckpointPlace> CheckpointsOfJob(int64_t id, const GlobalArgs& global) {
  MW_ASSIGN_OR_RETURN(const auto client, Connect(global));
  MW_ASSIGN_OR_RETURN(const client::JobInfo job, client->Get(id));
  const ir::FolderRef& folder = job.checkpoint_folder;
  if (folder.path.empty()) {
    return Fail(NotFound(fmt::format(
        "job {} keeps no checkpoints (checkpoint.enable = true in its job file does, before it "
        "runs); "
        "the weights that it left are the file model.safetensors of its folder, which `meshwright "
        "describe {}` names",
        id, id)));
  }
  if (folder.at_controller()) return AtController(id, folder, global);
  MW_ASSIGN_OR_RETURN(const std::vector<client::WorkerInfo> workers, client->Workers());
  std::set<std::string> tried;
  for (const client::WorkerInfo& worker : workers) {
    for (const ir::DataRoot& root : worker.checkpoint_roots) {
      if (!folder.root.empty() && root.name != folder.root) continue;
      const std::string path = root.path + "/" + folder.path;
      if (FileExists(path)) return CheckpointPlace{path, -1};
      tried.insert(path);
      break;  // of an unnamed root the first one counts
    }
  }
  if (job.checkpoint_step < 0) {
    return Fail(NotFound(fmt::format("job {} has no checkpoint: {} (checkpoint.interval)", id,
                                     client::IsTerminal(job.state)
                                         ? "it ended before the first one was written"
                                         : "it has not written the first one yet")));
  }
  return Fail(
      NotFound(fmt::format("the checkpoints of job {} are not on this machine: workers have "
                           "them in {}",
                           id, fmt::join(tried, ", "))));
}

std::string CheckpointPlace::path() const { return folder + "/" + checkpoint::StepName(step); }

Result<std::vector<int64_t>> StepsOf(const CheckpointPlace& place) {
  if (place.remote != nullptr) return place.remote->Steps(place.job);
  return checkpoint::ListSteps(place.folder);
}

Result<std::unique_ptr<checkpoint::Reader>> OpenCheckpoint(const CheckpointPlace& place) {
  if (place.remote == nullptr) return checkpoint::Reader::OpenFolder(place.path());
  auto reader = checkpoint::Reader::Open(std::make_unique<RemoteSource>(place));
  if (!reader.has_value()) return Fail(reader.error().WithContext("checkpoint " + place.path()));
  return reader;
}

Status RemoveCheckpoint(const CheckpointPlace& place) {
  if (place.remote != nullptr) return place.remote->Remove(place.job, place.step);
  return checkpoint::Remove(place.folder, place.step);
}

Result<CheckpointPlace> FindCheckpoints(const std::string& place, const GlobalArgs& global) {
  const std::string path = data::AbsolutePath(place);
  if (FileExists(path + "/" + checkpoint::kManifestName)) {
    const fs::path as_path(path);
    const auto step = checkpoint::StepOfName(as_path.filename().string());
    if (!step) {
      return Fail(
          NotFound(fmt::format("{} has the manifest of a checkpoint, but not the name of one "
                               "(step-00000120)",
                               path)));
    }
    return CheckpointPlace{as_path.parent_path().string(), *step};
  }
  std::error_code error;
  if (fs::is_directory(path, error)) return CheckpointPlace{path, -1};
  if (IsNumber(place)) return CheckpointsOfJob(std::stoll(place), global);
  return Fail(NotFound(fmt::format("there is no folder {}, and no job of that number", path)));
}

Result<CheckpointPlace> FindCheckpoint(const std::string& place, int64_t step,
                                       const GlobalArgs& global) {
  MW_ASSIGN_OR_RETURN(CheckpointPlace found, FindCheckpoints(place, global));
  MW_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, StepsOf(found));
  if (step < 0) step = found.step;
  if (step < 0 && !steps.empty()) step = steps.front();
  if (std::find(steps.begin(), steps.end(), step) == steps.end()) {
    const std::string wanted = step < 0 ? "" : fmt::format(" of step {}", step);
    return Fail(
        NotFound(fmt::format("{} has no checkpoint{}; it has {}", found.folder, wanted,
                             steps.empty() ? "none" : fmt::format("{}", fmt::join(steps, ", ")))));
  }
  found.step = step;
  return found;
}

Result<ir::FolderRef> BelowRoot(const std::string& folder,
                                const std::vector<client::WorkerInfo>& workers,
                                const std::string& controller_root) {
  const std::string absolute = data::AbsolutePath(folder);
  std::set<std::string> known;
  for (const client::WorkerInfo& worker : workers) {
    for (const ir::DataRoot& root : worker.checkpoint_roots) {
      known.insert(root.path);
      const std::string below = data::PathBelow(root.path, absolute);
      if (!below.empty()) return ir::FolderRef{root.name, below};
    }
  }
  known.insert(controller_root);
  const std::string below = data::PathBelow(controller_root, absolute);
  if (!below.empty()) return ir::FolderRef{ir::kControllerRoot, below};
  return Fail(
      NotFound(fmt::format("{} is below no checkpoint root of the workers or the controller ({}); "
                           "start them with --checkpoint-root",
                           absolute, fmt::join(known, ", "))));
}

}  // namespace meshwright::cli
