// Failpoints: named places at which a test has a process die.
//
//   MW_FAILPOINT("checkpoint.commit.before-rename");
//
// A process whose environment names a file in MESHWRIGHT_FAILPOINTS maps it; the test writes a name
// into it, and after how many passes of that place, in any process, the one that passes is to be
// killed. Without the variable a place costs a load and a branch. It is meant for tests: who can
// set the environment of a process can end it anyway.
//
// Thread rule: thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace meshwright {

// What the file holds; shared by all processes that map it.
struct FailpointFile {
  std::atomic<int64_t> passes;  // left until somebody dies; 0: nobody does
  std::array<char, 120> name;   // zeros behind it; written while `passes` is 0
};

class Failpoints {
 public:
  // Makes the file, disarmed, or opens one. Errors: those of the system.
  static Result<Failpoints> Open(const char* path);

  // The next process that passes the place for the `passes`th time is killed. REQUIRES: a name of
  // at most 119 bytes.
  void Arm(std::string_view name, int64_t passes = 1);
  // Whether what was armed has happened.
  bool done() const { return file_->passes.load() == 0; }
  void Disarm() { file_->passes = 0; }

  // True for the one pass that is to die.
  bool Pass(std::string_view name);

 private:
  explicit Failpoints(FailpointFile* file) : file_(file) {}
  FailpointFile* file_;  // mapped for as long as the process lives
};

namespace internal {
// Of this process, by its environment; null: none.
Failpoints* OwnFailpoints();
void DieAtFailpoint(std::string_view name);
}  // namespace internal

}  // namespace meshwright

#define MW_FAILPOINT(name)                                    \
  do {                                                        \
    if (::meshwright::internal::OwnFailpoints() != nullptr) { \
      ::meshwright::internal::DieAtFailpoint(name);           \
    }                                                         \
  } while (false)
