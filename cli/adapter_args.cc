#include "cli/adapter_args.h"

#include <CLI/CLI.hpp>

namespace meshwright::cli {

void AddAdapter(CLI::App& app, AdapterArgs& args) {
  CLI::App* adapter = app.add_subcommand("adapter", "LoRA adapters as PEFT has them, and merged");
  adapter->require_subcommand(1);
  adapter->fallthrough();
  const auto add = [&](const char* name, AdapterAction action, const char* meaning) {
    CLI::App* command = adapter->add_subcommand(name, meaning);
    command->fallthrough();
    command->callback([&args, action] { args.action = action; });
    return command;
  };
  CLI::App* to_peft = add("export", AdapterAction::kExport,
                          "Write adapter_config.json and adapter_model.safetensors");
  to_peft->add_option("weights", args.weights, "model.safetensors of a job with adapters")
      ->required();
  to_peft->add_option("folder", args.out, "Where the two files go")->required();
  to_peft->add_option("--base-model", args.base_model,
                      "What the configuration calls the model: a folder, or a name of the hub");
  CLI::App* merge =
      add("merge", AdapterAction::kMerge, "Write the weights with the adapters added to them");
  merge
      ->add_option("weights", args.weights,
                   "model.safetensors of a job with adapters; with --adapter that of the model")
      ->required();
  merge->add_option("file", args.out, "The safetensors file to write")->required();
  merge->add_option("--adapter", args.adapter, "Folder that PEFT or `adapter export` wrote");
  merge->add_option("--dtype", args.dtype, "Of the weights; default: as they are")
      ->check(CLI::IsMember({"float32", "float64", "bfloat16", "float16"}));
}

}  // namespace meshwright::cli
