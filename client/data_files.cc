#include "client/data_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "base/text.h"
#include "data/identity.h"
#include "data/roots.h"

namespace meshwright::client {
namespace {

// Of a list that may be long.
constexpr size_t kMostNames = 3;

std::string NamesText(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kMostNames);
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + shown, ", "));
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text + (names.size() == 1 ? " has" : " have");
}

// The roots that workers have and where this machine has them.
std::map<std::string, std::string> RootsHere(const std::vector<WorkerInfo>& workers,
                                             const std::vector<ir::DataRoot>& known) {
  std::map<std::string, std::set<std::string>> paths;
  for (const WorkerInfo& worker : workers) {
    for (const ir::DataRoot& root : worker.data_roots) paths[root.name].insert(root.path);
  }
  std::map<std::string, std::string> here;
  for (const auto& [name, places] : paths) {
    if (places.size() == 1) here[name] = *places.begin();
  }
  for (const ir::DataRoot& root : known) {
    if (paths.count(root.name) != 0) here[root.name] = root.path;
  }
  return here;
}

std::vector<std::string> WorkersWithout(const std::vector<WorkerInfo>& workers,
                                        const std::string& root) {
  std::vector<std::string> names;
  for (const WorkerInfo& worker : workers) {
    const bool has = std::any_of(worker.data_roots.begin(), worker.data_roots.end(),
                                 [&](const ir::DataRoot& each) { return each.name == root; });
    if (!has) names.push_back(worker.name);
  }
  return names;
}

// As the user wrote it, and without links.
std::vector<std::string> PathsOf(const std::string& path) {
  std::vector<std::string> paths = {data::AbsolutePath(path)};
  std::error_code error;
  std::string real = std::filesystem::canonical(path, error).string();
  if (!error && real != paths[0]) paths.push_back(std::move(real));
  return paths;
}

// A link below the root to a file elsewhere: workers refuse it. Of files and folders that are here.
bool LeadsOut(const std::string& folder, const std::string& path) {
  std::error_code error;
  const std::string real_folder = std::filesystem::canonical(folder, error).string();
  if (error) return false;
  const std::string real = std::filesystem::canonical(path, error).string();
  return !error && data::PathBelow(real_folder, real).empty();
}

// Sends files one by one; collects what is to be told of them.
class Sender {
 public:
  Sender(Client& client, const SendOptions& options) : client_(client), options_(options) {}

  Status AskWorkers() {
    if (options_.upload) return OkStatus();
    MW_ASSIGN_OR_RETURN(const std::vector<WorkerInfo> all, client_.Workers());
    std::copy_if(all.begin(), all.end(), std::back_inserter(workers_),
                 [](const WorkerInfo& worker) { return worker.state == "READY"; });
    return OkStatus();
  }

  Status Send(ir::FileRef& file) {
    const std::string path = file.blob.name;
    const RootChoice choice =
        options_.upload ? RootChoice() : ChooseRoot(workers_, options_.roots, path);
    if (!choice.root.empty()) return ReferTo(choice, file);
    MW_ASSIGN_OR_RETURN(file.blob, client_.UploadFile(path));
    if (options_.upload) return OkStatus();
    Uploads& uploads = uploads_[choice.missing];
    uploads.files.push_back(path);
    uploads.bytes += file.blob.size_bytes;
    return OkStatus();
  }

  std::vector<std::string> Notes() const {
    std::vector<std::string> notes;
    for (const auto& [missing, uploads] : uploads_) {
      const std::string folder =
          std::filesystem::path(data::AbsolutePath(uploads.files[0])).parent_path().string();
      notes.push_back(fmt::format(
          "{} ({}) went to the controller, since {}; workers that are started with --data-root {} "
          "read it in place",
          uploads.files.size() == 1
              ? uploads.files[0]
              : fmt::format("{} and {} more files", uploads.files[0], uploads.files.size() - 1),
          FormatBytes(uploads.bytes), missing, folder));
    }
    return notes;
  }

 private:
  struct Uploads {
    std::vector<std::string> files;
    int64_t bytes = 0;
  };

  static Status ReferTo(const RootChoice& choice, ir::FileRef& file) {
    MW_ASSIGN_OR_RETURN(const UniqueFd fd, data::OpenLocal(file));
    MW_ASSIGN_OR_RETURN(file.sampled,
                        data::SampledHash(fd.get(), file.blob.size_bytes, file.blob.name));
    file.root = choice.root;
    file.path = choice.path;
    return OkStatus();
  }

  Client& client_;
  const SendOptions& options_;
  std::vector<WorkerInfo> workers_;
  std::map<std::string, Uploads> uploads_;  // by what is missing
};

}  // namespace

RootChoice ChooseRoot(const std::vector<WorkerInfo>& workers,
                      const std::vector<ir::DataRoot>& known, const std::string& path) {
  RootChoice best;
  best.missing = workers.empty() ? "no worker is ready to say what it can read"
                                 : fmt::format("no worker has a data root that holds it");
  size_t best_without = workers.size();
  size_t best_length = 0;
  for (const auto& [name, folder] : RootsHere(workers, known)) {
    if (LeadsOut(folder, path)) continue;
    for (const std::string& each : PathsOf(path)) {
      const std::string below = data::PathBelow(folder, each);
      const std::vector<std::string> without = WorkersWithout(workers, name);
      const bool better = without.size() < best_without ||
                          (without.size() == best_without && folder.size() > best_length);
      if (below.empty() || !better) continue;
      best_without = without.size();
      best_length = folder.size();
      const std::string missing = fmt::format("{} no data root '{}'", NamesText(without), name);
      best = without.empty() ? RootChoice{name, below, ""} : RootChoice{"", "", missing};
    }
  }
  return best;
}

Result<SentData> SendData(Client& client, std::vector<ir::DataStream> streams,
                          const SendOptions& options) {
  Sender sender(client, options);
  MW_TRY(sender.AskWorkers());
  for (ir::DataStream& stream : streams) {
    for (ir::FileRef& file : stream.files) MW_TRY(sender.Send(file));
  }
  SentData sent;
  sent.spec.streams = std::move(streams);
  sent.notes = sender.Notes();
  return sent;
}

Result<SentFile> SendFile(Client& client, const std::string& path, const SendOptions& options) {
  Sender sender(client, options);
  MW_TRY(sender.AskWorkers());
  SentFile sent;
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  sent.file.blob.name = path;
  sent.file.blob.size_bytes = error ? 0 : static_cast<int64_t>(bytes);
  MW_TRY(sender.Send(sent.file));
  sent.notes = sender.Notes();
  return sent;
}

}  // namespace meshwright::client
