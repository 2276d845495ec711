#include "base/check.h"

#include <cstdio>
#include <cstdlib>

#include "base/id_vector.h"

namespace meshwright::internal {

CheckFailure::CheckFailure(const char* file, int line, const char* condition) {
  stream_ << file << ":" << line << " check failed: " << condition;
}

CheckFailure::~CheckFailure() {
  std::fprintf(stderr, "%s\n", stream_.str().c_str());
  std::abort();
}

void AbortOnId(size_t index, size_t size) {
  MW_CHECK(index < size) << "an id of " << index << " in a vector of " << size;
  std::abort();
}

}  // namespace meshwright::internal
