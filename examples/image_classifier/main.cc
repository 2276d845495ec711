// Learns to tell bars, crosses and squares apart in images that this program draws.
//
//   image_classifier [STEPS]      controller: $MESHWRIGHT_ADDRESS or 127.0.0.1:7700
//
// The layout is left to the planner.
#include <cstdio>
#include <cstdlib>

#include "image_classifier.h"

namespace {

using meshwright::Result;
namespace example = image_classifier;

Result<example::Outcome> Main(int argc, char** argv) {
  MW_ASSIGN_OR_RETURN(const auto client, meshwright::client::Client::Connect({}));
  example::Options options;
  if (argc > 1) options.steps = std::atoll(argv[1]);
  options.on_step = [](int64_t step, double loss) {
    const auto done = static_cast<long long>(step) + 1;
    if (done == 1 || done % 25 == 0) std::printf("step %4lld  loss %.4f\n", done, loss);
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
  std::printf("accuracy on new images: %.1f %%\n", 100 * outcome->accuracy);
  return 0;
}
