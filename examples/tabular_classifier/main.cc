// Learns the classes of rows of numbers, which this program feeds.
//
//   tabular_classifier [FILE.csv] [STEPS]      controller: $MESHWRIGHT_ADDRESS or 127.0.0.1:7700
//
// Without a file the rows are points of three spirals. The layout is left to the planner.
#include <cstdio>
#include <cstdlib>

#include "tabular_classifier.h"

namespace {

using meshwright::Result;
namespace example = tabular_classifier;

Result<example::Outcome> Main(int argc, char** argv) {
  MW_ASSIGN_OR_RETURN(const auto client, meshwright::client::Client::Connect({}));
  example::Table table = example::Spirals(1000, 7);
  if (argc > 1) {
    MW_ASSIGN_OR_RETURN(table, example::ReadTable(argv[1]));
  }
  example::Options options;
  if (argc > 2) options.steps = std::atoll(argv[2]);
  options.on_step = [](int64_t step, double loss) {
    const auto done = static_cast<long long>(step) + 1;
    if (done == 1 || done % 50 == 0) std::printf("step %4lld  loss %.4f\n", done, loss);
  };
  return example::Run(*client, table, options);
}

}  // namespace

int main(int argc, char** argv) {
  const auto outcome = Main(argc, argv);
  if (!outcome) {
    std::fprintf(stderr, "error: %s\n", outcome.error().message().c_str());
    return 1;
  }
  std::printf("accuracy on rows not trained on: %.1f %%\n", 100 * outcome->accuracy);
  return 0;
}
