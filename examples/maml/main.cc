// Learns to learn: weights that one step of gradient descent makes a model of a new sinusoid.
//
//   maml [STEPS]      controller: $MESHWRIGHT_ADDRESS or 127.0.0.1:7700
//
// The layout is left to the planner.
#include <cstdio>
#include <cstdlib>

#include "maml.h"

namespace {

using meshwright::Result;

Result<maml::Outcome> Main(int argc, char** argv) {
  MW_ASSIGN_OR_RETURN(const auto client, meshwright::client::Client::Connect({}));
  maml::Options options;
  if (argc > 1) options.steps = std::atoll(argv[1]);
  options.on_step = [](int64_t step, double loss) {
    const auto done = static_cast<long long>(step) + 1;
    if (done == 1 || done % 100 == 0) std::printf("step %4lld  loss %.4f\n", done, loss);
  };
  return maml::Run(*client, options);
}

void Print(const char* when, const maml::Errors& errors) {
  std::printf("%s: error on new tasks %.3f, after adaptation %.3f\n", when, errors.unadapted,
              errors.adapted);
}

}  // namespace

int main(int argc, char** argv) {
  const auto outcome = Main(argc, argv);
  if (!outcome) {
    std::fprintf(stderr, "error: %s\n", outcome.error().message().c_str());
    return 1;
  }
  Print("before training", outcome->before);
  Print("after training ", outcome->after);
  return 0;
}
