// Fuzz targets: what takes bytes from outside, as functions of bytes that must return, whatever
// the bytes are.
//
// One table drives two runs. `fuzz_test` mutates the seeds by a number of its own, so that a case
// is repeated by its number (smoke_test.cc); `mw_fuzz TARGET` is a libFuzzer executable
// (driver/main.cc, cmake -DMESHWRIGHT_FUZZ=ON), which follows what the code does with its input.
// Seeds are made by our own writers, so that they are what the parser reads today.
//
// A target returns, or the process dies: by a signal, a sanitizer, or MW_CHECK where what was
// accepted does not survive being written and read again.
//
// Thread rule: pure functions but for temporary files. docs/testing.md.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace meshwright::fuzz {

using Seeds = std::vector<std::string>;

struct Target {
  std::string name;  // "safetensors-header"
  std::string of;    // what it calls: "formats::ParseSafetensorsHeader"
  std::function<Seeds()> seeds;
  std::function<void(std::string_view)> run;
  int cases = 2'000;  // of the smoke: fewer where one costs more
};

std::vector<Target> FormatTargets();     // weights, arrays, checkpoints
std::vector<Target> IrTargets();         // graphs, programs, shardings, profiles
std::vector<Target> TokenizerTargets();  // tokenizers, templates
std::vector<Target> ConfigTargets();     // job files, clusters, models, plans
std::vector<Target> WireTargets();       // frames and handshakes of the data plane, actors
std::vector<Target> MessageTargets();    // protobuf through the converters
std::vector<Target> RecordTargets();     // what a controller keeps on disk
std::vector<Target> TextTargets();       // HTTP, JSONL, files of the command line

// All of them, in a fixed order. Built once.
const std::vector<Target>& AllTargets();
// Null: there is none of this name.
const Target* FindTarget(std::string_view name);

}  // namespace meshwright::fuzz
