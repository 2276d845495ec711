// Killing at failpoints (base/failpoint.h): work that a child of the test does until it passes the
// place that was armed, and what it left is looked at by the test.
//
// Thread rule: the test's thread, while it has no other that passes failpoints.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iostream>
#include <regex>
#include <set>
#include <string>

#include "base/failpoint.h"
#include "base/file.h"
#include "base/status.h"

namespace meshwright::testing {

// A process reads its environment once, at the first failpoint that it passes: this is before main.
// The file has no name, and programs that the test starts do not inherit it.
inline bool TakeFailpoints() {
  const int fd = ::memfd_create("failpoints", MFD_CLOEXEC);
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  ::setenv("MESHWRIGHT_FAILPOINTS", path.c_str(), 1);
  const bool taken = internal::OwnFailpoints() != nullptr;
  ::unsetenv("MESHWRIGHT_FAILPOINTS");
  return taken;
}
inline const bool kHasFailpoints = TakeFailpoints();

// Whether a child that does the work is killed at the `passes`th pass of the place. False: it came
// to its end before, well or with an error, which is printed.
inline bool DiesAt(const std::string& name, const std::function<Status()>& work,
                   int64_t passes = 1) {
  if (!kHasFailpoints) return false;
  Failpoints& points = *internal::OwnFailpoints();
  points.Arm(name, passes);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const Status status = work();
    if (!status.ok()) std::cerr << "before " << name << ": " << status << std::endl;
    ::_exit(0);
  }
  int status = 0;
  const bool ended = ::waitpid(pid, &status, 0) == pid;
  points.Disarm();
  return ended && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

// The names of the failpoints in a file of the source, or in all of a folder, that begin so.
inline std::set<std::string> FailpointsIn(const std::string& path, const std::string& prefix = "") {
  namespace fs = std::filesystem;
  std::set<std::string> names;
  const std::regex place("MW_FAILPOINT\\(\"([a-z.-]+)\"\\)");
  const auto add = [&](const fs::path& file) {
    const std::string text = ReadFile(file.string()).value_or("");
    for (std::sregex_iterator it(text.begin(), text.end(), place), end; it != end; ++it) {
      const std::string name = (*it)[1];
      if (name.starts_with(prefix)) names.insert(name);
    }
  };
  if (!fs::is_directory(path)) {
    add(path);
    return names;
  }
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (entry.path().extension() == ".cc") add(entry.path());
  }
  return names;
}

}  // namespace meshwright::testing
