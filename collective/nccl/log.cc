#include "collective/nccl/log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace meshwright::collective::nccl {
namespace {

std::string HostName() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

std::string Expanded(std::string text) {
  const auto replace = [&](const std::string& sign, const std::string& value) {
    for (size_t at = text.find(sign); at != std::string::npos; at = text.find(sign)) {
      text.replace(at, sign.size(), value);
    }
  };
  replace("%p", std::to_string(::getpid()));
  replace("%h", HostName());
  return text;
}

}  // namespace

std::string ConfigureLog(const std::string& directory) {
  const char* temporary = std::getenv("TMPDIR");
  const std::string folder = !directory.empty()     ? directory
                             : temporary != nullptr ? temporary
                                                    : "/tmp";
  const std::string path = fmt::format("{}/meshwright-nccl-{}.log", folder, ::getpid());
  constexpr int kKeepTheUsers = 0;
  (void)::setenv("NCCL_DEBUG", "WARN", kKeepTheUsers);
  (void)::setenv("NCCL_DEBUG_FILE", path.c_str(), kKeepTheUsers);
  const char* file = std::getenv("NCCL_DEBUG_FILE");
  return file == nullptr ? "" : Expanded(file);
}

std::string LogTail(const std::string& path, int64_t bytes) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const auto length = static_cast<int64_t>(file.tellg());
  const int64_t start = std::max<int64_t>(0, length - bytes);
  file.seekg(start);
  std::string tail;
  std::string line;
  bool whole = start == 0;  // the first line that is read may lack its beginning
  while (std::getline(file, line)) {
    if (whole && !line.empty()) tail += (tail.empty() ? "" : " | ") + line;
    whole = true;
  }
  return tail;
}

}  // namespace meshwright::collective::nccl
