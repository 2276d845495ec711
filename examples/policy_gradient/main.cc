// Learns to balance a pole on a cart by trying.
//
//   meshwright up --worker-binary build/policy_gradient/policy_gradient_worker
//   policy_gradient [UPDATES]      controller: $MESHWRIGHT_ADDRESS or 127.0.0.1:7700
//
// The layout is left to the planner.
#include <cstdio>
#include <cstdlib>

#include "policy_gradient.h"

namespace {

using meshwright::Result;
namespace example = policy_gradient;

Result<example::Outcome> Main(int argc, char** argv) {
  MW_ASSIGN_OR_RETURN(const auto client, meshwright::client::Client::Connect({}));
  example::Options options;
  if (argc > 1) options.updates = std::atoll(argv[1]);
  options.on_update = [](int64_t update, double length) {
    const auto done = static_cast<long long>(update) + 1;
    if (done == 1 || done % 5 == 0) std::printf("update %3lld  stands %.1f steps\n", done, length);
  };
  return example::Run(*client, options);
}

}  // namespace

int main(int argc, char** argv) {
  const auto outcome = Main(argc, argv);
  if (!outcome) {
    std::fprintf(stderr, "error: %s\n", outcome.error().message().c_str());
    return 1;
  }
  std::printf("the pole stood %.1f steps at first, %.1f at last\n", outcome->lengths.front(),
              outcome->lengths.back());
  return 0;
}
