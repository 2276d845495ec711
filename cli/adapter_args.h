// `meshwright adapter`: its arguments and its options.
//
// Thread rule: main thread. What is filled in outlives the parser.
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
}  // namespace CLI

namespace meshwright::cli {

enum class AdapterAction : uint8_t { kExport, kMerge };

struct AdapterArgs {
  AdapterAction action = AdapterAction::kExport;
  std::string weights;     // what a job with adapters wrote; with `adapter` the model's own
  std::string adapter;     // kMerge: PEFT's folder; empty: the adapters of `weights`
  std::string out;         // a folder, or kMerge: a file
  std::string base_model;  // kExport: what adapter_config.json calls the model
  std::string dtype;       // kMerge: of the weights; empty: as they are
};

// adapter export and merge.
void AddAdapter(CLI::App& app, AdapterArgs& args);

}  // namespace meshwright::cli
