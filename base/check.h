// MW_CHECK: programmer errors only. Never on input, on remote data or on a peer's death: those are
// Status values.
#pragma once

#include <sstream>

namespace meshwright::internal {

// Prints "file:line check failed: condition message" to stderr and aborts when destroyed.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

}  // namespace meshwright::internal

#define MW_CHECK(condition) \
  while (!(condition))      \
  ::meshwright::internal::CheckFailure(__FILE__, __LINE__, #condition).stream() << " "

#ifdef NDEBUG
#define MW_DCHECK(condition) \
  while (false) MW_CHECK(condition)
#else
#define MW_DCHECK(condition) MW_CHECK(condition)
#endif
