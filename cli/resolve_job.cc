#include "cli/resolve_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/os_error.h"
#include "base/text.h"
#include "cli/input_files.h"
#include "cli/prepare_training.h"
#include "config/config_errors.h"
#include "config/job_config.h"
#include "data/paths.h"

namespace meshwright::cli {
namespace {

using config::ConfigError;
using config::ConfigErrors;
using config::JobConfig;
using proto::ClientFile;

// The client's files under the client's paths, below a folder of this machine.
class Mirror {
 public:
  static Result<Mirror> Make(const std::vector<ClientFile>& files) {
    MW_ASSIGN_OR_RETURN(TempDir dir, TempDir::Make("meshwright-job"));
    Mirror mirror(std::move(dir));
    for (const ClientFile& file : files) MW_TRY(mirror.Add(file));
    return mirror;
  }

  // Where a path of the client is here. Relative ones are below the folder of the job file where
  // that has them, else below the client's working folder.
  std::string At(const std::string& path, const proto::JobFile& job) const {
    if (path.empty()) return path;
    if (path.front() == '/') return dir_.path() + Normal(path);
    const std::string below = job.folder.empty() ? "" : Normal(job.folder + "/" + path);
    if (!below.empty() && data::ExpandPath(dir_.path() + below, "", "").has_value()) {
      return dir_.path() + below;
    }
    return dir_.path() + Normal(job.working_folder + "/" + path);
  }

  // The client's path of a file here.
  std::string Outside(const std::string& path) const {
    return path.starts_with(dir_.path()) ? path.substr(dir_.path().size()) : path;
  }

  // A text about files here, as one about the client's.
  std::string Told(std::string text) const {
    const std::string& inside = dir_.path();
    for (size_t at = text.find(inside); at != std::string::npos; at = text.find(inside, at)) {
      text.erase(at, inside.size());
    }
    return text;
  }

 private:
  explicit Mirror(TempDir dir) : dir_(std::move(dir)) {}

  static std::string Normal(const std::string& path) {
    return std::filesystem::path("/" + path).lexically_normal().string();
  }

  Status Add(const ClientFile& file) const {
    const std::string path = dir_.path() + Normal(file.path);
    MW_TRY(MakeDirs(std::filesystem::path(path).parent_path().string()));
    std::error_code error;
    if (!file.local.empty()) {
      std::filesystem::create_symlink(std::filesystem::absolute(file.local), path, error);
    } else {
      MW_TRY(WriteFileAtomic(path, file.head));
      // The rest is a hole: it takes no room.
      std::filesystem::resize_file(path, static_cast<uintmax_t>(file.size_bytes), error);
    }
    if (!error) return OkStatus();
    return OsError(error.value(), fmt::format("lay out the client's file {}", file.path));
  }

  TempDir dir_;
};

config::ConfigSource SourceOf(const proto::JobFile& file) {
  config::ConfigSource source;
  source.text = file.text;
  source.file = file.file;
  source.overrides = file.overrides;
  source.environment = [&file](const std::string& name) -> std::optional<std::string> {
    const auto it = file.environment.find(name);
    return it == file.environment.end() ? std::nullopt : std::optional(it->second);
  };
  source.environment_names.clear();
  for (const auto& [name, value] : file.environment) source.environment_names.push_back(name);
  return source;
}

// What the job reads of the client's machine.
std::vector<proto::WantedFiles> WantedBy(const JobConfig& config) {
  std::vector<proto::WantedFiles> wanted;
  const auto add = [&wanted](const char* key, const std::string& path, proto::WantedKind kind,
                             bool weights = false) {
    if (!path.empty()) wanted.push_back({key, path, kind, weights});
  };
  add("training.dataset_path", config.dataset_path, proto::WantedKind::kData);
  add("validation.dataset_path", config.validation_path, proto::WantedKind::kData);
  add("model.hf_path", config.hf_path, proto::WantedKind::kModel,
      !config.from_scratch && config.initial_load_path.empty());
  add("checkpoint.initial_load_path", config.initial_load_path, proto::WantedKind::kWeights);
  return wanted;
}

Status CheckStart(const JobConfig& config) {
  if (config.load_step < 0) return OkStatus();
  return InvalidArgument(
      fmt::format("checkpoint.load_step is {}, and a job file that is submitted by itself goes on "
                  "from nothing; take the key out, or use `meshwright submit --resume JOB`",
                  config.load_step));
}

// Files that the command reads itself, beside the job: here they would be the controller's.
Status CheckReadHere(const JobConfig& config) {
  const auto refuse = [](const char* key, const std::string& value) {
    return InvalidArgument(
        fmt::format("{} is \"{}\", which `meshwright submit` reads where the file is; take the key "
                    "out, or submit with the command",
                    key, value));
  };
  if (!config.adapter_path.empty()) return refuse("lora.adapter_path", config.adapter_path);
  if (config.tokenizer != "byte") return refuse("training.tokenizer", config.tokenizer);
  if (!config.datasets.empty()) return refuse("training.datasets", config.datasets[0]);
  if (!config.validation_datasets.empty()) {
    return refuse("validation.datasets", config.validation_datasets[0]);
  }
  for (const char* text : {"text", "jsonl", "images"}) {
    if (config.dataset_format == text) return refuse("training.dataset_format", text);
  }
  return OkStatus();
}

class Resolver {
 public:
  Resolver(const proto::JobFile& file, const proto::StoreFile& store)
      : file_(file), store_(store) {}

  proto::ResolvedFile Run() {
    ConfigErrors errors;
    config_ = config::ParseJobConfig(SourceOf(file_), errors);
    if (config_.owner.empty()) config_.owner = file_.owner;
    if (errors.empty()) errors.Add(CheckStart(config_), config_);
    if (errors.empty()) errors.Add(CheckReadHere(config_), config_);
    TakeErrors(errors.all(), errors.first().code());
    if (!errors.empty()) return std::move(resolved_);
    resolved_.notes = config_.notes;
    SayBytes();
    if (file_.own) {
      PrepareOwn();
      return std::move(resolved_);
    }
    resolved_.wanted = WantedBy(config_);
    if (resolved_.wanted.empty() || file_.listed) {
      Status laid = Mirrored();
      if (!laid.ok()) AddError(laid);
    } else if (config_.hf_path.empty()) {
      // What is wrong with the model is known without files, but for the tokenizer's mask.
      JobConfig any_mask = config_;
      if (!config_.model.mask_token && config::HiddenTokensOf(config_).any) {
        any_mask.model.mask_token = 0;
      }
      const auto prepared = config::PrepareJob(any_mask);
      if (!prepared.has_value()) AddError(prepared.error());
    }
    return std::move(resolved_);
  }

 private:
  // The tokenizer of a model's folder is read by the command alone.
  void SayBytes() {
    if (config_.hf_path.empty() || config_.dataset_path.empty()) return;
    if (!config_.origins.try_emplace("training.dataset_format", file_.file).second) return;
    resolved_.notes.emplace_back(
        "training.dataset_format is \"bytes\", as the job says none: a token is a byte; "
        "`meshwright submit` reads by the tokenizer of model.hf_path where there is one");
  }

  // Nothing of the client's machine is read.
  void PrepareOwn() {
    for (const proto::WantedFiles& files : WantedBy(config_)) {
      AddError(InvalidArgument(fmt::format(
          "{} is \"{}\", and the job brings its own programs, which read what a client sends; "
          "take the key out",
          files.key, files.path)));
    }
    auto request = config::PrepareJob(config_, *file_.own);
    if (!request.has_value()) return AddError(request.error());
    if (resolved_.errors.empty()) resolved_.job = *std::move(request);
  }

  // The configuration as one of this machine.
  Status Mirrored() {
    MW_ASSIGN_OR_RETURN(const Mirror mirror, Mirror::Make(file_.files));
    mirror_ = &mirror;
    JobConfig here = config_;
    here.folder.clear();
    here.dataset_path = mirror.At(config_.dataset_path, file_);
    here.validation_path = mirror.At(config_.validation_path, file_);
    here.hf_path = mirror.At(config_.hf_path, file_);
    here.initial_load_path = mirror.At(config_.initial_load_path, file_);
    Prepare(here);
    mirror_ = nullptr;
    return OkStatus();
  }

  // The model and the data are judged apart from each other: both say what is wrong.
  void Prepare(JobConfig here) {
    auto prepared = PrepareTraining(here);
    config_.model.label_names = here.model.label_names;
    config_.model.mask_token = here.model.mask_token;
    if (!prepared.has_value()) AddError(prepared.error());
    const Result<InputFiles> files =
        FindInputFiles(here, prepared.has_value() ? prepared->model : models::Model());
    if (!files.has_value()) AddError(files.error());
    if (!prepared.has_value() || !files.has_value()) return;
    const Status filled = Fill(here, *files, *prepared);
    if (!filled.ok()) return AddError(filled);
    for (const auto& notes : {prepared->model.notes, std::vector{files->weights.note}}) {
      for (const std::string& note : notes) {
        if (!note.empty()) resolved_.notes.push_back(mirror_->Told(note));
      }
    }
    resolved_.summary = prepared->model.summary;
    if (resolved_.errors.empty()) resolved_.job = std::move(prepared->request);
  }

  Status Fill(const JobConfig& here, const InputFiles& files, config::PreparedJob& prepared) {
    ir::JobRequest& request = prepared.request;
    request.config_text = config::FormatJobConfig(config_);
    if (AllHere(files.dataset)) {
      MW_TRY(CheckInputData(here, files.dataset, prepared.model.vocabulary));
    }
    ir::DataStream stream = files.dataset;
    for (ir::FileRef& each : stream.files) MW_TRY(ReferTo(each));
    request.data.streams = {std::move(stream)};
    return FillWeights(files, request);
  }

  // Data that workers read in place is not here to be read.
  bool AllHere(const ir::DataStream& stream) const {
    return std::all_of(stream.files.begin(), stream.files.end(), [this](const ir::FileRef& each) {
      const ClientFile* file = FileAt(each.blob.name);
      return file != nullptr && !file->local.empty();
    });
  }

  Status FillWeights(const InputFiles& files, ir::JobRequest& request) {
    if (files.weights.path.empty()) return OkStatus();
    MW_ASSIGN_OR_RETURN(const WeightsFile weights, WeightsFile::Open(files.weights));
    MW_ASSIGN_OR_RETURN(const std::vector<std::string> notes,
                        CheckStartingWeights(files, weights, request.main().graph));
    resolved_.notes.insert(resolved_.notes.end(), notes.begin(), notes.end());
    request.init_weights.blob.name = weights.path();
    if (weights.is_temporary()) {
      MW_ASSIGN_OR_RETURN(request.init_weights.blob, store_(weights.path()));
    } else {
      MW_TRY(ReferTo(request.init_weights));
    }
    request.init_weights.blob.name = mirror_->Outside(files.weights.path);
    return OkStatus();
  }

  const ClientFile* FileAt(const std::string& path) const {
    const std::string outside = mirror_->Outside(path);
    const auto it = std::find_if(file_.files.begin(), file_.files.end(),
                                 [&](const ClientFile& each) { return each.path == outside; });
    return it == file_.files.end() ? nullptr : &*it;
  }

  Status ReferTo(ir::FileRef& ref) const {
    const ClientFile* file = FileAt(ref.blob.name);
    if (file == nullptr) return OsError(ENOENT, mirror_->Outside(ref.blob.name));
    ref.blob = {file->sha256, file->size_bytes, file->path};
    ref.root = file->root;
    ref.path = file->below;
    ref.sampled = file->sampled;
    return OkStatus();
  }

  void AddError(const Status& status) {
    TakeErrors({config::ExplainError(status, config_)}, status.code());
  }

  void TakeErrors(const std::vector<ConfigError>& errors, StatusCode code) {
    for (const ConfigError& error : errors) {
      const auto told = [this](const std::string& text) {
        return mirror_ == nullptr ? text : mirror_->Told(text);
      };
      resolved_.errors.push_back({error.key, error.place, error.line, error.column,
                                  told(error.message), told(error.hint), code});
    }
  }

  const proto::JobFile& file_;
  const proto::StoreFile& store_;
  const Mirror* mirror_ = nullptr;  // while files are looked at
  JobConfig config_;
  proto::ResolvedFile resolved_;
};

}  // namespace

proto::ResolvedFile ResolveJob(const proto::JobFile& file, const proto::StoreFile& store) {
  return Resolver(file, store).Run();
}

}  // namespace meshwright::cli
